//! What a tool is, and the registry: the tools of one agent, limited by its role.

use super::call::{Call, ToolError, ToolFuture, arguments};
use super::parts::ToolParts;
use crate::protocol::permission::PermissionSubject;
use crate::wire::chat::ToolDefinition;
use crate::wire::role::Role;
use crate::wire::tool::ToolSpec;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Characters of an unknown tool's name that an error repeats.
const NAME_CHARS: usize = 64;

/// A tool. The type holds the arguments of one call.
pub(super) trait Tool: DeserializeOwned + 'static {
    /// Everything about it but its behaviour.
    const SPEC: ToolSpec;

    /// The part of a call that permission rules match. Fails if the call cannot run at all, so that there is
    /// nothing to ask about.
    fn subject(_call: &Call, _parts: &ToolParts) -> Result<PermissionSubject, ToolError> {
        Ok(PermissionSubject::Nothing)
    }

    /// Runs one call.
    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError>;
}

/// A tool that agents can have.
#[derive(Debug)]
pub(super) struct Registration {
    /// What it is.
    pub(super) spec: &'static ToolSpec,
    subject: fn(&Call, &ToolParts) -> Result<PermissionSubject, ToolError>,
    run: for<'a> fn(&'a Call, &'a ToolParts) -> ToolFuture<'a>,
}

impl Registration {
    pub(super) const fn of<T: Tool>() -> Self {
        Self {
            spec: const { &T::SPEC },
            subject: T::subject,
            run: |call, parts| {
                Box::pin(async move { arguments::<T>(call)?.run(call, parts).await })
            },
        }
    }
}

/// The tools of one agent.
pub(crate) struct Registry {
    tools: BTreeMap<&'static str, &'static Registration>,
    parts: ToolParts,
    role: RefCell<Role>,
    /// Whether the model is told about tools in few words.
    is_compact: bool,
}

impl Registry {
    /// Those of `all` that are for the agent of these parts.
    pub(super) fn new(all: impl Iterator<Item = &'static Registration>, parts: ToolParts) -> Self {
        let audience = parts.audience();
        let tools = all.filter(|tool| tool.spec.audience.includes(audience));
        let tools = tools.map(|tool| (tool.spec.name, tool)).collect();
        Self { tools, parts, role: RefCell::default(), is_compact: false }
    }

    /// Limits the agent to the tools of this role.
    pub(crate) fn limit(&self, role: Role) {
        *self.role.borrow_mut() = role;
    }

    /// Removes every tool that is not in the compact prompt profile and shortens the others' definitions.
    pub(crate) fn use_compact_profile(&mut self) {
        let audience = self.parts.audience();
        self.tools.retain(|_, tool| tool.spec.compact.is_some_and(|it| it.includes(audience)));
        self.is_compact = true;
    }

    /// The definitions of the agent's tools, for the model.
    pub(crate) fn definitions(&self) -> Vec<ToolDefinition> {
        let define =
            if self.is_compact { ToolSpec::compact_definition } else { ToolSpec::definition };
        self.specs(&self.role.borrow()).map(define).collect()
    }

    /// Runs a call.
    ///
    /// # Errors
    /// The agent has no such tool, in which case the error lists those that it has; or the call failed.
    pub(crate) async fn call(&self, call: &Call) -> Result<String, ToolError> {
        (self.find(call)?.run)(call, &self.parts).await
    }

    /// The tool of a call, and the part of the call that permission rules match.
    ///
    /// # Errors
    /// The agent has no such tool, or the call cannot run at all.
    pub(crate) fn inspect(
        &self,
        call: &Call,
    ) -> Result<(&'static ToolSpec, PermissionSubject), ToolError> {
        let tool = self.find(call)?;
        Ok((tool.spec, (tool.subject)(call, &self.parts)?))
    }

    fn specs(&self, role: &Role) -> impl Iterator<Item = &'static ToolSpec> {
        self.tools.values().map(|tool| tool.spec).filter(|spec| role.has(spec))
    }

    fn find(&self, call: &Call) -> Result<&'static Registration, ToolError> {
        let role = self.role.borrow();
        let name: String = call.name.chars().take(NAME_CHARS).collect();
        let why = match self.tools.get(call.name.as_str()) {
            Some(tool) if role.has(tool.spec) => return Ok(tool),
            Some(_) => format!("your role ({}) does not have the tool {name:?}", role.name),
            None => format!("there is no tool {name:?}"),
        };
        let given: Vec<&str> = self.specs(&role).map(|spec| spec.name).collect();
        Err(ToolError::Reply(format!("{why}; use one of: {}", given.join(", "))))
    }
}

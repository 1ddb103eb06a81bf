//! The registry: the tools of one agent, limited by its role.

use super::call::{Call, Tool, ToolError};
use super::parts::ToolParts;
use crate::protocol::permission::PermissionSubject;
use crate::wire::chat::ToolDefinition;
use crate::wire::role::Role;
use crate::wire::tool::{Audience, ToolSpec};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Characters of an unknown tool's name that an error repeats.
const NAME_CHARS: usize = 64;

/// A tool that agents can have.
#[derive(Debug)]
pub(super) struct Registration {
    /// What it is.
    pub(super) spec: &'static ToolSpec,
    /// Makes it for one agent; `None` if the agent lacks a part that it needs.
    pub(super) build: fn(&ToolParts) -> Option<Box<dyn Tool>>,
}

/// The tools of one agent.
pub(crate) struct Registry {
    tools: BTreeMap<&'static str, RegisteredTool>,
    audience: Audience,
    role: RefCell<Role>,
    profile: Profile,
}

struct RegisteredTool {
    spec: &'static ToolSpec,
    tool: Box<dyn Tool>,
}

/// How much the model is told about a tool.
#[derive(Debug, Clone, Copy)]
enum Profile {
    Full,
    Compact,
}

impl Registry {
    /// Makes those of `all` that are for this agent.
    pub(super) fn build(
        all: impl Iterator<Item = &'static Registration>,
        parts: &ToolParts,
    ) -> Self {
        let audience = parts.audience();
        let built = all
            .filter(|registration| registration.spec.audience.includes(audience))
            .filter_map(|Registration { spec, build }| Some((*spec, build(parts)?)));
        Self::of(built, audience)
    }

    /// A registry with these tools.
    pub(super) fn of(
        tools: impl IntoIterator<Item = (&'static ToolSpec, Box<dyn Tool>)>,
        audience: Audience,
    ) -> Self {
        let tools =
            tools.into_iter().map(|(spec, tool)| (spec.name, RegisteredTool { spec, tool }));
        let (role, profile) = (RefCell::default(), Profile::Full);
        Self { tools: tools.collect(), audience, role, profile }
    }

    /// Limits the agent to the tools of this role.
    pub(crate) fn limit(&self, role: Role) {
        *self.role.borrow_mut() = role;
    }

    /// Removes every tool that is not in the compact prompt profile and shortens the others' definitions.
    pub(crate) fn use_compact_profile(&mut self) {
        let audience = self.audience;
        let is_compact = |spec: &ToolSpec| spec.compact.is_some_and(|it| it.includes(audience));
        self.tools.retain(|_, registered| is_compact(registered.spec));
        self.profile = Profile::Compact;
    }

    /// The definitions of the agent's tools, for the model.
    pub(crate) fn definitions(&self) -> Vec<ToolDefinition> {
        let role = self.role.borrow();
        let specs = self.specs(&role);
        match self.profile {
            Profile::Full => specs.map(ToolSpec::definition).collect(),
            Profile::Compact => specs.map(ToolSpec::compact_definition).collect(),
        }
    }

    /// Runs a call.
    ///
    /// # Errors
    /// The agent has no such tool, in which case the error lists those that it has; or the call failed.
    pub(crate) async fn call(&self, call: &Call) -> Result<String, ToolError> {
        self.find(call)?.tool.call(call).await
    }

    /// The tool of a call, and the part of the call that permission rules match.
    ///
    /// # Errors
    /// The agent has no such tool, or the call cannot run at all.
    pub(crate) fn inspect(
        &self,
        call: &Call,
    ) -> Result<(&'static ToolSpec, PermissionSubject), ToolError> {
        let RegisteredTool { spec, tool } = self.find(call)?;
        Ok((spec, tool.subject(call)?))
    }

    fn specs(&self, role: &Role) -> impl Iterator<Item = &'static ToolSpec> {
        self.tools.values().map(|registered| registered.spec).filter(|spec| role.has(spec))
    }

    fn find(&self, call: &Call) -> Result<&RegisteredTool, ToolError> {
        let role = self.role.borrow();
        let registered = self.tools.get(call.name.as_str());
        if let Some(tool) = registered.filter(|registered| role.has(registered.spec)) {
            return Ok(tool);
        }
        let name: String = call.name.chars().take(NAME_CHARS).collect();
        let given: Vec<&str> = self.specs(&role).map(|spec| spec.name).collect();
        let given = given.join(", ");
        let why = if registered.is_some() {
            format!("your role ({}) does not have the tool {name:?}", role.name)
        } else {
            format!("there is no tool {name:?}")
        };
        Err(ToolError::Reply(format!("{why}; use one of: {given}")))
    }
}

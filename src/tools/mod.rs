//! What an agent can do: the [`Tool`] trait and the registry of an agent's tools.
//!
//! *Invariant:* a tool never starts an agent itself, it asks [`TeamOps`](team::TeamOps). A tool failure
//! is either told to the model or ends the agent; nothing else crosses this boundary.

pub(crate) mod approval_queue;
mod bash;
#[cfg(test)]
mod containment;
mod environment;
mod external_paths;
mod files;
pub(crate) mod hooks;
mod output;
pub(crate) mod output_store;
mod plan;
mod shell;
pub(crate) mod tasks;
pub(crate) mod team;
pub(crate) mod work;
mod workspace;

use crate::protocol::permission::PermissionSubject;
use crate::wire::chat::ToolSpec;
use crate::wire::role::Role;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;

/// One tool call of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// The model's id for it; messages sent by the call derive their ids from it.
    pub(crate) id: String,
    /// The tool.
    pub(crate) name: String,
    /// The arguments as the model gave them.
    pub(crate) input: Value,
}

/// Why a tool call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ToolError {
    /// Told to the model; says what to do next.
    #[error("{0}")]
    Reply(String),
    /// The agent cannot go on (its team folder is gone, its disk is broken).
    #[error("{0}")]
    Fatal(String),
}

/// The future of one call; dropping it cancels the call and everything it started.
pub(crate) type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<String, ToolError>> + 'a>>;

/// Something a model can call.
pub(crate) trait Tool {
    /// Name, description and argument schema.
    fn spec(&self) -> ToolSpec;

    /// What a permission rule sees of a call.
    ///
    /// # Errors
    /// The call cannot be run at all: nobody needs to be asked.
    fn subject(&self, _call: &Call) -> Result<PermissionSubject, ToolError> {
        Ok(PermissionSubject::Nothing)
    }

    /// Runs one call.
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a>;
}

/// The tools of one agent, by name: those that its role leaves it.
#[derive(Default)]
pub(crate) struct Registry {
    tools: BTreeMap<String, Box<dyn Tool>>,
    role: RefCell<Role>,
    detail: Detail,
}

/// How much the model is told about a tool.
#[derive(Debug, Clone, Copy, Default)]
enum Detail {
    #[default]
    Everything,
    /// The arguments that it cannot do without, by name.
    Needed,
}

impl Registry {
    /// Adds a tool.
    pub(crate) fn add(&mut self, tool: impl Tool + 'static) {
        self.tools.insert(tool.spec().name, Box::new(tool));
    }

    /// From now on there are only the tools that this role has.
    pub(crate) fn limit(&self, role: Role) {
        *self.role.borrow_mut() = role;
    }

    /// Forgets every tool but these, and is brief about them.
    pub(crate) fn keep(&mut self, names: &[&str]) {
        self.tools.retain(|name, _| names.contains(&name.as_str()));
        self.detail = Detail::Needed;
    }

    /// What the model is told about.
    pub(crate) fn specs(&self) -> Vec<ToolSpec> {
        let role = self.role.borrow();
        let given = self.tools.iter().filter(|(name, _)| role.has(name));
        let specs = given.map(|(_, tool)| tool.spec());
        match self.detail {
            Detail::Everything => specs.collect(),
            Detail::Needed => specs.map(brief).collect(),
        }
    }

    /// Runs a call.
    ///
    /// # Errors
    /// The tool does not exist (the error lists those that do), or failed.
    pub(crate) async fn call(&self, call: &Call) -> Result<String, ToolError> {
        self.find(call)?.call(call).await
    }

    /// What a permission rule sees of a call.
    ///
    /// # Errors
    /// The tool does not exist, or the call cannot be run at all.
    pub(crate) fn subject(&self, call: &Call) -> Result<PermissionSubject, ToolError> {
        self.find(call)?.subject(call)
    }

    fn find(&self, call: &Call) -> Result<&dyn Tool, ToolError> {
        let (name, role) = (&call.name, self.role.borrow());
        let given = self.tools.get(name).filter(|_| role.has(name)).map(AsRef::as_ref);
        given.ok_or_else(|| {
            let given: Vec<&str> =
                self.tools.keys().map(String::as_str).filter(|tool| role.has(tool)).collect();
            let (name, given) = (name.chars().take(64).collect::<String>(), given.join(", "));
            let why = if self.tools.contains_key(&name) {
                format!("your role ({}) does not have the tool {name:?}", role.name)
            } else {
                format!("there is no tool {name:?}")
            };
            ToolError::Reply(format!("{why}; use one of: {given}"))
        })
    }
}

/// The same tool in fewer words: what can be left out is not offered, for small models fill in whatever
/// they see; the other arguments explain themselves by name.
fn brief(mut spec: ToolSpec) -> ToolSpec {
    let Some(schema) = spec.input_schema.as_object_mut() else { return spec };
    schema.remove("additionalProperties");
    let needed = schema.get("required").cloned().unwrap_or_default();
    let is_needed =
        |name: &str| needed.as_array().is_some_and(|all| all.iter().any(|it| it == name));
    if let Some(arguments) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        arguments.retain(|name, _| is_needed(name));
        for argument in arguments.values_mut().filter_map(Value::as_object_mut) {
            argument.remove("description");
        }
    }
    spec
}

/// Reads the arguments of a call into the tool's own struct (which denies unknown fields).
///
/// # Errors
/// They do not fit; the message names the field.
pub(crate) fn arguments<T: serde::de::DeserializeOwned>(call: &Call) -> Result<T, ToolError> {
    serde_json::from_value(call.input.clone()).map_err(|why| {
        ToolError::Reply(format!("the arguments of {} do not fit: {why}; correct them", call.name))
    })
}

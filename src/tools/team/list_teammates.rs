//! The `list_teammates` tool.

use super::context::TeamContext;
use crate::store::{Liveness, liveness, roster};
use crate::tools::call::{Call, NoArguments, Tool, ToolError, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::AgentName;
use crate::wire::roster::Status;
use crate::wire::tool::{Audience, Effect, Purpose, RoleAccess, ToolSpec};
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "list_teammates",
        description: "Show who is on the team: name, role, status, what each one does.",
        compact: Some(Audience::Lead),
        effect: Effect::Reads,
        role_access: RoleAccess::Granted,
        purpose: Purpose::Talk,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(ListTeammates(Rc::clone(&parts.team)))),
};

struct ListTeammates(Rc<TeamContext>);

impl Tool for ListTeammates {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let NoArguments {} = arguments(call)?;
            self.list()
        })
    }
}

impl ListTeammates {
    fn list(&self) -> Result<String, ToolError> {
        let dir = self.0.bus().dir();
        let roster = roster::read(dir).map_err(ToolError::reply)?;
        let life_of = |name: &AgentName| liveness::probe(dir, name).unwrap_or(Liveness::Dead);
        let lead_life = life_of(&AgentName::lead());
        let mut lines = Vec::new();
        if let Some(lead) = &roster.lead {
            let status = if lead_life.is_alive() { lead.status.word() } else { "not running" };
            lines.push(format!("- lead: {status}"));
        }
        for member in &roster.members {
            let life =
                AgentName::member(&member.name).map_or(Liveness::Dead, |name| life_of(&name));
            let status = roster::effective_status(member, &life, &lead_life);
            let activity = match &member.activity {
                Some(activity) if status == Status::Working => format!(" ({activity})"),
                _ => String::new(),
            };
            let you = if member.name == self.0.me().as_str() { " (you)" } else { "" };
            let (name, role, model) = (&member.name, &member.role, &member.model);
            let status = status.word();
            lines.push(format!("- {name}{you}: {status}{activity}, {role}, {model}"));
        }
        if roster.members.is_empty() {
            lines.push("There are no teammates yet.".into());
        }
        Ok(lines.join("\n"))
    }
}

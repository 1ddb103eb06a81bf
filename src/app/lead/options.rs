//! The options of a lead: its request, the settings, and the model that follows from both.

use super::conversation::{ConversationChoice, NextSession};
use crate::agent::approval::Asks;
use crate::app::context::Context;
use crate::app::fallbacks::{self, Fallbacks};
use crate::app::mcp_member::model_of_program;
use crate::app::mcp_servers;
use crate::app::permission_rules::permissions;
use crate::app::{model as model_access, output::warn};
use crate::error::Failure;
use crate::settings::last_lead::LastLead;
use crate::settings::model::{self, ModelChoice, ProviderCredentials, check_price};
use crate::settings::models::KnownModels;
use crate::settings::{Flags, Settings};
use crate::store::roster;
use crate::ui::headless_output::Format;
use crate::wire::mcp::NamedMcpServer;
use crate::wire::permission::{PermissionMode, Permissions};
use crate::wire::roster::Lead;
use crate::wire::sandbox::Sandbox;
use crate::wire::{WithUnknownFields, budget::Budget};
use std::io::IsTerminal;
use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct LeadRequest {
    pub(crate) prompt: Option<String>,
    pub(crate) front: Front,
    pub(crate) flags: Flags,
    pub(crate) timeout: Option<Duration>,
    /// Limits of the run: turns of the lead, and tokens of all agents.
    pub(crate) budget: Budget,
    pub(crate) conversation: ConversationChoice,
    /// Whether the lead that runs in this folder is stopped first.
    pub(crate) takeover: bool,
}

/// The side from which a person uses a lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Front {
    Terminal {
        /// Whether the session reads and writes plain lines, also on a terminal.
        is_plain: bool,
    },
    /// A headless run with this output, in which nobody is asked.
    Headless(Format),
    /// An editor, which speaks the Agent Client Protocol.
    Editor,
    /// The program of this name, whose model leads over the Model Context Protocol.
    Program(String),
}

impl Front {
    /// Returns the output of a headless run.
    pub(super) fn output(&self) -> Option<Format> {
        match self {
            Self::Headless(output) => Some(*output),
            Self::Terminal { .. } | Self::Editor | Self::Program(_) => None,
        }
    }
}

impl LeadRequest {
    /// Whether an earlier conversation goes on, with its teammates.
    pub(super) fn resumes(&self) -> bool {
        match self.conversation {
            ConversationChoice::Last | ConversationChoice::Chosen(_) => true,
            ConversationChoice::Ask | ConversationChoice::New | ConversationChoice::OfProgram => {
                false
            }
        }
    }

    /// Turns the request into that of the session that follows in this process.
    pub(super) fn follow(&mut self, next: NextSession) {
        self.prompt = None;
        self.takeover = false;
        self.conversation = match next {
            NextSession::New => ConversationChoice::New,
            NextSession::Resume(id) => ConversationChoice::Chosen(id),
        };
    }
}

pub(super) struct LeadOptions {
    pub(super) request: LeadRequest,
    pub(super) settings: Settings,
    pub(super) permissions: Permissions,
    /// The walls around commands and hooks of all agents.
    pub(super) sandbox: Sandbox,
    /// A sentence about the mode of a resumed team that is not the mode of the settings.
    pub(super) mode_note: Option<String>,
    pub(super) mcp_servers: Vec<NamedMcpServer>,
    pub(super) model: ModelChoice,
    pub(super) credentials: ProviderCredentials,
    /// The models that go on if one fails.
    pub(super) fallbacks: Vec<ModelChoice>,
    /// Whether no model is configured, so that the fallback is used and the person gets a notice.
    pub(super) is_fallback_model: bool,
}

impl LeadOptions {
    /// Resolves a request. Fails if settings or permissions are not understood, no model is usable, or a money budget
    /// has no price.
    pub(super) fn resolve(context: &Context, request: LeadRequest) -> Result<Self, Failure> {
        let settings = context.settings_with(&request.flags)?;
        let (mut permissions, warnings) = permissions(context, &settings)?;
        for warning in &warnings {
            warn(warning);
        }
        settings.ignored.iter().for_each(|ignored| warn(ignored));
        let mcp_servers = mcp_servers::resolve(context, &settings);
        let mut mode_note = None;
        if request.resumes() && !settings.permissions_mode.is_of_this_run() {
            (permissions.mode, mode_note) = resumed_mode(context, permissions.mode);
        }
        let is_at_terminal = matches!(request.front, Front::Terminal { .. });
        let mut named =
            model::resolve(&settings, &context.environment)?.map(|setting| setting.value);
        if named.is_none() && request.resumes() {
            named = last_model(context);
        }
        if named.is_none() && is_at_terminal {
            named = model_access::offer_local(&settings)?;
        }
        let is_fallback_model = named.is_none();
        // The model of another program leads without one; its teammates need one.
        let leads_itself = matches!(request.front, Front::Program(_));
        let model = model_access::select(named, is_at_terminal || leads_itself)?;
        let credentials = ProviderCredentials::of(&settings, &context.environment);
        let is_agent = leads_itself && model.agent().is_some();
        let (model, credentials) = if is_agent {
            (model, credentials)
        } else {
            model_access::complete(model, credentials, &settings)?
        };
        let Fallbacks { models: fallbacks, credentials, left_out } =
            fallbacks::resolve(&settings, credentials)?;
        for sentence in &left_out {
            warn(sentence);
        }
        let facts = KnownModels::of(&settings, &credentials).facts(&model.to_string());
        check_price(&model, facts.price, &settings.rules().budgets())?;
        if !is_agent {
            // A model that cannot be opened ends the start before anything is written.
            model_access::open_alone(&model, &credentials)?;
        }
        Ok(Self {
            request,
            sandbox: settings.sandbox(),
            settings,
            permissions,
            mode_note,
            mcp_servers,
            model,
            credentials,
            fallbacks,
            is_fallback_model,
        })
    }

    /// Returns the model of the lead on the roster.
    pub(super) fn model_on_roster(&self) -> String {
        match &self.request.front {
            Front::Program(name) => model_of_program(name),
            Front::Terminal { .. } | Front::Headless(_) | Front::Editor => self.model.to_string(),
        }
    }

    /// Returns the model of teammates for which none is named, if there is one.
    pub(super) fn model_of_teammates(&self) -> Option<String> {
        let leads_itself = matches!(self.request.front, Front::Program(_));
        (!leads_itself || !self.is_fallback_model).then(|| self.model.to_string())
    }

    /// Whether a person is at this lead, and is asked.
    pub(super) fn has_person(&self) -> bool {
        self.approver() == Asks::Person
    }

    /// Returns the decider on the lead's own calls.
    pub(super) fn approver(&self) -> Asks {
        approver(&self.request.front, std::io::stdin().is_terminal())
    }
}

fn last_model(context: &Context) -> Option<ModelChoice> {
    ModelChoice::parse(&last_lead(context)?.model).ok()
}

/// Returns the decider on the lead's own calls: the person at an interactive terminal or in an editor, elsewhere none.
fn approver(front: &Front, stdin_is_terminal: bool) -> Asks {
    let no_one = |why: &str| Asks::NoOne(why.into());
    match (front, stdin_is_terminal) {
        (Front::Headless(_), _) => no_one("a headless run (-p) cannot ask"),
        (Front::Terminal { .. }, false) => {
            no_one("standard input is not a terminal, so no question can be asked")
        }
        (Front::Terminal { .. }, true) | (Front::Editor | Front::Program(_), _) => Asks::Person,
    }
}

/// Returns the mode of the last lead for a resumed one, with a sentence for the person if it differs from the mode of
/// the settings. A looser mode that the user did not use here is not taken over.
fn resumed_mode(context: &Context, set: PermissionMode) -> (PermissionMode, Option<String>) {
    let Some(lead) = last_lead(context) else { return (set, None) };
    let last = PermissionMode::parse(&lead.mode).filter(|last| *last != set);
    let Some(last) = last else { return (set, None) };
    let recorded = LastLead::of(&context.environment, &context.team_path);
    let known = recorded.mode_of(&lead.incarnation).map_or(set, |known| known.max(set));
    if last > known {
        let why = "this user has no record of a run in that mode";
        let note =
            format!("Mode {known}, not {last} as in the last run: {why}. --mode {last} sets it.");
        return (known, Some(note));
    }
    (last, Some(format!("Mode {last}, as in the last run; --mode changes it.")))
}

fn last_lead(context: &Context) -> Option<WithUnknownFields<Lead>> {
    roster::read(&context.team().ok()?).ok()?.lead.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lead_at_a_terminal_or_in_an_editor_asks_the_person() {
        let (terminal, headless) =
            (Front::Terminal { is_plain: false }, Front::Headless(Format::Text));
        for (front, is_terminal) in [(&headless, true), (&headless, false), (&terminal, false)] {
            assert!(matches!(approver(front, is_terminal), Asks::NoOne(_)));
        }
        for (front, is_terminal) in [
            (terminal, true),
            (Front::Editor, false),
            (Front::Editor, true),
            (Front::Program("claude".into()), false),
        ] {
            assert_eq!(approver(&front, is_terminal), Asks::Person);
        }
    }
}

//! What a teammate is started with: the handshake of its lead, or the command line of a person.

use crate::app::agent_process::fresh_id;
use crate::app::context::Context;
use crate::app::model_discovery;
use crate::app::model_selection::select_model;
use crate::app::names::member_name;
use crate::app::output::warn;
use crate::app::team_rules::permissions;
use crate::error::{Exit, Failure};
use crate::settings::model::{self, Credentials, ModelChoice, price_of};
use crate::settings::{Flags, Settings};
use crate::supervise::handshake::{self, Hello, StartReason};
use crate::wire::AgentName;
use std::fs::File;
use std::io::IsTerminal;

/// What `team teammate` is asked for on its command line.
pub(crate) struct TeammateRequest {
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) prompt: Option<String>,
    /// End after the first turn.
    pub(crate) once: bool,
    pub(crate) flags: Flags,
    /// Descriptor of the control socket of a lead that spawns this process.
    pub(crate) control_fd: Option<i32>,
}

/// What a teammate is started with.
pub(super) struct TeammateOptions {
    pub(super) name: AgentName,
    /// The lead's handshake, or what stands for it when started by hand.
    pub(super) hello: Hello,
    pub(super) model: ModelChoice,
    /// The lead's end of the control socket; `None` when started by hand.
    pub(super) lead: Option<File>,
    pub(super) prompt: Option<String>,
    pub(super) once: bool,
}

impl TeammateOptions {
    /// Resolves a request by the lead's handshake, or by the settings of the folder.
    ///
    /// # Errors
    /// The name, the settings or the handshake are not understood, or no model can be used.
    pub(super) fn resolve(
        context: &Context,
        request: TeammateRequest,
        lead: Option<File>,
    ) -> Result<Self, Failure> {
        let name = member_name(&request.name)?;
        let settings = context.settings_with(&request.flags)?;
        let mut hello = match &lead {
            Some(socket) => handshake::receive(socket)
                .map_err(|why| no_handshake(&why.to_string()))?
                .ok_or_else(|| no_handshake("the socket was closed"))?,
            None => by_hand(context, &request, &settings)?,
        };
        settings.ignored.iter().for_each(|ignored| warn(ignored));
        let model = ModelChoice::parse(&hello.model)?;
        let (model, credentials) = model_discovery::complete(model, hello.credentials, &settings)?;
        hello.credentials = credentials;
        if lead.is_none() {
            hello.price = settings.prices().get(&model.to_string()).copied();
        }
        hello.price = price_of(&model, hello.price, &hello.rules.budgets())?;
        let TeammateRequest { prompt, once, .. } = request;
        Ok(Self { name, hello, model, lead, prompt, once })
    }
}

/// What a lead would say that has the settings of this folder.
fn by_hand(
    context: &Context,
    request: &TeammateRequest,
    settings: &Settings,
) -> Result<Hello, Failure> {
    let permissions = permissions(settings)?;
    let named = model::resolve(settings, &context.environment)?.map(|setting| setting.value);
    let model = select_model(named, std::io::stdin().is_terminal())?;
    let credentials = Credentials::of(settings, &context.environment).only_for(&model);
    Ok(Hello {
        incarnation: fresh_id(),
        role: request.role.clone(),
        model: model.to_string(),
        credentials,
        price: None,
        rules: settings.rules(),
        hooks: settings.hooks.value.clone(),
        permissions,
        start_reason: StartReason::Spawned,
    })
}

fn no_handshake(why: &str) -> Failure {
    let hint = "leave --control-fd out: it is for a lead that spawns this";
    Failure::new(Exit::Failure, "the lead said no hello", why, hint)
}

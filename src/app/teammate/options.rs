//! What a teammate is started with: the handshake of its lead, or the command line of a person. And that
//! handshake for a program that starts a teammate without being a lead: the benchmark.

use crate::app::context::{Context, permissions};
use crate::app::{
    agent_process::fresh_id, model as model_access, names::member_name, output::warn,
};
use crate::error::{Exit, Failure, OrFail};
use crate::settings::model::{self, Credentials, ModelChoice, price_of};
use crate::settings::{Flags, Settings, environment::Environment};
use crate::store::TeamDir;
use crate::supervise::handshake::{self, Hello, StartReason};
use crate::wire::{AgentName, permission::PermissionMode};
use std::fs::File;
use std::io::{IsTerminal, Write};

pub(crate) struct TeammateRequest {
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) prompt: Option<String>,
    pub(crate) once: bool,
    pub(crate) flags: Flags,
    /// Descriptor of the control socket of a lead that spawns this process.
    pub(crate) control_fd: Option<i32>,
}

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
    /// Resolves a request by the lead's handshake, or by the settings of the folder. Fails without a usable model.
    pub(super) fn resolve(
        context: &Context,
        request: TeammateRequest,
        lead: Option<File>,
    ) -> Result<Self, Failure> {
        let name = member_name(&request.name)?;
        let settings = context.settings_with(&request.flags)?;
        let no_handshake = |why: String| {
            let hint = "leave --control-fd out: it is for a lead that spawns this";
            Failure::new(Exit::Failure, "the lead said no hello", why, hint)
        };
        let TeammateRequest { role, prompt, once, .. } = request;
        let mut hello = match &lead {
            Some(socket) => handshake::receive(socket)
                .map_err(|why| no_handshake(why.to_string()))?
                .ok_or_else(|| no_handshake("the socket was closed".into()))?,
            None => by_hand(context, role, &settings)?,
        };
        settings.ignored.iter().for_each(|ignored| warn(ignored));
        let model = ModelChoice::parse(&hello.model)?;
        let (model, credentials) = model_access::complete(model, hello.credentials, &settings)?;
        hello.credentials = credentials;
        if lead.is_none() {
            hello.price = settings.prices().get(&model.to_string()).copied();
        }
        hello.price = price_of(&model, hello.price, &hello.rules.budgets())?;
        Ok(Self { name, hello, model, lead, prompt, once })
    }
}

/// What a lead would say that has the settings of this folder.
fn by_hand(context: &Context, role: String, settings: &Settings) -> Result<Hello, Failure> {
    let hello = hello(fresh_id(), role, settings)?;
    let named = model::resolve(settings, &context.environment)?.map(|setting| setting.value);
    let model = model_access::select(named, std::io::stdin().is_terminal())?;
    let credentials = Credentials::of(settings, &context.environment).only_for(&model);
    Ok(Hello { model: model.to_string(), credentials, ..hello })
}

/// A hello with the settings of a folder, the fallback model and no credentials.
fn hello(incarnation: String, role: String, settings: &Settings) -> Result<Hello, Failure> {
    Ok(Hello {
        incarnation,
        role,
        model: ModelChoice::fallback().to_string(),
        credentials: Credentials::default(),
        price: None,
        rules: settings.rules(),
        hooks: settings.hooks.value.clone(),
        permissions: permissions(settings)?,
        start_reason: StartReason::Spawned,
    })
}

/// Greets a teammate over its control socket like a lead of this team without user settings. The teammate
/// uses the fallback model and asks for nothing.
///
/// # Errors
/// The team's settings are not understood, or the socket has no reader.
pub fn greet(
    socket: impl Write,
    team: &TeamDir,
    incarnation: &str,
    role: &str,
) -> Result<(), Failure> {
    let model = ModelChoice::fallback().to_string();
    let mode = PermissionMode::Bypass.word();
    let flags = Flags::of([("--model", Some(model.as_str())), ("--mode", Some(mode))]);
    let file = TeamDir::settings_in(team.root());
    let settings = Settings::load(&Environment::default(), &file, &flags)?;
    handshake::send(socket, &hello(incarnation.into(), role.into(), &settings)?)
        .or_fail("the teammate hears nothing", "look at what the teammate printed")
}

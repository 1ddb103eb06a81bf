//! The options of a teammate, from the handshake of its lead or from the command line of a person. [`greet`] sends
//! such a handshake for tests and benchmarks, which start a teammate without being a lead.

use crate::app::context::Context;
use crate::app::fallbacks::{self, Fallbacks};
use crate::app::mcp_servers;
use crate::app::model::{KnownChoice, is_complete};
use crate::app::permission_rules::permissions;
use crate::app::{
    agent_process::fresh_id, clones, model as model_access, names::member_name, output::warn,
};
use crate::error::{Exit, Failure, OrFail};
use crate::settings::model::{self, ModelChoice, ProviderCredentials, check_price};
use crate::settings::models::KnownModels;
use crate::settings::{Flags, Settings, environment::Environment};
use crate::store::{RoleMatch, TeamDir, roster};
use crate::supervise::handshake::{self, FallbackModel, Handshake, StartReason};
use crate::tools::find_by_alias;
use crate::wire::AgentName;
use crate::wire::isolation::{ClonePlace, Isolation};
use crate::wire::model_facts::ModelFacts;
use crate::wire::permission::{PermissionMode, Permissions};
use crate::wire::sandbox::{Sandbox, SandboxLevel};
use crate::wire::seal::SealKey;
use crate::work::clone;
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
    /// The lead's handshake, or its substitute for a teammate that was started by hand.
    pub(super) handshake: Handshake,
    /// The file of the role, once [`TeammateOptions::check_role`] has found one.
    pub(super) role_file: Option<String>,
    pub(super) model: ModelChoice,
    /// This process's end of the control socket to the lead; `None` when started by hand.
    pub(super) lead: Option<File>,
    pub(super) prompt: Option<String>,
    pub(super) once: bool,
    /// The settings of the folder, which a teammate that was started by hand follows.
    pub(super) settings: Box<Settings>,
}

impl TeammateOptions {
    /// Resolves a request with the lead's handshake, or with the folder's settings. Fails without a usable model.
    pub(super) fn resolve(
        context: &Context,
        request: TeammateRequest,
        lead: Option<File>,
    ) -> Result<Self, Failure> {
        let name = member_name(&request.name)?;
        let settings = context.settings_with(&request.flags)?;
        let no_handshake = |why: String| {
            let hint = "leave --control-fd out: only a lead passes it to a teammate that it spawns";
            Failure::new(Exit::Failure, "the handshake with the lead failed", why, hint)
        };
        let TeammateRequest { role, prompt, once, .. } = request;
        let mut handshake = match &lead {
            Some(socket) => handshake::receive(socket)
                .map_err(|why| no_handshake(why.to_string()))?
                .ok_or_else(|| no_handshake("the socket was closed".into()))?,
            None => by_hand(context, role, &settings)?,
        };
        settings.ignored.iter().for_each(|ignored| warn(ignored));
        let model = ModelChoice::parse(&handshake.model)?;
        let (model, credentials) = model_access::complete(model, handshake.credentials, &settings)?;
        handshake.credentials = credentials;
        if let Some(agent) = model.agent().filter(|_| lead.is_none()) {
            let found = settings.agent_programs(&context.environment).program(agent);
            let refused = |(why, hint): (String, String)| {
                Failure::new(Exit::Usage, format!("{model} cannot be used"), why, hint)
            };
            handshake.agent = Some(found.map_err(refused)?);
        }
        if lead.is_none() {
            let known = KnownModels::of(&settings, &handshake.credentials);
            handshake.facts = known.facts(&model.to_string());
        } else {
            // The search for a local server may have found it.
            fallbacks::note_context(&model, &mut handshake.facts, &handshake.credentials);
            handshake = with_usable_fallbacks(handshake, &settings)?;
        }
        check_price(&model, handshake.facts.price, &handshake.rules.budgets())?;
        if lead.is_none() && handshake.agent.is_none() {
            model_access::open_alone(&model, &handshake.credentials)?;
        }
        let (role_file, settings) = (None, Box::new(settings));
        Ok(Self { name, handshake, role_file, model, lead, prompt, once, settings })
    }

    /// Finds the file of the role, and gives a teammate that was started by hand what its role says: its name as the file
    /// has it, and the models that go on. Fails if the role is unclear, or came from a file that is gone.
    pub(super) fn check_role(
        &mut self,
        team: &TeamDir,
        environment: &Environment,
    ) -> Result<(), Failure> {
        let role = &self.handshake.role;
        let roster = roster::read(team)?;
        let known_file = roster.role_file_of(self.name.as_str(), role);
        let mut isolation = self.settings.isolation.value;
        let mut fallback_models = None;
        match team.find_role(role, find_by_alias).with_known_file(role, known_file) {
            RoleMatch::File(file) => {
                self.role_file = Some(file.path.display().to_string());
                isolation = isolation.max(file.role.isolation.unwrap_or_default());
                if self.lead.is_none() {
                    self.handshake.role = file.role.name;
                }
                fallback_models = file.role.fallback_models;
            }
            RoleMatch::FreeText => {}
            RoleMatch::Unclear(why) => {
                return Err(Failure::new(Exit::Usage, why.what(), why.why(), why.hint()));
            }
        }
        if self.lead.is_none() {
            self.take_fallbacks(fallback_models.as_deref(), environment)?;
            let known = roster.member(self.name.as_str());
            let clones = clones::folder(team, environment);
            let made = || {
                clones
                    .and_then(|clones| clone::known(&clones, &self.name))
                    .filter(ClonePlace::is_here)
            };
            self.handshake.work = known.and_then(|member| member.work.clone()).or_else(made);
            self.check_clone(isolation)?;
        }
        Ok(())
    }

    /// Gives a teammate that was started by hand the models that go on: those of its role, or those of the settings if the role
    /// names none.
    fn take_fallbacks(
        &mut self,
        of_role: Option<&[String]>,
        environment: &Environment,
    ) -> Result<(), Failure> {
        let (settings, handshake) = (&*self.settings, &mut self.handshake);
        let all = ProviderCredentials::of(settings, environment);
        let Fallbacks { models, credentials, left_out } = match of_role {
            Some(words) => fallbacks::resolve_of_role(words, settings, all),
            None => fallbacks::resolve(settings, all)?,
        };
        for sentence in &left_out {
            warn(sentence);
        }
        handshake.credentials.add(credentials.only_for(&models));
        let known = KnownModels::of(settings, &handshake.credentials);
        let others = models.iter().filter(|other| **other != self.model).map(ToString::to_string);
        handshake.fallbacks =
            others.map(|model| FallbackModel { facts: known.facts(&model), model }).collect();
        Ok(())
    }

    /// Returns the models of the teammate with what is known of them: its own, and those that go on if it fails.
    pub(super) fn models(&self) -> Result<(KnownChoice, Vec<KnownChoice>), Failure> {
        let own = KnownChoice { model: self.model.clone(), facts: self.handshake.facts };
        let others = self.handshake.fallbacks.iter().map(|FallbackModel { model, facts }| {
            Ok(KnownChoice { model: ModelChoice::parse(model)?, facts: *facts })
        });
        Ok((own, others.collect::<Result<_, Failure>>()?))
    }

    /// Fails if a teammate that was started by hand needs a clone and has none.
    fn check_clone(&self, isolation: Isolation) -> Result<(), Failure> {
        let name = &self.name;
        if let Some(place) = &self.handshake.work {
            let checked = clone::check(name, place);
            return checked.map_err(|why| Failure::new(Exit::Failure, why.what, why.why, why.hint));
        }
        if isolation == Isolation::Shared {
            return Ok(());
        }
        let why = "its role or the setting isolation asks for a clone, which only a lead makes";
        let hint = "let a lead spawn it, or set isolation = \"shared\"";
        Err(Failure::new(Exit::Usage, format!("{name} was not started"), why, hint))
    }
}

/// Returns the handshake of a lead with those of its fallback models that can be used. One on a local server, which only a role
/// names, has no address yet.
fn with_usable_fallbacks(
    mut handshake: Handshake,
    settings: &Settings,
) -> Result<Handshake, Failure> {
    for FallbackModel { model, mut facts } in std::mem::take(&mut handshake.fallbacks) {
        let chosen = ModelChoice::parse(&model)?;
        if is_complete(&chosen, &handshake.credentials) {
            handshake.fallbacks.push(FallbackModel { model, facts });
            continue;
        }
        match fallbacks::usable(chosen, &mut handshake.credentials, settings) {
            Ok(chosen) => {
                fallbacks::note_context(&chosen, &mut facts, &handshake.credentials);
                let model = chosen.to_string();
                handshake.fallbacks.push(FallbackModel { model, facts });
            }
            Err(why) => warn(&format!("{model} does not go on for this teammate: {why}")),
        }
    }
    Ok(handshake)
}

/// Makes the handshake that a lead with the settings of this folder would send.
fn by_hand(context: &Context, role: String, settings: &Settings) -> Result<Handshake, Failure> {
    let (permissions, warnings) = permissions(context, settings)?;
    for warning in &warnings {
        warn(warning);
    }
    let handshake = handshake(fresh_id(), role, settings, permissions);
    let named = model::resolve(settings, &context.environment)?.map(|setting| setting.value);
    let model = model_access::select(named, std::io::stdin().is_terminal())?;
    let credentials = ProviderCredentials::of(settings, &context.environment)
        .only_for(std::slice::from_ref(&model));
    let mcp_servers = mcp_servers::resolve(context, settings);
    Ok(Handshake { model: model.to_string(), credentials, mcp_servers, ..handshake })
}

/// Makes a handshake with the settings of a folder, the fallback model and no credentials.
fn handshake(
    incarnation: String,
    role: String,
    settings: &Settings,
    permissions: Permissions,
) -> Handshake {
    Handshake {
        incarnation,
        control_key: None,
        role,
        model: ModelChoice::fallback().to_string(),
        credentials: ProviderCredentials::default(),
        facts: ModelFacts::default(),
        fallbacks: Vec::new(),
        rules: settings.rules(),
        hooks: settings.hooks.value.clone(),
        mcp_servers: Vec::new(),
        pass_environment: settings.pass_environment.value.clone(),
        permissions,
        sandbox: settings.sandbox(),
        work: None,
        agent: None,
        start_reason: StartReason::Spawned,
    }
}

/// The parts of a handshake that [`greet`] does not take from the team's settings.
#[derive(Debug)]
pub struct Greeting {
    /// The incarnation of the teammate.
    pub incarnation: String,
    /// Its role.
    pub role: String,
    /// Its model, as `provider/name`.
    pub model: String,
    /// Its permission mode.
    pub mode: PermissionMode,
    /// The key that seals the mail between the two.
    pub control_key: Option<SealKey>,
}

/// Sends a teammate the handshake of a lead of this team without user settings and without walls, over its control
/// socket.
///
/// # Errors
/// The team's settings are not understood, or the socket has no reader.
pub fn greet(socket: impl Write, team: &TeamDir, greeting: Greeting) -> Result<(), Failure> {
    let Greeting { incarnation, role, model, mode, control_key } = greeting;
    let flags = Flags::of([("--model", Some(model.as_str())), ("--mode", Some(mode.word()))]);
    let file = TeamDir::settings_in(team.root());
    let settings = Settings::load(&Environment::default(), &file, &flags)?;
    let by_hand = handshake(incarnation, role, &settings, settings.permissions());
    // The walls that a lead hands over are those that it has tried out.
    let sandbox = Sandbox { level: SandboxLevel::Off, ..Sandbox::default() };
    handshake::send(socket, &Handshake { control_key, model, sandbox, ..by_hand })
        .or_fail("the teammate cannot be reached", "look at what the teammate printed")
}

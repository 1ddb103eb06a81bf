//! The program of a teammate: `team teammate`, spawned by a lead or started by hand.
//!
//! [`run`] goes through the stages in order: `TeammateOptions::resolve` (from the lead's handshake or
//! from the command line), the life lock, the roster entry, the mailbox, the agent, `Ready`, the end.

pub(crate) mod options;
pub(super) mod roster_place;
mod terminal;

use crate::agent::conversation::UsableModel;
use crate::agent::event::{Ending, MachineEvent, StopCause};
use crate::agent::model_chain::AgentModels;
use crate::agent::replay::{Player, played};
use crate::agent::saving::save;
use crate::agent::{self, Events, Finished, MemberStart, approval::Asks};
use crate::app::agent_process::{AgentProcess, publish_end, release_leases, reserve_disk_space};
use crate::app::build_agent::{AgentParts, build_agent, with_left_mail};
use crate::app::context::{Context, open_bus, open_tasks};
use crate::app::event_loop::{self, SignalStream, block_on};
use crate::app::model::{ModelUser, open_models};
use crate::app::own_mailbox::{close_mailbox, drain_last_mail, open_mailbox};
use crate::app::subagent_models::{OwnModel, SubagentModels};
use crate::app::walls::LevelOrigin;
use crate::app::{clones, output, walls};
use crate::error::{Exit, Failure, OrFail};
use crate::llm::agent::NoModel;
use crate::os::spawn::spawn_local;
use crate::os::{
    async_fd::ReadableFd, child, failpoint::hit, program, signals::SignalEvent, uptime,
};
use crate::settings::environment::Environment;
use crate::settings::models::KnownModels;
use crate::store::asynchronous::offload;
use crate::store::last_output::LastOutput;
use crate::store::{LifeLock, LifeRecord, StoreError, TeamDir, liveness, transcript};
use crate::supervise::commands::end_commands;
use crate::supervise::handshake::{self, HandshakeAnswer, StartReason};
use crate::tools::replay::Stage;
use crate::wire::AgentName;
use crate::wire::agent_program::AgentProgram;
use crate::wire::log_words;
use crate::wire::roster::{ExitCause, UsageCount};
use crate::work::save::Saver;
use options::{TeammateOptions, TeammateRequest};
use roster_place::RosterPlace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use terminal::{OwnTerminal, progress_handler, read_answers, with_last_output};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(crate) fn run(context: &Context, request: TeammateRequest) -> Result<Exit, Failure> {
    context.refuse_inside_agent("teammate")?;
    program::name_this_process("teammate");
    if request.control_fd.is_some() {
        child::end_before_lead_without_memory();
    }
    let hint = "leave --control-fd out: only a lead passes it to a teammate that it spawns";
    let lead = request.control_fd.map(program::adopt_control).transpose();
    let lead = lead.or_exit(Exit::Usage, "--control-fd cannot be used", hint)?;
    let answer_to = lead.as_ref().map(OwnedFd::try_clone);
    let options = TeammateOptions::resolve(context, request, lead.map(File::from));
    let outcome = options.and_then(|mut options| {
        hit("child.greeted");
        let team = if options.lead.is_some() { context.team()? } else { context.make_team()? };
        options.check_role(&team, &context.environment)?;
        block_on(async { TeammateApp::start(context, &team, options).await?.run().await })?
    });
    if let (Err(failure), Some(Ok(socket))) = (&outcome, answer_to) {
        // The lead gets the text that a person would read.
        let why = format!("{}: {}", failure.what, failure.why);
        let _lead_gone = handshake::send(File::from(socket), &HandshakeAnswer::Failed(why));
    }
    outcome
}

/// A teammate that is a member of the team and has its agent.
struct TeammateApp {
    agent: agent::Agent,
    events: Events,
    inbound: UnboundedReceiver<agent::event::Event>,
    /// Held until the end: dropping it releases the name.
    life: Rc<RefCell<LifeLock>>,
    signalled: Rc<Cell<Option<SignalEvent>>>,
    /// The socket to the lead that spawned it.
    lead: Option<File>,
}

impl TeammateApp {
    /// Takes the life lock, joins the team, then builds the agent: the roster is only changed with the lock held,
    /// and only a member has a mailbox.
    async fn start(
        context: &Context,
        team: &TeamDir,
        mut options: TeammateOptions,
    ) -> Result<Self, Failure> {
        if options.lead.is_none() {
            let wanted = options.handshake.sandbox;
            let origin = LevelOrigin::of(&options.settings);
            options.handshake.sandbox =
                walls::attainable(wanted, origin, team, &context.environment).await?;
        }
        let TeammateOptions { name, handshake, model, lead, .. } = &options;
        let is_by_hand = lead.is_none();
        let starter = if is_by_hand { "hand" } else { "lead" };
        let of_agent = handshake.agent.iter().flat_map(AgentProgram::secrets);
        let secrets = handshake.credentials.secrets().into_iter().chain(of_agent).collect();
        let incarnation = handshake.incarnation.clone();
        let before = liveness::last_record(team, name).map_err(StoreError::from)?;
        let process =
            AgentProcess::start(team, name.clone(), incarnation, starter, secrets).await?;
        // A lead has ended the commands of the process before.
        if let Some(LifeRecord { run_id, .. }) = before.filter(|_| is_by_hand) {
            let (team, name, fsync) = (team.clone(), name.clone(), handshake.rules.fsync);
            let stuck = offload(move || end_commands(&team, &name, &run_id, fsync)).await;
            tracing::info!(
                stuck = log_words::listed(stuck),
                "looked for commands of the process before"
            );
        }
        if let Some(notice) = model.spec().notice.filter(|_| is_by_hand) {
            output::warn(notice);
        }
        let first = transcript::first_incarnation(team, name)?;
        let player = Player::open(team, name)?;
        let incarnation = &handshake.incarnation;
        let models = if handshake.agent.is_some() {
            let provider = Rc::new(NoModel { label: model.to_string() });
            let own = UsableModel { provider, facts: handshake.facts };
            AgentModels { own, fallbacks: Vec::new() }
        } else {
            let conversation = first.as_deref();
            let (player, agent) = (player.as_ref(), name.as_str());
            let user = ModelUser { agent, incarnation, conversation, team, player };
            open_models(&options.models()?, &handshake.credentials, &user)?
        };
        reserve_disk_space(team);
        let place = RosterPlace::join(context, team, &options).await?;
        hit("child.entered");
        let usage = place.usage;
        let models = (models, player);
        let started = Self::open(context, team, options, process, models, usage).await;
        if started.is_err() {
            place.give_back(team).await;
        }
        started
    }

    /// Opens the mailbox of a member that has joined, and builds its agent.
    async fn open(
        context: &Context,
        team: &TeamDir,
        options: TeammateOptions,
        mut process: AgentProcess,
        (models, player): (AgentModels, Option<Rc<Player>>),
        usage: UsageCount,
    ) -> Result<Self, Failure> {
        let TeammateOptions { handshake, model, lead, once, .. } = &options;
        let is_by_hand = lead.is_none();
        let bus = open_bus(team.clone(), handshake.rules);
        if let Some(key) = &handshake.control_key {
            bus.keyring().add_control_key(&AgentName::lead(), "", key.clone());
        }
        let (mailbox, life) = open_mailbox(&bus, process.life, handshake.rules).await?;
        process.life = life;
        hit("child.opened");
        let environment = &context.environment;
        let walls = match &handshake.work {
            None => walls::raise(&handshake.sandbox, team, &process.run_id, environment)?,
            Some(place) => {
                clones::raise(&handshake.sandbox, team, place, &process.run_id, environment)?
            }
        };
        let work = open_clone(&options, team, environment);
        let (events, inbound) = unbounded_channel();
        let has_person = is_by_hand && std::io::stdin().is_terminal();
        let terminal = OwnTerminal::new(context);
        let show = with_last_output(
            progress_handler(context, is_by_hand, *once, terminal.clone(), events.clone()),
            LastOutput::open(team, &process.name),
        );
        let parts = AgentParts {
            process: &process,
            role: handshake.role.clone(),
            role_file: options.role_file.clone(),
            start: MemberStart {
                reason: handshake.start_reason.words(),
                has_new_prompt: match handshake.start_reason {
                    StartReason::Spawned => !is_by_hand || options.prompt.is_some(),
                    StartReason::Restarted(_) | StartReason::Resumed => false,
                },
            },
            tasks: open_tasks(&bus),
            mailbox,
            models,
            rules: handshake.rules,
            hooks: handshake.hooks.clone(),
            mcp_servers: handshake.mcp_servers.clone(),
            pass_environment: handshake.pass_environment.clone(),
            permissions: handshake.permissions.clone(),
            walls,
            frees_walled_commands: handshake.sandbox.frees_commands(),
            work,
            asks: if has_person { Asks::Person } else { Asks::Lead },
            model,
            subagent_models: subagent_models(team, &process, &options)?,
            agent: handshake.agent.clone(),
            ops: None,
            usage,
            show: played(player.as_ref(), &bus, &events, &process.incarnation, show),
            stage: player.map(|player| player as Rc<dyn Stage>),
            bus,
        };
        let agent = with_left_mail(build_agent(parts, &context.environment)?).await;
        let signalled = Rc::default();
        let forwarding = forward_signals(process.signals, events.clone(), Rc::clone(&signalled));
        spawn_local(forwarding);
        let TeammateOptions { name, model, prompt, lead, .. } = options;
        if let Some(prompt) = prompt {
            let _received = events.send(MachineEvent::Prompt(prompt).into());
        }
        if has_person {
            read_answers(terminal, events.clone())?;
        }
        tracing::info!(%name, %model, "teammate started");
        let life = Rc::new(RefCell::new(process.life));
        Ok(Self { agent, events, inbound, life, signalled, lead })
    }

    /// Runs the agent until it is stopped, drains its last mail, and publishes its end.
    async fn run(self) -> Result<Exit, Failure> {
        let Self { agent, events, inbound, life, signalled, lead } = self;
        // A person ends a teammate of their own. A machine that shuts down ends the others, which come back.
        let cause = if lead.is_some() { ExitCause::TeamStopped } else { ExitCause::Stopped };
        let (mailbox, work) = (Arc::clone(&agent.mailbox), agent.work.clone());
        let (team, name) = (agent.bus.dir().clone(), agent.me.name.clone());
        let (lead_events, held) = (events.clone(), Rc::clone(&life));
        let ready = move || {
            hit("child.able");
            if let Some(socket) = lead {
                report_ready(socket, lead_events, held);
            }
        };
        let finished = agent::run(agent, events, inbound, ready).await;
        if let Some(Err(why)) = save(work).await {
            tracing::warn!(%why, "the last work is not saved; it stays in the clone");
        }
        release_leases(&team, &name).await;
        let late = drain_last_mail(&mailbox).await;
        hit("leave.drained");
        tracing::info!(messages = late.len(), "the last mail is drained");
        close_mailbox(mailbox).await;
        hit("leave.let_go");
        let end = end(finished, signalled.get(), cause).await;
        drop(life);
        end
    }
}

/// Returns the models of a teammate's subagents. Of other models it knows what the program's table has.
fn subagent_models(
    team: &TeamDir,
    process: &AgentProcess,
    options: &TeammateOptions,
) -> Result<Rc<SubagentModels>, Failure> {
    let handshake = &options.handshake;
    let chain = options.models()?;
    let credentials = handshake.credentials.clone();
    let known = KnownModels::of_table(&credentials);
    let first = transcript::first_incarnation(team, &process.name)?;
    Ok(Rc::new(SubagentModels {
        own: RefCell::new(OwnModel { chain, credentials, known }),
        aliases: BTreeMap::new(),
        budgets: handshake.rules.budgets(),
        incarnation: process.incarnation.clone(),
        conversation: first.unwrap_or_else(|| process.incarnation.clone()),
        team: team.clone(),
    }))
}

/// Returns the clone of a teammate, for its work to be saved; `None` if it works in the workspace.
fn open_clone(
    options: &TeammateOptions,
    team: &TeamDir,
    environment: &Environment,
) -> Option<Arc<Saver>> {
    let TeammateOptions { name, handshake, .. } = options;
    let place = handshake.work.as_ref()?;
    let (sandbox, further) = (&handshake.sandbox, &handshake.pass_environment);
    let setup = clones::saving_setup(sandbox, team, place, environment, further);
    Some(Arc::new(Saver { name: name.clone(), place: place.clone(), setup }))
}

/// Stops the agent at every signal. The last signal decides the exit code.
async fn forward_signals(
    mut signals: SignalStream,
    events: Events,
    signalled: Rc<Cell<Option<SignalEvent>>>,
) {
    loop {
        let signal = signals.next().await;
        signalled.set(Some(signal));
        tracing::info!(signal = signal.word(), "stopped by a signal");
        if events.send(MachineEvent::Stop(StopCause::AtOnce).into()).is_err() {
            return;
        }
    }
}

/// Reports that the teammate accepts mail, then watches the lifeline.
fn report_ready(socket: File, events: Events, life: Rc<RefCell<LifeLock>>) {
    let _lead_gone = handshake::send(&socket, &HandshakeAnswer::Ready);
    hit("child.ready");
    spawn_local(watch_lead(socket, events, life));
}

/// Stops the agent at the end of file, which means that the lead has exited.
async fn watch_lead(socket: File, events: Events, life: Rc<RefCell<LifeLock>>) {
    let Ok(ready) = program::set_nonblocking(&socket).and_then(|()| ReadableFd::to_read(&socket))
    else {
        return;
    };
    let mut byte = [0];
    while let Ok(1) = ready.read(|| (&socket).read(&mut byte)).await {}
    tracing::warn!("the lead is gone");
    let record = life.borrow().record().clone();
    let noted = life.borrow_mut().update(LifeRecord { lead_lost: Some(uptime()), ..record });
    if let Err(why) = noted {
        tracing::warn!(%why, "the next lead may wait longer than necessary");
    }
    let _ended = events.send(MachineEvent::Stop(StopCause::LeadLost).into());
}

async fn end(
    finished: Finished,
    signal: Option<SignalEvent>,
    signalled: ExitCause,
) -> Result<Exit, Failure> {
    let (exit, cause) = exit_of(&finished.ending, signal, signalled);
    let end = publish_end(finished, exit as i32, cause).await;
    hit("leave.last_word");
    tracing::info!(exit = exit as i32, cause = cause.word(), "teammate ends");
    let Some(why) = end.broken else { return Ok(exit) };
    let hint = "free space or repair the team folder, then start it again";
    Err(Failure::new(Exit::Failure, "the teammate cannot continue", why, hint))
}

/// Returns the exit code and the cause. `signalled` is the cause of an end by a signal; a stop by name replaces it.
fn exit_of(
    ending: &Ending,
    signal: Option<SignalEvent>,
    signalled: ExitCause,
) -> (Exit, ExitCause) {
    match (ending, signal) {
        (Ending::Broken(_), _) => (Exit::Failure, ExitCause::Error),
        (Ending::Stopped(StopCause::Budget(_)), _) => (Exit::Budget, ExitCause::Budget),
        (Ending::Stopped(StopCause::LeadLost), _) => (Exit::Ok, ExitCause::LeadLost),
        (Ending::Stopped(StopCause::Requested { .. }), _) | (_, None) => {
            (Exit::Ok, ExitCause::Stopped)
        }
        (_, Some(signal)) => (event_loop::exit_of(signal), signalled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_decides_the_exit_code_only_when_it_ended_the_agent() {
        let (request_id, by) = ("r".into(), "lead".into());
        let requested = StopCause::Requested { request_id, by, reason: String::new() };
        let signals = [SignalEvent::Interrupt, SignalEvent::Terminate, SignalEvent::Hangup];
        let codes = [Exit::Interrupted, Exit::Terminated, Exit::Terminated];
        for (ending, exits, cause) in [
            (Ending::Stopped(StopCause::AtOnce), codes, ExitCause::TeamStopped),
            (Ending::Stopped(requested), [Exit::Ok; 3], ExitCause::Stopped),
            (Ending::Stopped(StopCause::LeadLost), [Exit::Ok; 3], ExitCause::LeadLost),
            (Ending::Broken("the disk is gone".into()), [Exit::Failure; 3], ExitCause::Error),
        ] {
            for (signal, exit) in signals.map(Some).into_iter().zip(exits) {
                let ended = exit_of(&ending, signal, ExitCause::TeamStopped);
                assert_eq!(ended, (exit, cause), "{ending:?} {signal:?}");
            }
        }
    }
}

//! `team teammate` from its request to its exit code.

use super::lead_link::{report_failure, report_ready};
use super::options::{TeammateOptions, TeammateRequest};
use super::roster_entry::join;
use super::terminal::{OpenQuestion, progress_handler, read_answers};
use crate::agent::approval::Asks;
use crate::agent::event::{Ending, Event, MachineEvent, StopCause};
use crate::agent::{self, Agent, Events, Finished};
use crate::app::agent_process::{AgentProcess, publish_end, reserve_disk_space};
use crate::app::build_agent::{AgentParts, build_agent};
use crate::app::context::Context;
use crate::app::event_loop::block_on;
use crate::app::output;
use crate::app::own_mailbox::{CLOSE_LIMIT, close_mailbox, drain_last_mail, open_mailbox};
use crate::app::provider::{Conversation, open_provider};
use crate::app::signal_stream::SignalStream;
use crate::app::team_rules::open_bus;
use crate::error::{Exit, Failure, OrFail};
use crate::llm::Provider;
use crate::os::failpoint::hit;
use crate::os::signals::SignalEvent;
use crate::os::{SystemClock, program};
use crate::store::{LifeLock, TeamDir, transcript};
use crate::tasks::Tasks;
use crate::tools::can_complete_tasks;
use crate::wire::roster::ExitCause;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Runs a teammate until it is stopped.
pub(crate) fn run(context: &Context, request: TeammateRequest) -> Result<Exit, Failure> {
    context.refuse_inside_agent("teammate")?;
    program::name_this_process("teammate");
    let lead = request.control_fd.map(program::adopt_control).transpose().or_exit(
        Exit::Usage,
        "--control-fd is not usable",
        "leave --control-fd out: it is for a lead that spawns this",
    )?;
    let answer_to = lead.as_ref().map(OwnedFd::try_clone);
    let options = TeammateOptions::resolve(context, request, lead.map(File::from));
    let outcome = options.and_then(|options| {
        hit("child.greeted");
        let team = if options.lead.is_some() { context.team()? } else { context.make_team()? };
        block_on(async { TeammateApp::start(context, &team, options).await?.run().await })?
    });
    if let (Err(failure), Some(Ok(socket))) = (&outcome, answer_to) {
        report_failure(socket, format!("{}: {}", failure.what, failure.why));
    }
    outcome
}

/// A teammate that belongs to its team, before its agent runs.
struct TeammateApp {
    options: TeammateOptions,
    /// Held until the end: dropping it gives the name to the next process.
    life: Rc<RefCell<LifeLock>>,
    signals: SignalStream,
    agent: Agent,
    events: Events,
    inbound: UnboundedReceiver<Event>,
    /// The person at the teammate's own terminal, where there is one.
    open_question: Option<OpenQuestion>,
}

impl TeammateApp {
    /// Takes the name, joins the team and builds the agent, in this order: the roster is only changed
    /// with the life lock held, and the mailbox belongs to a member of the roster.
    async fn start(
        context: &Context,
        team: &TeamDir,
        options: TeammateOptions,
    ) -> Result<Self, Failure> {
        let started_by = if options.lead.is_some() { "lead" } else { "hand" };
        let process = AgentProcess::start(
            team,
            &options.name,
            &options.hello.incarnation,
            started_by,
            &options.hello.credentials,
        )?;
        if let Some(notice) = options.model.spec().notice
            && options.lead.is_none()
        {
            output::warn(notice);
        }
        let provider = provider(&options, team)?;
        reserve_disk_space(team);
        let usage = join(context, team, &options).await?;
        hit("child.entered");
        let bus = Arc::new(open_bus(team.clone(), options.hello.rules));
        let (mailbox, life) = open_mailbox(team, process.life, options.hello.rules).await?;
        hit("child.opened");
        let (events, inbound) = unbounded_channel();
        let is_by_hand = options.lead.is_none();
        let has_person = is_by_hand && std::io::stdin().is_terminal();
        let open = OpenQuestion::default();
        let parts = AgentParts {
            name: options.name.clone(),
            role: options.hello.role.clone(),
            start_reason: options.hello.start_reason.words(),
            incarnation: options.hello.incarnation.clone(),
            run_id: process.run_id,
            tasks: Arc::new(Tasks::new(
                Arc::clone(&bus),
                Arc::new(SystemClock),
                can_complete_tasks,
            )),
            bus,
            mailbox,
            provider,
            rules: options.hello.rules,
            hooks: options.hello.hooks.clone(),
            permissions: options.hello.permissions.clone(),
            asks: if has_person { Asks::Person } else { Asks::Lead },
            model: options.model.clone(),
            ops: None,
            usage,
            price: options.hello.price,
            secrets: process.secrets,
            show: progress_handler(context, is_by_hand, options.once, open.clone(), events.clone()),
        };
        Ok(Self {
            agent: build_agent(parts, &context.environment)?,
            life: Rc::new(RefCell::new(life)),
            signals: process.signals,
            events,
            inbound,
            open_question: has_person.then_some(open),
            options,
        })
    }

    /// Runs the agent until it is stopped, drains its last mail, and writes its end into the roster.
    async fn run(self) -> Result<Exit, Failure> {
        let Self { options, life, signals, agent, events, inbound, open_question } = self;
        let mailbox = Arc::clone(&agent.mailbox);
        let signalled: Rc<Cell<Option<SignalEvent>>> = Rc::default();
        tokio::task::spawn_local(forward_signals(signals, events.clone(), Rc::clone(&signalled)));
        if let Some(prompt) = options.prompt {
            let _received = events.send(MachineEvent::Prompt(prompt).into());
        }
        if let Some(open) = open_question {
            read_answers(open, events.clone())?;
        }
        let (lead, lead_events, held) = (options.lead, events.clone(), Rc::clone(&life));
        let ready = move || {
            hit("child.able");
            if let Some(socket) = lead {
                report_ready(socket, lead_events, held);
            }
        };
        tracing::info!(name = %options.name, model = %options.model, "teammate started");
        let finished = agent::run(agent, events, inbound, ready).await;
        let late = drain_last_mail(&mailbox).await;
        hit("leave.drained");
        tracing::info!(messages = late.mail.len(), "the last mail is drained");
        // The sender of a signal waits for about a second only.
        let limit = signalled.get().map_or(CLOSE_LIMIT, |_| Duration::ZERO);
        close_mailbox(mailbox, limit).await;
        hit("leave.let_go");
        let end = end(finished, signalled.get()).await;
        drop(life);
        end
    }
}

/// Opens the model for this incarnation.
fn provider(options: &TeammateOptions, team: &TeamDir) -> Result<Rc<dyn Provider>, Failure> {
    let first = transcript::first_life(team, &options.name)?;
    let conversation = Conversation {
        agent: options.name.clone(),
        incarnation: &options.hello.incarnation,
        first_incarnation: first.as_deref(),
    };
    open_provider(&options.model, &options.hello.credentials, &conversation, team)
}

/// Every signal stops the agent; the last one decides the exit code.
async fn forward_signals(
    mut signals: SignalStream,
    events: Events,
    signalled: Rc<Cell<Option<SignalEvent>>>,
) {
    loop {
        let signal = signals.next().await;
        signalled.set(Some(signal));
        tracing::info!(?signal, "stopped by a signal");
        if events.send(MachineEvent::Stop(StopCause::AtOnce).into()).is_err() {
            return;
        }
    }
}

async fn end(finished: Finished, signal: Option<SignalEvent>) -> Result<Exit, Failure> {
    let (exit, cause) = exit_of(&finished.ending, signal);
    let end = publish_end(finished, exit as i32, cause).await;
    hit("leave.last_word");
    tracing::info!(?exit, ?cause, "teammate ends");
    match end.broken {
        None => Ok(exit),
        Some(why) => Err(Failure::new(
            Exit::Failure,
            "the teammate cannot go on",
            why,
            "free space or repair the team folder, then start it again",
        )),
    }
}

/// The exit code of a teammate, and the cause that stands in the roster.
fn exit_of(ending: &Ending, signal: Option<SignalEvent>) -> (Exit, ExitCause) {
    match (ending, signal) {
        (Ending::Broken(_), _) => (Exit::Failure, ExitCause::Error),
        (Ending::Stopped(StopCause::Budget(_)), _) => (Exit::Budget, ExitCause::Budget),
        (Ending::Stopped(StopCause::LeadLost), _) => (Exit::Ok, ExitCause::LeadLost),
        (Ending::Stopped(StopCause::Requested { .. }), _) | (_, None) => {
            (Exit::Ok, ExitCause::Stopped)
        }
        (_, Some(SignalEvent::Interrupt)) => (Exit::Interrupted, ExitCause::Stopped),
        (_, Some(_)) => (Exit::Terminated, ExitCause::Stopped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_decides_the_exit_code_only_when_it_ended_the_agent() {
        let (interrupt, terminate) = (Some(SignalEvent::Interrupt), Some(SignalEvent::Terminate));
        let at_once = Ending::Stopped(StopCause::AtOnce);
        assert_eq!(exit_of(&at_once, None), (Exit::Ok, ExitCause::Stopped));
        assert_eq!(exit_of(&at_once, interrupt), (Exit::Interrupted, ExitCause::Stopped));
        assert_eq!(exit_of(&at_once, terminate), (Exit::Terminated, ExitCause::Stopped));
        let hangup = Some(SignalEvent::Hangup);
        assert_eq!(exit_of(&at_once, hangup), (Exit::Terminated, ExitCause::Stopped));
        let requested = Ending::Stopped(StopCause::Requested {
            request_id: "r".into(),
            by: "lead".into(),
            reason: String::new(),
        });
        for signal in [None, interrupt, terminate] {
            assert_eq!(exit_of(&requested, signal), (Exit::Ok, ExitCause::Stopped));
            let lost = Ending::Stopped(StopCause::LeadLost);
            assert_eq!(exit_of(&lost, signal), (Exit::Ok, ExitCause::LeadLost));
            let broken = Ending::Broken("the disk is gone".into());
            assert_eq!(exit_of(&broken, signal), (Exit::Failure, ExitCause::Error));
        }
    }
}

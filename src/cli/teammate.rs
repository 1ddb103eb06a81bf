//! `team teammate NAME`: one teammate in the foreground; spawned by a lead or started by hand.

use super::args::TeammateArgs;
use super::build_agent::{
    LETTING_GO, Parts, assemble, block_on, broken, fresh_word, keep_reserve, last_mail, let_go,
    open_mailbox, redactor, start_log, take_name,
};
use super::context::{Context, flags, member_name, open_bus, permissions, store_failure};
use super::lead::{REHEARSAL_BANNER, adopt_orphans, choose_model, keep_secrets};
use super::local;
use super::out;
use super::provider::{Life, provider_for};
use super::signal_stream::SignalStream;
use crate::agent::approval::Asks;
use crate::agent::event::{Ending, Event, StopCause};
use crate::agent::progress::Progress;
use crate::agent::{self, Events};
use crate::error::{Exit, Failure};
use crate::os::async_fd::ReadableFd;
use crate::os::failpoint::hit;
use crate::os::signals::SignalEvent;
use crate::os::{Clock, SystemClock, memory, program, terminal_size, uptime};
use crate::protocol::lifecycle;
use crate::settings::model::{self, Credentials, ModelChoice, price_of};
use crate::settings::{Flags, Rules};
use crate::store::{Fsync, LifeLock, LifeRecord, TeamDir, roster, transcript};
use crate::supervise::handshake::{self, HandshakeAnswer, Hello};
use crate::tasks::Tasks;
use crate::tools::{can_complete_tasks, find};
use crate::ui::live::Live;
use crate::ui::question::{self, Said};
use crate::wire::AgentName;
use crate::wire::hook::Hook;
use crate::wire::message::Scope;
use crate::wire::money::Price;
use crate::wire::permission::{
    Decision, DecisionOutcome, PermissionMode, Permissions, Question, QuestionKind,
};
use crate::wire::roster::{ExitCause, Roster, StartedBy, Status, UsageCount};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{BufRead, IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// What a teammate is, whoever started it.
struct Start {
    name: AgentName,
    role: String,
    incarnation: String,
    start_reason: Option<String>,
    model: ModelChoice,
    credentials: Credentials,
    /// What its model costs, if somebody has said so.
    price: Option<Price>,
    rules: Rules,
    hooks: Vec<Hook>,
    permissions: Permissions,
    /// The lead's socket; `None` when started by hand.
    lead: Option<File>,
    prompt: Option<String>,
    once: bool,
}

pub(super) fn run(context: &Context, args: TeammateArgs) -> Result<Exit, Failure> {
    context.refuse_inside("teammate")?;
    program::name_this_process("teammate");
    let lead = args.control_fd.map(program::adopt_control).transpose().map_err(|why| {
        let hint = "leave --control-fd out: it is for a lead that spawns this";
        Failure::new(Exit::Usage, "--control-fd is not usable", why.to_string(), hint)
    })?;
    let answer_to = lead.as_ref().map(OwnedFd::try_clone);
    let outcome = prepare(context, args, lead.map(File::from)).and_then(|start| {
        hit("child.greeted");
        let team = if start.lead.is_some() { context.team()? } else { context.make_team()? };
        block_on(live(context, &team, start))?
    });
    // A lead that waits for readiness is told what went wrong in the words a person would read.
    if let (Err(failure), Some(Ok(socket))) = (&outcome, answer_to) {
        let why = format!("{}: {}", failure.what, failure.why);
        let _lead_gone = handshake::send(File::from(socket), &HandshakeAnswer::Failed(why));
    }
    outcome
}

fn prepare(context: &Context, args: TeammateArgs, lead: Option<File>) -> Result<Start, Failure> {
    let name = member_name(&args.name)?;
    let (prompt, once) = (args.prompt, args.once);
    if let Some(socket) = lead {
        let heard: Option<Hello> =
            handshake::receive(&socket).map_err(|why| no_hello(&why.to_string()))?;
        let hello = heard.ok_or_else(|| no_hello("the socket was closed"))?;
        let model = ModelChoice::parse(&hello.model)?;
        let Hello {
            incarnation,
            role,
            credentials,
            price,
            rules,
            hooks,
            permissions,
            start_reason,
            ..
        } = hello;
        let price = price_of(&model, price, &rules.budgets())?;
        let start_reason = start_reason.words();
        let settings = context.settings(&Flags::default())?;
        settings.ignored.iter().for_each(|ignored| out::complain(ignored));
        let (model, credentials) = local::find(model, credentials, &settings)?;
        let lead = Some(socket);
        return Ok(Start {
            name,
            role,
            incarnation,
            start_reason,
            model,
            credentials,
            price,
            rules,
            hooks,
            permissions,
            lead,
            prompt,
            once,
        });
    }
    let settings = context.settings(&flags(&args.model))?;
    let permissions = permissions(&settings)?;
    settings.ignored.iter().for_each(|ignored| out::complain(ignored));
    let by_person = std::io::stdin().is_terminal();
    let named = model::resolve(&settings, &context.environment)?.map(|setting| setting.value);
    let model = choose_model(named, !by_person)?;
    let credentials = Credentials::of(&settings, &context.environment).only_for(&model);
    let (model, credentials) = local::find(model, credentials, &settings)?;
    let price = settings.prices().get(&model.to_string()).copied();
    let (rules, incarnation, role) = (settings.rules(), fresh_word(), args.role);
    let hooks = settings.hooks.value;
    let price = price_of(&model, price, &rules.budgets())?;
    Ok(Start {
        name,
        role,
        incarnation,
        start_reason: None,
        model,
        credentials,
        price,
        rules,
        hooks,
        permissions,
        lead: None,
        prompt,
        once,
    })
}

fn no_hello(why: &str) -> Failure {
    let hint = "leave --control-fd out: it is for a lead that spawns this";
    Failure::new(Exit::Failure, "the lead said no hello", why, hint)
}

async fn live(context: &Context, team: &TeamDir, start: Start) -> Result<Exit, Failure> {
    let clock = SystemClock;
    let started_by = if start.lead.is_some() { StartedBy::Lead } else { StartedBy::Hand };
    let run_id = fresh_word();
    let by = if start.lead.is_some() { "lead" } else { "hand" };
    let life = take_name(team, &start.name, &start.incarnation, &run_id, by)?;
    hit("child.named");
    let life = Rc::new(RefCell::new(life));
    let signals = SignalStream::begin()?;
    let secrets = redactor(&start.credentials);
    start_log(team, &start.name, &secrets)?;
    adopt_orphans();
    keep_secrets(&start.credentials);
    if start.lead.is_none() && start.model == ModelChoice::Rehearsal {
        out::complain(REHEARSAL_BANNER);
    }
    let first = transcript::first_life(team, &start.name).map_err(store_failure)?;
    let own = Life {
        incarnation: &start.incarnation,
        conversation: first.as_deref().unwrap_or(&start.incarnation),
    };
    let provider = provider_for(&start.model, &start.credentials, &start.name, own, team)?;
    keep_reserve(team);
    let usage = enter(context, team, &start, started_by, clock.now())?;
    hit("child.entered");
    let bus = Arc::new(open_bus(team.clone(), start.rules));
    let mailbox = open_mailbox(team, &start.name, &life.borrow(), start.rules)?;
    hit("child.opened");
    let (events, inbound) = mpsc::unbounded_channel();
    let has_person = start.lead.is_none() && std::io::stdin().is_terminal();
    let asked: Arc<Mutex<Option<Question>>> = Arc::default();
    let parts = Parts {
        tasks: Arc::new(Tasks::new(Arc::clone(&bus), Arc::new(SystemClock), can_complete_tasks)),
        name: start.name.clone(),
        role: start.role.clone(),
        start_reason: start.start_reason.clone(),
        incarnation: start.incarnation.clone(),
        run_id,
        bus,
        mailbox,
        provider,
        rules: start.rules,
        hooks: start.hooks.clone(),
        permissions: start.permissions.clone(),
        // One started by hand at a terminal has its own person.
        asks: if has_person { Asks::Person } else { Asks::Lead },
        model: start.model.clone(),
        ops: None,
        usage,
        price: start.price,
        secrets,
        show: shower(context, &start, Arc::clone(&asked), events.clone()),
    };
    let agent = assemble(parts, &context.environment)?;
    let mailbox = Arc::clone(&agent.mailbox);
    let told: Rc<Cell<Option<SignalEvent>>> = Rc::default();
    tokio::task::spawn_local(forward_signals(signals, events.clone(), Rc::clone(&told)));
    if let Some(prompt) = start.prompt {
        let _received = events.send(Event::Prompt(prompt));
    }
    if has_person {
        std::thread::Builder::new()
            .name("answers".into())
            .spawn({
                let (asked, events) = (Arc::clone(&asked), events.clone());
                move || take_answers(&asked, &events)
            })
            .map_err(|why| {
                let hint = "close other programs, and start it again";
                let what = "the terminal cannot be listened to";
                Failure::new(Exit::Failure, what, why.to_string(), hint)
            })?;
    }
    let lead = start.lead;
    let (watched, held) = (events.clone(), Rc::clone(&life));
    let ready = move || {
        hit("child.able");
        if let Some(socket) = lead {
            let _lead_gone = handshake::send(&socket, &HandshakeAnswer::Ready);
            hit("child.ready");
            memory::forget_the_start();
            tokio::task::spawn_local(watch_lead(socket, watched, held));
        }
    };
    tracing::info!(name = %start.name, model = %start.model, "teammate started");
    let finished = agent::run(agent, events, inbound, ready).await;
    let late = last_mail(&mailbox);
    hit("leave.drained");
    tracing::info!(messages = late.mail.len(), "last mail taken in");
    // Whoever sent a signal waits for a second at most.
    let patience = told.get().map_or(LETTING_GO, |_| Duration::ZERO);
    let_go(mailbox, patience).await;
    hit("leave.let_go");
    let (exit, cause) = match (&finished.ending, told.get()) {
        (Ending::Broken(_), _) => (Exit::Failure, ExitCause::Error),
        (Ending::Stopped(StopCause::Budget(_)), _) => (Exit::Budget, ExitCause::Budget),
        (Ending::Stopped(StopCause::LeadLost), _) => (Exit::Ok, ExitCause::LeadLost),
        (Ending::Stopped(StopCause::Requested { .. }), _) | (_, None) => {
            (Exit::Ok, ExitCause::Stopped)
        }
        (_, Some(SignalEvent::Interrupt)) => (Exit::Interrupted, ExitCause::Stopped),
        (_, Some(_)) => (Exit::Terminated, ExitCause::Stopped),
    };
    let status = if broken(&finished).is_some() { Status::Failed } else { Status::Shutdown };
    let why = broken(&finished).map(ToOwned::to_owned);
    let mut reporter = finished.reporter;
    if let Err(why) = reporter.publish_end(status, exit as i32, cause).await {
        tracing::error!(%why, "the roster could not be told of the end");
    }
    hit("leave.last_word");
    tracing::info!(?exit, ?cause, "teammate ends");
    drop(life);
    match why {
        None => Ok(exit),
        Some(why) => {
            let hint = "free space or repair the team folder, then start it again";
            Err(Failure::new(Exit::Failure, "the teammate cannot go on", why, hint))
        }
    }
}

/// Joins the team. Gives what the name has used in former lives.
fn enter(
    context: &Context,
    team: &TeamDir,
    start: &Start,
    started_by: StartedBy,
    now: crate::wire::WallTime,
) -> Result<UsageCount, Failure> {
    let entered = match started_by {
        // The lead has written the entry; what is still missing, this life says with its first word.
        // Read under the lock: a stop that came before the life lock was taken is in the entry by then.
        StartedBy::Lead => roster::update(team, Fsync::Never, |roster| expected(roster, start)),
        StartedBy::Hand => {
            let cwd = context.cwd.display().to_string();
            roster::update(team, Fsync::Always, |roster| {
                if roster.created_at == crate::wire::WallTime::default() {
                    roster.created_at = now;
                }
                let member = roster.enter(start.name.as_str(), now);
                member.role.clone_from(&start.role);
                (member.model, member.mode) =
                    (start.model.to_string(), start.permissions.mode.word().into());
                (member.started_by, member.cwd) = (started_by, cwd);
                member.incarnation.clone_from(&start.incarnation);
                member.pid = i32::try_from(std::process::id()).ok();
                let _legal = lifecycle::apply_spawned(&mut member.status);
                member.since = now;
                Some(member.usage)
            })
        }
    };
    entered.map_err(store_failure)?.ok_or_else(|| {
        let why = "it was stopped, or started again, before it was ready";
        Failure::new(Exit::InUse, format!("{} cannot join", start.name), why, "start it again")
    })
}

/// A spawned teammate whose entry is another life's, or that was stopped meanwhile, came too late.
fn expected(roster: &Roster, start: &Start) -> Option<UsageCount> {
    let member = roster.member(start.name.as_str())?;
    let is_ours = member.incarnation == start.incarnation && !member.status.is_over();
    is_ours.then_some(member.usage)
}

/// Shows a teammate's own work on its terminal, and ends it after one turn with `--once`.
fn shower(
    context: &Context,
    start: &Start,
    asked: Arc<Mutex<Option<Question>>>,
    events: Events,
) -> Rc<dyn Fn(&Progress)> {
    let (by_hand, once) = (start.lead.is_none(), start.once);
    let had_turn = Cell::new(false);
    let live = RefCell::new(Live::new(context.palette()));
    Rc::new(move |progress| {
        if by_hand {
            let rows = live.borrow_mut().rows(progress, terminal_size::columns());
            if !rows.is_empty() {
                // Nobody watches any more: the work goes on.
                let _seen = out::say(&rows);
            }
        }
        if let Progress::Asked(question) = progress {
            *asked.lock().unwrap_or_else(PoisonError::into_inner) = Some((**question).clone());
        }
        if matches!(progress, Progress::TurnEnded { .. }) {
            had_turn.set(true);
        }
        if *progress == Progress::Idle && once && had_turn.get() {
            let _ended = events.send(Event::Stop(StopCause::AtOnce));
        }
    })
}

/// Lines typed at a teammate's own terminal answer what it asks there; the approval ignores the others.
fn take_answers(asked: &Mutex<Option<Question>>, events: &Events) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        if question::understand(&line) == Some(Said::ShowWhole)
            && let Some(question) = asked.as_ref()
        {
            out::complain(&question::whole(question));
            continue;
        }
        let Some(decision) = asked.as_ref().and_then(|question| decision(question, &line)) else {
            out::complain("(answer with y, n, n WHY, always or e COMMAND when something is asked)");
            continue;
        };
        *asked = None;
        if events.send(Event::Answered(decision)).is_err() {
            return;
        }
    }
}

/// What a typed line decides.
fn decision(question: &Question, line: &str) -> Option<Decision> {
    let mut updated_input = None;
    let (outcome, scope, reason) = match question::understand(line)? {
        Said::Yes => (DecisionOutcome::Approved, Scope::Once, None),
        Said::Always => (DecisionOutcome::Approved, Scope::Always, None),
        Said::No(why) => (DecisionOutcome::Rejected, Scope::Once, why),
        Said::Instead(command) => {
            updated_input = Some(question.with_command(find(&question.tool), command)?);
            (DecisionOutcome::Approved, Scope::Once, None)
        }
        Said::InsteadOfWhat | Said::ShowWhole => return None,
    };
    let plan = question.about == QuestionKind::Plan && outcome == DecisionOutcome::Approved;
    Some(Decision {
        request_id: question.request_id.clone(),
        outcome,
        by: "user".into(),
        scope,
        reason,
        updated_input,
        mode: plan.then_some(PermissionMode::AcceptEdits),
    })
}

async fn forward_signals(
    mut signals: SignalStream,
    events: Events,
    told: Rc<Cell<Option<SignalEvent>>>,
) {
    loop {
        let signal = signals.next().await;
        told.set(Some(signal));
        tracing::info!(?signal, "told to end");
        if events.send(Event::Stop(StopCause::AtOnce)).is_err() {
            return;
        }
    }
}

/// End of file on the control socket means that the lead is gone.
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
        tracing::warn!(%why, "the next lead will wait longer than need be");
    }
    let _ended = events.send(Event::Stop(StopCause::LeadLost));
}

//! A lead whose model this program runs: from its options to an agent with a supervisor, ready for a session.

use super::budget_watch::BudgetWatch;
use super::ending::{EndedLoop, spawn_loop};
use super::lead_core::LeadCore;
use super::options::LeadOptions;
use super::runtime::LeadRuntime;
use super::startup::{RosterPlace, Startup};
use crate::agent::approval::Asks;
use crate::agent::replay::{Player, played};
use crate::agent::{MemberStart, progress::Progress};
use crate::app::agent_process::AgentProcess;
use crate::app::build_agent::{AgentParts, build_agent, with_left_mail};
use crate::app::fallbacks::chain;
use crate::app::model::{ModelUser, open_models};
use crate::app::subagent_models::{OwnModel, SubagentModels};
use crate::app::{context::Context, event_loop::SignalStream};
use crate::error::Failure;
use crate::os::{Clock, SystemClock};
use crate::settings::models::KnownModels;
use crate::store::{LifeLock, TeamDir};
use crate::tools::replay::Stage;
use crate::wire::{WallTime, message::Message};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// A lead that holds its life lock and has its agent, before its session begins.
pub(super) struct LeadApp {
    pub(super) runtime: LeadRuntime,
    /// The loop of the lead's agent, which begins when the session waits for the first time.
    pub(super) agent: JoinHandle<EndedLoop>,
    pub(super) progress: UnboundedReceiver<Progress>,
    pub(super) signals: SignalStream,
    pub(super) budgets: BudgetWatch,
    pub(super) options: LeadOptions,
    pub(super) startup: Startup,
    /// Mail that an earlier lead had claimed and not shown.
    pub(super) unshown_mail: Vec<Message>,
    /// The life lock, held until the end: dropping it lets the next lead start.
    pub(super) life: LifeLock,
    /// The part of a record that the lead plays.
    pub(super) player: Option<Rc<Player>>,
    /// The time at which `--timeout` passes, if there is one.
    pub(super) deadline: Option<Instant>,
}

impl LeadApp {
    /// Takes the lead's place in the folder, builds its parts, and starts the returning teammates. A start that fails
    /// leaves the roster as it was.
    pub(super) async fn start(
        context: &Context,
        team: &TeamDir,
        options: LeadOptions,
        deadline: Option<Instant>,
    ) -> Result<(Self, RosterPlace), Failure> {
        let started = Box::pin(LeadCore::start(context, team, options, deadline));
        let (core, entry) = started.await?;
        match Box::pin(Self::with_agent(context, core)).await {
            Ok(app) => Ok((Self { deadline, ..app }, entry)),
            Err(why) => {
                entry.give_back(team).await;
                Err(why)
            }
        }
    }

    /// Builds the agent, and starts the returning teammates.
    async fn with_agent(context: &Context, core: LeadCore) -> Result<Self, Failure> {
        let LeadCore { mut runtime, process, mailbox, inbound, options, startup, rules, .. } = core;
        let LeadOptions { model, credentials, permissions, settings, .. } = &options;
        let (me, conversation) = (&process, startup.conversation.as_deref());
        let known = KnownModels::of(settings, credentials);
        let player = Player::open(runtime.team(), &me.name)?;
        let user = ModelUser {
            agent: me.name.as_str(),
            incarnation: &me.incarnation,
            conversation,
            team: runtime.team(),
            player: player.as_ref(),
        };
        let models = open_models(&chain(model, &options.fallbacks, &known), credentials, &user)?;
        // A script that reads the progress of a run gets all mail.
        let began_at = options.request.front.output().is_none().then(|| SystemClock.now());
        let (shown, progress) = unbounded_channel();
        let of_subagents = subagent_models(&process, &options, known, conversation, runtime.team());
        let parts = AgentParts {
            process: &process,
            role: "lead".into(),
            role_file: None,
            start: MemberStart { reason: startup.start_reason.clone(), has_new_prompt: false },
            bus: Arc::clone(&runtime.bus),
            tasks: Arc::clone(&runtime.tasks),
            mailbox,
            models,
            rules,
            hooks: runtime.supervisor.hooks(),
            mcp_servers: options.mcp_servers.clone(),
            pass_environment: settings.pass_environment.value.clone(),
            permissions: permissions.clone(),
            walls: core.walls,
            frees_walled_commands: options.sandbox.frees_commands(),
            work: None,
            asks: match &player {
                Some(player) if player.asks_person() => Asks::Person,
                Some(_) | None => options.approver(),
            },
            model,
            subagent_models: Rc::clone(&of_subagents),
            agent: None,
            ops: Some(runtime.ops()),
            usage: startup.usage,
            show: played(
                player.as_ref(),
                &runtime.bus,
                &runtime.events,
                &me.incarnation,
                show_progress(shown, began_at),
            ),
            stage: player.clone().map(|player| player as Rc<dyn Stage>),
        };
        let agent = build_agent(parts, &context.environment)?;
        runtime.next_models = Rc::clone(&agent.next_models);
        runtime.subagent_models = Some(of_subagents);
        runtime.background = Some(Rc::clone(agent.tools.background()));
        let budgets = (options.request.budget, rules.budgets().team);
        let budgets = BudgetWatch::new(
            runtime.team().clone(),
            budgets,
            agent.budget.warnings.clone(),
            core.used_before,
        );
        tracing::info!(%model, "lead started");
        runtime.begin(&startup.returning, permissions.mode).await?;
        let unshown_mail = core.claimed.into_iter().filter(|mail| !is_old_news(mail, began_at));
        let AgentProcess { signals, life, .. } = process;
        Ok(Self {
            agent: spawn_loop(with_left_mail(agent).await, runtime.events.clone(), inbound),
            runtime,
            progress,
            signals,
            budgets,
            unshown_mail: unshown_mail.collect(),
            options,
            startup,
            life,
            player,
            deadline: None,
        })
    }
}

/// Returns the models of the lead's subagents.
fn subagent_models(
    process: &AgentProcess,
    options: &LeadOptions,
    known: KnownModels,
    conversation: Option<&str>,
    team: &TeamDir,
) -> Rc<SubagentModels> {
    let LeadOptions { model, credentials, settings, .. } = options;
    let chain = chain(model, &options.fallbacks, &known);
    let credentials = credentials.clone();
    let aliases = settings.model_aliases().into_iter();
    Rc::new(SubagentModels {
        own: RefCell::new(OwnModel { chain, credentials, known }),
        aliases: aliases.map(|(word, model)| (word.to_owned(), model)).collect(),
        budgets: settings.rules().budgets(),
        incarnation: process.incarnation.clone(),
        conversation: conversation.unwrap_or(&process.incarnation).to_owned(),
        team: team.clone(),
    })
}

/// Returns the function that shows the progress of the lead's agent. For a person, old news are left out: those from
/// before `began_at`.
fn show_progress(
    shown: UnboundedSender<Progress>,
    began_at: Option<WallTime>,
) -> Rc<dyn Fn(&Progress)> {
    Rc::new(move |progress| {
        if !matches!(progress, Progress::Mail(mail) if is_old_news(mail, began_at)) {
            // The agent continues even if its session no longer reads its progress.
            let _unread = shown.send(progress.clone());
        }
    })
}

/// Whether a message says that a member of an earlier process of the team rests or has ended. The lead's model may still
/// get it, but the person has seen that team end.
fn is_old_news(mail: &Message, began_at: Option<WallTime>) -> bool {
    let is_old = |sent: WallTime| began_at.is_some_and(|began| sent < began);
    mail.body.is_farewell() && mail.timestamp.is_some_and(is_old)
}

//! `team task …`: the shared task list, for the user.

use super::args::Json;
use crate::app::context::{Context, open_tasks};
use crate::app::output::{print_result, warn};
use crate::app::{names::mailbox_name, task_view};
use crate::error::{Exit, Failure, OrFail};
use crate::protocol::tasks::NewTask;
use crate::store::StoreError;
use crate::tasks::{Changed, TaskError, Tasks};
use crate::wire::AgentName;
use crate::wire::task::{TaskId, TaskStatus};
use std::sync::Arc;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: TaskVerb,
}

#[derive(Debug, clap::Subcommand)]
enum TaskVerb {
    /// Add a task; prints its id
    Add(Add),
    /// Show the tasks: those that are open, and the last ones that have ended
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Show one task with its history
    Show(One),
    /// Claim a task
    Claim(Claim),
    /// Mark a task as done
    Done(One),
    /// Mark a task as failed
    Fail(One),
    /// Cancel a task
    Cancel(One),
    /// Reopen a failed or cancelled task, or take a task from its owner: it is pending again
    Reopen(One),
}

#[derive(Debug, clap::Args)]
struct Ls {
    /// Show the archived tasks, too, which ended earlier
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The task in one line
    #[arg(value_name = "SUBJECT")]
    subject: Option<String>,
    /// The details
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    description: Option<String>,
    /// Tasks that must be done first
    #[arg(long, value_name = "ID", num_args = 1.., value_delimiter = ',')]
    after: Vec<String>,
    /// The owner; without one, any idle teammate claims it
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only teammates with this role claim it by themselves
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Id of the task
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, clap::Args)]
struct Claim {
    #[command(flatten)]
    one: One,
    /// The new owner
    #[arg(long = "as", value_name = "NAME")]
    who: Option<String>,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    match args.verb {
        TaskVerb::Ls(args) => list(context, &args),
        TaskVerb::Show(one) => show(context, &one),
        TaskVerb::Add(args) => add(context, args),
        TaskVerb::Claim(args) => claim(context, &args),
        TaskVerb::Done(one) => end(context, "done", TaskStatus::Completed, &one),
        TaskVerb::Fail(one) => end(context, "fail", TaskStatus::Failed, &one),
        TaskVerb::Cancel(one) => end(context, "cancel", TaskStatus::Cancelled, &one),
        TaskVerb::Reopen(one) => {
            let reopen =
                |tasks: &Tasks, id| tasks.end(id, TaskStatus::Pending, None, &AgentName::user());
            change_task(context, "reopen", &one, reopen, "reopened", "pending")
        }
    }
}

fn list(context: &Context, args: &Ls) -> Result<Exit, Failure> {
    let (tasks, json) = (open(context)?, args.json.json);
    let seen = if args.all { tasks.snapshot_of_all() } else { tasks.snapshot() };
    let seen = seen.map_err(|why| failure("the task list cannot be shown", &why))?;
    if !json {
        for problem in &seen.problems {
            warn(&format!("warning: {}: {}", problem.file, problem.why));
        }
    }
    let text = || task_view::table(&seen, context.palette());
    Ok(print_result(json, || task_view::list_json(&seen), text))
}

fn show(context: &Context, args: &One) -> Result<Exit, Failure> {
    let id = task_id(&args.id)?;
    let found = open(context)?.get(id);
    let (task, seen) = found.map_err(|why| failure(&format!("task {id} cannot be shown"), &why))?;
    let json = || task_view::json(&task, &seen.board);
    let text = || task_view::details(&task, &seen.board, &context.view());
    Ok(print_result(args.json.json, json, text))
}

fn add(context: &Context, args: Add) -> Result<Exit, Failure> {
    let Add { subject, description, mut after, owner, role, json } = args;
    // clap reads the subject of `--after 1 2 "subject"` as an id.
    let subject = subject.or_else(|| after.pop_if(|last| TaskId::parse(last).is_err()));
    let subject = subject.ok_or_else(|| {
        let hint = "team task add \"write the schema\"";
        Failure::new(Exit::Usage, "a task needs a SUBJECT", "none was given", hint)
    })?;
    if subject.trim() == "-" {
        let why =
            "a subject is one line on the command line; `-` does not read it from standard input";
        let hint = "team task add \"write the schema\"";
        return Err(Failure::new(Exit::Usage, "a task needs a SUBJECT", why, hint));
    }
    context.refuse_inside_agent("task add")?;
    let new = NewTask {
        subject,
        description: description.unwrap_or_default(),
        blocked_by: after.iter().map(|id| task_id(id)).collect::<Result<_, _>>()?,
        owner: owner.as_deref().map(mailbox_name).transpose()?,
        role,
        origin: None,
    };
    let made = open(context)?.create(&new, &AgentName::user());
    let made = made.map_err(|why| failure("the task was not added", &why))?;
    Ok(report(&made, json, &made.task.id.to_string()))
}

fn claim(context: &Context, args: &Claim) -> Result<Exit, Failure> {
    let owner = args.who.as_deref().map_or_else(|| Ok(AgentName::user()), mailbox_name)?;
    let change = |tasks: &Tasks, id| tasks.claim(id, &owner);
    change_task(context, "claim", &args.one, change, "claimed", &format!("{owner}'s"))
}

fn end(context: &Context, verb: &str, how: TaskStatus, args: &One) -> Result<Exit, Failure> {
    let word = how.word();
    let change = |tasks: &Tasks, id| tasks.end(id, how, None, &AgentName::user());
    change_task(context, verb, args, change, word, word)
}

/// Changes a task and reports it; `word` is the change that a failure denies, `state` the new state.
fn change_task(
    context: &Context,
    verb: &str,
    args: &One,
    change: impl FnOnce(&Tasks, TaskId) -> Result<Changed, TaskError>,
    word: &str,
    state: &str,
) -> Result<Exit, Failure> {
    context.refuse_inside_agent(&format!("task {verb}"))?;
    let id = task_id(&args.id)?;
    let done = change(&*open(context)?, id);
    let done = done.map_err(|why| failure(&format!("task {id} was not {word}"), &why))?;
    Ok(report(&done, args.json, &format!("task {id} is {state}")))
}

fn report(done: &Changed, Json { json }: Json, what: &str) -> Exit {
    for untold in &done.untold {
        warn(&format!("warning: not told: {untold}"));
    }
    print_result(json, || task_view::change_json(done), || task_view::change_text(done, what))
}

fn open(context: &Context) -> Result<Arc<Tasks>, Failure> {
    Ok(open_tasks(&context.team_bus()?))
}

fn task_id(given: &str) -> Result<TaskId, Failure> {
    TaskId::parse(given)
        .or_fail(format!("there is no task {given:?}"), "`team task ls` shows the ids")
}

fn failure(what: &str, why: &TaskError) -> Failure {
    let is_locked = why.store_error().is_some_and(StoreError::is_lock_timeout);
    let exit = if is_locked { Exit::InUse } else { Exit::Failure };
    Failure::new(exit, what, why.to_string(), why.hint())
}

//! `team transcript NAME`: a conversation, also as it grows.

use super::args::{Json, follow, since};
use crate::app::host_copies::HostCopies;
use crate::app::names::{mailbox_name, unknown_name};
use crate::app::{context::Context, output::print};
use crate::error::{Exit, Failure};
use crate::store::relay::copies;
use crate::store::{StoreError, TeamDir, roster, subagents, tail::Tail};
use crate::ui::{transcript::Conversation, view::View};
use crate::wire::WallTime;
use crate::wire::host_copy::CopyPart;
use crate::wire::subagent::{SubagentId, SubagentStart};
use crate::wire::transcript::{Entry, Line};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the agent, or NAME:N for its subagent N
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    name: String,
    /// Follow: print new entries as they come
    #[arg(long, short = 'f')]
    follow: bool,
    /// Start at this time: 10m, 2h, 3d (ago), 14:30, 2026-01-31T14:30, RFC 3339, seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<WallTime>,
    /// Start at the last N lines of the transcript; a long one is read from its end
    #[arg(long, value_name = "N", conflicts_with = "since")]
    last: Option<usize>,
    /// Show the results of tools in full
    #[arg(long, conflicts_with = "json")]
    full: bool,
    /// Show the work of subagents below the calls that started them
    #[arg(long, conflicts_with = "json")]
    subagents: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let subagent = SubagentId::parse(&args.name);
    let name = match &subagent {
        Some(id) => id.caller.clone(),
        None => mailbox_name(&args.name)?,
    };
    // They are kept up to date as long as the command runs.
    let shown = HostCopies::of(&team, std::slice::from_ref(&name), &[CopyPart::Transcripts])?;
    shown.wait();
    let folder = copies::folder_of(&team, &*roster::read(&team)?, &name);
    if let Some(id) = subagent {
        return show_subagent(context, &folder, &id, &args);
    }
    let path = folder.transcript(&name);
    let may_appear = args.follow && team.inbox(&name).exists();
    if !path.exists() && !may_appear {
        let why = "no agent of that name has worked in this team";
        return Err(unknown_name(&team, &name, format!("{name} has no conversation"), why));
    }
    let mut tail = match (args.since, args.last) {
        (Some(since), _) => Tail::since(path, since, Line::time)?,
        (None, Some(last)) => Tail::last(path, last)?,
        (None, None) => Tail::new(path),
    };
    let view = context.view();
    let mut conversation = Conversation::new(args.full);
    let (since, as_json) = (args.since, args.json.json);
    let branches = args.subagents.then_some(&folder);
    let mut print_new =
        || print_branched(&mut tail, since, as_json, &mut conversation, branches, &view);
    follow(args.follow, Duration::from_millis(100), &mut print_new)
}

/// Prints the transcript of a subagent, also as it grows.
fn show_subagent(
    context: &Context,
    team: &TeamDir,
    id: &SubagentId,
    args: &Args,
) -> Result<Exit, Failure> {
    let path = subagents::path(team, id);
    if !path.exists() {
        let caller = &id.caller;
        return Err(Failure::new(
            Exit::Usage,
            format!("there is no subagent {id}"),
            format!("{caller} has started none of this number"),
            format!("`team transcript {caller}` names its subagents"),
        ));
    }
    let mut tail = match args.since {
        Some(since) => Tail::since(path, since, Line::time)?,
        None => Tail::new(path),
    };
    let (view, mut conversation) = (context.view(), Conversation::new(args.full));
    let (since, as_json) = (args.since, args.json.json);
    let mut print_new = || print_new(&mut tail, since, as_json, &mut conversation, &view);
    follow(args.follow, Duration::from_millis(100), &mut print_new)
}

/// Renders the transcript of a subagent as a branch of its caller's.
fn branch(team: &TeamDir, start: &SubagentStart, view: &View) -> String {
    let lines = SubagentId::parse(&start.id).map(|id| subagents::read_all(team, &id));
    let lines = lines.and_then(Result::ok).unwrap_or_default();
    if !subagents::are_of(&lines, start) {
        return String::new();
    }
    let mut conversation = Conversation::new(false);
    let own = lines.iter().filter(|line| !matches!(line.entry, Entry::Subagent(_)));
    let mut text: String = own.map(|line| conversation.line(line, view)).collect();
    text.push_str(&conversation.pause(view));
    text.lines().flat_map(|row| ["│  ", row, "\n"]).collect()
}

/// Prints what was appended since the last call; `false` when stdout has no reader any more.
pub(super) fn print_new(
    tail: &mut Tail,
    since: Option<WallTime>,
    as_json: bool,
    conversation: &mut Conversation,
    view: &View,
) -> Result<bool, Failure> {
    print_branched(tail, since, as_json, conversation, None, view)
}

/// Does the same as [`print_new`]; with a team, the work of its subagents is a branch below their starts.
fn print_branched(
    tail: &mut Tail,
    since: Option<WallTime>,
    as_json: bool,
    conversation: &mut Conversation,
    branches: Option<&TeamDir>,
    view: &View,
) -> Result<bool, Failure> {
    let mut fresh = tail.fresh()?;
    while let Some(bytes) = fresh.next_line().map_err(StoreError::from)? {
        let Some(line) = Line::read(bytes) else { continue };
        if since.is_some_and(|since| line.at < since) {
            continue;
        }
        let shown = if as_json {
            // The bytes of the file keep what a later version has written.
            String::from_utf8_lossy(bytes).into_owned()
        } else {
            let mut shown = conversation.line(&line, view);
            if let (Entry::Subagent(start), Some(team)) = (&line.entry, branches) {
                shown += &branch(team, start, view);
            }
            shown
        };
        if !shown.is_empty() && !print(&shown) {
            return Ok(false);
        }
    }
    let running = conversation.pause(view);
    Ok(running.is_empty() || print(&running))
}

//! `team transcript NAME`: a conversation, also as it grows.

use super::args::{Json, follow, since};
use crate::app::names::{mailbox_name, unknown_name};
use crate::app::{context::Context, output::print};
use crate::error::{Exit, Failure};
use crate::store::{StoreError, tail::Tail};
use crate::ui::{transcript::Conversation, view::View};
use crate::wire::{WallTime, transcript::Line};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the agent
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    name: String,
    /// Follow: print new entries as they come
    #[arg(long, short = 'f')]
    follow: bool,
    /// Start at this time: 10m, 2h, 3d (ago), 14:30, 2026-01-31T14:30, RFC 3339, seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<WallTime>,
    /// Show the results of tools in full
    #[arg(long, conflicts_with = "json")]
    full: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let name = mailbox_name(&args.name)?;
    let path = team.transcript(&name);
    let may_appear = args.follow && team.inbox(&name).exists();
    if !path.exists() && !may_appear {
        let why = "no agent of that name has worked in this team";
        return Err(unknown_name(&team, &name, format!("{name} has no conversation"), why));
    }
    let mut tail = match args.since {
        Some(since) => Tail::since(path, since, Line::time)?,
        None => Tail::new(path),
    };
    let view = context.view();
    let mut conversation = Conversation::new(args.full);
    let (since, as_json) = (args.since, args.json.json);
    let mut print_new = || print_new(&mut tail, since, as_json, &mut conversation, &view);
    follow(args.follow, Duration::from_millis(100), &mut print_new)
}

/// Prints what was appended since the last call; `false` when stdout has no reader any more.
pub(super) fn print_new(
    tail: &mut Tail,
    since: Option<WallTime>,
    as_json: bool,
    conversation: &mut Conversation,
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
            conversation.line(&line, view)
        };
        if !shown.is_empty() && !print(&shown) {
            return Ok(false);
        }
    }
    let running = conversation.pause(view);
    Ok(running.is_empty() || print(&running))
}

//! `team transcript NAME`: a conversation, readable, also as it grows.

use super::args::TranscriptArgs;
use super::build_agent::block_on;
use super::context::{Context, mailbox_name, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::store::tail::Tail;
use crate::ui;
use crate::ui::view::View;
use crate::wire::transcript::Line;
use std::time::Duration;

/// How often the file is looked at with `--follow`.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) fn run(context: &Context, args: &TranscriptArgs) -> Result<Exit, Failure> {
    let team = context.seen_team()?;
    let name = mailbox_name(&args.name)?;
    let path = team.transcript(&name);
    let may_come = args.follow && team.inbox(&name).exists();
    if !path.exists() && !may_come {
        let what = format!("{name} has no conversation");
        let why = "nobody of that name has worked in this team";
        return Err(Failure::new(Exit::Failure, what, why, "`team ls` shows who is there"));
    }
    let mut tail = match args.since {
        Some(since) => Tail::since(path, since, Line::time).map_err(store_failure)?,
        None => Tail::new(path),
    };
    let view = context.view();
    if !print_new(&mut tail, args, &view)? {
        return Ok(Exit::Failure);
    }
    if !args.follow {
        return Ok(Exit::Ok);
    }
    block_on(async {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !print_new(&mut tail, args, &view)? {
                return Ok(Exit::Ok);
            }
        }
    })?
}

/// Prints what came since the last call; `false` when nobody reads any more.
fn print_new(tail: &mut Tail, args: &TranscriptArgs, view: &View) -> Result<bool, Failure> {
    let mut fresh = tail.fresh().map_err(store_failure)?;
    while let Some(bytes) = fresh.next_line().map_err(|why| store_failure(why.into()))? {
        let Some(line) = Line::read(bytes) else { continue };
        if args.since.is_some_and(|since| line.at < since) {
            continue;
        }
        let shown = if args.show.json {
            // As it stands there: what a later version wrote is not lost.
            String::from_utf8_lossy(bytes).into_owned()
        } else {
            ui::transcript::line(&line, view)
        };
        if !shown.is_empty() && !out::say(&shown) {
            return Ok(false);
        }
    }
    Ok(true)
}

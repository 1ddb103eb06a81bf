//! `team transcript NAME`: a conversation, readable.

use super::args::TranscriptArgs;
use super::context::{Context, mailbox_name, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::store::transcript;
use crate::ui;

pub(super) fn run(context: &Context, args: &TranscriptArgs) -> Result<Exit, Failure> {
    let team = context.team()?;
    let name = mailbox_name(&args.name)?;
    let lines = transcript::read_all(&team, &name).map_err(store_failure)?;
    if lines.is_empty() && !team.transcript(&name).exists() {
        let what = format!("{name} has no conversation");
        let why = "nobody of that name has worked in this team";
        return Err(Failure::new(Exit::Failure, what, why, "`team ls` shows who is there"));
    }
    let view = context.view();
    for line in &lines {
        let shown = if args.show.json {
            line.text().trim_end().to_owned()
        } else {
            ui::transcript::line(line, &view)
        };
        if !shown.is_empty() && !out::say(&shown) {
            return Ok(Exit::Failure);
        }
    }
    Ok(Exit::Ok)
}

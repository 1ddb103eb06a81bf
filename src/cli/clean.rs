//! `team clean`: removes what a dead team left behind.

use super::args::Json;
use crate::app::output::{print_result, warn};
use crate::app::{clean::Cleanup, context::Context};
use crate::error::{Exit, Failure};
use std::io::{self, BufRead, IsTerminal};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Also remove unread mail, dead letters and transcripts, after listing them
    #[arg(long)]
    purge: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let cleanup = Cleanup::find(context)?;
    let precious = cleanup.precious_lines();
    let purge = args.purge && (precious.is_empty() || args.yes || confirm(&precious)?);
    let cleaned = cleanup.remove(purge)?;
    Ok(print_result(args.json.json, || cleaned.json(), || cleaned.text()))
}

/// Lists what `--purge` would remove, and asks the person.
fn confirm(precious: &[String]) -> Result<bool, Failure> {
    warn(&format!("--purge removes for good:\n{}", precious.join("\n")));
    if !io::stdin().is_terminal() {
        let why = "standard input is not a terminal, so no question can be asked";
        let hint = "read the list, then run it with --purge --yes; nothing was removed";
        return Err(Failure::new(Exit::Usage, "--purge asks for confirmation", why, hint));
    }
    warn("Remove all this? [y/N]");
    let mut answer = String::new();
    // Input that cannot be read counts as no.
    let _length = io::stdin().lock().read_line(&mut answer);
    let is_yes = matches!(answer.trim(), "y" | "Y" | "yes");
    if !is_yes {
        warn("nothing was removed");
    }
    Ok(is_yes)
}

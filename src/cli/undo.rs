//! `team undo`: takes back the changes of an agent.

use super::args::Json;
use crate::app::context::Context;
use crate::app::output::{exit_after, print, print_result, warn};
use crate::app::undo;
use crate::error::{Exit, Failure};
use crate::ui;
use std::io::{self, BufRead, IsTerminal};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent: a teammate, or lead
    #[arg(value_name = "NAME")]
    name: String,
    /// Take back this turn and all later ones, instead of the last one
    #[arg(long, value_name = "TURN")]
    to: Option<u64>,
    /// Show the turns that can be taken back
    #[arg(long, conflicts_with_all = ["to", "yes", "partial"])]
    list: bool,
    /// Leave the files that cannot be taken back as they are, and take back the others
    #[arg(long)]
    partial: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    if args.list {
        return list(context, &args);
    }
    let bus = undo::open(context)?;
    let agent = undo::agent(bus.dir(), &args.name)?;
    let plan = undo::plan(bus.dir(), &agent, args.to)?;
    let is_blocked = !plan.refusals.is_empty() && !args.partial;
    let is_possible = !plan.steps.is_empty() && !is_blocked;
    if !args.json.json
        && !print(&ui::undo::plan(&plan, &undo::clone_folders(bus.dir()), &context.view()))
    {
        return Ok(Exit::Failure);
    }
    if is_possible && !args.yes && !confirm(args.json.json)? {
        if args.json.json {
            return Ok(exit_after(print(&undo::plan_json(&plan, None).to_string())));
        }
        warn("nothing was changed");
        return Ok(Exit::Ok);
    }
    let done = undo::apply(&bus, &plan, args.partial);
    if args.json.json && done.is_err() && !print(&undo::plan_json(&plan, None).to_string()) {
        return Ok(Exit::Failure);
    }
    let (undone, told) = done?;
    let text = || {
        let count = undone.files.len();
        let files = if count == 1 { "file is" } else { "files are" };
        let redo = format!("`team undo {agent} --to {}` brings the changes back", undone.turn);
        ui::sanitize::sanitize(&format!("{count} {files} as before; {told}; {redo}")).into_owned()
    };
    Ok(print_result(args.json.json, || undo::plan_json(&plan, Some(&undone)), text))
}

fn list(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let agent = undo::agent(&team, &args.name)?;
    let turns = undo::turns(&team, &agent)?;
    let workspace = team.workspace();
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let text = || ui::undo::turns(&turns, &workspace, &undo::clone_folders(&team), &context.view());
    Ok(print_result(args.json.json, || undo::turns_json(&team, &agent, &turns), text))
}

/// Asks the person. With JSON, the answer is no.
fn confirm(is_json: bool) -> Result<bool, Failure> {
    if is_json {
        return Ok(false);
    }
    if !io::stdin().is_terminal() {
        let why = "standard input is not a terminal, so no question can be asked";
        let hint = "read the list, then run it with --yes; nothing was changed";
        return Err(Failure::new(Exit::Usage, "undo asks for confirmation", why, hint));
    }
    warn("Take this back? [y/N]");
    let mut answer = String::new();
    // Input that cannot be read counts as no.
    let _length = io::stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

//! `team clean`: takes away what a dead team left behind; with `--purge` also what somebody may want.

use super::args::CleanArgs;
use super::context::{Context, durability, store_failure};
use super::out;
use super::progress_line::ProgressLine;
use crate::error::{Exit, Failure};
use crate::os::process_tree;
use crate::protocol::lifecycle::{self, LifecycleEvent};
use crate::settings::Flags;
use crate::store::TeamDir;
use crate::store::clean::{CleanError, Leftover, TeamAtRest};
use crate::store::roster;
use crate::wire::roster::Status;
use serde_json::{Value, json};
use std::io::{self, BufRead, IsTerminal};

pub(super) fn run(context: &Context, args: &CleanArgs) -> Result<Exit, Failure> {
    context.refuse_inside("clean")?;
    let team = context.team()?;
    let fsync = durability(context.settings(&Flags::default())?.fsync.value);
    let quiet = TeamAtRest::take(&team).map_err(|why| refusal(&why))?;
    let finds = quiet.find().map_err(store_failure)?;
    let (precious, plain): (Vec<Leftover>, Vec<Leftover>) =
        finds.into_iter().partition(|find| find.kind.is_precious());
    let may_purge = args.purge && (precious.is_empty() || may_purge(&team, args, &precious)?);
    let waiting = ProgressLine::begin("cleaning");
    // Their locks tell by which mark what they left running is found.
    for record in quiet.records() {
        let stuck = process_tree::end_run(&record.run_id);
        if !stuck.is_empty() {
            out::complain(&format!("warning: processes {stuck:?} of a dead member stay"));
        }
    }
    let mut removed: Vec<Value> = Vec::new();
    let ghosts = roster::update(&team, fsync, |roster| {
        let is_ghost = |status: Status, name: &str| !status.is_over() && quiet.holds(name);
        let mut ghosts: Vec<String> = Vec::new();
        roster.members.retain(|member| {
            let stays = !is_ghost(member.status, &member.name);
            ghosts.extend((!stays).then(|| member.name.clone()));
            stays
        });
        // What the lead has used is still to be known.
        if let Some(lead) = roster.lead.as_mut().filter(|lead| is_ghost(lead.status, "lead")) {
            let _legal = lifecycle::apply(&mut lead.status, LifecycleEvent::StopConfirmed);
            (lead.activity, lead.pid) = (None, None);
            ghosts.push("lead".into());
        }
        ghosts
    });
    for name in ghosts.map_err(store_failure)? {
        removed.push(json!({ "kind": "ghost", "name": name, "file": null, "bytes": 0 }));
    }
    let (purged, kept) = if may_purge { (precious, Vec::new()) } else { (Vec::new(), precious) };
    for find in plain.iter().chain(&purged) {
        waiting.about(&shown(&team, find));
        quiet.remove(find).map_err(store_failure)?;
        removed.push(as_json(&team, find));
    }
    drop(quiet);
    drop(waiting);
    let printed = if args.show.json {
        let kept: Vec<Value> = kept.iter().map(|find| as_json(&team, find)).collect();
        out::say_json(&json!({ "schema": 1, "removed": removed, "kept": kept }))
    } else {
        out::say(&report(&team, &removed, &kept))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

fn refusal(why: &CleanError) -> Failure {
    match why {
        CleanError::Alive { .. } => Failure::new(
            Exit::InUse,
            "the team cannot be cleaned while somebody lives",
            why.to_string(),
            "end it with `team stop --all`, then try again; nothing was removed",
        ),
        CleanError::Store(_) => {
            let hint = "check the team folder with `team doctor`";
            Failure::new(Exit::Failure, "the team cannot be cleaned", why.to_string(), hint)
        }
    }
}

/// Lists what `--purge` would remove, and asks where somebody can answer.
fn may_purge(team: &TeamDir, args: &CleanArgs, precious: &[Leftover]) -> Result<bool, Failure> {
    if args.yes {
        return Ok(true);
    }
    let list: Vec<String> = precious.iter().map(|find| shown(team, find)).collect();
    out::complain(&format!("--purge removes for good:\n{}", list.join("\n")));
    if !io::stdin().is_terminal() {
        let why = "standard input is no terminal, so nobody can be asked";
        let hint = "look at the list, then say --purge --yes; nothing was removed";
        return Err(Failure::new(Exit::Usage, "--purge wants an answer", why, hint));
    }
    out::complain("Remove all this? [y/N]");
    let mut answer = String::new();
    // No answer is none.
    let _read = io::stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(true);
    }
    out::complain("it stays");
    Ok(false)
}

fn shown(team: &TeamDir, find: &Leftover) -> String {
    format!("  {}: {} ({} bytes)", find.kind.words(), inside(team, find), find.bytes)
}

fn inside(team: &TeamDir, find: &Leftover) -> String {
    find.path.strip_prefix(team.root()).unwrap_or(&find.path).display().to_string()
}

fn as_json(team: &TeamDir, find: &Leftover) -> Value {
    let (kind, name) = (find.kind.words(), find.name.as_str());
    json!({ "kind": kind, "name": name, "file": inside(team, find), "bytes": find.bytes })
}

fn report(team: &TeamDir, removed: &[Value], kept: &[Leftover]) -> String {
    let word = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(String::from);
    let mut rows: Vec<String> = removed
        .iter()
        .map(|one| {
            let what = word(one, "file").or_else(|| word(one, "name")).unwrap_or_default();
            format!("removed {}: {what}", word(one, "kind").unwrap_or_default())
        })
        .collect();
    if removed.is_empty() {
        rows.push("nothing to clean".into());
    }
    if !kept.is_empty() {
        rows.push("kept, for --purge only:".into());
        rows.extend(kept.iter().map(|find| shown(team, find)));
    }
    rows.join("\n")
}

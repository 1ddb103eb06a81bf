//! Removing what a dead team left behind; with `--purge` also files that a person may want to keep.

use super::context::Context;
use super::output;
use super::progress_line::ProgressLine;
use crate::error::{Exit, Failure};
use crate::os::process_tree;
use crate::protocol::lifecycle::{self, LifecycleEvent};
use crate::store::clean::{CleanError, Leftover, TeamAtRest};
use crate::store::{Fsync, TeamDir, roster};
use crate::wire::roster::Status;
use serde_json::{Value, json};

/// The leftovers of a team whose life locks are all held by this process.
pub(crate) struct Cleanup {
    team: TeamDir,
    fsync: Fsync,
    at_rest: TeamAtRest,
    /// Removed by `--purge` only.
    precious: Vec<Leftover>,
    plain: Vec<Leftover>,
}

/// What was removed, and what was kept.
pub(crate) struct Cleaned {
    team: TeamDir,
    removed: Vec<Value>,
    kept: Vec<Leftover>,
}

impl Cleanup {
    /// Takes all life locks, then finds the leftovers.
    ///
    /// # Errors
    /// A process of the team is alive.
    pub(crate) fn find(context: &Context) -> Result<Self, Failure> {
        context.refuse_inside_agent("clean")?;
        let team = context.team()?;
        let fsync = context.settings()?.fsync.value;
        let at_rest = TeamAtRest::take(&team).map_err(|why| refusal(&why))?;
        let (precious, plain) =
            at_rest.find()?.into_iter().partition(|leftover| leftover.kind.is_precious());
        Ok(Self { team, fsync, at_rest, precious, plain })
    }

    /// Lists what only `--purge` removes.
    pub(crate) fn precious_lines(&self) -> Vec<String> {
        self.precious.iter().map(|leftover| line(&self.team, leftover)).collect()
    }

    /// Ends stray processes and removes ghosts from the roster and leftovers from the disk.
    pub(crate) fn remove(self, purge: bool) -> Result<Cleaned, Failure> {
        let progress = ProgressLine::begin("cleaning");
        // The life locks hold the run ids by which stray processes are found, so this comes first.
        for record in self.at_rest.records() {
            let stuck = process_tree::end_run(&record.run_id);
            if !stuck.is_empty() {
                output::warn(&format!("warning: processes {stuck:?} of a dead member stay"));
            }
        }
        let ghosts = self.remove_ghosts()?.into_iter();
        let mut removed: Vec<Value> = ghosts
            .map(|name| json!({ "kind": "ghost", "name": name, "file": null, "bytes": 0 }))
            .collect();
        let Self { team, at_rest, precious, plain, .. } = self;
        let (purged, kept) = if purge { (precious, Vec::new()) } else { (Vec::new(), precious) };
        for leftover in plain.iter().chain(&purged) {
            progress.show_subject(&line(&team, leftover));
            at_rest.remove(leftover)?;
            removed.push(leftover_json(&team, leftover));
        }
        Ok(Cleaned { team, removed, kept })
    }

    /// Removes roster entries that claim a life and have none. The lead's entry stays for its usage.
    fn remove_ghosts(&self) -> Result<Vec<String>, Failure> {
        let is_ghost = |status: Status, name: &str| !status.is_over() && self.at_rest.holds(name);
        let ghosts = roster::update(&self.team, self.fsync, |roster| {
            let mut ghosts: Vec<String> = Vec::new();
            roster.members.retain(|member| {
                let stays = !is_ghost(member.status, &member.name);
                ghosts.extend((!stays).then(|| member.name.clone()));
                stays
            });
            if let Some(lead) = roster.lead.as_mut().filter(|lead| is_ghost(lead.status, "lead")) {
                let _legal = lifecycle::apply(&mut lead.status, LifecycleEvent::StopConfirmed);
                (lead.activity, lead.pid) = (None, None);
                ghosts.push("lead".into());
            }
            ghosts
        })?;
        Ok(ghosts)
    }
}

impl Cleaned {
    /// Renders the result as JSON.
    pub(crate) fn json(&self) -> Value {
        let kept = self.kept.iter().map(|leftover| leftover_json(&self.team, leftover));
        json!({ "schema": 1, "removed": self.removed, "kept": kept.collect::<Vec<_>>() })
    }

    /// Renders the result as text.
    pub(crate) fn text(&self) -> String {
        let word = |value: &Value, key: &str| value.get(key)?.as_str().map(String::from);
        let mut rows: Vec<String> = self
            .removed
            .iter()
            .map(|one| {
                let what = word(one, "file").or_else(|| word(one, "name")).unwrap_or_default();
                format!("removed {}: {what}", word(one, "kind").unwrap_or_default())
            })
            .collect();
        if self.removed.is_empty() {
            rows.push("nothing to clean".into());
        }
        if !self.kept.is_empty() {
            rows.push("kept, for --purge only:".into());
            rows.extend(self.kept.iter().map(|leftover| line(&self.team, leftover)));
        }
        rows.join("\n")
    }
}

fn refusal(why: &CleanError) -> Failure {
    match why {
        CleanError::Alive { .. } => Failure::new(
            Exit::InUse,
            "the team cannot be cleaned while somebody lives",
            why.to_string(),
            "end it with `team stop --all`, then try again; nothing was removed",
        ),
        CleanError::Store(_) => Failure::new(
            Exit::Failure,
            "the team cannot be cleaned",
            why.to_string(),
            "check the team folder with `team doctor`",
        ),
    }
}

fn line(team: &TeamDir, leftover: &Leftover) -> String {
    let Leftover { kind, bytes, .. } = leftover;
    format!("  {}: {} ({bytes} bytes)", kind.words(), relative_path(team, leftover))
}

fn relative_path(team: &TeamDir, leftover: &Leftover) -> String {
    leftover.path.strip_prefix(team.root()).unwrap_or(&leftover.path).display().to_string()
}

fn leftover_json(team: &TeamDir, leftover: &Leftover) -> Value {
    let (kind, name) = (leftover.kind.words(), leftover.name.as_str());
    json!({
        "kind": kind, "name": name, "file": relative_path(team, leftover), "bytes": leftover.bytes,
    })
}

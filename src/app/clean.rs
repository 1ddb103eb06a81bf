//! Removes the leftovers of a dead team; with `--purge` also files that a person may want to keep.

use super::{context::Context, output, progress_line::ProgressLine};
use crate::error::{Exit, Failure};
use crate::protocol::lifecycle::{self, LifecycleEvent};
use crate::store::clean::{CleanError, Leftover, TeamAtRest};
use crate::store::{Fsync, TeamDir, roster};
use crate::supervise::commands::end_commands;
use crate::wire::roster::Status;
use serde_json::{Value, json};

/// The leftovers of a team whose life locks are all held by this process.
pub(crate) struct Cleanup {
    team: TeamDir,
    fsync: Fsync,
    at_rest: TeamAtRest,
    /// The leftovers that only `--purge` removes.
    precious: Vec<Leftover>,
    plain: Vec<Leftover>,
}

pub(crate) struct Cleaned {
    team: TeamDir,
    ghosts: Vec<String>,
    removed: Vec<Leftover>,
    kept: Vec<Leftover>,
}

impl Cleanup {
    /// Takes all life locks, then finds the leftovers. Fails if a process of the team is alive.
    pub(crate) fn find(context: &Context) -> Result<Self, Failure> {
        context.refuse_inside_agent("clean")?;
        let team = context.team()?;
        let fsync = context.settings_or_defaults().fsync.value;
        let at_rest = TeamAtRest::take(&team).map_err(|why| {
            let (exit, what, hint) = match why {
                CleanError::Alive { .. } => (
                    Exit::InUse,
                    "the team cannot be cleaned while a member is alive",
                    "end it with `team stop --all`, then try again; nothing was removed",
                ),
                CleanError::Store(_) => (
                    Exit::Failure,
                    "the team cannot be cleaned",
                    "check the team folder with `team doctor`",
                ),
            };
            Failure::new(exit, what, why.to_string(), hint)
        })?;
        let (precious, plain) =
            at_rest.find()?.into_iter().partition(|leftover| leftover.kind.is_precious());
        Ok(Self { team, fsync, at_rest, precious, plain })
    }

    pub(crate) fn precious_lines(&self) -> Vec<String> {
        self.precious.iter().map(|leftover| line(&self.team, leftover)).collect()
    }

    /// Kills stray processes, and removes ghosts from the roster and leftovers from the disk.
    pub(crate) fn remove(self, purge: bool) -> Result<Cleaned, Failure> {
        let progress = ProgressLine::begin("cleaning");
        // The life locks hold the run ids by which stray processes are found, so this comes first.
        for (name, record) in self.at_rest.records() {
            let stuck = end_commands(&self.team, &name, &record.run_id, self.fsync);
            if !stuck.is_empty() {
                output::warn(&format!(
                    "warning: processes {stuck:?} of a dead member are still running"
                ));
            }
        }
        let ghosts = self.remove_ghosts()?;
        let Self { team, at_rest, mut precious, plain: mut removed, .. } = self;
        if purge {
            removed.append(&mut precious);
        }
        for leftover in &removed {
            progress.show_subject(&line(&team, leftover));
            at_rest.remove(leftover)?;
        }
        Ok(Cleaned { team, ghosts, removed, kept: precious })
    }

    /// Removes roster entries with a live status but no process. The lead's entry stays, for its usage.
    fn remove_ghosts(&self) -> Result<Vec<String>, Failure> {
        let is_ghost = |status: Status, name: &str| !status.is_over() && self.at_rest.holds(name);
        let ghosts = roster::update(&self.team, self.fsync, |roster| {
            let mut ghosts: Vec<String> = Vec::new();
            roster.members.retain(|member| {
                let removed =
                    lifecycle::next(Some(member.status), LifecycleEvent::Removed) == Ok(None);
                let is_removed = removed && is_ghost(member.status, &member.name);
                ghosts.extend(is_removed.then(|| member.name.clone()));
                !is_removed
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
    pub(crate) fn json(&self) -> Value {
        let of = |leftover: &Leftover| {
            let Leftover { kind, name, bytes, .. } = leftover;
            let file = relative_path(&self.team, leftover);
            json!({ "kind": kind.words(), "name": name.as_str(), "file": file, "bytes": bytes })
        };
        let ghost = |name| json!({ "kind": "ghost", "name": name, "file": null, "bytes": 0 });
        let removed = self.ghosts.iter().map(ghost).chain(self.removed.iter().map(of));
        let kept = self.kept.iter().map(of);
        let (removed, kept): (Vec<Value>, Vec<Value>) = (removed.collect(), kept.collect());
        json!({ "schema": 1, "removed": removed, "kept": kept })
    }

    pub(crate) fn text(&self) -> String {
        let ghosts = self.ghosts.iter().map(|name| format!("removed dead roster entry: {name}"));
        let mut rows: Vec<String> = ghosts.collect();
        rows.extend(self.removed.iter().map(|leftover| {
            format!("removed {}: {}", leftover.kind.words(), relative_path(&self.team, leftover))
        }));
        if rows.is_empty() {
            rows.push("nothing to clean".into());
        }
        if !self.kept.is_empty() {
            rows.push("kept (only --purge removes them):".into());
            rows.extend(self.kept.iter().map(|leftover| line(&self.team, leftover)));
        }
        rows.join("\n")
    }
}

fn line(team: &TeamDir, leftover: &Leftover) -> String {
    let Leftover { kind, bytes, .. } = leftover;
    format!("  {}: {} ({bytes} bytes)", kind.words(), relative_path(team, leftover))
}

fn relative_path(team: &TeamDir, leftover: &Leftover) -> String {
    leftover.path.strip_prefix(team.root()).unwrap_or(&leftover.path).display().to_string()
}

//! The end of the play: as in the record, cut off since the record goes on, or by a kill of all processes.

use super::order::Progress;
use super::shared::Shared;
use super::{LOOK_INTERVAL, Player, SLOW_INTERVAL};
use crate::os::Signal;
use crate::os::pidfd::Pidfd;
use crate::os::program::kill_this_process;
use crate::store::liveness::{self, Liveness};
use crate::wire::WallTime;
use crate::wire::replay::PlayEnd;
use std::rc::Rc;

impl Player {
    /// Whether the members are cut off at the end, since the record goes on.
    pub(crate) fn is_cut(&self) -> bool {
        self.plan.ending == PlayEnd::Cut
    }

    /// Whether the record is played to its end. A record that is no longer followed ends with the work of the team, which
    /// waits where the record is cut.
    pub(crate) fn is_over(&self, is_at_rest: bool) -> bool {
        self.is_played.get() || (self.has_strayed.get() && (is_at_rest || self.is_cut()))
    }

    /// Waits for the end of this process, if the record goes on where the play ends.
    pub(super) async fn stay_at_cut(&self, time: WallTime) {
        if self.is_cut() && self.plan.end.is_some_and(|end| time >= end) {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the kill of all processes in a step that was under way at the kill of the record.
    pub(super) async fn stay_for_kill(&self) {
        if self.plan.ending == PlayEnd::Killed {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the end of the team if the lead ended in the record before it acted on the mail that it has here.
    pub(super) async fn stay_in_last_drain(&self) {
        let missing = || "mail on which the record has no turn".to_owned();
        let is_over =
            move |shared: &mut Shared| !shared.is_last_drain() || shared.has_strayed(missing);
        if self.me.is_lead() {
            self.wait_until(LOOK_INTERVAL, is_over).await;
        }
    }

    /// Waits for the end of a call that the record has no result of. Returns if the record is no longer followed.
    pub(super) async fn stay_in_call(&self) {
        let missing = || "a call that was cut short in the record goes on".to_owned();
        self.wait_until(LOOK_INTERVAL, move |shared| shared.has_strayed(missing)).await;
    }

    /// Watches for the end of the record.
    pub(super) async fn watch_for_end(self: Rc<Self>) {
        while !self.is_played.get() {
            let is_killed = self.plan.ending == PlayEnd::Killed;
            let seen = self.look(move |shared| {
                let is_played = shared.is_played();
                let is_stuck = shared.is_stuck();
                let is_kill = is_killed && (is_stuck || (is_played && shared.is_mail_waiting()));
                if is_stuck && !is_played && shared.strayed.is_none() {
                    shared.stray("the record has more than what happens here".into());
                }
                (is_played, shared.strayed.is_some(), is_kill.then(|| shared.teammates()))
            });
            let (is_played, has_strayed, to_kill) = seen.await;
            if let Some(teammates) = to_kill {
                kill_team(&teammates);
            }
            self.is_played.set(is_played && !is_killed);
            self.has_strayed.set(has_strayed);
            tokio::time::sleep(SLOW_INTERVAL).await;
        }
    }
}

/// Kills the lead with its teammates, at once: no other task of this thread sees the end of one of them.
fn kill_team(teammates: &[Pidfd]) {
    for teammate in teammates {
        let _is_gone = teammate.send_signal(Signal::SIGKILL);
    }
    kill_this_process();
}

impl Shared {
    /// Whether nothing goes on, and no tool is at work.
    fn is_stuck(&self) -> bool {
        self.is_stalled() && !self.members.iter().any(Progress::runs_tool_to_its_end)
    }

    /// Returns the processes of the living teammates.
    fn teammates(&self) -> Vec<Pidfd> {
        let others = self.members.iter().map(|member| &member.name);
        let others = others.filter(|name| **name != self.me);
        let record = |name| match liveness::probe(&self.dir, name) {
            Ok(Liveness::Alive(record)) => record,
            Ok(Liveness::Dead) | Err(_) => None,
        };
        others.filter_map(|name| record(name)?.open_process()).collect()
    }
}

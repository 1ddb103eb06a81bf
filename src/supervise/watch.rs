//! Looking after the team at regular times: who no longer moves, who died without anybody's leave, what
//! came to the lead by adoption.

use super::Supervisor;
use super::stop::end_by_force;
use crate::os::process_tree;
use crate::protocol::hang_detector::{HangDetector, HeartbeatDuty, Seen};
use crate::protocol::restart::ProcessEnd;
use crate::store::roster::Cached;
use crate::store::{Liveness, heartbeat, liveness, unread};
use crate::wire::roster::{ExitCause, LastExit, Member, Roster, StartedBy, Status};
use crate::wire::{AgentName, WithUnknownFields};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often everybody is looked at.
const LOOK_EVERY: Duration = crate::wire::limits::LIVENESS_POLL;

impl Supervisor {
    /// Watches over the team until the team is being stopped.
    pub(crate) async fn keep_watch(self: Rc<Self>) {
        let period = self.plan.hung_after.map_or(LOOK_EVERY, |limit| (limit / 6).min(LOOK_EVERY));
        let mut hang_detector =
            self.plan.hung_after.map(|patience| HangDetector::new(patience, period));
        let mut roster: Cached<WithUnknownFields<Roster>> = Cached::of(self.plan.bus.dir());
        let mut look = tokio::time::interval(period);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            self.end_adopted().await;
            if self.closing.get() {
                return;
            }
            let members: Vec<Member> = match roster.current(self.plan.bus.dir()) {
                Ok(roster) => roster.members.iter().map(|member| Member::clone(member)).collect(),
                Err(why) => {
                    tracing::warn!(%why, "the team cannot be watched");
                    continue;
                }
            };
            for member in &members {
                if member.started_by == StartedBy::Hand && !member.status.is_over() {
                    self.look_at_outsider(member).await;
                }
            }
            if let Some(hang_detector) = &mut hang_detector {
                self.look_for_hung(hang_detector, &members);
            }
        }
    }

    /// What escaped from a command whose agent died is the lead's by adoption: it is ended and reaped,
    /// whenever it comes.
    async fn end_adopted(&self) {
        if !process_tree::has_adopted() {
            return;
        }
        match tokio::task::spawn_blocking(process_tree::end_adopted).await {
            Ok(stuck) if stuck.is_empty() => {}
            stuck => tracing::warn!(?stuck, "adopted processes could not be ended"),
        }
    }

    /// A member that somebody started by hand is nobody's child: its death shows in its lock.
    async fn look_at_outsider(&self, member: &Member) {
        let Ok(name) = AgentName::member(&member.name) else { return };
        if !matches!(liveness::probe(self.plan.bus.dir(), &name), Ok(Liveness::Dead)) {
            return;
        }
        let (at, life) = (self.plan.clock.now(), member.incarnation.clone());
        let noted = name.clone();
        let written = self.write(move |roster| {
            let member = roster.member_mut(noted.as_str());
            let Some(member) = member.filter(|m| m.incarnation == life && !m.status.is_over())
            else {
                return false;
            };
            let exit = LastExit { code: None, signal: None, cause: ExitCause::Crash, at };
            (member.status, member.activity, member.pid) = (Status::Failed, None, None);
            (member.since, member.last_exit) = (at, Some(exit));
            true
        });
        match written.await {
            Ok(true) => {
                tracing::warn!(%name, "a member started by hand has died");
                self.tell_lead(
                    &name,
                    &member.incarnation,
                    ExitCause::Crash,
                    ProcessEnd::Signal(9),
                    None,
                )
                .await;
            }
            Ok(false) => {}
            Err(why) => tracing::warn!(%name, %why, "the roster could not be told of the end"),
        }
    }

    fn look_for_hung(self: &Rc<Self>, hang_detector: &mut HangDetector, members: &[Member]) {
        let children: Vec<(AgentName, String)> = {
            let children = self.children.borrow();
            let lives = children.iter().map(|(name, child)| (name, &child.incarnation));
            lives.map(|(name, life)| (name.clone(), life.clone())).collect()
        };
        let lives: Vec<String> = children.iter().map(|(_, life)| life.clone()).collect();
        hang_detector.keep(&lives);
        let now = self.plan.clock.monotonic();
        for (name, life) in children {
            let entry = members.iter().find(|m| m.name == name.as_str() && m.incarnation == life);
            let Some(member) = entry else { continue };
            let seen = self.seen(&name, member);
            if hang_detector.look(&life, seen, now) && self.hung.borrow_mut().insert(life.clone()) {
                tracing::error!(%name, status = member.status.word(), "it no longer moves");
                let bus = std::sync::Arc::clone(&self.plan.bus);
                tokio::task::spawn_local(async move {
                    let how = end_by_force(bus.dir(), &name, &life).await;
                    tracing::warn!(%name, how = how.words(), "ended because it no longer moved");
                });
            }
        }
    }

    /// What can be seen of a teammate from outside.
    fn seen(&self, name: &AgentName, member: &Member) -> Seen {
        let dir = self.plan.bus.dir();
        let last = heartbeat::read(dir, name).ok().flatten();
        let last = last.filter(|beat| beat.incarnation == member.incarnation);
        let has_mail = || unread::is_unread(dir, name).unwrap_or(false);
        let tool = last.as_ref().filter(|beat| beat.state.starts_with("tool:"));
        let owes = match member.status {
            Status::Stopping | Status::Shutdown | Status::Failed => HeartbeatDuty::Nothing,
            Status::Idle if !has_mail() => HeartbeatDuty::Nothing,
            Status::Working => match tool.and_then(|beat| beat.limit) {
                Some(limit) => HeartbeatDuty::SignsAfter(Duration::from_secs(limit)),
                None => HeartbeatDuty::Signs,
            },
            Status::Starting | Status::Idle | Status::Waiting => HeartbeatDuty::Signs,
        };
        let (count, stamp) = (last.map(|beat| beat.count), heartbeat::stamp(dir, name));
        let Member { status, activity, since, usage, .. } = member;
        Seen {
            sign: format!("{count:?} {stamp:?} {status:?} {activity:?} {since} {usage:?}"),
            owes,
        }
    }
}

//! Periodic checks of the team: hung teammates, dead members that were started by hand, adopted processes.

use super::host_news::HostNews;
use super::members::MemberId;
use super::roster_updates::{self, write};
use super::stop::{kill_hung, words};
use super::supervisor::{Supervisor, SupervisorRole};
use crate::os::process_tree;
use crate::os::spawn::{spawn_blocking, spawn_local};
use crate::protocol::hang_detector::{HangDetector, HeartbeatDuty, LivenessSample};
use crate::protocol::restart::ProcessEnd;
use crate::store::roster::Cached;
use crate::store::{Liveness, heartbeat, liveness, unread};
use crate::wire::limits::LIVENESS_POLL;
use crate::wire::log_words;
use crate::wire::roster::{ExitCause, HeartbeatPolicy, Member, Roster, StartedBy, Status};
use crate::wire::{AgentName, WithUnknownFields};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

impl Supervisor {
    /// Checks the team periodically until it is being stopped.
    pub(crate) async fn keep_watch(self: Rc<Self>) {
        let limit = self.config.hung_after;
        let period = limit.map_or(LIVENESS_POLL, |limit| (limit / 6).min(LIVENESS_POLL));
        let mut hang_detector = limit.map(|limit| HangDetector::new(limit, period));
        let mut roster: Cached<WithUnknownFields<Roster>> = Cached::of(self.config.bus.dir());
        let is_lead = matches!(self.config.role, SupervisorRole::Lead(_));
        let mut news = HostNews::default();
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.end_adopted().await;
            if self.is_closing.get() {
                return;
            }
            self.keep_relay();
            let members: Vec<Member> = match roster.current(self.config.bus.dir()) {
                Ok(roster) => roster.members.iter().map(|member| Member::clone(member)).collect(),
                Err(why) => {
                    tracing::warn!(%why, "the roster cannot be read");
                    continue;
                }
            };
            if is_lead {
                self.tell_of_hosts(news.look(&members, self.config.clock.now())).await;
            }
            for member in &members {
                if is_lead && member.started_by == StartedBy::Hand && !member.status.is_over() {
                    self.check_started_by_hand(member).await;
                }
                if is_lead && is_ended_by_host(member, &mut self.elsewhere.borrow_mut()) {
                    self.tell_of_end_elsewhere(member).await;
                }
                if is_lead {
                    self.collect_when_idle(member);
                }
            }
            if let Some(hang_detector) = &mut hang_detector {
                self.check_for_hung(hang_detector, &members);
            }
        }
    }

    /// Starts the relay of this host if the team has other hosts and no relay runs.
    fn keep_relay(&self) {
        let SupervisorRole::Lead(program) = &self.config.role else { return };
        let dir = self.config.bus.dir();
        if let Err(why) = self.relay.borrow_mut().keep_up(dir, program) {
            tracing::warn!(%why, "the relay of this host is not looked after");
        }
    }

    /// Kills and reaps processes that the lead has adopted: they escaped from a command whose agent is dead.
    async fn end_adopted(&self) {
        if !process_tree::has_adopted() {
            return;
        }
        match spawn_blocking(process_tree::end_adopted).await {
            Ok(stuck) if stuck.is_empty() => {}
            stuck => tracing::warn!(
                stuck = log_words::work_listed(&stuck),
                "adopted processes could not be ended"
            ),
        }
    }

    /// Records and reports the end of a member that was started by hand, which only its life lock shows.
    async fn check_started_by_hand(&self, member: &Member) {
        let Ok(name) = AgentName::member(&member.name) else { return };
        if !matches!(liveness::probe(self.config.bus.dir(), &name), Ok(Liveness::Dead)) {
            return;
        }
        let id = MemberId { name, incarnation: member.incarnation.clone() };
        let (at, dead, name) = (self.config.clock.now(), id.clone(), &id.name);
        let noted =
            write(&self.config.bus, move |roster| roster_updates::found_dead(roster, &dead, at));
        match noted.await {
            Ok(true) => {
                tracing::warn!(%name, "a member started by hand has exited");
                self.tell_lead(&id, ExitCause::Crash, ProcessEnd::Signal(9), "").await;
            }
            Ok(false) => {}
            Err(why) => tracing::warn!(%name, %why, "the exit could not be written to the roster"),
        }
    }

    /// Reports the end of a teammate on another host, which its host has ended without an order of this lead.
    async fn tell_of_end_elsewhere(&self, member: &Member) {
        let Ok(name) = AgentName::member(&member.name) else { return };
        let id = MemberId { name, incarnation: member.incarnation.clone() };
        let host = member.host.as_deref().unwrap_or_default();
        tracing::warn!(name = %id.name, host, "a teammate on another host was ended there");
        let why = format!("It was ended on host {host}; spawn it again if you need it");
        self.tell_lead(&id, ExitCause::LeadLost, ProcessEnd::Code(0), &why).await;
    }

    fn check_for_hung(self: &Rc<Self>, hang_detector: &mut HangDetector, members: &[Member]) {
        let running = self.members.running();
        let incarnations: Vec<String> = running.iter().map(|id| id.incarnation.clone()).collect();
        hang_detector.keep(&incarnations);
        let now = self.config.clock.monotonic();
        let dir = self.config.bus.dir();
        let unread = unread::agents_with_unread(dir, running.iter().map(|id| &id.name));
        for id in running {
            let MemberId { name, incarnation } = &id;
            let is_its = |m: &&Member| m.name == name.as_str() && m.incarnation == *incarnation;
            let Some(member) = members.iter().find(is_its) else { continue };
            let sample = self.sample(name, member, unread.contains(name));
            if hang_detector.check(incarnation, sample, now) && self.members.mark_hung(&id) {
                tracing::error!(%name, status = member.status.word(), "the teammate hangs");
                let bus = Arc::clone(&self.config.bus);
                spawn_local(async move {
                    let result = words(kill_hung(bus.dir(), &id).await);
                    tracing::warn!(name = %id.name, result, "killed because it hung");
                });
            }
        }
    }

    fn sample(&self, name: &AgentName, member: &Member, has_mail: bool) -> LivenessSample {
        let dir = self.config.bus.dir();
        let last = heartbeat::read(dir, name).ok().flatten();
        let last = last.filter(|heartbeat| heartbeat.incarnation == member.incarnation);
        let limit = last.as_ref().and_then(|heartbeat| heartbeat.limit).map(Duration::from_secs);
        let owes = duty(member.status, has_mail, limit);
        let (count, stamp) = (last.map(|heartbeat| heartbeat.count), heartbeat::stamp(dir, name));
        let Member { status, activity, since, usage, .. } = member;
        let sign = format!("{count:?} {stamp:?} {status:?} {activity:?} {since} {usage:?}");
        LivenessSample { sign, owes }
    }
}

/// Whether a teammate that was alive on another host, `alive` before this look, has been ended there because its host had lost its
/// supervisor or its lead.
fn is_ended_by_host(member: &Member, alive: &mut BTreeSet<String>) -> bool {
    if member.host.is_none() || member.started_by == StartedBy::Hand {
        return false;
    }
    if member.alive == Some(true) {
        alive.insert(member.name.clone());
        return false;
    }
    let is_lost = member.last_exit.as_ref().is_some_and(|it| it.cause == ExitCause::LeadLost);
    // The status comes a moment after the end of the process.
    let is_known = member.status.is_over() && alive.remove(&member.name);
    is_known && is_lost
}

/// Returns the signs of life that a member owes. `tool_limit` comes from the last heartbeat; it counts only for a
/// working agent, because an idle one writes no heartbeat.
fn duty(status: Status, has_mail: bool, tool_limit: Option<Duration>) -> HeartbeatDuty {
    match status.heartbeat() {
        HeartbeatPolicy::Never => HeartbeatDuty::Nothing,
        HeartbeatPolicy::WithUnreadMail if !has_mail => HeartbeatDuty::Nothing,
        HeartbeatPolicy::Always | HeartbeatPolicy::WithUnreadMail => tool_limit
            .filter(|_| status == Status::Working)
            .map_or(HeartbeatDuty::Signs, HeartbeatDuty::SignsAfter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_members_and_idle_ones_with_unread_mail_owe_heartbeats() {
        let limit = Duration::from_secs(600);
        for (status, has_mail, tool_limit, expected) in [
            (Status::Starting, false, None, HeartbeatDuty::Signs),
            (Status::Working, false, None, HeartbeatDuty::Signs),
            (Status::Working, false, Some(limit), HeartbeatDuty::SignsAfter(limit)),
            (Status::Waiting, false, Some(limit), HeartbeatDuty::Signs),
            (Status::Idle, false, None, HeartbeatDuty::Nothing),
            (Status::Idle, true, Some(limit), HeartbeatDuty::Signs),
            (Status::Stopping, true, None, HeartbeatDuty::Nothing),
            (Status::Failed, true, None, HeartbeatDuty::Nothing),
        ] {
            assert_eq!(duty(status, has_mail, tool_limit), expected, "{status:?} {has_mail}");
        }
    }
}

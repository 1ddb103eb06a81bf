//! The task for the members and hosts: tells the other hosts of the members of this one, writes theirs into the roster, and
//! notices which hosts are heard.

mod events;
mod telling;
mod told;
mod values;

pub(crate) use events::{NameLost, PresenceEvent};

use crate::carrier::Carrier;
use crate::copies::ListVersion;
use crate::give_ups::{HostGiveUps, HostStates};
use crate::inbound::InboundEvent;
use crate::name_claims::{NameClaims, NamesAnswered, PlaceOutcome};
use crate::offload::offload;
use crate::outbound::OutboundEvent;
use crate::trust::Trust;
use crate::withdrawals::Withdrawals;
use agent_team::bus::Bus;
use agent_team::relay::{HostState, KnownPlacements, RestWatch, RosterMirror, WaitingLines};
use agent_team::store::relay::{HostIdentity, KnownHost, known_hosts, write_hosts};
use agent_team::store::{Clock, SystemClock, TeamDir};
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use agent_team::wire::limits::{HOST_BEAT_PERIOD, MOST_MISSED_HOST_BEATS};
use events::{Beat, HeardHost};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use told::Told;

/// The time that the last news have before this host says good-bye.
const LAST_NEWS_WITHIN: Duration = Duration::from_secs(1);

/// The least time between two rewrites of the roster.
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// The same for each member of other hosts, of whom there may be thousands: a second for ten thousand.
const WRITE_EVERY_FOR_EACH: Duration = Duration::from_micros(100);

/// The same as a multiple of the time that the last rewrite took, so that no host is kept busy by the news of others: up to twice
/// [`WRITE_EVERY_FOR_EACH`]. A small roster on a slow disk is shown as it is.
const WRITE_PAUSE: u32 = 20;

/// The same where the disk is so slow that a rewrite takes longer than that pause: it has other work, too, and so has that of the
/// server. Up to ten times [`WRITE_EVERY_FOR_EACH`].
const SLOW_WRITE_PAUSE: u32 = 3;

/// The time for which the roster is not rewritten while the first values come, since all of them come at once.
const VALUES_WITHIN: Duration = Duration::from_secs(1);

/// The word before the name in the key of a host.
const HOST_KEY: &str = "host.";

/// The most events that are handled before something else is done.
const EVENTS_AT_ONCE: usize = 1024;

/// The kinds of values that were noted, and are to be acted on.
#[derive(Default)]
struct Noted {
    names: bool,
    give_ups: bool,
}

/// The parts of the task.
pub(crate) struct PresenceTask {
    carrier: Carrier,
    dir: TeamDir,
    identity: HostIdentity,
    outbound: mpsc::UnboundedSender<OutboundEvent>,
    inbound: mpsc::UnboundedSender<InboundEvent>,
    /// Gets the versions of the lists of tasks that other hosts have.
    lists: mpsc::UnboundedSender<ListVersion>,
    /// The number of signs of life so far.
    beats: AtomicU64,
    /// Called once the values of the carrier are known.
    on_named: Box<dyn Fn() + Send + Sync>,
    /// Whether they are. Before, nothing is sent, and no mail is accepted.
    is_named: bool,
    /// Whether there are values of a host that another authority has signed in.
    sees_other_team: bool,
    names: NameClaims,
    give_ups: HostGiveUps,
    withdrawals: Withdrawals,
    waiting: WaitingLines,
    mirror: Option<RosterMirror>,
    hosts: BTreeMap<HostName, HeardHost>,
    told: Told,
    has_changed: bool,
    noted: Noted,
    /// The time at which the roster may be written again.
    write_after: Instant,
    /// The time at which the first value came, until all have come.
    values_since: Option<Instant>,
    recorded: Vec<KnownHost>,
    last_beat: Instant,
    rest: RestWatch,
}

impl PresenceTask {
    /// Creates the task. `on_named` is called once the name is this host's.
    pub(crate) fn new(
        carrier: Carrier,
        dir: TeamDir,
        (identity, trust): (HostIdentity, Arc<Trust>),
        (inbound, outbound, lists): (
            mpsc::UnboundedSender<InboundEvent>,
            mpsc::UnboundedSender<OutboundEvent>,
            mpsc::UnboundedSender<ListVersion>,
        ),
        (bus, waiting, placements): (Arc<Bus>, WaitingLines, KnownPlacements),
        on_named: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let host = identity.host.clone();
        let names = NameClaims::new(host.clone(), Arc::clone(&trust), bus, placements.clone());
        let both = (host, trust.authority().clone());
        let give_ups = HostGiveUps::new(both, dir.clone(), placements.clone());
        let withdrawals = Withdrawals::new(identity.host.clone(), dir.clone(), trust);
        let mirror = Some(RosterMirror::sharing(dir.clone(), &identity, placements));
        Self {
            carrier,
            dir,
            identity,
            outbound,
            inbound,
            lists,
            on_named,
            beats: AtomicU64::new(0),
            is_named: false,
            sees_other_team: false,
            names,
            give_ups,
            withdrawals,
            waiting,
            mirror,
            hosts: BTreeMap::new(),
            told: Told::new(),
            // The members that the roster names from before get their mailboxes at once.
            has_changed: true,
            noted: Noted::default(),
            write_after: Instant::now(),
            values_since: None,
            recorded: Vec::new(),
            last_beat: Instant::now(),
            rest: RestWatch::new(),
        }
    }

    /// Runs until it is told to end, or the channel is closed. `wake` is notified when files may have changed.
    ///
    /// # Errors
    /// This host is none of the team.
    pub(crate) async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<PresenceEvent>,
        wake: Arc<Notify>,
    ) -> Result<(), NameLost> {
        self.expect_hosts().await;
        self.write().await;
        let mut some = Vec::new();
        loop {
            let next_beat = HOST_BEAT_PERIOD.saturating_sub(self.last_beat.elapsed());
            let until_write = self.write_after.saturating_duration_since(Instant::now());
            // A new timer is never ready at once: those that are due would lose against all that is.
            if next_beat.is_zero() {
                self.beat().await;
            }
            if until_write.is_zero() && self.has_changed {
                self.write().await;
            }
            tokio::select! {
                received = events.recv_many(&mut some, EVENTS_AT_ONCE) => {
                    let is_over = some.iter().any(|event| matches!(event, PresenceEvent::End));
                    if received == 0 || is_over {
                        return self.end().await;
                    }
                    self.handle_all(some.drain(..)).await?;
                }
                () = wake.notified() => self.tell().await,
                answered = self.names.answers() => self.note_answers(answered).await,
                () = std::future::ready(()), if self.names.has_waiting() => self.answer_claims().await,
                () = tokio::time::sleep(next_beat) => self.beat().await,
                () = tokio::time::sleep(until_write), if self.has_changed => self.write().await,
            }
        }
    }

    /// Expects signs of life of the hosts that an earlier relay has known, also if the server does not tell of them.
    async fn expect_hosts(&mut self) {
        let (dir, host) = (self.dir.clone(), self.identity.host.clone());
        match offload(move || known_hosts(&dir)).await {
            Ok(known) => {
                self.recorded = known.into_iter().filter(|known| known.host != host).collect();
                for known in self.recorded.clone() {
                    self.host(&known.host);
                }
            }
            Err(why) => tracing::warn!(%why, "the hosts of before are unknown"),
        }
    }

    /// Handles events. What follows from several values or claims is done once.
    async fn handle_all(
        &mut self,
        events: impl Iterator<Item = PresenceEvent>,
    ) -> Result<(), NameLost> {
        for event in events {
            match event {
                PresenceEvent::Value { key, value, revision } => {
                    self.note(&key, &value, revision).await?;
                    self.wait_for_values();
                }
                PresenceEvent::Claim(claim) => self.names.note_claim(claim),
                event @ (PresenceEvent::Connected
                | PresenceEvent::ValuesBegin
                | PresenceEvent::AllValues
                | PresenceEvent::ValuesLost
                | PresenceEvent::Beat { .. }
                | PresenceEvent::Place { .. }
                | PresenceEvent::TakeBack { .. }
                | PresenceEvent::Tasks
                | PresenceEvent::End) => {
                    self.settle_noted().await;
                    self.handle(event).await?;
                }
            }
        }
        self.settle_noted().await;
        Ok(())
    }

    /// Answers, as the authority, some of the hosts that ask for the places of names.
    async fn answer_claims(&mut self) {
        if let Some(mirror) = &self.mirror {
            // The host of a name may have told of its agent before, when its entry did not count yet.
            self.has_changed |= self.names.answer_some(&self.carrier, mirror).await;
        }
    }

    async fn note_answers(&mut self, answered: NamesAnswered) {
        if self.names.note_answers(answered).await {
            self.settle_names().await;
        }
    }

    /// Puts the next rewrite of the roster off while the first values come.
    fn wait_for_values(&mut self) {
        if !self.is_named {
            let begin = *self.values_since.get_or_insert_with(Instant::now);
            self.write_after = self.write_after.max(begin + VALUES_WITHIN);
        }
    }

    /// Does what follows from the values that were noted.
    async fn settle_noted(&mut self) {
        let Noted { names, give_ups } = std::mem::take(&mut self.noted);
        if give_ups {
            self.tell().await;
            self.settle_give_ups().await;
        }
        if names {
            self.settle_names().await;
        }
    }

    async fn handle(&mut self, event: PresenceEvent) -> Result<(), NameLost> {
        match event {
            PresenceEvent::Connected | PresenceEvent::Tasks => self.send_beat(false).await,
            PresenceEvent::ValuesBegin => self.begin_reading(),
            // The server has forgotten them.
            PresenceEvent::ValuesLost => {
                self.names.forgotten();
                self.give_ups.forgotten();
                self.withdrawals.forgotten();
            }
            PresenceEvent::AllValues => {
                self.names.end_reading();
                self.take_name().await?;
                if self.values_since.take().is_some() {
                    self.write_after = Instant::now();
                }
                self.send_beat(false).await;
                self.tell_missing().await;
                self.settle_give_ups().await;
                self.withdrawals.settle(&self.carrier).await;
            }
            PresenceEvent::Beat { from, body } => {
                if self.heard(&from, &body) {
                    // It may have begun to listen after the last sign of life.
                    self.send_beat(false).await;
                    self.settle_give_ups().await;
                }
            }
            PresenceEvent::Place { name, host, outcome } => {
                let placed = match &self.mirror {
                    Some(mirror) => self.names.place((&name, &host), &self.carrier, mirror).await,
                    None => PlaceOutcome::Later("the roster is being written".into()),
                };
                drop(outcome.send(placed));
            }
            PresenceEvent::TakeBack { name, from } => {
                self.names.take_back(name, from);
                self.settle_names().await;
            }
            PresenceEvent::Value { .. } | PresenceEvent::Claim(_) | PresenceEvent::End => {}
        }
        Ok(())
    }

    /// Takes the name of this host, once all values are known: then mail may come and go.
    async fn take_name(&mut self) -> Result<(), NameLost> {
        if self.is_named {
            return Ok(());
        }
        if self.sees_other_team
            && !self.identity.servers.is_own
            && self.withdrawals.has_signed_nobody_in().await
        {
            return Err(NameLost::OtherTeam(self.identity.team.clone()));
        }
        self.is_named = true;
        (self.on_named)();
        drop(self.inbound.send(InboundEvent::Named));
        drop(self.outbound.send(OutboundEvent::Named));
        Ok(())
    }

    /// Returns a host. One that is new is away only after as many missed signs of life as another.
    fn host(&mut self, host: &HostName) -> &mut HeardHost {
        self.hosts.entry(host.clone()).or_insert(HeardHost {
            value: None,
            last_beat: None,
            missed: 0,
            is_away: false,
            is_heard: false,
        })
    }

    /// Notes a sign of life; returns whether its host is away now and was not before, or the other way round.
    fn heard(&mut self, from: &HostName, body: &[u8]) -> bool {
        let Ok(beat) = serde_json::from_slice::<Beat>(body) else { return false };
        if *from == self.identity.host {
            return false;
        }
        let known = self.host(from);
        let is_repeated = known
            .last_beat
            .as_ref()
            .is_some_and(|(epoch, number)| *epoch == beat.epoch && *number >= beat.number);
        if is_repeated {
            return false;
        }
        known.last_beat = Some((beat.epoch, beat.number));
        let version = ListVersion { host: from.clone(), version: beat.tasks };
        drop(self.lists.send(version));
        let known = self.host(from);
        let is_news = known.is_away != beat.leaves || !known.is_heard;
        (known.missed, known.is_away, known.is_heard) = (0, beat.leaves, true);
        if is_news {
            self.note_away(from, beat.leaves);
        }
        is_news
    }

    fn note_away(&mut self, host: &HostName, is_away: bool) {
        let since = is_away.then(|| SystemClock.now());
        if let Some(mirror) = &mut self.mirror {
            mirror.set_away(host, since);
        }
        self.has_changed = true;
        if is_away {
            tracing::warn!(%host, "a host is not heard");
        } else {
            tracing::info!(%host, "a host is heard");
            drop(self.outbound.send(OutboundEvent::Heard(Some(host.clone()))));
            self.names.heard(host);
        }
    }

    /// Gives a sign of life, and counts the missed ones of the others. A relay at rest does nothing else, so memory is given back
    /// here, too.
    async fn beat(&mut self) {
        self.last_beat = Instant::now();
        self.rest.look();
        self.send_beat(false).await;
        if self.has_untold() {
            self.tell().await;
        }
        let mut away = Vec::new();
        for (host, known) in &mut self.hosts {
            known.missed = known.missed.saturating_add(1);
            if known.missed >= MOST_MISSED_HOST_BEATS && !known.is_away {
                known.is_away = true;
                away.push(host.clone());
            }
        }
        for host in away {
            self.note_away(&host, true);
        }
        self.settle_give_ups().await;
        self.settle_names().await;
        self.withdrawals.settle(&self.carrier).await;
        self.record_hosts().await;
    }

    /// Claims the names of the living agents of this host, and ends those whose names other hosts have. All of them are told
    /// to the other hosts before.
    async fn settle_names(&mut self) {
        if self.is_named
            && self.carrier.is_connected()
            && let Some(mirror) = &mut self.mirror
        {
            self.names.settle(&self.carrier, mirror).await;
        }
    }

    /// Frees the names of hosts that were given up, and takes this back for those that have come back.
    async fn settle_give_ups(&mut self) {
        if !self.is_named {
            return;
        }
        let told = |host: &HostName| {
            self.mirror.as_ref().and_then(|mirror| mirror.version_of(host).cloned())
        };
        let state = |(host, heard): (&HostName, &HeardHost)| {
            let is_heard = heard.is_heard && !heard.is_away;
            (host.clone(), HostState { told: told(host), is_heard })
        };
        let states: HostStates = self.hosts.iter().map(state).collect();
        if self.give_ups.settle(&self.carrier, &states).await {
            self.settle_names().await;
            self.write().await;
        }
    }

    /// Writes the members of the other hosts into the roster.
    async fn write(&mut self) {
        self.has_changed = false;
        let begin = Instant::now();
        let written = self.with_mirror(|mirror| mirror.write()).await;
        match written {
            Ok(recipients) => {
                let members = u32::try_from(recipients.len()).unwrap_or(u32::MAX);
                let for_all = WRITE_EVERY_FOR_EACH.saturating_mul(members);
                let took = begin.elapsed();
                let busy = took.saturating_mul(WRITE_PAUSE).clamp(for_all, for_all * 2);
                let slow = took.saturating_mul(SLOW_WRITE_PAUSE).min(for_all * 10);
                self.write_after = Instant::now() + WRITE_EVERY.max(busy).max(slow);
                drop(self.outbound.send(OutboundEvent::Recipients(recipients)));
            }
            Err(why) => {
                tracing::warn!(%why, "the members of other hosts are not written");
                (self.has_changed, self.write_after) = (true, Instant::now() + WRITE_EVERY);
            }
        }
        self.record_hosts().await;
    }

    async fn record_hosts(&mut self) {
        let given_up = self.give_ups.in_force();
        let told = |host: &HostName| {
            self.mirror.as_ref().and_then(|mirror| mirror.version_of(host).cloned())
        };
        let known = |(host, heard): (&HostName, &HeardHost)| {
            let waiting_for = self.waiting.of(host);
            let before = self.recorded.iter().find(|it| it.host == *host);
            let away = before.and_then(|it| it.away_since);
            // Its words of before hold until it tells more.
            let (version, protocol, labels) = match (&heard.value, before) {
                (Some(it), _) => (it.version.clone(), it.protocol, it.labels.clone()),
                (None, Some(it)) => (it.version.clone(), it.protocol, it.labels.clone()),
                (None, None) => (String::new(), RELAY_PROTOCOL, Vec::new()),
            };
            KnownHost {
                host: host.clone(),
                version,
                protocol,
                labels,
                away_since: heard.is_away.then(|| away.unwrap_or_else(|| SystemClock.now())),
                is_heard: heard.is_heard,
                waiting: waiting_for.values().sum(),
                waiting_for,
                is_given_up: given_up.contains(host),
                told: told(host).or_else(|| before.and_then(|it| it.told.clone())),
            }
        };
        let hosts: Vec<_> = self.hosts.iter().map(known).collect();
        if hosts == self.recorded {
            return;
        }
        self.recorded.clone_from(&hosts);
        let dir = self.dir.clone();
        if let Err(why) = offload(move || write_hosts(&dir, &hosts)).await {
            tracing::warn!(%why, "the list of hosts is not written");
        }
    }

    /// Notes what the others have told last, and tells them what has changed here: one of both may be that the lead has ended,
    /// with which this relay ends, too.
    async fn end(&mut self) -> Result<(), NameLost> {
        if self.has_changed {
            self.write().await;
        }
        drop(tokio::time::timeout(LAST_NEWS_WITHIN, self.tell()).await);
        self.send_beat(true).await;
        Ok(())
    }

    /// Runs work on the roster on another thread.
    async fn with_mirror<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut RosterMirror) -> R + Send + 'static,
    ) -> R {
        let Some(mut mirror) = self.mirror.take() else {
            // Each call puts it back, and no two calls overlap.
            return std::future::pending().await;
        };
        let (mirror, done) = offload(move || {
            let done = work(&mut mirror);
            (mirror, done)
        })
        .await;
        self.mirror = Some(mirror);
        done
    }
}

//! The task for the members and hosts: tells the other hosts of the members of this one, writes theirs into the roster, and
//! notices which hosts are heard.

use crate::VERSION;
use crate::carrier::Carrier;
use crate::give_ups::{HostGiveUps, HostStates};
use crate::inbound::{InboundEvent, offload};
use crate::name_claims::{NameClaims, PlaceOutcome};
use crate::outbound::{OutboundEvent, WaitingCounts};
use agent_team::bus::Bus;
use agent_team::relay::{
    HostEntry, HostState, KnownPlacements, RosterMirror, member_key, parse_member_key,
};
use agent_team::store::relay::{HostIdentity, KnownHost, known_hosts, write_hosts};
use agent_team::store::{Clock, SystemClock, TeamDir};
use agent_team::wire::AgentName;
use agent_team::wire::carried::{Epoch, HostName, RELAY_PROTOCOL, ValueVersion};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot};

/// The period of the signs of life.
const BEAT_EVERY: Duration = Duration::from_secs(2);

/// The number of own periods without a sign of life after which a host counts as away. The time for which this process was
/// stopped does not count.
const MISSED_BEATS: u32 = 3;

/// The least time between two rewrites of the roster.
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// The word before the name in the key of a host.
const HOST_KEY: &str = "host.";

/// An event for the task.
pub(crate) enum PresenceEvent {
    /// The carrier is connected.
    Connected,
    /// A value of the carrier.
    Value {
        /// The key.
        key: String,
        /// The value; `None` if it was removed.
        value: Option<Bytes>,
        /// Its revision.
        revision: u64,
    },
    /// All values were given.
    AllValues,
    /// The carrier had lost the values.
    ValuesLost,
    /// A sign of life.
    Beat {
        /// The host.
        from: HostName,
        /// The sign.
        body: Bytes,
    },
    /// An agent is to start on a host.
    Place {
        /// Its name.
        name: AgentName,
        /// The host.
        host: HostName,
        /// Gets the outcome.
        outcome: oneshot::Sender<PlaceOutcome>,
    },
    /// An agent has not started on a host in time.
    TakeBack {
        /// Its name.
        name: AgentName,
        /// The host.
        from: HostName,
    },
    /// The process ends.
    End,
}

/// A sign of life.
#[derive(Debug, Serialize, Deserialize)]
struct Beat {
    epoch: Epoch,
    /// Whether it is the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaves: bool,
}

/// The description that a host gives of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HostValue {
    epoch: Epoch,
    version: String,
    protocol: u32,
    /// The labels by which the host can be chosen for an agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    /// The names of all its members.
    #[serde(default)]
    members: BTreeSet<String>,
    /// The version of this description.
    #[serde(default)]
    told: Option<ValueVersion>,
}

struct HeardHost {
    value: Option<HostValue>,
    missed: u32,
    is_away: bool,
    /// Whether it was heard since the start of this relay.
    is_heard: bool,
}

/// The reason for which the process must end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NameLost {
    /// Another host has the name.
    #[error("another host of the team is named {0}")]
    Taken(HostName),
    /// Another folder was put in the place of this host.
    #[error("another folder has taken the place of host {0}")]
    Replaced(HostName),
}

/// The name of this host, as far as it is known whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameState {
    /// No other host is known to have it. Nothing is sent, and no mail is accepted.
    Free,
    /// Another host has it.
    Taken,
    /// It is this host's.
    Own,
}

/// The parts of the task.
pub(crate) struct PresenceTask {
    carrier: Carrier,
    dir: TeamDir,
    identity: HostIdentity,
    outbound: mpsc::UnboundedSender<OutboundEvent>,
    inbound: mpsc::UnboundedSender<InboundEvent>,
    /// Whether this host may take a name that another one has.
    replaces: bool,
    /// Called once the name is this host's.
    on_named: Box<dyn Fn() + Send + Sync>,
    name: NameState,
    names: NameClaims,
    give_ups: HostGiveUps,
    waiting: WaitingCounts,
    mirror: Option<RosterMirror>,
    hosts: BTreeMap<HostName, HeardHost>,
    /// The names of the own members that the other hosts know.
    named: Option<BTreeSet<String>>,
    has_changed: bool,
    written: Option<Instant>,
    recorded: Vec<KnownHost>,
    last_beat: Instant,
}

impl PresenceTask {
    /// Creates the task. With `replaces`, this host takes a name that another one has. `on_named` is called once the name
    /// is this host's.
    pub(crate) fn new(
        carrier: Carrier,
        dir: TeamDir,
        identity: HostIdentity,
        (inbound, outbound): (
            mpsc::UnboundedSender<InboundEvent>,
            mpsc::UnboundedSender<OutboundEvent>,
        ),
        (bus, waiting, placements): (Arc<Bus>, WaitingCounts, KnownPlacements),
        (replaces, on_named): (bool, Box<dyn Fn() + Send + Sync>),
    ) -> Self {
        let host = identity.host.clone();
        let names = NameClaims::new(host.clone(), bus, placements.clone());
        let give_ups = HostGiveUps::new(host, dir.clone(), placements.clone());
        let mirror = Some(RosterMirror::sharing(dir.clone(), &identity, placements));
        Self {
            carrier,
            dir,
            identity,
            outbound,
            inbound,
            replaces,
            on_named,
            name: NameState::Free,
            names,
            give_ups,
            waiting,
            mirror,
            hosts: BTreeMap::new(),
            named: None,
            // The members that the roster names from before get their mailboxes at once.
            has_changed: true,
            written: None,
            recorded: Vec::new(),
            last_beat: Instant::now(),
        }
    }

    /// Runs until it is told to end, or the channel is closed. `wake` is notified when files may have changed.
    ///
    /// # Errors
    /// Another host has the same name.
    pub(crate) async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<PresenceEvent>,
        wake: Arc<Notify>,
    ) -> Result<(), NameLost> {
        self.expect_hosts().await;
        self.write().await;
        loop {
            let next_beat = BEAT_EVERY.saturating_sub(self.last_beat.elapsed());
            let until_write =
                self.written.map_or(Duration::ZERO, |at| WRITE_EVERY.saturating_sub(at.elapsed()));
            tokio::select! {
                event = events.recv() => match event {
                    None | Some(PresenceEvent::End) => return self.end().await,
                    Some(event) => self.handle(event).await?,
                },
                () = wake.notified() => self.tell().await,
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

    async fn handle(&mut self, event: PresenceEvent) -> Result<(), NameLost> {
        match event {
            PresenceEvent::Connected => self.send_beat(false).await,
            // The server has forgotten them.
            PresenceEvent::ValuesLost => {
                self.names.forgotten();
                self.give_ups.forgotten();
                self.tell_all().await;
            }
            PresenceEvent::AllValues => {
                self.take_name()?;
                self.send_beat(false).await;
                self.tell_all().await;
                self.settle_give_ups().await;
            }
            PresenceEvent::Value { key, value, revision } => {
                if self.names.note(&key, value.as_deref(), revision) {
                    // Of two hosts, the entry of that one counts on which the name was placed last.
                    self.has_changed = true;
                    self.settle_names().await;
                } else if let Some(host) = self.give_ups.note(&key, value.as_deref()) {
                    if host == self.identity.host {
                        // A later word of this host makes it void.
                        self.named = None;
                        self.tell().await;
                    }
                    self.settle_give_ups().await;
                } else {
                    self.note_value(&key, value.as_deref())?;
                }
            }
            PresenceEvent::Beat { from, body } => {
                if self.heard(&from, &body) {
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
            PresenceEvent::End => {}
        }
        Ok(())
    }

    /// Takes the name of this host, once all values are known: then mail may come and go.
    fn take_name(&mut self) -> Result<(), NameLost> {
        match self.name {
            NameState::Own => return Ok(()),
            NameState::Taken if !self.replaces => {
                return Err(NameLost::Taken(self.identity.host.clone()));
            }
            NameState::Taken | NameState::Free => self.name = NameState::Own,
        }
        (self.on_named)();
        drop(self.inbound.send(InboundEvent::Named));
        drop(self.outbound.send(OutboundEvent::Named));
        Ok(())
    }

    fn note_value(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), NameLost> {
        if let Some((host, name)) = parse_member_key(key) {
            let entry = value.and_then(|value| serde_json::from_slice::<HostEntry>(value).ok());
            // A member that is gone is missing among the names of its host.
            if let (Some(mirror), Some(entry)) = (&mut self.mirror, entry) {
                mirror.note(&host, &name, entry);
            }
            self.has_changed |= host != self.identity.host;
        } else if let Some(host) = key.strip_prefix(HOST_KEY)
            && let Ok(host) = HostName::parse(host)
        {
            let value = value.and_then(|value| serde_json::from_slice::<HostValue>(value).ok());
            if host == self.identity.host {
                let is_other = value.is_some_and(|value| value.epoch != self.identity.epoch);
                match self.name {
                    NameState::Own if is_other => return Err(NameLost::Replaced(host)),
                    NameState::Own => {}
                    NameState::Free | NameState::Taken => {
                        self.name = if is_other { NameState::Taken } else { NameState::Free };
                    }
                }
            } else {
                if let (Some(value), Some(mirror)) = (&value, &mut self.mirror) {
                    mirror.note_names(&host, value.members.clone(), value.told.clone());
                }
                self.host(&host).value = value;
                self.has_changed = true;
            }
        }
        Ok(())
    }

    /// Returns a host. One that is new is away only after as many missed signs of life as another.
    fn host(&mut self, host: &HostName) -> &mut HeardHost {
        self.hosts.entry(host.clone()).or_insert(HeardHost {
            value: None,
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
        }
    }

    /// Gives a sign of life, and counts the missed ones of the others.
    async fn beat(&mut self) {
        self.last_beat = Instant::now();
        self.send_beat(false).await;
        let mut away = Vec::new();
        for (host, known) in &mut self.hosts {
            known.missed = known.missed.saturating_add(1);
            if known.missed > MISSED_BEATS && !known.is_away {
                known.is_away = true;
                away.push(host.clone());
            }
        }
        for host in away {
            self.note_away(&host, true);
        }
        self.settle_give_ups().await;
        self.settle_names().await;
        self.record_hosts().await;
    }

    async fn send_beat(&self, leaves: bool) {
        if self.name != NameState::Own {
            return;
        }
        let beat = Beat { epoch: self.identity.epoch.clone(), leaves };
        let Ok(body) = serde_json::to_vec(&beat) else { return };
        // Without a connection, the others notice.
        drop(self.carrier.publish_beat(body.into()).await);
    }

    /// Tells the other hosts of this one, and which members it has.
    async fn tell_host(&mut self) {
        let Some(mirror) = &mut self.mirror else { return };
        let members = mirror.own_names();
        if self.named.as_ref() == Some(&members) {
            return;
        }
        let told = Some(mirror.next_version());
        let value = HostValue {
            epoch: self.identity.epoch.clone(),
            version: VERSION.into(),
            protocol: RELAY_PROTOCOL,
            labels: self.identity.labels.clone(),
            members: members.clone(),
            told,
        };
        let Ok(value) = serde_json::to_vec(&value) else { return };
        let key = format!("{HOST_KEY}{}", self.identity.host);
        match self.carrier.put(&key, value.into()).await {
            Ok(_) => self.named = Some(members),
            Err(why) => tracing::info!(%why, "this host is not made known"),
        }
    }

    async fn tell_all(&mut self) {
        if let Some(mirror) = &mut self.mirror {
            mirror.tell_all_again();
        }
        self.named = None;
        self.tell().await;
    }

    /// Tells the other hosts what has changed among the members of this one.
    async fn tell(&mut self) {
        if self.name != NameState::Own || !self.carrier.is_connected() {
            return;
        }
        let news = match self.with_mirror(RosterMirror::news).await {
            Ok(news) => news,
            Err(why) => {
                tracing::warn!(%why, "the members of this host cannot be read");
                return;
            }
        };
        for (name, entry) in news {
            // Another host may have it: while it lived here, its entry was not written.
            self.has_changed |= entry.as_ref().is_none_or(|entry| !entry.alive);
            let key = member_key(&self.identity.host, &name);
            let told = match entry.as_ref().map(serde_json::to_vec) {
                Some(Ok(value)) => self.carrier.put(&key, value.into()).await.map(drop),
                Some(Err(_)) => continue,
                None => self.carrier.delete(&key).await,
            };
            if let Err(why) = told {
                tracing::info!(%name, %why, "the other hosts are not told of a member");
                if let Some(mirror) = &mut self.mirror {
                    mirror.tell_again(&name);
                }
            }
        }
        // The names come last: until then, a new member is not missed among them.
        self.tell_host().await;
        self.settle_names().await;
    }

    /// Claims the names of the living agents of this host, and ends those whose names other hosts have. All of them are told
    /// to the other hosts before.
    async fn settle_names(&mut self) {
        if self.name == NameState::Own
            && self.carrier.is_connected()
            && let Some(mirror) = &self.mirror
        {
            self.names.settle(&self.carrier, mirror).await;
        }
    }

    /// Frees the names of hosts that were given up, and takes this back for those that have come back.
    async fn settle_give_ups(&mut self) {
        if self.name != NameState::Own {
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
        (self.has_changed, self.written) = (false, Some(Instant::now()));
        let written = self.with_mirror(|mirror| mirror.write()).await;
        match written {
            Ok(recipients) => drop(self.outbound.send(OutboundEvent::Recipients(recipients))),
            Err(why) => {
                tracing::warn!(%why, "the members of other hosts are not written");
                self.has_changed = true;
            }
        }
        self.record_hosts().await;
    }

    async fn record_hosts(&mut self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let given_up = self.give_ups.in_force();
        let told = |host: &HostName| {
            self.mirror.as_ref().and_then(|mirror| mirror.version_of(host).cloned())
        };
        let known = |(host, heard): (&HostName, &HeardHost)| {
            let waiting_for = waiting.get(host).cloned().unwrap_or_default();
            let before = self.recorded.iter().find(|it| it.host == *host);
            let away = before.and_then(|it| it.away_since);
            // Its words of before hold until it tells more.
            let (version, labels) = match (&heard.value, before) {
                (Some(value), _) => (value.version.clone(), value.labels.clone()),
                (None, Some(before)) => (before.version.clone(), before.labels.clone()),
                (None, None) => (String::new(), Vec::new()),
            };
            KnownHost {
                host: host.clone(),
                version,
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

    async fn end(&mut self) -> Result<(), NameLost> {
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

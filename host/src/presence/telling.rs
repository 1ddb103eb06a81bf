//! The news of this host for the others: that it lives, and its members.

use super::events::{Beat, BeatNumber, HostValue};
use super::told::ToldHost;
use super::{HOST_KEY, PresenceTask};
use crate::VERSION;
use crate::carrier::CarrierError;
use crate::offload::offload;
use agent_team::relay::{HostEntry, RosterMirror, member_key};
use agent_team::store::tasks::version as list_version;
use agent_team::wire::AgentName;
use agent_team::wire::carried::RELAY_PROTOCOL;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The most entries that are on their way to the carrier at a time.
const ENTRIES_AT_ONCE: usize = 64;

impl PresenceTask {
    pub(super) async fn send_beat(&self, leaves: bool) {
        if !self.is_named {
            return;
        }
        let dir = self.dir.clone();
        let tasks = offload(move || list_version(&dir)).await.unwrap_or_default();
        let count = self.beats.fetch_add(1, Ordering::Relaxed);
        let number = BeatNumber { start: self.identity.starts, count };
        let beat = Beat { epoch: self.identity.epoch.clone(), number, leaves, tasks };
        let Ok(body) = serde_json::to_vec(&beat) else { return };
        // Without a connection, the others notice.
        drop(self.carrier.publish_beat(body.into()).await);
    }

    /// Tells the other hosts of this one, and which members it has. Returns whether they know it.
    async fn tell_host(&mut self) -> bool {
        let Some(mirror) = &mut self.mirror else { return true };
        let members = mirror.own_names();
        if self.told.names.as_ref() == Some(&members) {
            return true;
        }
        let told = mirror.next_version();
        let value = HostValue {
            epoch: self.identity.epoch.clone(),
            version: VERSION.into(),
            protocol: RELAY_PROTOCOL,
            labels: self.identity.labels.clone(),
            members: members.clone(),
            told: Some(told.clone()),
        };
        let Ok(value) = serde_json::to_vec(&value) else { return true };
        let key = format!("{HOST_KEY}{}", self.identity.host);
        match self.carrier.put(&key, value.into()).await {
            Ok(revision) => {
                self.told.names = Some(members);
                self.told.host = ToldHost { version: Some(told), revision, unanswered: None };
                true
            }
            Err(why) => {
                tracing::info!(%why, "this host is not made known");
                self.told.host.unanswered = Some((told, members));
                false
            }
        }
    }

    /// Tells the other hosts what the carrier does not have as this one has told it, once all values are read.
    pub(super) async fn tell_missing(&mut self) {
        if let Some(mirror) = &mut self.mirror {
            mirror.end_reading();
        }
        if self.told.host.version != self.told.in_reading {
            self.told.names = None;
        }
        self.told.pause.end();
        self.tell().await;
        tracing::info!("all values of the team are read");
    }

    /// Tells the other hosts what has changed among the members of this one. What fails is told again with a later sign of life.
    pub(super) async fn tell(&mut self) {
        if !self.is_named || !self.carrier.is_connected() {
            return;
        }
        self.told.is_put_off = self.told.pause.lasts();
        if self.told.is_put_off {
            return;
        }
        let news = match self.with_mirror(RosterMirror::news).await {
            Ok(news) => news,
            Err(why) => {
                tracing::warn!(%why, "the members of this host cannot be read");
                return;
            }
        };
        let (mut is_answered, mut is_told) = (true, true);
        for some in news.chunks(ENTRIES_AT_ONCE) {
            if is_answered {
                let outcome = self.tell_entries(some).await;
                is_answered = outcome != Outcome::Silence;
                is_told &= outcome == Outcome::Told;
            } else if let Some(mirror) = &mut self.mirror {
                for (name, _) in some {
                    mirror.tell_again(name);
                }
            }
        }
        // The names come last: until then, a new member is not missed among them.
        is_told &= is_answered && self.tell_host().await;
        if is_told {
            self.told.pause.end();
        } else {
            self.told.pause.begin();
        }
        self.settle_names().await;
    }

    /// Whether there is something that the others may not know.
    pub(super) fn has_untold(&self) -> bool {
        let is_untold = |mirror: &RosterMirror| {
            mirror.has_untold() || self.told.names.as_ref() != Some(&mirror.own_names())
        };
        self.told.is_put_off || self.mirror.as_ref().is_some_and(is_untold)
    }

    /// Ends the pause once the carrier has all that was told: the server has gone on.
    pub(super) fn note_echo(&mut self) {
        if self.told.pause.lasts() && !self.has_untold() {
            self.told.pause.end();
        }
    }

    /// Tells of entries.
    async fn tell_entries(&mut self, entries: &[(AgentName, Option<HostEntry>)]) -> Outcome {
        let (carrier, host) = (&self.carrier, &self.identity.host);
        let tell = |(name, entry): &(AgentName, Option<HostEntry>)| {
            let key = member_key(host, name);
            let value = entry.as_ref().map(serde_json::to_vec);
            async move {
                match value {
                    Some(Ok(value)) => carrier.put(&key, value.into()).await.map(drop),
                    Some(Err(_)) => Ok(()),
                    None => carrier.delete(&key).await,
                }
            }
        };
        let told = join_all(entries.iter().map(tell)).await;
        let (mut outcome, mut failures) = (Outcome::Told, BTreeMap::<String, usize>::new());
        for ((name, entry), told) in entries.iter().zip(told) {
            // Another host may have it: while it lived here, its entry was not written.
            self.has_changed |= entry.as_ref().is_none_or(|entry| !entry.alive);
            if let Err(why) = told {
                outcome = outcome.max(Outcome::of(&why));
                *failures.entry(why.to_string()).or_default() += 1;
                if let Some(mirror) = &mut self.mirror {
                    mirror.tell_again(name);
                }
            }
        }
        for (why, members) in failures {
            tracing::info!(members, %why, "the other hosts are not told of members");
        }
        outcome
    }
}

/// The outcome of news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Told,
    /// Some were refused.
    Refused,
    /// There was no answer: more would be of no use just now.
    Silence,
}

impl Outcome {
    fn of(why: &CarrierError) -> Self {
        if matches!(why, CarrierError::Timeout { .. } | CarrierError::Disconnected) {
            Self::Silence
        } else {
            Self::Refused
        }
    }
}

//! The news of this host for the others: that it lives, and its members.

use super::events::{Beat, BeatNumber, HostValue, ToldHost};
use super::{HOST_KEY, PresenceTask};
use crate::VERSION;
use crate::offload::offload;
use agent_team::relay::{HostEntry, RosterMirror, member_key};
use agent_team::store::tasks::version as list_version;
use agent_team::wire::AgentName;
use agent_team::wire::carried::RELAY_PROTOCOL;
use futures_util::future::join_all;
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
            told: told.clone(),
        };
        let Ok(value) = serde_json::to_vec(&value) else { return };
        let key = format!("{HOST_KEY}{}", self.identity.host);
        match self.carrier.put(&key, value.into()).await {
            Ok(revision) => {
                self.named = Some(members);
                self.told = ToldHost { version: told, revision };
            }
            Err(why) => tracing::info!(%why, "this host is not made known"),
        }
    }

    /// Tells the other hosts what the carrier does not have as this one has told it, once all values are read.
    pub(super) async fn tell_missing(&mut self) {
        if let Some(mirror) = &mut self.mirror {
            mirror.end_reading();
        }
        if self.told.version != self.told_in_reading {
            self.named = None;
        }
        self.tell().await;
    }

    /// Tells the other hosts what has changed among the members of this one.
    pub(super) async fn tell(&mut self) {
        if !self.is_named || !self.carrier.is_connected() {
            return;
        }
        let news = match self.with_mirror(RosterMirror::news).await {
            Ok(news) => news,
            Err(why) => {
                tracing::warn!(%why, "the members of this host cannot be read");
                return;
            }
        };
        for some in news.chunks(ENTRIES_AT_ONCE) {
            self.tell_entries(some).await;
        }
        // The names come last: until then, a new member is not missed among them.
        self.tell_host().await;
        self.settle_names().await;
    }

    async fn tell_entries(&mut self, entries: &[(AgentName, Option<HostEntry>)]) {
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
        for ((name, entry), told) in entries.iter().zip(told) {
            // Another host may have it: while it lived here, its entry was not written.
            self.has_changed |= entry.as_ref().is_none_or(|entry| !entry.alive);
            if let Err(why) = told {
                tracing::info!(%name, %why, "the other hosts are not told of a member");
                if let Some(mirror) = &mut self.mirror {
                    mirror.tell_again(name);
                }
            }
        }
    }
}

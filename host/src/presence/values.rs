//! The values of the carrier, as this host notes them.

use super::events::{HostValue, NameLost};
use super::{HOST_KEY, PresenceTask};
use crate::carrier::StoredValue;
use crate::name_claims::NotedPlace;
use crate::trust::NotTrusted;
use agent_team::relay::{HostEntry, parse_member_key};
use agent_team::wire::AgentName;
use agent_team::wire::carried::HostName;

impl PresenceTask {
    /// Notes that all values come from now on. Revisions of before say nothing of those: the server may have been put back.
    pub(super) fn begin_reading(&mut self) {
        (self.told.host.revision, self.told.in_reading) = (0, None);
        if let Some(mirror) = &mut self.mirror {
            mirror.begin_reading();
        }
        self.names.begin_reading();
        self.withdrawals.forgotten();
    }

    /// Notes a value of the carrier. One that its owner has not signed counts for nothing; the owner puts it again.
    pub(super) async fn note(
        &mut self,
        key: &str,
        value: &StoredValue,
        revision: u64,
    ) -> Result<(), NameLost> {
        // A value that nobody has signed may come again and again: it is put right with the next sign of life.
        let is_signed = value.of(self.withdrawals.authority()).is_some();
        if let Some(noted) = self.names.note(key, value, revision) {
            self.note_place(&noted);
            self.noted.names |= is_signed;
        } else if let Some(host) = self.give_ups.note(key, value) {
            if host == self.identity.host {
                // A later word of this host makes it void.
                self.told.names = None;
            }
            self.noted.give_ups |= is_signed;
        } else if let Some((host, name)) = parse_member_key(key) {
            self.note_member(&host, &name, value);
        } else if let Some(Ok(host)) = key.strip_prefix(HOST_KEY).map(HostName::parse) {
            self.note_host(&host, value, revision);
        } else if self.withdrawals.note(key, value).await {
            return Err(NameLost::Withdrawn(self.identity.host.clone()));
        }
        Ok(())
    }

    /// Notes where a name was placed. Of two hosts, the entry of that one counts on which it was placed last.
    fn note_place(&mut self, NotedPlace { name, before, now }: &NotedPlace) {
        let is_known = |host| self.mirror.as_ref().is_some_and(|it| it.is_only_on(name, host));
        let is_first = before.is_none() && now.as_ref().is_some_and(is_known);
        self.has_changed |= before != now && !is_first;
    }

    fn note_member(&mut self, host: &HostName, name: &AgentName, value: &StoredValue) {
        let entry = value.of(host).and_then(|it| serde_json::from_slice::<HostEntry>(it).ok());
        let is_own = *host == self.identity.host;
        // A member that is gone is missing among the names of its host.
        if let (Some(mirror), Some(entry)) = (&mut self.mirror, entry) {
            mirror.note(host, name, entry);
        } else if let (Some(mirror), true, StoredValue::Untrusted(_)) =
            (&mut self.mirror, is_own, value)
        {
            mirror.tell_again(name);
            self.told.names = None;
        } else if let (Some(mirror), true, StoredValue::Removed) = (&mut self.mirror, is_own, value)
        {
            mirror.note_removed(name);
        }
        if is_own {
            self.note_echo();
        }
        self.has_changed |= !is_own;
    }

    fn note_host(&mut self, host: &HostName, value: &StoredValue, revision: u64) {
        let is_own = *host == self.identity.host;
        if is_own && revision < self.told.host.revision {
            // It comes late, and the carrier has a newer one.
            return;
        }
        let Some(signed) = value.of(host) else {
            self.sees_other_team |=
                matches!(value, StoredValue::Untrusted(NotTrusted::Certificate));
            if is_own {
                self.told.names = None;
            }
            return;
        };
        let value = serde_json::from_slice::<HostValue>(signed).ok();
        if is_own {
            self.told.in_reading = value.and_then(|value| value.told);
            if let Some((version, names)) = self
                .told
                .host
                .unanswered
                .take_if(|(version, _)| self.told.in_reading.as_ref() == Some(version))
            {
                // The answer has come late, or not at all.
                (self.told.host.version, self.told.host.revision) = (Some(version), revision);
                self.told.names = Some(names);
            }
            if self.told.in_reading != self.told.host.version {
                // Somebody has put back what this host has told before.
                self.told.names = None;
            }
            self.note_echo();
            return;
        }
        if let (Some(value), Some(mirror)) = (&value, &mut self.mirror) {
            mirror.note_names(host, value.members.clone(), value.told.clone());
        }
        self.host(host).value = value;
        self.has_changed = true;
    }
}

//! Mail that waited when all processes were killed: it was sent before, and is delivered by the next process.

use super::recorded_mail::{id_of, is_same, was_sent_before};
use super::shared::{HeldMail, Shared};
use crate::store::StoreError;
use crate::store::replay::{each_entry, follow_held};
use crate::wire::AgentName;
use crate::wire::transcript::{Entry, Line};
use std::collections::BTreeSet;

impl Shared {
    /// Whether the agents have sent the mail again that waited for the next processes in the record.
    pub(super) fn is_mail_waiting(&self) -> bool {
        self.members
            .iter()
            .all(|member| self.missing_mail_of(&member.name).is_ok_and(|missing| missing == 0))
    }

    /// Returns the number of messages that wait for a member in the record, and have not been sent here.
    fn missing_mail_of(&self, name: &AgentName) -> Result<usize, StoreError> {
        let mut waiting = Vec::new();
        each_entry(&self.record, name, |Line { at, entry }| {
            if let Entry::Mail { message, .. } = entry
                && at >= self.end
                && was_sent_before(&message, self.end)
                && !self.is_from_outside(&message)
            {
                waiting.push(message);
            }
        })?;
        if waiting.is_empty() {
            return Ok(0);
        }
        let mut held = self.undelivered(name)?;
        waiting.retain(|message| {
            let found = held.iter().position(|held| is_same(message, &held.message));
            found.map(|at| held.remove(at)).is_none()
        });
        Ok(waiting.len())
    }

    /// Returns the held mail of a member that is not in its transcript.
    fn undelivered(&self, name: &AgentName) -> Result<Vec<HeldMail>, StoreError> {
        let mut known = BTreeSet::new();
        each_entry(&self.dir, name, |line| {
            if let Entry::Mail { message, .. } = line.entry {
                known.insert(id_of(&message).to_owned());
            }
        })?;
        let lines = follow_held(&self.dir, name).read_new()?;
        let mail = lines.into_iter().filter_map(HeldMail::read);
        Ok(mail.filter(|mail| known.insert(id_of(&mail.message).to_owned())).collect())
    }
}

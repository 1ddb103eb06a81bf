//! Who can be written to: members that live or are about to, the lead and the person always.

use crate::store::inbox::Lane;
use crate::store::life::Pulse;
use crate::store::roster::Cached;
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::roster::Status;
use std::collections::BTreeMap;

/// Whether somebody can get mail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Reachable,
    /// It can, but its entry may not be on disk yet.
    Starting,
    /// It cannot; what is the matter with it.
    Unreachable(String),
}

/// The roster and the life locks, kept at hand.
#[derive(Debug)]
pub(crate) struct Reach {
    dir: TeamDir,
    roster: Cached,
    pulses: BTreeMap<AgentName, Pulse>,
}

impl Reach {
    pub(crate) fn of(dir: TeamDir) -> Self {
        Self { roster: Cached::of(&dir), dir, pulses: BTreeMap::new() }
    }

    /// Everybody who can be written to.
    pub(crate) fn everybody(&mut self) -> Result<Vec<AgentName>, StoreError> {
        let members = &self.roster.current(&self.dir)?.members;
        let names: Vec<_> = members.iter().flat_map(|m| AgentName::member(&m.name)).collect();
        let mut reachable = vec![AgentName::lead(), AgentName::user()];
        for name in names {
            match self.standing(&name, Lane::Data)? {
                Standing::Reachable | Standing::Starting => reachable.push(name),
                Standing::Unreachable(_) => {}
            }
        }
        Ok(reachable)
    }

    /// Whether `to` can get mail.
    pub(crate) fn standing(&mut self, to: &AgentName, lane: Lane) -> Result<Standing, StoreError> {
        if to.is_lead() || to.is_user() {
            return Ok(Standing::Reachable);
        }
        let roster = self.roster.current(&self.dir)?;
        let Some(status) = roster.member(to.as_str()).map(|member| member.status) else {
            return Ok(Standing::Unreachable("is not on the roster".into()));
        };
        let is_reachable = match status {
            Status::Shutdown | Status::Failed => false,
            Status::Stopping => lane == Lane::Control && self.is_alive(to)?,
            Status::Starting => self.is_alive(to)? || self.is_alive(&AgentName::lead())?,
            Status::Working | Status::Idle | Status::Waiting => self.is_alive(to)?,
        };
        Ok(match (is_reachable, status) {
            (true, Status::Starting) => Standing::Starting,
            (true, _) => Standing::Reachable,
            (false, Status::Shutdown | Status::Failed | Status::Stopping) => {
                Standing::Unreachable(format!("is {}", status.word()))
            }
            (false, Status::Starting | Status::Working | Status::Idle | Status::Waiting) => {
                let word = status.word();
                Standing::Unreachable(format!("is dead (the roster still says {word})"))
            }
        })
    }

    fn is_alive(&mut self, name: &AgentName) -> Result<bool, StoreError> {
        let pulse = self.pulses.entry(name.clone()).or_insert_with(|| Pulse::of(&self.dir, name));
        Ok(pulse.is_alive()?)
    }
}

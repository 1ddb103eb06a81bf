//! Reachability: running and starting members can get mail; the lead and the user always can.

use crate::store::inbox::{MailboxOwner, Priority};
use crate::store::liveness::LifeState;
use crate::store::roster::{Cached, MemberStandings, Standing};
use crate::store::{StoreError, TeamDir};
use crate::wire::roster::{MailAccess, Status};
use crate::wire::{AgentName, WallTime};
use std::collections::BTreeMap;

/// The reason of an unknown name.
pub(super) const NOT_ON_ROSTER: &str = "is not on the roster";

/// The reachability of an agent by mail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecipientState {
    Reachable(MailboxOwner),
    /// The agent is reachable, but its roster entry may not be durable yet.
    Starting,
    /// The agent is not reachable, for this reason.
    Unreachable(String),
}

/// The roster and the life locks, cached.
#[derive(Debug)]
pub(crate) struct Reachability {
    dir: TeamDir,
    roster: Cached<MemberStandings>,
    liveness: BTreeMap<AgentName, LifeState>,
}

impl Reachability {
    pub(crate) fn of(dir: TeamDir) -> Self {
        Self { roster: Cached::of(&dir), dir, liveness: BTreeMap::new() }
    }

    pub(crate) fn all(&mut self) -> Result<Vec<AgentName>, StoreError> {
        let roster = self.roster.current(&self.dir)?;
        let names: Vec<_> = roster.names().flat_map(AgentName::member).collect();
        let mut reachable = vec![AgentName::lead(), AgentName::user()];
        for name in names {
            if !matches!(self.state(&name, Priority::Data)?, RecipientState::Unreachable(_)) {
                reachable.push(name);
            }
        }
        Ok(reachable)
    }

    pub(crate) fn state(
        &mut self,
        to: &AgentName,
        priority: Priority,
    ) -> Result<RecipientState, StoreError> {
        if to.is_lead() || to.is_user() {
            return Ok(RecipientState::Reachable(MailboxOwner::Agent));
        }
        let Some(standing) = self.roster.current(&self.dir)?.standing(to.as_str()) else {
            return Ok(RecipientState::Unreachable(NOT_ON_ROSTER.into()));
        };
        let status = standing.status;
        let (access, is_starting) = (status.mail(), status == Status::Starting);
        let is_reachable = match access {
            MailAccess::None => false,
            MailAccess::ControlOnly => {
                priority == Priority::Control && self.is_running(to, standing)?
            }
            MailAccess::All => {
                self.is_running(to, standing)?
                    || (is_starting && self.is_being_started(to, standing)?)
            }
        };
        let word = status.word();
        Ok(match access {
            _ if is_reachable && standing.is_remote => {
                RecipientState::Reachable(MailboxOwner::Relay)
            }
            _ if is_reachable && is_starting => RecipientState::Starting,
            _ if is_reachable => RecipientState::Reachable(MailboxOwner::Agent),
            MailAccess::All => RecipientState::Unreachable(
                self.given_up(to)?
                    .unwrap_or_else(|| format!("is dead (the roster still says {word})")),
            ),
            MailAccess::ControlOnly | MailAccess::None => {
                RecipientState::Unreachable(format!("is {word}"))
            }
        })
    }

    /// Returns the reason for which a member of a host that was given up gets no mail.
    fn given_up(&mut self, to: &AgentName) -> Result<Option<String>, StoreError> {
        let host = self.roster.current(&self.dir)?.given_up_host(to.as_str());
        Ok(host.map(|host| {
            format!("is on {host}, which was given up, and was not started anew on another host")
        }))
    }

    /// Returns the other host on which an agent, or the lead, runs, with the time since which it is not heard. A roster that
    /// cannot be read names none.
    pub(crate) fn place_elsewhere(&mut self, name: &str) -> Option<(String, Option<WallTime>)> {
        let (host, away_since) = self.roster.current(&self.dir).ok()?.place_elsewhere(name)?;
        Some((host.to_owned(), away_since))
    }

    /// Decides about a line that the relay of another host has carried here. Mail for an agent of this host that has not
    /// ended stays in its inbox, as if it had been sent on this host before its process exited.
    pub(crate) fn of_carried(
        &mut self,
        to: &AgentName,
        priority: Priority,
    ) -> Result<RecipientState, StoreError> {
        if to.is_lead() || to.is_user() {
            return Ok(RecipientState::Reachable(MailboxOwner::Agent));
        }
        let Some(Standing { status, is_remote, .. }) =
            self.roster.current(&self.dir)?.standing(to.as_str())
        else {
            return Ok(RecipientState::Unreachable(NOT_ON_ROSTER.into()));
        };
        if is_remote {
            return Ok(RecipientState::Unreachable("does not run on this host".into()));
        }
        Ok(match status.mail() {
            MailAccess::All => RecipientState::Reachable(MailboxOwner::Agent),
            MailAccess::ControlOnly if priority == Priority::Control => {
                RecipientState::Reachable(MailboxOwner::Agent)
            }
            MailAccess::ControlOnly | MailAccess::None => {
                RecipientState::Unreachable(format!("is {}", status.word()))
            }
        })
    }

    /// Whether the process of a member runs. On another host, that host's last word counts: mail waits here while the host
    /// cannot be reached.
    fn is_running(&mut self, name: &AgentName, standing: Standing) -> Result<bool, StoreError> {
        if standing.is_remote { Ok(standing.is_alive_there) } else { self.is_alive(name) }
    }

    /// Whether somebody sees to the start of a member without a process: the lead, or the supervisor of its host, which says so if
    /// it fails.
    fn is_being_started(
        &mut self,
        name: &AgentName,
        standing: Standing,
    ) -> Result<bool, StoreError> {
        if standing.is_remote {
            Ok(self.given_up(name)?.is_none())
        } else {
            self.is_alive(&AgentName::lead())
        }
    }

    fn is_alive(&mut self, name: &AgentName) -> Result<bool, StoreError> {
        let state =
            self.liveness.entry(name.clone()).or_insert_with(|| LifeState::of(&self.dir, name));
        Ok(state.is_alive()?)
    }
}

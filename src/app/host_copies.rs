//! The agents of other hosts, as a person sees them: copies of their files, which the relay of this host keeps up to date while
//! the command runs.

use super::output::warn;
use crate::error::Failure;
use crate::os::event_loop::check_blocking;
use crate::os::{Clock, SystemClock, local_time};
use crate::store::relay::copies::{Wish, as_of, wish_state};
use crate::store::relay::{self, CopiedHost, WishState};
use crate::store::{TeamDir, roster};
use crate::wire::carried::HostName;
use crate::wire::host_copy::{CopyPart, CopySelection, CopyWish};
use crate::wire::{AgentName, WallTime};
use std::time::Duration;

/// The time in which the relay begins to look at other hosts.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The copies that this process wants to see. They are kept up to date until it is dropped.
#[derive(Debug)]
pub(crate) struct HostCopies {
    team: TeamDir,
    /// The hosts with agents that are meant; of all agents, if there are no others.
    hosts: Vec<HostName>,
    wish: Option<Wish>,
    /// The reason for which nothing is copied.
    why_not: Option<String>,
}

impl HostCopies {
    /// Wants to see files of these agents, or of all agents if there are none. Costs nothing if all of them are on this host.
    ///
    /// # Errors
    /// The roster cannot be read.
    pub(crate) fn of(
        team: &TeamDir,
        names: &[AgentName],
        parts: &[CopyPart],
    ) -> Result<Self, Failure> {
        let mut copies = Self { team: team.clone(), hosts: Vec::new(), wish: None, why_not: None };
        if relay::identity(team)?.is_none() {
            return Ok(copies);
        }
        let roster = roster::read(team)?;
        let lead = roster.lead.iter().map(|lead| (&lead.name, &lead.host));
        let all = lead.chain(roster.members.iter().map(|member| (&member.name, &member.host)));
        let is_meant = |name: &str| names.is_empty() || names.iter().any(|it| it.as_str() == name);
        let hosts = all.filter(|(name, _)| is_meant(name)).filter_map(|(_, host)| host.as_deref());
        copies.hosts = hosts.filter_map(|host| HostName::parse(host).ok()).collect();
        copies.hosts.sort();
        copies.hosts.dedup();
        if copies.hosts.is_empty() && !names.is_empty() {
            return Ok(copies);
        }
        let agents = names.iter().map(ToString::to_string).collect();
        let selection = CopySelection { parts: parts.to_vec(), agents };
        // Hosts may get agents while somebody looks at all of them.
        let hosts = if names.is_empty() { Vec::new() } else { copies.hosts.clone() };
        match Self::wish(team, &CopyWish { hosts, selection }) {
            Ok(wish) => copies.wish = Some(wish),
            Err(why) => copies.why_not = Some(why),
        }
        Ok(copies)
    }

    fn wish(team: &TeamDir, wish: &CopyWish) -> Result<Wish, String> {
        let is_served = relay::is_served(team).map_err(|why| why.to_string())?;
        if !is_served {
            return Err("no relay runs on this host (`team-host run`)".into());
        }
        Wish::new(team, wish).map_err(|why| why.to_string())
    }

    /// Waits until the copies are there, or it is known why they are not. Says on standard error which of them are not up to
    /// date.
    pub(crate) fn wait(&self) {
        if self.hosts.is_empty() {
            return;
        }
        let state = self.first_state();
        let why = self.why_not.clone().or_else(|| {
            state.is_none().then(|| "the relay of this host has not answered".to_owned())
        });
        let state = state.unwrap_or_default();
        for host in &self.hosts {
            let known = state.hosts.get(host).cloned();
            let known = known.unwrap_or_else(|| CopiedHost {
                as_of: as_of(&self.team, host),
                is_coming: false,
                why: why.clone().or_else(|| Some("it is no host of the team any more".into())),
            });
            if let Some(why) = known.why {
                warn(&stale(host, &why, known.as_of));
            }
        }
    }

    /// Returns the state of the copies once the relay has tried to bring all of them up to date; `None` if it does not say.
    fn first_state(&self) -> Option<WishState> {
        let wish = self.wish.as_ref()?;
        check_blocking("wait for the relay");
        let until = SystemClock.monotonic() + ANSWERED_WITHIN;
        loop {
            match wish_state(&self.team, wish) {
                // A long conversation may take its time.
                Ok(Some(state)) if state.hosts.values().any(|host| host.is_coming) => {
                    if !relay::is_served(&self.team).unwrap_or_default() {
                        return None;
                    }
                }
                Ok(Some(state)) => return Some(state),
                Ok(None) | Err(_) if SystemClock.monotonic() > until => return None,
                Ok(None) | Err(_) => {}
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

fn stale(host: &HostName, why: &str, as_of: Option<WallTime>) -> String {
    match as_of {
        Some(as_of) => format!(
            "{host} cannot be looked at now ({why}): its agents are shown as of {}",
            local_time(as_of)
        ),
        None => format!("{host} cannot be looked at now ({why}): nothing of its agents is shown"),
    }
}

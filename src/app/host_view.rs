//! The hosts of a team as a table and as JSON.

use super::context::Context;
use super::stop_members::is_alive;
use crate::error::Failure;
use crate::os::{Clock, SystemClock};
use crate::store::relay::{self, KnownHost, SshHost};
use crate::store::{roster, unread};
use crate::ui::roster::age;
use crate::ui::style::Palette;
use crate::ui::tables::{HostReach, HostRow, host_table};
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::roster::{Roster, Status};
use serde_json::{Value, json};

/// The consequence for a host on which no relay runs.
pub(super) const WITHOUT_RELAY: &str =
    "mail for other hosts waits; it runs while a lead does (team lead), or: team-host run";

/// The hosts of a team, this one first; none if the team has one host only.
pub(crate) struct Hosts {
    pub(super) rows: Vec<HostRow>,
    pub(super) is_served: bool,
    /// Whether a lead runs on this host.
    has_lead: bool,
}

/// Returns the hosts of the team.
pub(crate) fn list(context: &Context) -> Result<Hosts, Failure> {
    let team = context.team_to_view()?;
    let is_served = relay::is_served(&team)?;
    let has_lead = is_alive(&team, &AgentName::lead());
    let Some(own) = relay::identity(&team)? else {
        return Ok(Hosts { rows: Vec::new(), is_served, has_lead });
    };
    let roster = roster::read(&team)?;
    let now = SystemClock.now();
    let links = relay::ssh_links(&team)?;
    let trouble = |host: &HostName| {
        let link = links.iter().find(|link| link.host == *host).filter(|link| !link.is_up);
        link.and_then(|link| link.why.as_ref())
            .map(|why| format!(", no connection over ssh: {why}"))
    };
    // Mail that no relay has taken in yet stands in the inboxes.
    let listed = roster.members.iter().filter(|member| member.host.is_some());
    let names = listed.filter_map(|member| AgentName::member(&member.name).ok());
    let unread = unread::counts(&team, names.chain([AgentName::lead()]).collect());
    let in_inboxes = |members: &[String]| -> u64 {
        let counts = members.iter().filter_map(|name| unread.get(&AgentName::mailbox(name).ok()?));
        counts.map(|count| *count as u64).sum()
    };
    let given_up = relay::given_up_hosts(&team)?;
    let removed = relay::trusted_hosts(&team)?.removed;
    let sent_keys = relay::sent_keys(&team)?;
    let keys_of = |host: &HostName| sent_keys.get(host).into_iter().flatten().cloned().collect();
    let other = |known: KnownHost| {
        let other_protocol = known.other_protocol();
        let KnownHost { host, version, labels, away_since, is_heard, waiting, is_given_up, .. } =
            known;
        let is_given_up = is_given_up || given_up.iter().any(|it| it.host == host);
        let (reach, state) = match away_since {
            _ if is_given_up => (HostReach::Gone, "given up".to_owned()),
            _ if removed.contains(&host) => (HostReach::Gone, "removed".to_owned()),
            _ if !is_served => (HostReach::Waits, "unknown: no relay runs here".to_owned()),
            Some(since) => {
                let why = trouble(&host).unwrap_or_default();
                (HostReach::Waits, format!("away for {}{why}", age(now.since(since))))
            }
            None if is_heard => match other_protocol {
                None => (HostReach::Up, "up".to_owned()),
                Some(why) => (HostReach::Waits, format!("up, but {why}")),
            },
            None => {
                let why = trouble(&host).unwrap_or_default();
                (HostReach::Waits, format!("not heard yet{why}"))
            }
        };
        let waiting = waiting + in_inboxes(&members_of(&roster, Some(host.as_str())));
        let members = running_on(&roster, Some(host.as_str()));
        let keys = keys_of(&host);
        HostRow { host: host.to_string(), reach, state, members, waiting, labels, keys, version }
    };
    let state = if is_served { "here" } else { "here, without a relay" };
    let here = HostRow {
        host: own.host.to_string(),
        reach: HostReach::Up,
        state: state.into(),
        members: running_on(&roster, None),
        waiting: 0,
        labels: own.labels,
        keys: Vec::new(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let known = relay::known_hosts(&team)?;
    let added = relay::ssh_hosts(&team)?.into_iter();
    let unheard = added.filter(|added| known.iter().all(|known| known.host != added.host));
    let unheard = unheard.map(|SshHost { host, labels, .. }| HostRow {
        reach: HostReach::Waits,
        state: format!("not heard yet{}", trouble(&host).unwrap_or_default()),
        members: running_on(&roster, Some(host.as_str())),
        waiting: 0,
        labels,
        keys: keys_of(&host),
        version: String::new(),
        host: host.to_string(),
    });
    let unheard: Vec<_> = unheard.collect();
    // One that was removed is shown while somebody of the team may still be there.
    let is_over = |row: &HostRow| {
        let is_it = removed.iter().any(|host| host.as_str() == row.host);
        is_it && row.members.is_empty() && row.waiting == 0
    };
    let others = known.into_iter().map(other).filter(|row| !is_over(row)).chain(unheard);
    Ok(Hosts { rows: [here].into_iter().chain(others).collect(), is_served, has_lead })
}

/// Returns the members of another host, or of this one, the lead first.
pub(super) fn members_of(roster: &Roster, host: Option<&str>) -> Vec<String> {
    members_with(roster, host, |_| true)
}

/// The same without those that have ended.
fn running_on(roster: &Roster, host: Option<&str>) -> Vec<String> {
    members_with(roster, host, |status| !status.is_over())
}

fn members_with(
    roster: &Roster,
    host: Option<&str>,
    has_status: impl Fn(Status) -> bool,
) -> Vec<String> {
    let is_there = |home: &Option<String>, status| home.as_deref() == host && has_status(status);
    let lead = roster.lead.iter().filter(|lead| is_there(&lead.host, lead.status));
    let members = roster.members.iter().filter(|member| is_there(&member.host, member.status));
    let leads = lead.map(|lead| lead.name.clone());
    leads.chain(members.map(|member| member.name.clone())).collect()
}

pub(crate) fn table(hosts: &Hosts, palette: Palette) -> String {
    let note = if hosts.rows.is_empty() || hosts.is_served {
        String::new()
    } else if hosts.has_lead {
        "No relay runs on this host yet: the lead starts it within some seconds\n".into()
    } else {
        format!("No relay runs on this host: {WITHOUT_RELAY}\n")
    };
    host_table(&hosts.rows, palette) + &note
}

pub(crate) fn list_json(hosts: &Hosts) -> Value {
    let row = |row: &HostRow| json!({ "host": row.host, "state": row.state, "members": row.members, "waiting": row.waiting, "labels": row.labels, "keys": row.keys, "version": row.version });
    json!({
        "schema": 1,
        "relay": hosts.is_served,
        "hosts": hosts.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

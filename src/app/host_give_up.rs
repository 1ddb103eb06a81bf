//! `team host give-up`: a person says that a host is gone for good. The relay of this host tells the others.

use super::context::Context;
use super::host_view::members_of;
use super::work::last_commits;
use crate::error::{Exit, Failure};
use crate::os::event_loop::check_blocking;
use crate::os::{Clock, SystemClock};
use crate::store::relay::{self, GivenUpHost, KnownHost};
use crate::store::{TeamDir, roster, unread};
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::nearest::nearest;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time in which a relay that runs here takes up a give-up: some of its signs of life.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two looks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Gives a host up; returns what there is to say.
///
/// # Errors
/// There is no such host, it is up, or a file cannot be read or written.
pub(crate) fn give_up(context: &Context, name: &str) -> Result<String, Failure> {
    context.refuse_inside_agent("host give-up")?;
    let team = context.team_to_view()?;
    refuse_without_authority(&team, name)?;
    let host = known_host(&team, name, &format!("{name} cannot be given up"))?;
    let is_served = relay::is_served(&team)?;
    if is_served {
        refuse_if_up(&host)?;
    }
    let (name, told, at) = (host.host.clone(), host.told.clone(), SystemClock.now());
    relay::change_given_up_hosts(&team, |hosts| {
        hosts.retain(|known| known.host != name);
        hosts.push(GivenUpHost { host: name, told, at });
    })?;
    let is_taken_up = is_served && until_taken_up(&team, &host.host)?;
    describe(context, &host.host, is_served, is_taken_up)
}

/// Returns the other host of this name. `what` begins the error if there is none.
pub(super) fn known_host(team: &TeamDir, name: &str, what: &str) -> Result<KnownHost, Failure> {
    let fail = |exit, why: String, hint: String| Failure::new(exit, what, why, hint);
    let Some(own) = relay::identity(team)? else {
        let hint = "docs/machines.md says how to add another".into();
        return Err(fail(Exit::Usage, "this team has one host".into(), hint));
    };
    if own.host.as_str() == name {
        let hint = "`team host ls` lists the hosts".into();
        return Err(fail(Exit::Usage, "it is this host".into(), hint));
    }
    let known = relay::known_hosts(team)?;
    let names: Vec<_> = known.iter().map(|known| known.host.as_str()).collect();
    let near = nearest(name, names.iter().copied());
    let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    known.into_iter().find(|known| known.host.as_str() == name).ok_or_else(|| {
        let why = "no host of this name was ever heard".into();
        fail(Exit::Usage, why, format!("{near}the other hosts are: {names}"))
    })
}

/// Refuses to give a host up on one whose word does not count for that.
fn refuse_without_authority(team: &TeamDir, name: &str) -> Result<(), Failure> {
    let own = relay::identity(team)?.map(|own| own.host);
    let authority = relay::host_keys(team)?.and_then(|keys| keys.membership).map(|it| it.authority);
    match authority.filter(|authority| Some(authority) != own.as_ref()) {
        None => Ok(()),
        Some(authority) => Err(Failure::new(
            Exit::Usage,
            format!("{name} cannot be given up here"),
            format!("{authority} signs the hosts of this team in, and gives them up"),
            format!("on {authority}: team host give-up {name}"),
        )),
    }
}

/// Refuses a host that is up, or of which that is not known yet.
fn refuse_if_up(host: &KnownHost) -> Result<(), Failure> {
    let name = &host.host;
    let what = format!("{name} cannot be given up");
    if host.away_since.is_some() || host.is_given_up {
        return Ok(());
    }
    if host.is_heard {
        let hint = format!(
            "stop its members (team stop NAME) and end its relay; a connection over ssh ends by: team host rm {name}"
        );
        return Err(Failure::new(Exit::Failure, what, "it is up", hint));
    }
    let why = "the relay here has just started, and has not missed it yet";
    Err(Failure::new(Exit::Failure, what, why, "try again in some seconds"))
}

/// Waits until the relay of this host has taken it up; returns whether it has.
fn until_taken_up(team: &TeamDir, host: &HostName) -> Result<bool, Failure> {
    check_blocking("wait for the relay");
    let until = SystemClock.monotonic() + TAKEN_UP_WITHIN;
    loop {
        let known = relay::known_hosts(team)?;
        if known.iter().any(|known| known.host == *host && known.is_given_up) {
            return Ok(true);
        }
        if SystemClock.monotonic() > until {
            return Ok(false);
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Says which members the host had, how much mail waits for each, and what to do next.
fn describe(
    context: &Context,
    host: &HostName,
    is_served: bool,
    is_taken_up: bool,
) -> Result<String, Failure> {
    let team = &context.team_to_view()?;
    let known = relay::known_hosts(team)?;
    let known = known.iter().find(|known| known.host == *host);
    let waiting = known.map(|known| known.waiting_for.clone()).unwrap_or_default();
    let roster = roster::read(team)?;
    let members = members_of(&roster, Some(host.as_str()));
    if members.is_empty() {
        return Ok(format!("{host} is given up. No member was on it."));
    }
    let names = members.iter().filter_map(|name| AgentName::mailbox(name).ok()).collect();
    let unread = unread::counts(team, names);
    let commits = last_commits(context, team)?;
    let row = |member: &String| {
        let mail = match waiting_for(member, &waiting, &unread) {
            0 => "no message waits".to_owned(),
            1 => "1 message waits".to_owned(),
            count => format!("{count} messages wait"),
        };
        let commit = commits.get(member).map(|commit| format!("; {commit}"));
        format!("  {member}: {mail}{}", commit.unwrap_or_default())
    };
    let next = if !is_served {
        "No relay runs here: their names are free once one does (team lead, or team-host run)."
    } else if is_taken_up {
        "Their names are free: start one anew here or on another host, for example: team teammate NAME."
    } else {
        "The relay here has not taken it up yet: see team host ls."
    };
    let lines = [format!("{host} is given up. It had:")].into_iter().chain(members.iter().map(row)).chain([
        next.to_owned(),
        "Mail that waits follows a member that is started anew; until then, further mail for it is refused.".to_owned(),
        "What a member had read and not done, and its memory, are lost with the host.".to_owned(),
        format!("If {host} comes back, members that were started anew elsewhere end there, and the others are its members again."),
    ]);
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Returns the number of messages that wait for a member in its outbox, and in its inbox where no relay has taken them in.
fn waiting_for(
    member: &str,
    in_outbox: &BTreeMap<String, u64>,
    unread: &BTreeMap<AgentName, usize>,
) -> u64 {
    let name = AgentName::mailbox(member).ok();
    let unread = name.and_then(|name| unread.get(&name)).copied().unwrap_or_default();
    in_outbox.get(member).copied().unwrap_or_default() + unread as u64
}

//! What the roster says of a member that is being taken down.

use super::takedown::How;
use crate::wire::AgentName;
use crate::wire::roster::{ExitCause, LastExit, Roster, Status};

/// From now on only control mail reaches it. Gives the status it had.
pub(super) fn stopping(
    roster: &mut Roster,
    name: &AgentName,
    incarnation: &str,
    now: f64,
) -> Status {
    if name.is_lead() {
        let Some(lead) = roster.lead.as_mut() else { return Status::Working };
        return std::mem::replace(&mut lead.status, Status::Stopping);
    }
    match roster.member_mut(name.as_str()) {
        // A late writer must not bring a member back that has already ended.
        Some(member) if member.incarnation == incarnation && !member.status.is_over() => {
            member.since = now;
            std::mem::replace(&mut member.status, Status::Stopping)
        }
        Some(_) | None => Status::Working,
    }
}

/// A member's end, as whoever took it down saw it.
pub(super) struct Gone {
    pub(super) name: AgentName,
    pub(super) incarnation: String,
    pub(super) how: How,
    pub(super) cause: ExitCause,
    /// When the taking down began.
    pub(super) began: f64,
    pub(super) now: f64,
}

/// It has ended. What it wrote about its own end since then stands, but for the cause.
pub(super) fn gone(roster: &mut Roster, gone: &Gone) {
    if gone.name.is_lead() {
        if let Some(lead) = roster.lead.as_mut() {
            (lead.status, lead.activity) = (Status::Shutdown, None);
        }
        return;
    }
    let Some(member) = roster.member_mut(gone.name.as_str()) else { return };
    if member.incarnation != gone.incarnation {
        return;
    }
    let killed = gone.how == How::Killed;
    let own = member.last_exit.take().filter(|exit| exit.at >= gone.began && !killed);
    let (code, signal, at) = match own {
        Some(exit) => (exit.code, exit.signal, exit.at),
        None => (None, killed.then_some(9), gone.now),
    };
    member.last_exit = Some(LastExit { code, signal, cause: gone.cause, at });
    (member.status, member.activity, member.pid) = (Status::Shutdown, None, None);
    member.since = gone.now;
}

/// A member that was about to be started is not.
pub(super) fn called_off(roster: &mut Roster, name: &AgentName, cause: ExitCause, now: f64) {
    let Some(member) = roster.member_mut(name.as_str()) else { return };
    if member.status == Status::Starting {
        let before = member.last_exit.take();
        let (code, signal) = before.map_or((None, None), |exit| (exit.code, exit.signal));
        member.last_exit = Some(LastExit { code, signal, cause, at: now });
        (member.status, member.activity, member.pid) = (Status::Shutdown, None, None);
        member.since = now;
    }
}

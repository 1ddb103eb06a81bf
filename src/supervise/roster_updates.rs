//! What the roster says of a member that is being taken down.

use super::stop::How;
use crate::wire::AgentName;
use crate::wire::roster::{ExitCause, LastExit, Roster, Status};

/// From now on only control mail reaches it. Gives the status it had.
pub(super) fn stopping(
    roster: &mut Roster,
    name: &AgentName,
    incarnation: &str,
    now: crate::wire::WallTime,
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
    pub(super) now: crate::wire::WallTime,
}

/// It has ended. What it wrote about its own end stands, but for the cause. It wrote something if it says
/// that it is over: times do not tell, for a clock may have been set back meanwhile.
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
    let is_told = member.status.is_over() && !killed;
    let own = member.last_exit.take().filter(|_| is_told);
    let (code, signal, at) = match own {
        Some(exit) => (exit.code, exit.signal, exit.at),
        None => (None, killed.then_some(9), gone.now),
    };
    member.last_exit = Some(LastExit { code, signal, cause: gone.cause, at });
    (member.status, member.activity, member.pid) = (Status::Shutdown, None, None);
    member.since = gone.now;
}

/// A member that was about to be started is not.
pub(super) fn called_off(
    roster: &mut Roster,
    name: &AgentName,
    cause: ExitCause,
    now: crate::wire::WallTime,
) {
    let Some(member) = roster.member_mut(name.as_str()) else { return };
    if member.status == Status::Starting {
        let before = member.last_exit.take();
        let (code, signal) = before.map_or((None, None), |exit| (exit.code, exit.signal));
        member.last_exit = Some(LastExit { code, signal, cause, at: now });
        (member.status, member.activity, member.pid) = (Status::Shutdown, None, None);
        member.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::roster::Member;

    /// Another life's end stands in `last_exit` until there is a new one.
    fn after(status: Status, how: How) -> LastExit {
        let cause = ExitCause::Crash;
        let last_exit = Some(LastExit { code: Some(3), signal: None, cause, at: 100.0.into() });
        let name = "bob".to_owned();
        let member = Member { name, status, last_exit, ..Member::default() };
        let mut roster = Roster { members: vec![member.into()], ..Roster::default() };
        let (name, cause) = (AgentName::member("bob").unwrap(), ExitCause::Stopped);
        // The clock was set back: the end that the member wrote lies in the future.
        gone(&mut roster, &Gone { name, incarnation: String::new(), how, cause, now: 7.0.into() });
        let member = roster.members.pop().unwrap();
        assert_eq!((member.status, member.since), (Status::Shutdown, 7.0.into()));
        member.last_exit.clone().unwrap()
    }

    #[test]
    fn what_a_member_says_of_its_end_stands_whatever_the_clock_says() {
        let own = after(Status::Shutdown, How::Agreed);
        assert_eq!((own.code, own.signal, own.at), (Some(3), None, 100.0.into()));
        assert_eq!(own.cause, ExitCause::Stopped, "who took it down knows why");
        let silent = after(Status::Stopping, How::Terminated);
        assert_eq!((silent.code, silent.signal, silent.at), (None, None, 7.0.into()));
        let killed = after(Status::Shutdown, How::Killed);
        assert_eq!((killed.code, killed.signal, killed.at), (None, Some(9), 7.0.into()));
    }
}

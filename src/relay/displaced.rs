//! Ends an agent of this host whose name belongs to another one.

use super::RelayError;
use crate::bus::{Bus, Outgoing};
use crate::os::{Signal, process_tree};
use crate::store::liveness::{self, Liveness};
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use std::time::Duration;

/// The time in which the agent, if it waits for mail, reads why it ends.
const READ_WITHIN: Duration = Duration::from_millis(500);

/// The time that the agent has for an orderly end.
const END_WITHIN: Duration = Duration::from_secs(20);

/// Tells an agent of this host that its name belongs to another host, and ends it, by SIGTERM first. Returns whether it was
/// alive. It blocks until the process is gone.
///
/// # Errors
/// Its life lock cannot be read.
pub fn end_displaced(bus: &Bus, name: &AgentName, host: &HostName) -> Result<bool, RelayError> {
    let Liveness::Alive(Some(record)) = liveness::probe(bus.dir(), name)? else { return Ok(false) };
    // A command of the person holds the name for a moment, and is nobody's agent.
    let Some(process) = record.open_process().filter(|_| !record.is_command) else {
        return Ok(false);
    };
    let text = format!("{name} belongs to host {host}: this process of the same name ends now.");
    if let Err(why) = bus.send(&AgentName::system(), name.as_str(), Outgoing::text(text)) {
        tracing::warn!(%name, %why, "an agent is not told why it ends");
    }
    let ended = process.ends_within(READ_WITHIN) || {
        process.send_signal(Signal::SIGTERM).unwrap_or_default();
        // One that was stopped ends, too.
        process.send_signal(Signal::SIGCONT).unwrap_or_default();
        process.ends_within(END_WITHIN)
    };
    if !ended {
        process.signal_group(Signal::SIGKILL).unwrap_or_default();
        process.ends_within(END_WITHIN);
    }
    let stuck = process_tree::end_strays(&record.run_id);
    tracing::warn!(%name, %host, pid = record.pid, was_killed = !ended, stuck = stuck.len(), "an agent has ended: its name belongs to another host");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::MailLimits;
    use crate::store::{LifeLock, LifeRecord, SystemClock, test_team};
    use std::sync::Arc;

    #[test]
    fn a_command_that_holds_the_name_is_not_ended() {
        let (_folder, dir) = test_team();
        let bus = Bus::new(dir.clone(), MailLimits::default(), Arc::new(SystemClock));
        let carol = AgentName::member("carol").unwrap();
        // As `team work drop` holds it.
        let _life = LifeLock::take(&dir, &carol, LifeRecord::of_command()).unwrap();
        assert!(!end_displaced(&bus, &carol, &HostName::parse("gpu1").unwrap()).unwrap());
    }
}

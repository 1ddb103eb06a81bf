//! A lead of the new team as a child of the replay: a signal that asks the replay to stop ends the lead, and its team, first.

use crate::app::event_loop::block_on;
use crate::error::{Failure, OrFail};
use crate::os::async_fd::ReadableFd;
use crate::os::child::end_with_parent;
use crate::os::pidfd::Pidfd;
use crate::os::signals::{SignalEvent, Signals};
use crate::store::asynchronous::offload;
use std::io;
use std::os::unix::process::CommandExt;
use std::pin::pin;
use std::process::{Command, Output};

/// The end of a lead.
pub(super) struct LeadEnd {
    pub(super) output: Output,
    /// The signal that asked the replay to stop meanwhile.
    pub(super) stop: Option<SignalEvent>,
}

/// Runs a lead until it ends, and passes on each signal that asks this process to stop.
pub(super) fn run(mut lead: Command, signals: &Signals) -> Result<LeadEnd, Failure> {
    end_with_parent(&mut lead);
    // Else Ctrl-C would reach the lead twice.
    lead.process_group(0);
    let ended = block_on(until_end(lead, signals))?;
    ended.or_fail("the new team could not play", "install `team` again")
}

async fn until_end(mut lead: Command, signals: &Signals) -> io::Result<LeadEnd> {
    let ready = ReadableFd::to_read(signals)?;
    let child = lead.spawn()?;
    let process = Pidfd::open(i32::try_from(child.id()).map_err(io::Error::other)?)?;
    let mut ended = pin!(offload(move || child.wait_with_output()));
    let mut stop = None;
    loop {
        tokio::select! {
            output = &mut ended => return Ok(LeadEnd { output: output?, stop }),
            woken = ready.woken() => woken?,
        }
        while let Some(signal) = signals.take() {
            stop = Some(signal);
            // It may have ended just now.
            process.send_signal(signal.signal()).unwrap_or_default();
        }
    }
}

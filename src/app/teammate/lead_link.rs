//! The control socket of a spawned teammate: the answer to the lead, then its lifeline.

use crate::agent::Events;
use crate::agent::event::{MachineEvent, StopCause};
use crate::os::async_fd::ReadableFd;
use crate::os::failpoint::hit;
use crate::os::{memory, program, uptime};
use crate::store::{LifeLock, LifeRecord};
use crate::supervise::handshake::{self, HandshakeAnswer};
use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Reports a failed start in the words that a person would read.
pub(super) fn report_failure(socket: OwnedFd, why: String) {
    let _lead_gone = handshake::send(File::from(socket), &HandshakeAnswer::Failed(why));
}

/// Reports that the teammate takes mail, then watches the lifeline.
pub(super) fn report_ready(socket: File, events: Events, life: Rc<RefCell<LifeLock>>) {
    let _lead_gone = handshake::send(&socket, &HandshakeAnswer::Ready);
    hit("child.ready");
    memory::forget_the_start();
    tokio::task::spawn_local(watch_lead(socket, events, life));
}

/// Stops the agent at the end of file, which means that the lead has exited.
async fn watch_lead(socket: File, events: Events, life: Rc<RefCell<LifeLock>>) {
    let Ok(ready) = program::set_nonblocking(&socket).and_then(|()| ReadableFd::to_read(&socket))
    else {
        return;
    };
    let mut byte = [0];
    while let Ok(1) = ready.read(|| (&socket).read(&mut byte)).await {}
    tracing::warn!("the lead is gone");
    let record = life.borrow().record().clone();
    let noted = life.borrow_mut().update(LifeRecord { lead_lost: Some(uptime()), ..record });
    if let Err(why) = noted {
        tracing::warn!(%why, "the next lead will wait longer than necessary");
    }
    let _ended = events.send(MachineEvent::Stop(StopCause::LeadLost).into());
}

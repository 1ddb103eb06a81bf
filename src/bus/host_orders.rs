//! Orders of this host to another one, as far as everybody who gives one needs them: whether the host can be given orders now,
//! the order as a file, and the wait for an answer that comes at once.

use crate::os::deadline::deadline;
use crate::os::event_loop::check_blocking;
use crate::store::relay::{self, KnownHost, put_order, read_answer, remove_order};
use crate::store::{Clock, StoreError, TeamDir};
use crate::wire::WallTime;
use crate::wire::carried::HostName;
use crate::wire::host_order::{HostOrder, Order, OrderAnswer, OrderId, OrderSide};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// The pause between two looks for an answer that comes at once.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The time in which a relay is there, and hears the host.
pub(crate) const HEARD_WITHIN: Duration = Duration::from_secs(5);

/// The reason for which an order was not carried out, as far as it is known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderFailure {
    #[error("no relay runs on this host (`team-host run`)")]
    NoRelay,
    #[error("{host} has been away for {}", seconds(*.since))]
    Away { host: HostName, since: Duration },
    #[error("{0} was not heard yet")]
    NotHeard(HostName),
    #[error("{0}")]
    OtherProtocol(String),
    #[error("{host} has not answered within {}", seconds(*.within))]
    Unanswered { host: HostName, within: Duration },
    #[error("{0}")]
    Store(#[from] StoreError),
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// Checks that a host can be given orders now.
pub(crate) fn check(dir: &TeamDir, host: &HostName, now: WallTime) -> Result<(), OrderFailure> {
    if !relay::is_served(dir)? {
        return Err(OrderFailure::NoRelay);
    }
    let known = relay::known_hosts(dir)?;
    match known.into_iter().find(|known| known.host == *host) {
        Some(KnownHost { away_since: Some(since), .. }) => {
            Err(OrderFailure::Away { host: host.clone(), since: now.since(since) })
        }
        Some(known @ KnownHost { is_heard: true, .. }) => {
            known.other_protocol().map_or(Ok(()), |why| Err(OrderFailure::OtherProtocol(why)))
        }
        Some(_) | None => Err(OrderFailure::NotHeard(host.clone())),
    }
}

/// An order whose answer is awaited or used. Dropping it removes it.
pub(crate) struct GivenOrder {
    dir: TeamDir,
    id: OrderId,
}

impl GivenOrder {
    /// Writes an order for the relay to carry. Fails if the file cannot be written.
    pub(crate) fn put(dir: &TeamDir, id: OrderId, order: &HostOrder) -> Result<Self, StoreError> {
        put_order(dir, OrderSide::Out, &id, order)?;
        Ok(Self { dir: dir.clone(), id })
    }

    /// Returns the answer if it has come. Fails if it cannot be read.
    pub(crate) fn answer(&self) -> Result<Option<OrderAnswer>, StoreError> {
        read_answer(&self.dir, OrderSide::Out, &self.id)
    }

    /// Returns the file with the bundle that has come with the answer.
    pub(crate) fn bundle(&self) -> PathBuf {
        self.dir.relay_bundle(OrderSide::Out, &self.id)
    }
}

impl Drop for GivenOrder {
    fn drop(&mut self) {
        if let Err(why) = remove_order(&self.dir, OrderSide::Out, &self.id) {
            tracing::warn!(id = %self.id, %why, "an order to another host is not removed");
        }
    }
}

/// Gives an order that is carried out at once, and blocks until it is answered. Fails after `within`; the order is withdrawn
/// then, and may have been carried out all the same.
pub(crate) fn give_at_once(
    dir: &TeamDir,
    host: &HostName,
    (id, order): (OrderId, Order),
    (clock, within): (&dyn Clock, Duration),
) -> Result<OrderAnswer, OrderFailure> {
    check_blocking("wait for another host");
    let within = deadline(within);
    let until = clock.monotonic() + within;
    // A relay that has just been started hears the others after a moment.
    while let Err(why) = check(dir, host, clock.now()) {
        let may_come = matches!(why, OrderFailure::NoRelay | OrderFailure::NotHeard(_));
        if !may_come || clock.monotonic() >= until {
            return Err(why);
        }
        thread::park_timeout(LOOK_EVERY);
    }
    let order = HostOrder { host: host.clone(), until: clock.now() + within, order };
    let given = GivenOrder::put(dir, id, &order)?;
    loop {
        if let Some(answer) = given.answer()? {
            return Ok(answer);
        }
        if clock.monotonic() >= until {
            return Err(OrderFailure::Unanswered { host: host.clone(), within });
        }
        check_blocking("wait for another host");
        thread::park_timeout(LOOK_EVERY);
    }
}

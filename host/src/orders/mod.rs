//! Orders between hosts: those of this host are carried until they are answered, those of others are put down for the
//! supervisor of this host, which is started for them.
//!
//! An order is asked for again and again, so neither side remembers more than the files: a repeated one is put down once, and
//! its answer stands beside it.

mod bundles;
mod incoming;
mod outgoing;

pub(crate) use bundles::asked as asked_for_bundle;
pub(crate) use incoming::OrdersIn;
pub(crate) use outgoing::OrdersOut;

use agent_team::wire::host_order::{Order, OrderAnswer, OrderId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The period in which orders are looked for without file events.
const POLL: Duration = Duration::from_secs(2);

/// Whether the name of this host is its own: before, it neither gives nor takes orders.
#[derive(Debug, Clone, Default)]
pub(crate) struct IsNamed(Arc<AtomicBool>);

impl IsNamed {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An order on its way.
#[derive(Debug, Serialize, Deserialize)]
struct CarriedOrder {
    v: u32,
    id: OrderId,
    order: Order,
}

/// The state of an order on the host that carries it out.
#[derive(Debug, Serialize, Deserialize)]
struct OrderState {
    /// Its answer; `None` while it is carried out.
    answer: Option<OrderAnswer>,
}

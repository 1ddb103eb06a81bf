//! Orders between hosts: those of this host are carried until they are answered, those of others are put down for the
//! supervisor of this host, which is started for them. Changes of the task list are carried out by the relay itself, at once.
//!
//! An order is asked for again and again, so neither side remembers more than the files: a repeated one is put down once, and
//! its answer stands beside it.

mod bundles;
mod incoming;
mod keys;
mod outgoing;
mod tasks;

pub(crate) use bundles::asked as asked_for_bundle;
pub(crate) use incoming::OrdersIn;
pub(crate) use keys::KeysToSend;
pub(crate) use outgoing::OrdersOut;
pub(crate) use tasks::TaskOrdersIn;

use crate::offload::offload;
use agent_team::store::relay::remove_old_orders;
use agent_team::store::{Clock, SystemClock, TeamDir};
use agent_team::wire::host_order::{Order, OrderAnswer, OrderId, OrderSide};
use agent_team::wire::model_keys::ModelKeys;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The period in which orders are looked for without file events.
const POLL: Duration = Duration::from_secs(2);

/// The period in which answers are removed that nobody has fetched: each change of the task list by another host leaves one.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The age of an answer that nobody has fetched.
const ANSWERS_FOR: Duration = Duration::from_secs(600);

/// Removes old answers as long as the relay runs. A supervisor that does so for the orders of others may not run for a long time.
pub(crate) async fn sweep(dir: TeamDir) {
    loop {
        let (team, now) = (dir.clone(), SystemClock.now());
        let remove = move || {
            let sides = [OrderSide::Out, OrderSide::In];
            sides.into_iter().try_for_each(|side| remove_old_orders(&team, side, now, ANSWERS_FOR))
        };
        if let Err(why) = offload(remove).await {
            tracing::warn!(%why, "old orders are not removed");
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

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
    /// The keys of models that come with it. They are in no file.
    #[serde(default, skip_serializing_if = "ModelKeys::is_empty")]
    keys: ModelKeys,
}

/// The state of an order on the host that carries it out.
#[derive(Debug, Serialize, Deserialize)]
struct OrderState {
    /// Its answer; `None` while it is carried out.
    answer: Option<OrderAnswer>,
}

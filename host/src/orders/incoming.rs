//! The orders of other hosts to this one, and the supervisor that carries them out.

use super::bundles::fetch;
use super::keys::hand_over;
use super::{CarriedOrder, IsNamed, OrderState, TaskOrdersIn};
use crate::carrier::{Carrier, Reply};
use crate::offload::offload;
use agent_team::relay::{HostSupervisorProcess, KnownPlacements, RelayError};
use agent_team::store::relay::{
    ORDER_HELD_FOR, bundle_bytes, open_orders, put_answer, put_order, read_answer, read_order,
};
use agent_team::store::{Clock, StoreError, SystemClock, TeamDir};
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use agent_team::wire::host_order::{
    HostOrder, MAX_BUNDLE_BYTES, Order, OrderAnswer, OrderId, OrderSide,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Mutex;

/// The orders of other hosts to this one.
pub(crate) struct OrdersIn {
    dir: TeamDir,
    is_named: IsNamed,
    placements: KnownPlacements,
    /// Whether a supervisor that this relay has started runs. It is locked while an order is put down: two asks for one order
    /// would write one file.
    is_supervised: Arc<Mutex<bool>>,
    bundles: BundlesIn,
    tasks: TaskOrdersIn,
}

impl OrdersIn {
    pub(crate) fn new(
        carrier: Carrier,
        dir: TeamDir,
        is_named: IsNamed,
        placements: KnownPlacements,
        tasks: TaskOrdersIn,
    ) -> Self {
        let bundles = BundlesIn { carrier, dir: dir.clone(), fetched: Arc::default() };
        Self { dir, is_named, placements, is_supervised: Arc::default(), bundles, tasks }
    }

    /// Takes an order of a host, or says how far it has come.
    pub(crate) fn asked(&self, from: HostName, body: &[u8], reply: Reply) {
        if !self.is_named.get() {
            // The order is given again.
            return;
        }
        let Ok(CarriedOrder { id, order, keys, v: RELAY_PROTOCOL }) = serde_json::from_slice(body)
        else {
            tracing::warn!(%from, "what came is no order that this version knows");
            let why =
                "that host does not know the order; use the same version on both hosts".into();
            tokio::spawn(answer(reply, Some(OrderAnswer::Refused { why })));
            return;
        };
        if let Order::Task(order) = order {
            let tasks = self.tasks.clone();
            tokio::spawn(async move {
                let state = tasks.carry_out(from, id, *order).await;
                answer(reply, state).await;
            });
            return;
        }
        // A person stops a member from any host.
        if !matches!(order, Order::Stop(_)) && !self.placements.may_lead(&from) {
            tracing::warn!(%from, %id, "an order of a host that may not have the lead is refused");
            let why = format!("that host obeys no orders of {from}: `leads` in its host.toml");
            tokio::spawn(answer(reply, Some(OrderAnswer::Refused { why })));
            return;
        }
        let (dir, is_supervised) = (self.dir.clone(), Arc::clone(&self.is_supervised));
        let bundles = self.bundles.clone();
        tokio::spawn(async move {
            let state = match bundles.look(&from, &id, &order).await {
                Ok(BundleState::Here) => {
                    let state = put_down(&dir, from, &id, order, &is_supervised).await;
                    if matches!(state, Ok(None)) {
                        hand_over(&dir, &id, keys).await;
                    }
                    state
                }
                // It is put down once its bundle is here.
                Ok(BundleState::OnItsWay) => Ok(None),
                Ok(BundleState::Failed(why)) => Ok(Some(OrderAnswer::Refused { why })),
                Err(why) => Err(why),
            };
            let state = state.unwrap_or_else(|why| {
                tracing::warn!(%id, %why, "an order of another host is not taken yet");
                None
            });
            answer(reply, state).await;
        });
    }
}

async fn answer(reply: Reply, answer: Option<OrderAnswer>) {
    if let Ok(body) = serde_json::to_vec(&OrderState { answer }) {
        drop(reply.answer(body.into()).await);
    }
}

/// The bundles that come with orders.
#[derive(Clone)]
struct BundlesIn {
    carrier: Carrier,
    dir: TeamDir,
    fetched: Arc<StdMutex<BTreeMap<OrderId, FetchedBundle>>>,
}

/// A bundle that is fetched, or could not be.
struct FetchedBundle {
    /// The time at which its order was asked for last.
    asked: Instant,
    failure: Option<String>,
}

/// The state of what comes with an order.
enum BundleState {
    Here,
    OnItsWay,
    Failed(String),
}

impl BundlesIn {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<OrderId, FetchedBundle>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether all that comes with an order is here, or its answer is. A bundle that is not is fetched, as long as the
    /// order is asked for.
    async fn look(
        &self,
        from: &HostName,
        id: &OrderId,
        order: &Order,
    ) -> Result<BundleState, StoreError> {
        let Some(bytes) = order.bundle_bytes() else { return Ok(BundleState::Here) };
        if bytes > MAX_BUNDLE_BYTES {
            let why = format!("a bundle of {bytes} bytes is too large");
            return Ok(BundleState::Failed(why));
        }
        let (dir, order_id) = (self.dir.clone(), id.clone());
        let look = move || {
            let is_answered = read_answer(&dir, OrderSide::In, &order_id)?.is_some();
            let is_here = bundle_bytes(&dir, OrderSide::In, &order_id)? == Some(bytes);
            Ok::<_, StoreError>(is_answered || is_here)
        };
        if offload(look).await? {
            return Ok(BundleState::Here);
        }
        if let Some(fetched) = self.lock().get_mut(id) {
            fetched.asked = Instant::now();
            let failure = fetched.failure.clone();
            return Ok(failure.map_or(BundleState::OnItsWay, BundleState::Failed));
        }
        self.lock().insert(id.clone(), FetchedBundle { asked: Instant::now(), failure: None });
        let (bundles, from, id) = (self.clone(), from.clone(), id.clone());
        tokio::spawn(async move { bundles.fetch(&from, &id, bytes).await });
        Ok(BundleState::OnItsWay)
    }

    async fn fetch(&self, from: &HostName, id: &OrderId, bytes: u64) {
        let is_asked = || self.lock().get(id).is_some_and(|it| it.asked.elapsed() < ORDER_HELD_FOR);
        let end = (from, OrderSide::In, id);
        match fetch(&self.carrier, &self.dir, end, bytes, is_asked).await {
            Ok(true) => tracing::info!(%id, bytes, "a bundle has come"),
            Ok(false) => tracing::info!(%id, "a bundle is not wanted any more"),
            Err(why) => {
                tracing::warn!(%id, %why, "a bundle cannot be written");
                if let Some(fetched) = self.lock().get_mut(id) {
                    fetched.failure =
                        Some(format!("what comes with the order cannot be kept: {why}"));
                }
                // The answer is lost at most a few times.
                tokio::time::sleep(ORDER_HELD_FOR).await;
            }
        }
        self.lock().remove(id);
    }
}

/// Puts an order down, unless it is there, and sees to it that a supervisor runs. Returns its answer if there is one.
async fn put_down(
    dir: &TeamDir,
    from: HostName,
    id: &OrderId,
    order: Order,
    is_supervised: &Arc<Mutex<bool>>,
) -> Result<Option<OrderAnswer>, StoreError> {
    let mut runs = is_supervised.lock().await;
    let (team, order_id) = (dir.clone(), id.clone());
    let look = move || {
        let answer = read_answer(&team, OrderSide::In, &order_id)?;
        if answer.is_none() {
            let now = SystemClock.now();
            let known = read_order(&team, OrderSide::In, &order_id)?;
            // It is asked for still: a supervisor that begins with it may do so.
            if known.is_none_or(|known| known.until < now + ORDER_HELD_FOR / 2) {
                let order = HostOrder { host: from, until: now + ORDER_HELD_FOR, order };
                put_order(&team, OrderSide::In, &order_id, &order)?;
            }
        }
        Ok::<_, StoreError>(answer)
    };
    let answer = offload(look).await?;
    if answer.is_some() || *runs {
        return Ok(answer);
    }
    match supervise(dir, is_supervised) {
        Ok(started) => {
            *runs = started;
            Ok(None)
        }
        Err(why) => {
            drop(runs);
            refuse_open(dir, &why.to_string()).await?;
            let (team, order_id) = (dir.clone(), id.clone());
            offload(move || read_answer(&team, OrderSide::In, &order_id)).await
        }
    }
}

/// Starts the supervisor of this host, unless one runs. Returns whether it was started.
fn supervise(dir: &TeamDir, is_supervised: &Arc<Mutex<bool>>) -> Result<bool, RelayError> {
    let Some(started) = HostSupervisorProcess::start(dir)? else { return Ok(false) };
    let (dir, is_supervised) = (dir.clone(), Arc::clone(is_supervised));
    tokio::spawn(async move {
        let ended = started.ended(&dir).await;
        let why = match ended {
            Ok(None) => None,
            Ok(Some(why)) => Some(why),
            Err(why) => Some(why.to_string()),
        };
        // Nobody starts another one before the orders of this one are answered.
        let mut runs = is_supervised.lock().await;
        *runs = false;
        match why {
            None => tracing::info!("the supervisor of this host has ended"),
            Some(why) => {
                tracing::warn!(why, "the supervisor of this host has failed");
                if let Err(why) = refuse_open(&dir, &why).await {
                    tracing::warn!(%why, "orders of other hosts are not refused");
                }
            }
        }
        drop(runs);
    });
    Ok(true)
}

/// Answers all orders that nobody will carry out.
async fn refuse_open(dir: &TeamDir, why: &str) -> Result<(), StoreError> {
    let (dir, why) = (dir.clone(), format!("no supervisor runs there: {why}"));
    offload(move || {
        for id in open_orders(&dir, OrderSide::In)? {
            let order = read_order(&dir, OrderSide::In, &id)?;
            if matches!(order, Some(HostOrder { order: Order::Task(_), .. })) {
                continue;
            }
            put_answer(&dir, OrderSide::In, &id, &OrderAnswer::Refused { why: why.clone() })?;
        }
        Ok(())
    })
    .await
}

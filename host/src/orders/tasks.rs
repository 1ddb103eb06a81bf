//! Changes of the task list that other hosts order: the relay of the host that keeps the list carries them out at once.

use super::{POLL, SWEEP_EVERY};
use crate::offload::offload;
use agent_team::SharedTaskList;
use agent_team::bus::Bus;
use agent_team::relay::{KnownPlacements, TaskOrderRefusal, TeamWatcher, refusal_of_task_order};
use agent_team::store::relay::{ORDER_HELD_FOR, put_answer, put_order, read_answer, read_order};
use agent_team::store::{Clock, StoreError, SystemClock, TeamDir};
use agent_team::wire::carried::HostName;
use agent_team::wire::host_order::{HostOrder, Order, OrderAnswer, OrderId, OrderSide};
use agent_team::wire::task_order::TaskOrder;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The changes of the task list that other hosts order.
#[derive(Clone)]
pub(crate) struct TaskOrdersIn {
    dir: TeamDir,
    host: HostName,
    placements: KnownPlacements,
    list: Arc<SharedTaskList>,
    /// Locked while an order is carried out: it may be asked for twice at once.
    turn: Arc<Mutex<()>>,
}

impl TaskOrdersIn {
    pub(crate) fn new(
        dir: TeamDir,
        host: HostName,
        placements: KnownPlacements,
        bus: Arc<Bus>,
    ) -> Self {
        let list = Arc::new(SharedTaskList::new(bus));
        Self { dir, host, placements, list, turn: Arc::default() }
    }

    /// Carries an order out, once, and returns its answer; `None` if it is to be asked for again.
    pub(crate) async fn carry_out(
        &self,
        from: HostName,
        id: OrderId,
        order: TaskOrder,
    ) -> Option<OrderAnswer> {
        let _turn = self.turn.lock().await;
        let (orders, order_id) = (self.clone(), id.clone());
        let done = offload(move || orders.carry_out_now(&from, &order_id, order)).await;
        done.unwrap_or_else(|why| {
            tracing::warn!(%id, %why, "a change of the task list by another host is not made yet");
            None
        })
    }

    fn carry_out_now(
        &self,
        from: &HostName,
        id: &OrderId,
        order: TaskOrder,
    ) -> Result<Option<OrderAnswer>, StoreError> {
        let (dir, side) = (&self.dir, OrderSide::In);
        let known = read_order(dir, side, id)?;
        if let Some(known) = known.as_ref().filter(|known| known.host != *from) {
            tracing::warn!(%id, %from, host = %known.host, "a host repeats the order of another one");
            let why = "another host has given the order".into();
            return Ok(Some(OrderAnswer::Refused { why }));
        }
        if let Some(answer) = read_answer(dir, side, id)? {
            return Ok(Some(answer));
        }
        let (host, places) = (&self.host, &self.placements);
        if let Some(refusal) = refusal_of_task_order(dir, places, host, from, &order.by)? {
            let TaskOrderRefusal { why, hint } = refusal;
            tracing::warn!(%id, %from, by = %order.by, why, "a change of the task list is refused");
            return Ok(Some(OrderAnswer::TaskRefused { why, hint }));
        }
        // It is put down before it is carried out: a relay that is started after a kill knows that it may have been.
        let is_repeated = known.is_some();
        let by = order.by.clone();
        let carried = Box::new(order);
        let until = SystemClock.now() + ORDER_HELD_FOR;
        let put = HostOrder { host: from.clone(), until, order: Order::Task(carried.clone()) };
        put_order(dir, side, id, &put)?;
        let Some(answer) = self.list.carry_out(&carried, is_repeated) else {
            tracing::info!(%id, %from, %by, "the process that changes the task list is not known yet");
            return Ok(None);
        };
        put_answer(dir, side, id, &answer)?;
        // Members that look for work find nothing most of the time.
        let is_empty = matches!(&answer, OrderAnswer::TaskChanged(none) if none.task.is_none());
        if !is_empty {
            let answered = answer.word();
            tracing::info!(%id, %from, %by, answer = answered, "another host changes the task list");
        }
        Ok(Some(answer))
    }

    /// Releases the tasks of members that have ended on other hosts, as long as the relay runs. Nobody else may look at the
    /// list of this host for a long time.
    pub(crate) async fn release_abandoned(self) {
        let watcher = TeamWatcher::of_members(&self.dir);
        loop {
            let list = Arc::clone(&self.list);
            match offload(move || list.release_abandoned()).await {
                Ok(0) => {}
                Ok(released) => {
                    tracing::info!(released, "tasks of ended members are pending again");
                }
                Err(why) => tracing::warn!(why, "tasks of ended members are not released yet"),
            }
            let has_no_events = match &watcher {
                // A failed release is repeated, too.
                Ok(watcher) => {
                    let changed = tokio::time::timeout(SWEEP_EVERY, watcher.changed()).await;
                    matches!(changed, Ok(Err(_)))
                }
                Err(_) => true,
            };
            if has_no_events {
                tokio::time::sleep(POLL).await;
            }
        }
    }
}

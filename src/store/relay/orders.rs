//! Orders between hosts as files: `orders/out/ID.json` is an order of this host to another one, `orders/in/ID.json` one that
//! has come from another host. Beside it, `ID.answer.json` is its answer.
//!
//! *Invariant:* an order and an answer are whole or not there. An order that is gone is not wanted any more.

use super::bundles::{bundle_bytes, remove_bundle, remove_lost_bundles};
use crate::store::file::atomic::{Fsync, pretty_json, remove, replace};
use crate::store::file::read::{changed_at, known_if_there, names_in, read_json};
use crate::store::teamdir::make_folder;
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use crate::wire::host_order::{HostOrder, Order, OrderAnswer, OrderId, OrderSide};
use ring::digest::{SHA256, digest};
use std::time::Duration;

const ENDING: &str = ".json";
const ANSWER_ENDING: &str = ".answer.json";

/// The time for which an order of another host stands without being asked for again. A supervisor begins with none that is older.
pub const ORDER_HELD_FOR: Duration = Duration::from_secs(10);

/// The time for which an answer with a bundle stands at least: the other host may need long to fetch it.
const BUNDLES_FOR: Duration = Duration::from_secs(3600);

/// The most bytes of an order: a prompt may be as long as a message.
const MOST_ORDER_BYTES: u64 = 4 * 1024 * 1024;

/// Returns the id of an order that is known by a text, such as the id of the call of a tool: the same text has the same id.
pub fn order_id(text: &str) -> OrderId {
    let sum = digest(&SHA256, text.as_bytes());
    let first = sum.as_ref().iter().take(16);
    OrderId::of(first.fold(0, |number, byte| (number << 8) | u128::from(*byte)))
}

/// Makes the folders of orders, so that they can be watched.
///
/// # Errors
/// A folder cannot be made.
pub fn make_order_folders(dir: &TeamDir) -> Result<(), StoreError> {
    super::make_folders(dir)?;
    let orders = dir.relay_orders(OrderSide::Out);
    make_folder(orders.parent().unwrap_or(&orders))?;
    make_folder(&orders)?;
    Ok(make_folder(&dir.relay_orders(OrderSide::In))?)
}

/// Writes an order.
///
/// # Errors
/// The file cannot be written.
pub fn put_order(
    dir: &TeamDir,
    side: OrderSide,
    id: &OrderId,
    order: &HostOrder,
) -> Result<(), StoreError> {
    make_order_folders(dir)?;
    let path = dir.relay_order(side, id);
    Ok(replace(&path, &pretty_json(order, &path)?, Fsync::Never)?)
}

/// Returns an order; `None` if it is not there (any more).
///
/// # Errors
/// The file exists and cannot be read.
pub fn read_order(
    dir: &TeamDir,
    side: OrderSide,
    id: &OrderId,
) -> Result<Option<HostOrder>, StoreError> {
    Ok(read_json(&dir.relay_order(side, id), MOST_ORDER_BYTES)?)
}

/// Returns the orders without an answer.
///
/// # Errors
/// The folder cannot be read.
pub fn open_orders(dir: &TeamDir, side: OrderSide) -> Result<Vec<OrderId>, StoreError> {
    let names = names_in(&dir.relay_orders(side))?;
    let ids = names.iter().filter_map(|name| OrderId::parse(name.strip_suffix(ENDING)?).ok());
    let has_answer = |id: &OrderId| {
        names.iter().any(|name| name.strip_suffix(ANSWER_ENDING) == Some(id.as_str()))
    };
    Ok(ids.filter(|id| !has_answer(id)).collect())
}

/// Writes the answer of an order.
///
/// # Errors
/// The file cannot be written.
pub fn put_answer(
    dir: &TeamDir,
    side: OrderSide,
    id: &OrderId,
    answer: &OrderAnswer,
) -> Result<(), StoreError> {
    let path = dir.relay_order_answer(side, id);
    Ok(replace(&path, &pretty_json(answer, &path)?, Fsync::Never)?)
}

/// Returns the answer of an order; `None` while there is none.
///
/// # Errors
/// The file exists and cannot be read.
pub fn read_answer(
    dir: &TeamDir,
    side: OrderSide,
    id: &OrderId,
) -> Result<Option<OrderAnswer>, StoreError> {
    Ok(read_json(&dir.relay_order_answer(side, id), MOST_ORDER_BYTES)?)
}

/// Removes an order with its answer and its bundle.
///
/// # Errors
/// A file cannot be removed.
pub fn remove_order(dir: &TeamDir, side: OrderSide, id: &OrderId) -> Result<(), StoreError> {
    remove(&dir.relay_order(side, id))?;
    remove_bundle(dir, side, id)?;
    Ok(remove(&dir.relay_order_answer(side, id))?)
}

/// Removes the answered orders that were answered so long ago that nobody asks again, orders for tasks that nobody has asked for
/// since then, old orders that cannot be read, and bundles without an order.
///
/// # Errors
/// A file cannot be read or removed.
pub fn remove_old_orders(
    dir: &TeamDir,
    side: OrderSide,
    now: WallTime,
    age: Duration,
) -> Result<(), StoreError> {
    for name in names_in(&dir.relay_orders(side))? {
        let Some(id) = name.strip_suffix(ANSWER_ENDING).map(OrderId::parse) else { continue };
        let Ok(id) = id else { continue };
        let path = dir.relay_order_answer(side, &id);
        let Some(known) = known_if_there(&path)? else { continue };
        let has_bundle = bundle_bytes(dir, side, &id)?.is_some();
        let age = if has_bundle { age.max(BUNDLES_FOR) } else { age };
        if now.since(changed_at(&known)) > age {
            remove_order(dir, side, &id)?;
        }
    }
    for id in open_orders(dir, side)? {
        // A supervisor removes the others. A relay that was killed leaves one for tasks without an answer.
        let Some(known) = known_if_there(&dir.relay_order(side, &id))? else { continue };
        let is_old = now.since(changed_at(&known)) > age;
        // Orders are not synced: a power cut may leave an empty file.
        let is_useless = || match read_order(dir, side, &id) {
            Ok(order) => matches!(order, Some(HostOrder { order: Order::Task(_), .. })),
            Err(_) => true,
        };
        if is_old && is_useless() {
            remove_order(dir, side, &id)?;
        }
    }
    remove_lost_bundles(dir, side, now, age)
}

//! The bundles of git that come with orders and their answers: `orders/SIDE/ID.bundle` beside the order. While one is on its
//! way, what has come of it is `ID.part`.
//!
//! *Invariant:* a bundle is whole or not there. It is gone with its order.

use crate::os::file::{Access, At, open_or_create};
use crate::store::file::atomic::remove;
use crate::store::file::read::{changed_at, known_if_there, names_in, open_if_there};
use crate::store::teamdir::make_folder;
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use crate::wire::host_order::{OrderId, OrderSide};
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The endings of bundles, and of what a killed git or an ended transfer leaves of one.
const ENDINGS: [&str; 3] = [".bundle", ".part", ".bundle.lock"];

/// Returns the size of a bundle in bytes; `None` if it is not there.
///
/// # Errors
/// The folder cannot be read.
pub fn bundle_bytes(
    dir: &TeamDir,
    side: OrderSide,
    id: &OrderId,
) -> Result<Option<u64>, StoreError> {
    Ok(known_if_there(&dir.relay_bundle(side, id))?.map(|known| known.len()))
}

/// Reads a part of a bundle, at most so many bytes; empty at its end. `None` if it is not there.
///
/// # Errors
/// The file cannot be read.
pub fn read_bundle(
    dir: &TeamDir,
    side: OrderSide,
    id: &OrderId,
    (offset, most): (u64, usize),
) -> Result<Option<Vec<u8>>, StoreError> {
    let path = dir.relay_bundle(side, id);
    let Some((file, known)) = open_if_there(&path)? else { return Ok(None) };
    let left = usize::try_from(known.len().saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; most.min(left)];
    file.read_exact_at(&mut bytes, offset).at(&path)?;
    Ok(Some(bytes))
}

/// Returns the number of bytes of a bundle that have come so far.
///
/// # Errors
/// The folder cannot be read.
pub fn part_bytes(dir: &TeamDir, side: OrderSide, id: &OrderId) -> Result<u64, StoreError> {
    let known = known_if_there(&dir.relay_bundle_part(side, id))?;
    Ok(known.map_or(0, |known| known.len()))
}

/// Writes bytes of a bundle that have come.
///
/// # Errors
/// The file cannot be written.
pub fn write_part(
    dir: &TeamDir,
    side: OrderSide,
    id: &OrderId,
    (offset, bytes): (u64, &[u8]),
) -> Result<(), StoreError> {
    let orders = dir.relay_orders(side);
    super::make_folders(dir)?;
    make_folder(orders.parent().unwrap_or(&orders))?;
    make_folder(&orders)?;
    let path = dir.relay_bundle_part(side, id);
    let file = open_or_create(&path, Access::Update)?;
    Ok(file.write_all_at(bytes, offset).at(&path)?)
}

/// Gives a bundle that has come whole its name.
///
/// # Errors
/// The file cannot be renamed.
pub fn finish_part(dir: &TeamDir, side: OrderSide, id: &OrderId) -> Result<(), StoreError> {
    let part = dir.relay_bundle_part(side, id);
    Ok(fs::rename(&part, dir.relay_bundle(side, id)).at(&part)?)
}

/// Removes the bundle of an order.
///
/// # Errors
/// A file cannot be removed.
pub fn remove_bundle(dir: &TeamDir, side: OrderSide, id: &OrderId) -> Result<(), StoreError> {
    remove(&dir.relay_bundle_part(side, id))?;
    Ok(remove(&dir.relay_bundle(side, id))?)
}

/// Removes bundles of this age whose order is gone.
pub(super) fn remove_lost_bundles(
    dir: &TeamDir,
    side: OrderSide,
    now: WallTime,
    age: Duration,
) -> Result<(), StoreError> {
    for name in names_in(&dir.relay_orders(side))? {
        let id = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
        let Some(Ok(id)) = id.map(OrderId::parse) else { continue };
        let path = dir.relay_orders(side).join(&name);
        let Some(known) = known_if_there(&path)? else { continue };
        let is_lost = known_if_there(&dir.relay_order(side, &id))?.is_none();
        if is_lost && now.since(changed_at(&known)) > age {
            remove(&path)?;
        }
    }
    Ok(())
}

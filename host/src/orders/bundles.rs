//! The bundles of git that come with orders and answers: the host that has one gives it in parts, and the other one asks for
//! them until it is whole. Nothing of it stays at the server.

use crate::carrier::{Carrier, Reply};
use crate::offload::offload;
use crate::parts::{self, FEWEST_BYTES, GivenPart, MOST_BYTES};
use agent_team::store::relay::{
    bundle_bytes, finish_part, part_bytes, read_bundle, read_order, remove_bundle, write_part,
};
use agent_team::store::{StoreError, TeamDir};
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use agent_team::wire::host_order::{OrderId, OrderSide};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The pause before a part is asked for again that did not come.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(300);

/// A question for a part of a bundle.
#[derive(Debug, Serialize, Deserialize)]
struct PartQuestion {
    v: u32,
    id: OrderId,
    /// The side on which the host that is asked has the order.
    side: OrderSide,
    offset: u64,
    most: usize,
}

/// Answers a host that asks for a part of a bundle.
pub(crate) fn asked(dir: &TeamDir, from: HostName, body: &[u8], reply: Reply) {
    let Ok(question) = serde_json::from_slice::<PartQuestion>(body) else {
        tracing::warn!(%from, "what came is no question for a bundle");
        return;
    };
    let dir = dir.clone();
    tokio::spawn(async move {
        let part = offload(move || part(&dir, &from, &question)).await;
        match part {
            Ok(body) => drop(reply.answer(body.into()).await),
            Err(why) => tracing::warn!(%why, "a part of a bundle is not given"),
        }
    });
}

fn part(dir: &TeamDir, from: &HostName, question: &PartQuestion) -> Result<Vec<u8>, StoreError> {
    let PartQuestion { v, id, side, offset, most } = question;
    let order = read_order(dir, *side, id)?.filter(|_| *v == RELAY_PROTOCOL);
    // Only the host at the other end of the order gets it.
    let bytes = match order {
        Some(order) if order.host == *from => {
            read_bundle(dir, *side, id, (*offset, (*most).min(MOST_BYTES)))?
        }
        Some(_) | None => None,
    };
    Ok(parts::answer(bytes))
}

/// The answer of a host that was asked for a part.
enum Part {
    Bytes(Vec<u8>),
    Missing,
    Unanswered,
}

/// Gets the bundle of an order from the host at its other end, unless it is there. Goes on with what came before. Returns
/// whether it is there; it is not if it is no longer wanted.
pub(super) async fn fetch(
    carrier: &Carrier,
    dir: &TeamDir,
    (from, side, id): (&HostName, OrderSide, &OrderId),
    bytes: u64,
    is_wanted: impl Fn() -> bool,
) -> Result<bool, StoreError> {
    let mut most = MOST_BYTES;
    while is_wanted() {
        let (team, order_id) = (dir.clone(), id.clone());
        let Some(offset) = offload(move || missing_from(&team, side, &order_id, bytes)).await?
        else {
            return Ok(true);
        };
        match ask(carrier, (from, side, id), offset, most).await {
            Part::Bytes(part) if !part.is_empty() => {
                most = (most * 2).min(MOST_BYTES);
                let (team, order_id) = (dir.clone(), id.clone());
                offload(move || write_part(&team, side, &order_id, (offset, &part))).await?;
            }
            Part::Bytes(_) | Part::Missing => tokio::time::sleep(ASK_AGAIN_AFTER).await,
            Part::Unanswered => {
                most = (most / 2).max(FEWEST_BYTES);
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        }
    }
    if side == OrderSide::Out {
        // Nobody asks for it again.
        let (team, order_id) = (dir.clone(), id.clone());
        offload(move || remove_bundle(&team, side, &order_id)).await?;
    }
    Ok(false)
}

/// Returns the place from which a bundle is missing; `None` if it is there. One that has come whole gets its name.
fn missing_from(
    dir: &TeamDir,
    side: OrderSide,
    id: &OrderId,
    bytes: u64,
) -> Result<Option<u64>, StoreError> {
    if bundle_bytes(dir, side, id)? == Some(bytes) {
        return Ok(None);
    }
    let part = part_bytes(dir, side, id)?;
    if part < bytes {
        return Ok(Some(part));
    }
    if part > bytes {
        remove_bundle(dir, side, id)?;
        return Ok(Some(0));
    }
    finish_part(dir, side, id)?;
    Ok(None)
}

async fn ask(
    carrier: &Carrier,
    (from, side, id): (&HostName, OrderSide, &OrderId),
    offset: u64,
    most: usize,
) -> Part {
    let question =
        PartQuestion { v: RELAY_PROTOCOL, id: id.clone(), side: side.other(), offset, most };
    let Ok(body) = serde_json::to_vec(&question) else { return Part::Missing };
    let answer = match carrier.request_bundle(from.as_str(), body.into()).await {
        Ok(answer) => answer,
        Err(why) => {
            tracing::info!(%id, %from, %why, "a part of a bundle has not come");
            return Part::Unanswered;
        }
    };
    match parts::read(&answer) {
        GivenPart::Bytes(bytes) => Part::Bytes(bytes),
        GivenPart::Missing | GivenPart::Unclear => Part::Missing,
    }
}

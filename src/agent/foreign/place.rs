//! The wait for a place among the agents of the team that have a process, and the end of the idle time of one that has it.

use crate::store::StoreError;
use crate::store::agent_places::{AgentPlace, AgentPlaces, GivingAway};
use crate::store::asynchronous::offload;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The interval at which a member that waits looks for a place.
const LOOK_FOR_PLACE: Duration = Duration::from_millis(100);

/// The interval at which a member with an idle agent looks whether another one wants its place.
const LOOK_FOR_WISH: Duration = Duration::from_secs(1);

/// The time after the end of a process before the next member may give its place away: who waited has taken this one by then.
pub(super) const BETWEEN_GIVING: Duration = Duration::from_millis(300);

/// The place for the next start of an agent.
#[derive(Debug, Default)]
pub(super) struct NextPlace {
    /// The place, if it was found before the start.
    pub(super) found: Option<AgentPlace>,
    /// Whether the start waits for one.
    pub(super) is_awaited: bool,
}

/// Takes a place at once, if one is free.
pub(super) async fn free_place(places: &AgentPlaces) -> Result<Option<AgentPlace>, StoreError> {
    let places = places.clone();
    offload(move || places.take()).await
}

/// Waits for a place; `on_wait` is called once if none is free. Fails if the lock files cannot be used.
pub(super) async fn wait_for_place(
    places: &AgentPlaces,
    on_wait: impl FnOnce(),
) -> Result<AgentPlace, StoreError> {
    let (mut on_wait, mut wish) = (Some(on_wait), None);
    loop {
        if let Some(place) = free_place(places).await? {
            return Ok(place);
        }
        if let Some(on_wait) = on_wait.take() {
            on_wait();
        }
        if wish.is_none() {
            let places = places.clone();
            wish = offload(move || places.wish()).await?;
        }
        sleep(LOOK_FOR_PLACE).await;
    }
}

/// Waits until an idle agent is to be ended: after this time, or as soon as another member wants its place.
pub(super) async fn idle_end(places: &AgentPlaces, after: Option<Duration>) -> Option<GivingAway> {
    let end = after.and_then(|after| Instant::now().checked_add(after));
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        sleep(left.unwrap_or(LOOK_FOR_WISH).min(LOOK_FOR_WISH)).await;
        let looked = places.clone();
        match offload(move || looked.give_away()).await {
            Ok(None) => {}
            Ok(giving) => return giving,
            Err(why) => tracing::warn!(%why, "the wishes for a place cannot be read"),
        }
    }
}

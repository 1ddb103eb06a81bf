//! The keys of models that another host gets with the orders of this one, as a person on this host has said
//! (`team host send-key`). They are encrypted for that host, as all orders are.

use crate::offload::offload;
use agent_team::own_model_keys;
use agent_team::relay::hand_keys;
use agent_team::store::TeamDir;
use agent_team::store::relay::sent_keys;
use agent_team::wire::carried::HostName;
use agent_team::wire::host_order::{Order, OrderId};
use agent_team::wire::model_keys::{KeysOfOrder, ModelKeys};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The keys that this relay has for other hosts: those of its environment, and those that the lead has given it.
#[derive(Debug, Clone)]
pub(crate) struct KeysToSend(Arc<Mutex<ModelKeys>>);

impl KeysToSend {
    /// Returns the keys of the environment.
    pub(crate) fn of_environment() -> Self {
        Self(Arc::new(Mutex::new(own_model_keys())))
    }

    /// Adds the keys of the lead.
    pub(crate) fn add(&self, keys: ModelKeys) {
        self.lock().extend(keys);
    }

    /// Names the keys of an order in it, and returns them.
    ///
    /// # Errors
    /// In words: a key that the host shall get is not set here, or the list of them cannot be read.
    pub(super) async fn put_into(
        &self,
        order: &mut Order,
        dir: &TeamDir,
        host: &HostName,
    ) -> Result<ModelKeys, String> {
        let Order::Spawn(spawn) = order else { return Ok(ModelKeys::default()) };
        let dir = dir.clone();
        let names = offload(move || sent_keys(&dir)).await.map_err(|why| why.to_string())?;
        spawn.sent_keys = names.get(host).into_iter().flatten().cloned().collect();
        let keys = self.lock();
        let key = |name: &String| {
            let key = keys.get(name).map(|key| (name.clone(), key.to_owned()));
            key.ok_or_else(|| {
                format!(
                    "{host} is to get {name}, which was not set where the lead (or team-host run) was started: start it again with it, or: team host send-key {host} --none"
                )
            })
        };
        spawn.sent_keys.iter().map(key).collect()
    }

    fn lock(&self) -> MutexGuard<'_, ModelKeys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands the keys of an order to the supervisor of this host. One that does not run yet gets them as the order is asked for again.
pub(super) async fn hand_over(dir: &TeamDir, order: &OrderId, keys: ModelKeys) {
    if keys.is_empty() {
        return;
    }
    let (dir, keys) = (dir.clone(), KeysOfOrder { order: order.clone(), keys });
    if let Err(why) = offload(move || hand_keys(&dir, &keys)).await {
        tracing::debug!(%why, "keys are handed over later");
    }
}

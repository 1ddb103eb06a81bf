//! The keys of models that come with the orders of another host. The relay hands them over at a socket; they are kept in the memory of
//! this process alone, for the teammates that it starts.
//!
//! A provider of which this host has a key itself keeps that one.

use crate::app::fallbacks;
use crate::os::spawn::spawn_local;
use crate::os::unix_socket;
use crate::os::{Clock, SystemClock};
use crate::settings::Settings;
use crate::settings::environment::Environment;
use crate::settings::model::ProviderCredentials;
use crate::settings::models::KnownModels;
use crate::store::TeamDir;
use crate::store::asynchronous::offload;
use crate::store::relay::read_order;
use crate::wire::host_order::{OrderId, OrderSide};
use crate::wire::limits::MIB;
use crate::wire::model_keys::{KeysOfOrder, ModelKeys};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The orders whose keys are kept: those under way, and a few before them.
const MOST_ORDERS: usize = 64;

/// The pause between two looks whether an order is still given.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time in which a connection must say its keys.
const SAID_WITHIN: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The keys that have come, and the settings of this host.
pub(super) struct ReceivedKeys {
    settings: Settings,
    environment: Environment,
    /// The access to models without keys of others.
    own: ProviderCredentials,
    /// The keys of each order, the last ones last.
    keys: RefCell<VecDeque<KeysOfOrder>>,
    changed: Notify,
}

impl ReceivedKeys {
    pub(super) fn new(
        settings: Settings,
        environment: Environment,
        own: ProviderCredentials,
    ) -> Self {
        let (keys, changed) = (RefCell::default(), Notify::new());
        Self { settings, environment, own, keys, changed }
    }

    /// Waits for the keys of an order, as long as it is given.
    ///
    /// # Errors
    /// In words: it is not given any more.
    pub(super) async fn of_order(
        &self,
        team: &TeamDir,
        id: &OrderId,
        names: &[String],
    ) -> Result<ModelKeys, String> {
        if names.is_empty() {
            return Ok(ModelKeys::default());
        }
        loop {
            let changed = self.changed.notified();
            if let Some(keys) = self.known(id) {
                let named = keys.iter().filter(|(name, _)| names.iter().any(|it| it == name));
                return Ok(named.map(|(name, key)| (name.to_owned(), key.to_owned())).collect());
            }
            if timeout(LOOK_EVERY, changed).await.is_err() {
                let (team, order) = (team.clone(), id.clone());
                let known = offload(move || read_order(&team, OrderSide::In, &order)).await;
                if !known.is_ok_and(|known| known.is_some_and(|it| it.until > SystemClock.now())) {
                    return Err(format!("its keys ({}) have not come", names.join(", ")));
                }
            }
        }
    }

    /// Returns the access to models with these keys, for providers of which this host has none itself, and what is known of the models.
    ///
    /// # Errors
    /// In words: a budget in money has no price for a fallback model.
    pub(super) fn access(
        &self,
        keys: &ModelKeys,
    ) -> Result<(ProviderCredentials, KnownModels), String> {
        let credentials = if keys.is_empty() {
            self.own.clone()
        } else {
            let environment = self.environment.with_keys(keys);
            let given = ProviderCredentials::of(&self.settings, &environment);
            fallbacks::resolve(&self.settings, given).map_err(|why| why.why)?.credentials
        };
        let known = KnownModels::of(&self.settings, &credentials);
        Ok((credentials, known))
    }

    fn known(&self, id: &OrderId) -> Option<ModelKeys> {
        self.keys.borrow().iter().find(|it| it.order == *id).map(|it| it.keys.clone())
    }

    fn add(&self, keys: KeysOfOrder) {
        let mut known = self.keys.borrow_mut();
        known.retain(|it| it.order != keys.order);
        if known.len() >= MOST_ORDERS {
            known.pop_front();
        }
        known.push_back(keys);
        drop(known);
        self.changed.notify_waiters();
    }
}

/// Takes keys as long as the supervisor runs.
pub(super) async fn receive(team: TeamDir, received: Rc<ReceivedKeys>) {
    let opened = unix_socket::bind(&team.host_supervisor_socket()).and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    let listener = match opened {
        Ok(listener) => listener,
        Err(why) => return tracing::warn!(%why, "no keys can come with orders"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let received = Rc::clone(&received);
                spawn_local(async move {
                    // The relay hands them over again.
                    if let Ok(Err(why)) = timeout(SAID_WITHIN, take(stream, &received)).await {
                        tracing::debug!(%why, "keys have not come whole");
                    }
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Removes the socket.
pub(super) fn close(team: &TeamDir) {
    // Another supervisor replaces one that is left.
    drop(fs::remove_file(team.host_supervisor_socket()));
}

async fn take(stream: UnixStream, received: &ReceivedKeys) -> io::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut line = String::new();
    BufReader::new(input.take(MIB)).read_line(&mut line).await?;
    // The error of a parser would show a part of them.
    let keys = serde_json::from_str(&line).map_err(|_| io::ErrorKind::InvalidData)?;
    received.add(keys);
    output.write_all(b"\n").await
}

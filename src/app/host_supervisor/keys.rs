//! The keys of models that come with the orders of another host. The relay hands them over at a socket; they are kept in the memory of
//! this process alone, for the teammates that it starts.
//!
//! A variable that this host has set itself keeps its own key.

use crate::os::unix_socket;
use crate::settings::Settings;
use crate::settings::environment::Environment;
use crate::settings::model::ProviderCredentials;
use crate::settings::models::KnownModels;
use crate::store::TeamDir;
use crate::supervise::supervisor::Supervisor;
use crate::wire::limits::MIB;
use crate::wire::model_keys::ModelKeys;
use std::cell::RefCell;
use std::fs;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The time in which keys come after their order. The relay hands them over again and again.
const COME_WITHIN: Duration = Duration::from_secs(5);

/// The time in which a connection must say its keys.
const SAID_WITHIN: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The keys that have come so far.
pub(super) struct ReceivedKeys {
    settings: Settings,
    environment: Environment,
    keys: RefCell<ModelKeys>,
    changed: Notify,
}

impl ReceivedKeys {
    pub(super) fn new(settings: Settings, environment: Environment) -> Self {
        Self { settings, environment, keys: RefCell::default(), changed: Notify::new() }
    }

    /// Waits until the keys of an order have come, and gives them to the supervisor.
    ///
    /// # Errors
    /// In words: they have not.
    pub(super) async fn give(&self, names: &[String], to: &Supervisor) -> Result<(), String> {
        if names.is_empty() {
            return Ok(());
        }
        let have_come = async {
            loop {
                let changed = self.changed.notified();
                if names.iter().all(|name| self.keys.borrow().get(name).is_some()) {
                    return;
                }
                changed.await;
            }
        };
        let late = timeout(COME_WITHIN, have_come).await;
        late.map_err(|_| {
            format!("the keys that come with the order ({}) are not there", names.join(", "))
        })?;
        let environment = self.environment.with_keys(&self.keys.borrow());
        let credentials = ProviderCredentials::of(&self.settings, &environment);
        let known = KnownModels::of(&self.settings, &credentials);
        to.set_access(credentials, known);
        Ok(())
    }

    fn add(&self, keys: ModelKeys) {
        self.keys.borrow_mut().extend(keys);
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
                tokio::task::spawn_local(async move {
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

//! The connection, and operations that end with it.

use super::config::{CarrierConfig, inbox};
use super::error::CarrierError;
use super::timeouts::{LIBRARY_TIMEOUT, Patience, REQUEST_TIMEOUT};
use async_nats::{Client, ConnectOptions, Event};
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// Two pings without an answer end a connection, so a dead network is noticed within about 3 seconds.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// The time for a connection to the only server: with TLS, it takes four or five times the way there and back, which is long on a slow
/// link. After a partition it costs no time where the kernel asks for a connection each second (Linux 6.5), and up to three
/// seconds elsewhere.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(6);
/// The same where there are other servers to try: one of them may be without power.
const TRY_NEXT_AFTER: Duration = Duration::from_secs(2);
/// The longest pause between two attempts to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(250);

/// The state of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ConnectionState {
    /// The number of connections so far, this one included.
    pub(super) generation: u64,
    pub(super) is_connected: bool,
}

/// A client of async-nats with its state. The client reconnects for ever.
pub(super) struct Connection {
    client: Client,
    state: watch::Receiver<ConnectionState>,
    error: watch::Receiver<Option<String>>,
    patience: Patience,
    /// The connection task parks once this is dropped.
    _in_use: Arc<()>,
}

impl Connection {
    /// Starts the connection task. Fails only if an address cannot be read.
    pub(super) async fn start(config: &CarrierConfig) -> Result<Self, CarrierError> {
        let (state_sender, state) = watch::channel(ConnectionState::default());
        let (error_sender, error) = watch::channel(None);
        let in_use = Arc::new(());
        let user = Arc::downgrade(&in_use);
        let is_alone = config.servers.len() < 2;
        let options = ConnectOptions::new()
            .name(format!("{} {}", config.team, config.host))
            .retry_on_initial_connect()
            .ping_interval(PING_INTERVAL)
            .connection_timeout(if is_alone { CONNECTION_TIMEOUT } else { TRY_NEXT_AFTER })
            .request_timeout(Some(LIBRARY_TIMEOUT))
            .custom_inbox_prefix(inbox(&config.host))
            // Otherwise the server sends each beat back to its own sender.
            .no_echo()
            .reconnect_delay_callback(reconnect_delay)
            .reconnect_to_server_callback(move |_servers, _info| {
                let is_unused = user.strong_count() == 0;
                async move {
                    if is_unused {
                        // A connection task that waits for the server does not notice that its clients are dropped.
                        pending::<()>().await;
                    }
                    None
                }
            })
            .event_callback(move |event| {
                follow(&event, &state_sender, &error_sender);
                ready(())
            });
        let client = config
            .security
            .of(options)?
            .connect(config.servers.as_slice())
            .await
            .map_err(|why| CarrierError::Address(why.to_string()))?;
        Ok(Self { client, state, error, patience: Patience::new(), _in_use: in_use })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn state(&self) -> ConnectionState {
        *self.state.borrow()
    }

    pub(super) fn last_error(&self) -> Option<String> {
        self.error.borrow().clone()
    }

    /// A receiver that has seen the present state.
    pub(super) fn watch(&self) -> watch::Receiver<ConnectionState> {
        let mut state = self.state.clone();
        state.mark_unchanged();
        state
    }

    /// Waits for a connection. Returns a receiver that has seen it, and `None` if there will be none.
    pub(super) async fn connected(&self) -> Option<watch::Receiver<ConnectionState>> {
        let mut state = self.state.clone();
        state.wait_for(|state| state.is_connected).await.ok()?;
        Some(state)
    }

    /// Runs an operation that awaits an answer of the server, until its deadline or the end of the connection.
    pub(super) async fn run<T>(
        &self,
        what: &'static str,
        within: Duration,
        operation: impl Future<Output = Result<T, CarrierError>>,
    ) -> Result<T, CarrierError> {
        self.while_connected(async { self.answer(what, within, operation).await? }).await
    }

    /// Runs an operation that hands something over, to which nobody answers.
    pub(super) async fn hand_over<T>(
        &self,
        what: &'static str,
        operation: impl Future<Output = Result<T, CarrierError>>,
    ) -> Result<T, CarrierError> {
        self.run_until(what, REQUEST_TIMEOUT, operation).await
    }

    /// Runs a question to another host. The server may be as fast as ever while that host does not answer.
    pub(super) async fn ask<T>(
        &self,
        what: &'static str,
        within: Duration,
        question: impl Future<Output = Result<T, CarrierError>>,
    ) -> Result<T, CarrierError> {
        self.run_until(what, within * self.patience.factor(), question).await
    }

    async fn run_until<T>(
        &self,
        what: &'static str,
        after: Duration,
        operation: impl Future<Output = Result<T, CarrierError>>,
    ) -> Result<T, CarrierError> {
        let ended = async {
            let late = Err(CarrierError::Timeout { what, after });
            timeout(after, operation).await.unwrap_or(late)
        };
        self.while_connected(ended).await
    }

    /// Runs an operation until the end of the connection. It is not started without one, because async-nats would keep its message
    /// and send it long after the caller has given up.
    async fn while_connected<T>(
        &self,
        operation: impl Future<Output = Result<T, CarrierError>>,
    ) -> Result<T, CarrierError> {
        let mut state = self.watch();
        if !state.borrow().is_connected {
            return Err(CarrierError::Disconnected);
        }
        tokio::select! {
            biased;
            result = operation => result,
            _ = state.changed() => Err(CarrierError::Disconnected),
        }
    }

    /// Waits for the answer of the server: `within` on a fast link, and longer after answers have come too late.
    pub(super) async fn answer<T>(
        &self,
        what: &'static str,
        within: Duration,
        request: impl Future<Output = T>,
    ) -> Result<T, CarrierError> {
        let (used, asked) = (self.patience.factor(), Instant::now());
        let after = within * used;
        let answer = timeout(after, Box::pin(request)).await;
        match &answer {
            Ok(_) => self.patience.note_answer(asked.elapsed(), within, used),
            Err(_) => self.patience.note_late(used),
        }
        answer.map_err(|_| CarrierError::Timeout { what, after })
    }
}

fn reconnect_delay(attempts: usize) -> Duration {
    // The first attempt follows at once; a restarted server is back within milliseconds.
    let doublings = u32::try_from(attempts).unwrap_or(u32::MAX).saturating_sub(1).min(10);
    if doublings == 0 {
        return Duration::ZERO;
    }
    Duration::from_millis(5).saturating_mul(1 << doublings).min(RECONNECT_DELAY)
}

fn follow(
    event: &Event,
    state: &watch::Sender<ConnectionState>,
    error: &watch::Sender<Option<String>>,
) {
    match event {
        Event::Connected => state.send_modify(|state| {
            state.generation += 1;
            state.is_connected = true;
        }),
        Event::Disconnected | Event::Closed => {
            state.send_modify(|state| state.is_connected = false);
        }
        Event::ServerError(why) => {
            error.send_replace(Some(why.to_string()));
        }
        Event::ClientError(why) => {
            error.send_replace(Some(why.to_string()));
        }
        Event::LameDuckMode | Event::Draining | Event::SlowConsumer(_) => {}
    }
}

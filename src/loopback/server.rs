//! Accepts connections on loopback, reads one request on each, and writes its answer.

use http_body_util::{BodyExt, Collected, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::RefCell;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The maximum number of connections at once.
const MAX_CONNECTIONS: usize = 64;

/// The time within which a client must send a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound port.
pub(crate) struct LoopbackServer {
    listener: TcpListener,
    port: u16,
    connections: Arc<Semaphore>,
}

/// The work for after the answer to a request.
type Work = Box<dyn FnOnce()>;

/// The answer to one request. It counts as written once the kernel has all of it.
#[derive(Clone, Default)]
pub(crate) struct Written(Rc<RefCell<Option<Work>>>);

impl Written {
    /// Does this once the answer is written; drops it if that fails.
    pub(crate) fn then(&self, work: impl FnOnce() + 'static) {
        *self.0.borrow_mut() = Some(Box::new(work));
    }
}

/// The reason for which a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is longer than its bound, or its connection broke.
    TooLong,
    /// It did not end in time.
    Late,
}

/// Reads a body of at most so many bytes.
pub(crate) async fn read_body(body: Incoming, most: usize) -> Result<Bytes, BodyError> {
    let whole = Limited::new(body, most).collect();
    let whole = tokio::time::timeout(REQUEST_TIMEOUT, whole).await.map_err(|_| BodyError::Late)?;
    whole.map(Collected::to_bytes).map_err(|_| BodyError::TooLong)
}

impl LoopbackServer {
    /// Binds a port on loopback (0: any free one).
    ///
    /// # Errors
    /// The port is taken, or no port or descriptor is free.
    pub(crate) async fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port, connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)) })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Serves until the future is dropped. `respond` is dropped with its connection.
    pub(crate) async fn serve<B, F>(
        &self,
        respond: impl Fn(Request<Incoming>, Written) -> F + Clone + 'static,
    ) where
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
        F: Future<Output = Response<B>> + 'static,
    {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // `accept` fails if no descriptor is free; the end of a connection frees one.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else { continue };
            let answered = answer(stream, respond.clone());
            tokio::task::spawn_local(async move {
                let _permit = permit;
                answered.await;
            });
        }
    }
}

async fn answer<B, F>(stream: TcpStream, respond: impl Fn(Request<Incoming>, Written) -> F)
where
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    F: Future<Output = Response<B>>,
{
    let written = Written::default();
    let service = service_fn(|request| {
        let response = respond(request, written.clone());
        async { Ok::<_, Infallible>(response.await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // One request each: a connection that ends in order has written its answer.
    match connection {
        Ok(()) => {
            if let Some(work) = written.0.take() {
                work();
            }
        }
        Err(why) => tracing::debug!(%why, "a connection failed"),
    }
}

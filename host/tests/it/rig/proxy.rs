//! A TCP proxy that delays bytes, and holds them as a partition does. It needs neither root nor namespaces.
//!
//! Each direction of a connection has a reader, which notes when its bytes are due, and a writer. Held bytes and held
//! ends of a connection are not lost: they pass when the direction is released.

use std::io::{Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of reads that a direction holds. After that, the sender's own buffers fill up.
const QUEUE: usize = 1024;

/// A direction of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// From clients to the server.
    ToServer,
    /// From the server to clients.
    ToClient,
}

#[derive(Debug, Default)]
struct GateState {
    is_held: bool,
    is_closed: bool,
    delay: Duration,
}

/// The gate of a direction, for all connections.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Returns the time at which bytes that arrive now are due.
    fn due(&self) -> Instant {
        Instant::now() + self.state.lock().unwrap().delay
    }

    /// Waits until the time has come and nothing is held. Returns `false` if the proxy ends.
    fn pass(&self, due: Instant) -> bool {
        let mut state = self.state.lock().unwrap();
        loop {
            let rest = due.saturating_duration_since(Instant::now());
            if state.is_closed {
                return false;
            }
            state = if state.is_held {
                self.changed.wait(state).unwrap()
            } else if rest.is_zero() {
                return true;
            } else {
                self.changed.wait_timeout(state, rest).unwrap().0
            };
        }
    }
}

/// The state that all threads share.
#[derive(Debug, Default)]
struct Shared {
    to_server: Gate,
    to_client: Gate,
    /// Both sockets of each connection, open or not.
    sockets: Mutex<Vec<TcpStream>>,
}

impl Shared {
    fn gate(&self, flow: Flow) -> &Gate {
        match flow {
            Flow::ToServer => &self.to_server,
            Flow::ToClient => &self.to_client,
        }
    }

    fn gates(&self) -> [&Gate; 2] {
        [&self.to_server, &self.to_client]
    }
}

/// A running proxy. The drop ends all connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    /// The socket of the listener.
    listener: TcpStream,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for gate in self.shared.gates() {
            gate.change(|state| state.is_closed = true);
        }
        // This ends the acceptor's wait.
        self.listener.shutdown(Shutdown::Both).unwrap();
        self.disconnect();
        self.acceptor.take().unwrap().join().unwrap();
    }
}

impl Proxy {
    /// Starts a proxy on the loopback interface for the server at this address.
    pub(crate) fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Self::between(listener, move || TcpStream::connect(server))
    }

    /// Starts a proxy between a listener and the function that connects to the server. With `Host::enter`, both ends
    /// can be on hosts.
    pub(crate) fn between(
        listener: TcpListener,
        connect: impl Fn() -> Result<TcpStream> + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let socket = TcpStream::from(OwnedFd::from(listener.try_clone().unwrap()));
        let own = Arc::clone(&shared);
        let accept = move || accept(&listener, &connect, &own);
        let acceptor = Some(std::thread::spawn(accept));
        Self { address, listener: socket, shared, acceptor }
    }

    /// Returns the address for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays bytes that arrive from now on by this time, each way.
    pub(crate) fn set_delay(&self, one_way: Duration) {
        for gate in self.shared.gates() {
            gate.change(|state| state.delay = one_way);
        }
    }

    /// Holds all bytes, and does not serve new connections, until `release`.
    pub(crate) fn hold(&self) {
        for flow in [Flow::ToServer, Flow::ToClient] {
            self.hold_flow(flow);
        }
    }

    /// Holds the bytes of one direction until `release`. The bytes to the server include new connections.
    pub(crate) fn hold_flow(&self, flow: Flow) {
        self.shared.gate(flow).change(|state| state.is_held = true);
    }

    /// Lets all bytes pass, those that were held first.
    pub(crate) fn release(&self) {
        for gate in self.shared.gates() {
            gate.change(|state| state.is_held = false);
        }
    }

    /// Ends all connections, with the loss of bytes that were held or delayed. New ones are served.
    pub(crate) fn disconnect(&self) {
        for socket in self.shared.sockets.lock().unwrap().drain(..) {
            let _ended = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Serves connections until the listener is shut down, then waits for their threads.
fn accept(listener: &TcpListener, connect: &dyn Fn() -> Result<TcpStream>, shared: &Shared) {
    std::thread::scope(|threads| {
        while let Ok((client, _)) = listener.accept() {
            if !shared.to_server.pass(Instant::now()) {
                break;
            }
            let Ok(server) = connect() else { continue };
            let mut known = Vec::new();
            for socket in [&client, &server] {
                socket.set_nodelay(true).unwrap();
                known.push(socket.try_clone().unwrap());
            }
            shared.sockets.lock().unwrap().extend(known);
            if shared.to_server.state.lock().unwrap().is_closed {
                // The drop may have ended the known connections before this one was known.
                let _ended = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
            }
            let ends = [(Flow::ToServer, &client, &server), (Flow::ToClient, &server, &client)];
            for (flow, from, to) in ends {
                let gate = shared.gate(flow);
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let (queue, queued) = sync_channel(QUEUE);
                threads.spawn(move || read(from, gate, &queue));
                threads.spawn(move || write(to, gate, &queued));
            }
        }
    });
}

/// Bytes with the time at which they are due. No bytes are the end of the stream.
type Chunk = (Instant, Vec<u8>);

fn read(mut from: TcpStream, gate: &Gate, queue: &SyncSender<Chunk>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        let chunk = buffer.get(..count).unwrap().to_vec();
        if queue.send((gate.due(), chunk)).is_err() || count == 0 {
            return;
        }
    }
}

fn write(mut to: TcpStream, gate: &Gate, queued: &Receiver<Chunk>) {
    for (due, bytes) in queued {
        if !gate.pass(due) {
            break;
        }
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ended = to.shutdown(Shutdown::Write);
}

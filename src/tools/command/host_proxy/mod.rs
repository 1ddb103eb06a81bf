//! The proxy through which walled commands reach named hosts, and nothing else. It is a part of the agent's process,
//! and serves one command until that ends.
//!
//! A host is let through by its name. The proxy resolves the name and connects to that very address, so that no second
//! answer of a name server counts. Without a port in its pattern a host must be public, and the connection must name it:
//! in the greeting of TLS, or in the request of HTTP. So a host that shares its address with others opens none of them.

mod request;
mod tls_name;

use crate::os::async_fd::ReadableFd;
use crate::os::spawn::erased;
use crate::os::wall::receive_listener;
use crate::wire::host::{HostGrant, HostPattern, WEB_PORTS, is_public};
use crate::wire::limits::{PROXY_CONNECTIONS, PROXY_TIMEOUT};
use request::{HEAD_BYTES, ProxyRequest, Refusal};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::TcpListener as StdListener;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tls_name::TlsGreeting;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The maximum number of refused hosts that are remembered.
const REFUSED_HOSTS: usize = 20;

/// The proxy of one command.
#[derive(Debug, Clone)]
pub(in crate::tools) struct HostProxy(Rc<ProxyState>);

#[derive(Debug)]
struct ProxyState {
    hosts: Vec<HostPattern>,
    refused: RefCell<BTreeSet<String>>,
}

impl HostProxy {
    pub(in crate::tools) fn new(hosts: Vec<HostPattern>) -> Self {
        Self(Rc::new(ProxyState { hosts, refused: RefCell::default() }))
    }

    /// Returns the hosts that were refused, each as it would have to be asked for.
    pub(in crate::tools) fn refused(&self) -> Vec<String> {
        self.0.refused.borrow().iter().cloned().collect()
    }

    /// Serves the connections that come at the socket of a command. Never returns; dropping it ends all of them.
    pub(in crate::tools) async fn serve(&self, channel: OwnedFd) {
        if let Err(why) = self.accept_all(channel).await
            && why.kind() != io::ErrorKind::UnexpectedEof
        {
            tracing::warn!(%why, "the proxy of a command has ended");
        }
        std::future::pending::<()>().await;
    }

    async fn accept_all(&self, channel: OwnedFd) -> io::Result<()> {
        let readable = ReadableFd::to_read(&channel)?;
        let listener: StdListener = readable.read(|| receive_listener(&channel)).await?;
        let listener = TcpListener::from_std(listener)?;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                client = listener.accept(), if connections.len() < PROXY_CONNECTIONS => {
                    let (client, _) = client?;
                    let proxy = self.clone();
                    connections.spawn_local(erased(async move { proxy.serve_one(client).await }));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn serve_one(&self, mut client: TcpStream) {
        let served = self.answer(&mut client).await;
        if let Err(refusal) = served {
            tracing::info!(why = refusal.text, "a connection of a command was refused");
            // A client that is gone needs no answer.
            client.write_all(refusal.response().as_bytes()).await.unwrap_or_default();
            client.shutdown().await.unwrap_or_default();
        }
    }

    /// Carries out one request. An error is told to the client, unless its connection is open already.
    async fn answer(&self, client: &mut TcpStream) -> Result<(), Refusal> {
        let (request, rest) = within_time(read_request(client)).await?;
        let (host, port) = request.target();
        let grant = self.grant(host, port)?;
        let mut server = within_time(self.connect(host, port, grant)).await?;
        match request {
            ProxyRequest::Tunnel { host, .. } => {
                let opened = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
                opened.map_err(Refusal::broken)?;
                let greeting = match grant {
                    HostGrant::Public => match within_time(read_greeting(client, rest)).await {
                        Ok(greeting) if greeting.names(&host) => greeting.bytes,
                        // The client speaks TLS by now.
                        Ok(_) | Err(_) => {
                            tracing::info!(host, "a connection did not name its host");
                            return Ok(());
                        }
                    },
                    HostGrant::Exact => rest,
                };
                let sent = server.write_all(&greeting).await;
                if sent.is_ok() {
                    copy_bidirectional(client, &mut server).await.map(drop).unwrap_or_default();
                }
            }
            ProxyRequest::Fetch { head, body_bytes, .. } => {
                fetch(client, &mut server, &head, &rest, body_bytes).await.unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Returns the widest grant for a host.
    fn grant(&self, host: &str, port: u16) -> Result<HostGrant, Refusal> {
        let grants = self.0.hosts.iter().filter_map(|pattern| pattern.grants(host, port));
        grants.max().ok_or_else(|| {
            self.refuse(host, port, "is not among the hosts that this command may reach")
        })
    }

    /// Refuses a host, and remembers it.
    fn refuse(&self, host: &str, port: u16, why: &str) -> Refusal {
        let plain = if WEB_PORTS.contains(&port) { HostPattern::parse(host).ok() } else { None };
        let is_public_name =
            plain.is_some() && self.0.hosts.iter().all(|it| it.grants(host, port).is_none());
        let exact =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let named = plain.filter(|_| is_public_name).or_else(|| HostPattern::parse(&exact).ok());
        let mut refused = self.0.refused.borrow_mut();
        if refused.len() < REFUSED_HOSTS {
            refused.extend(named.map(|pattern| pattern.to_string()));
        }
        Refusal::forbidden(format!("{exact} {why}"))
    }

    /// Connects to a host. Without an exact grant its address must be public.
    async fn connect(&self, host: &str, port: u16, grant: HostGrant) -> Result<TcpStream, Refusal> {
        let found = lookup_host((host, port)).await;
        let found: Vec<_> = found.map_err(|why| Refusal::unreachable(host, &why))?.collect();
        let is_meant = |ip| grant == HostGrant::Exact || is_public(ip);
        let addresses: Vec<_> = found.iter().filter(|address| is_meant(address.ip())).collect();
        if addresses.is_empty() && !found.is_empty() {
            let why = "has an address of this machine or of a local network, which needs its port in the name";
            return Err(self.refuse(host, port, why));
        }
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(server) => return Ok(server),
                Err(why) => last = why,
            }
        }
        Err(Refusal::unreachable(host, &last))
    }
}

async fn within_time<R>(done: impl Future<Output = Result<R, Refusal>>) -> Result<R, Refusal> {
    timeout(PROXY_TIMEOUT, done).await.unwrap_or_else(|_| Err(Refusal::late()))
}

/// Reads the head of a request. Returns it, and the bytes that came after it.
async fn read_request(client: &mut TcpStream) -> Result<(ProxyRequest, Vec<u8>), Refusal> {
    let mut bytes = Vec::new();
    loop {
        if let Some((request, head)) = ProxyRequest::parse(&bytes)? {
            return Ok((request, bytes.split_off(head)));
        }
        if bytes.len() >= HEAD_BYTES {
            return Err(Refusal::malformed("its head is too long"));
        }
        let read = client.read_buf(&mut bytes).await.map_err(Refusal::broken)?;
        if read == 0 {
            return Err(Refusal::malformed("it ends within its head"));
        }
    }
}

/// Reads the greeting of TLS, of which the beginning may have come already.
async fn read_greeting(client: &mut TcpStream, begun: Vec<u8>) -> Result<TlsGreeting, Refusal> {
    let mut greeting = TlsGreeting::default();
    greeting.add(&begun)?;
    while !greeting.is_whole() {
        let mut bytes = Vec::new();
        if client.read_buf(&mut bytes).await.map_err(Refusal::broken)? == 0 {
            return Err(Refusal::malformed("it ends within its greeting"));
        }
        greeting.add(&bytes)?;
    }
    Ok(greeting)
}

/// Passes on one request of HTTP with a body of that length, and its answer, which ends with the connection.
async fn fetch(
    client: &mut TcpStream,
    server: &mut TcpStream,
    head: &[u8],
    begun: &[u8],
    body_bytes: u64,
) -> io::Result<()> {
    let most = usize::try_from(body_bytes).unwrap_or(usize::MAX).min(begun.len());
    let begun = begun.get(..most).unwrap_or_default();
    server.write_all(head).await?;
    server.write_all(begun).await?;
    let left = body_bytes.saturating_sub(u64::try_from(most).unwrap_or(u64::MAX));
    let (from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let mut body = from_client.take(left);
    let up = copy(&mut body, &mut to_server);
    let down = copy(&mut from_server, &mut to_client);
    // The answer may come before the body is read.
    let (_, down) = tokio::join!(up, down);
    down?;
    client.shutdown().await
}

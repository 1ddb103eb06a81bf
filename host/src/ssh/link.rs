//! The connection to one host that was added over ssh: its relay runs below `ssh`, and ends with it.

use super::command::{Ssh, last_line, quoted};
use crate::child::Child;
use crate::invitation::{Invitation, InvitedKeys, KeysLine, SERVING};
use crate::own_server::ServerAccess;
use crate::sign_in::SignIn;
use agent_team::store::relay::{SshHost, new_secret};
use agent_team::wire::carried::HostName;
use std::io;
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Sender;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

/// The pause before the next connection; it doubles with each failure.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A connection that stood so long was a good one.
const GOOD_AFTER: Duration = Duration::from_secs(20);

/// The time that the other relay has for its end.
const END_WITHIN: Duration = Duration::from_secs(3);

/// The time in which the last words of an `ssh` that has ended are read.
const READ_WITHIN: Duration = Duration::from_millis(500);

/// The ports of tunnels on the other hosts: below those that systems give to connections.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 12_000;

/// The most bytes that a host says before its keys.
const MOST_GREETING: usize = 256 * 1024;

/// The bytes of a program's last words that are kept.
const KEPT: usize = 4096;

/// News of a connection: it is up, or down for a reason.
pub(super) struct LinkNews {
    pub(super) host: HostName,
    pub(super) state: Result<(), String>,
}

/// A connection that is to be kept up.
pub(super) struct Link {
    pub(super) ssh: Ssh,
    pub(super) host: SshHost,
    pub(super) team: String,
    pub(super) access: ServerAccess,
    pub(super) sign_in: SignIn,
    /// The address of the server on this host, if it is reached through a tunnel.
    pub(super) server: Option<SocketAddr>,
    pub(super) news: mpsc::UnboundedSender<LinkNews>,
}

impl Link {
    /// Connects, again whenever the connection ends, until it is told to end.
    pub(super) async fn keep(self, mut end: watch::Receiver<bool>) {
        let mut pause = SHORTEST_PAUSE;
        while !*end.borrow() {
            let began = Instant::now();
            let why = match self.connect(&mut end).await {
                Ok(why) => why,
                Err(why) => why.to_string(),
            };
            if *end.borrow() {
                return;
            }
            self.tell(Err(why));
            if began.elapsed() > GOOD_AFTER {
                pause = SHORTEST_PAUSE;
            }
            tokio::select! {
                () = sleep(pause) => {}
                // Also if nobody is left to tell it.
                _ = end.changed() => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn tell(&self, state: Result<(), String>) {
        // Without a receiver, the relay ends.
        drop(self.news.send(LinkNews { host: self.host.host.clone(), state }));
    }

    /// Runs the relay of the host until the connection ends; returns the reason.
    async fn connect(&self, end: &mut watch::Receiver<bool>) -> io::Result<String> {
        let SshHost { host, destination, folder, program, labels } = &self.host;
        // A port that an earlier connection had may not be free yet.
        let tunnel =
            self.server.map(|here| random_port().map(|there| (there, here))).transpose()?;
        let servers = match tunnel {
            Some((there, _)) => vec![format!("nats://127.0.0.1:{there}")],
            None => self.access.addresses.clone(),
        };
        let invitation = Invitation {
            host: host.clone(),
            team: self.team.clone(),
            servers,
            labels: labels.clone(),
            asks_for_login: self.access.asks_for_login,
            pin: self.access.pin.clone(),
            keys: if self.sign_in.is_signed_in(host).await {
                InvitedKeys::Kept
            } else {
                InvitedKeys::New
            },
        };
        let line = serde_json::to_string(&invitation)? + "\n";
        let run = format!(
            "exec {} run --invited --dir {}",
            quoted(program),
            quoted(&format!("{folder}/.team"))
        );
        let mut child = self.ssh.link(destination, &format!("sh -c {}", quoted(&run)), tunnel)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut input), Some(mut output), Some(errors)) = pipes else {
            return Ok(String::new());
        };
        // A host that does not read it says why.
        drop(input.write_all(line.as_bytes()).await);
        tokio::select! {
            signed_in = self.sign_in(&mut input, &mut output) => signed_in?,
            _ = end.changed() => {
                end_child(child, input).await;
                return Ok(String::new());
            }
        }
        let mut is_serving = false;
        let note = |said: &[u8]| {
            let is_word = |line: &[u8]| line.trim_ascii() == SERVING.as_bytes();
            if !is_serving && said.split(|byte| *byte == b'\n').any(is_word) {
                is_serving = true;
                self.tell(Ok(()));
            }
        };
        let said = async { tokio::join!(read(output, note), read(errors, |_| ())) };
        let mut said = std::pin::pin!(said);
        tokio::select! {
            (_, errors) = &mut said => {
                drop(input);
                Ok(reason(&errors, child.wait().await?))
            }
            // A program that it has started may hold its pipes open.
            status = child.wait() => {
                let errors = timeout(READ_WITHIN, said).await.map_or_else(|_| Vec::new(), |it| it.1);
                Ok(reason(&errors, status?))
            }
            _ = end.changed() => {
                end_child(child, input).await;
                Ok(String::new())
            }
        }
    }
}

impl Link {
    /// Reads the keys of the other host, and gives it its membership. A host that gives none has ended, or says why.
    async fn sign_in(
        &self,
        input: &mut Sender,
        output: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<()> {
        let mut said = Vec::new();
        let mut piece = [0; KEPT];
        while said.len() < MOST_GREETING {
            let count = output.read(&mut piece).await?;
            if count == 0 {
                break;
            }
            said.extend_from_slice(piece.get(..count).unwrap_or_default());
            let Some(KeysLine { keys }) = KeysLine::find(&said) else { continue };
            let membership = self.sign_in.sign_in(&self.host.host, keys).await;
            let line = serde_json::to_string(&membership.map_err(io::Error::other)?)? + "\n";
            // A host that does not read it says why.
            drop(input.write_all(line.as_bytes()).await);
            break;
        }
        Ok(())
    }
}

fn reason(errors: &[u8], status: ExitStatus) -> String {
    match &*last_line(errors) {
        "" => format!("ssh ended ({status})"),
        line => line.to_owned(),
    }
}

/// Ends the other relay by the end of its input, and then `ssh`.
async fn end_child(mut child: Child, input: Sender) {
    drop(input);
    if timeout(END_WITHIN, child.wait()).await.is_err() {
        drop(child.kill().await);
    }
}

/// Reads all that a program says; `note` gets the last part of it after each piece. Returns the last part.
async fn read(mut pipe: impl AsyncRead + Unpin, mut note: impl FnMut(&[u8])) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut piece = [0; KEPT];
    loop {
        match pipe.read(&mut piece).await {
            Ok(count) if count > 0 => {
                kept.extend_from_slice(piece.get(..count).unwrap_or_default());
            }
            Ok(_) | Err(_) => return kept,
        }
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
        note(&kept);
    }
}

fn random_port() -> io::Result<u16> {
    let secret = new_secret()?;
    let number = secret.get(..4).and_then(|digits| u16::from_str_radix(digits, 16).ok());
    Ok(FIRST_PORT + number.unwrap_or_default() % PORTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_tunnel_is_none_that_the_system_gives_away() {
        for _ in 0..50 {
            assert!((20_000..32_000).contains(&random_port().unwrap()));
        }
    }
}

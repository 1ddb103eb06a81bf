//! The process of the relay: its lock, its log, its tasks, and its end.

use crate::carrier::{Carrier, CarrierConfig, Incoming};
use crate::failure::HostFailure;
use crate::inbound::{InboundEvent, InboundTask};
use crate::outbound::{OutboundEvent, OutboundTask};
use crate::presence::{NameLost, PresenceEvent, PresenceTask};
use crate::signals::EndSignal;
use agent_team::bus::{Bus, MailLimits};
use agent_team::relay::{Outbound, TeamWatcher};
use agent_team::store::relay::{HostIdentity, RelayLock, name_host, open_log};
use agent_team::store::{SharedClock, StoreError, SystemClock, TeamDir, failpoint};
use agent_team::wire::carried::{FRAME_BYTES, HostName};
use agent_team::wire::limits::MAX_LINE_BYTES;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinHandle;
use tracing_subscriber::fmt::writer::MakeWriterExt;

/// The longest time for the last words of the tasks.
const END_WITHIN: Duration = Duration::from_secs(3);

/// The period in which files are looked at without file events.
const POLL: Duration = Duration::from_secs(1);

/// The settings of a run.
pub(crate) struct RunOptions {
    pub(crate) root: PathBuf,
    pub(crate) host: HostName,
    pub(crate) team: String,
    pub(crate) servers: Vec<String>,
    /// Whether this folder takes the place of a host of that name.
    pub(crate) replaces: bool,
    /// The failpoints at which a test has it killed.
    pub(crate) failpoints: Option<String>,
}

/// Serves a team folder until a signal ends it.
///
/// # Errors
/// The folder cannot be served: another relay does, a file cannot be written, or the name is taken.
pub(crate) fn run(options: RunOptions) -> Result<(), HostFailure> {
    arm_failpoints(options.failpoints.as_deref())?;
    let hint = "check the folder's permissions and free space";
    let at_folder = |why: StoreError| HostFailure::of("the team folder cannot be used", &why, hint);
    let dir = TeamDir::create(&options.root).map_err(at_folder)?;
    let Some(lock) = RelayLock::take(&dir).map_err(at_folder)? else {
        return Err(HostFailure {
            what: "a relay serves this folder already".into(),
            why: format!("another process holds the lock below {}", dir.root().display()),
            hint: "end that one first, or leave it: one is enough".into(),
        });
    };
    let identity = name_host(&dir, options.host, &options.team, &options.servers);
    let identity = identity.map_err(at_folder)?;
    start_log(open_log(&dir).map_err(at_folder)?);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|why| {
        HostFailure::of("the relay cannot start", &why, "free some memory or descriptors")
    })?;
    let ended = runtime.block_on(serve(dir, identity, options.replaces));
    // A thread that waits for the disk must not hold up the end.
    runtime.shutdown_timeout(END_WITHIN);
    drop(lock);
    ended
}

/// Arms failpoints, in a build that has them.
fn arm_failpoints(points: Option<&str>) -> Result<(), HostFailure> {
    let Some(points) = points.filter(|_| failpoint::ENABLED) else { return Ok(()) };
    failpoint::arm(points, "relay", None).map_err(|why| HostFailure {
        what: format!("{} is invalid", failpoint::VARIABLE),
        why,
        hint: "unset it, or name points of src/os/failpoint.rs".into(),
    })
}

/// Starts the log. The libraries log each attempt to connect: only their warnings are for people.
fn start_log(file: File) {
    let is_for_people = |event: &tracing::Metadata<'_>| {
        *event.level() <= tracing::Level::WARN
            || event.target().starts_with("team_host")
            || event.target().starts_with("agent_team")
    };
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::INFO)
        .log_internal_errors(false)
        .with_writer(Mutex::new(file).with_filter(is_for_people))
        .finish();
    // A process has one log: the call fails only if there is one already.
    drop(tracing::subscriber::set_global_default(subscriber));
}

/// The channels to the tasks.
struct Tasks {
    /// Notified when mail may have come into an inbox.
    mail: Arc<Notify>,
    /// Notified when the roster or the life of an agent may have changed.
    members: Arc<Notify>,
    inbound: UnboundedSender<InboundEvent>,
    outbound: UnboundedSender<OutboundEvent>,
    presence: UnboundedSender<PresenceEvent>,
}

async fn serve(dir: TeamDir, identity: HostIdentity, replaces: bool) -> Result<(), HostFailure> {
    let hint = "the address is like nats://127.0.0.1:4222";
    let mut signal = EndSignal::register().map_err(|why| {
        HostFailure::of("the relay cannot wait for signals", &why, "free some descriptors")
    })?;
    let config = CarrierConfig {
        servers: identity.servers.clone(),
        team: identity.team.clone(),
        host: identity.host.to_string(),
        ..CarrierConfig::default()
    };
    let carrier = Carrier::start(config)
        .await
        .map_err(|why| HostFailure::of("the server cannot be used", &why, hint))?;
    let bus = Arc::new(Bus::new(dir.clone(), MailLimits::default(), Arc::new(SystemClock)));
    let (tasks, outbound_end, presence_end) =
        start_tasks(&carrier, &dir, &identity, &bus, replaces);
    let watching = [
        tokio::spawn(watch(TeamWatcher::of_mail(&dir), Arc::clone(&tasks.mail))),
        tokio::spawn(watch(TeamWatcher::of_members(&dir), Arc::clone(&tasks.members))),
    ];
    tracing::info!(host = %identity.host, team = identity.team, epoch = identity.epoch.as_str(), "the relay serves");
    say(&format!("{} of team {} serves {}", identity.host, identity.team, dir.root().display()));
    let mut presence_end = Some(presence_end);
    let mut incoming = carrier.receive();
    let ended = loop {
        tokio::select! {
            event = incoming.recv() => match event {
                None => break Ok(()),
                Some(event) => route(&tasks, &carrier, event),
            },
            () = signal.received() => break Ok(()),
            ended = until_ended(&mut presence_end) => break ended,
            () = until_gone(&dir) => break Err(HostFailure {
                what: "the team folder is gone".into(),
                why: format!("{} was removed or replaced", dir.root().display()),
                hint: "start the relay again once there is a team".into(),
            }),
        }
    };
    watching.iter().for_each(JoinHandle::abort);
    drop(incoming);
    drop(tasks.presence.send(PresenceEvent::End));
    drop(tasks.outbound.send(OutboundEvent::End));
    let last_words = async {
        if let Some(presence) = presence_end {
            drop(presence.await);
        }
        drop(outbound_end.await);
    };
    drop(tokio::time::timeout(END_WITHIN, last_words).await);
    tracing::info!("the relay ends");
    ended
}

type PresenceEnd = JoinHandle<Result<(), NameLost>>;

fn start_tasks(
    carrier: &Carrier,
    dir: &TeamDir,
    identity: &HostIdentity,
    bus: &Arc<Bus>,
    replaces: bool,
) -> (Tasks, JoinHandle<()>, PresenceEnd) {
    let (mail, wake_for_members) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (inbound, inbound_events) = mpsc::unbounded_channel();
    let (outbound, outbound_events) = mpsc::unbounded_channel();
    let (presence, presence_events) = mpsc::unbounded_channel();
    let clock: SharedClock = Arc::new(SystemClock);
    let sender = Outbound::new(dir.clone(), identity.clone(), Arc::clone(bus), clock);
    let outgoing = OutboundTask::new(carrier.clone(), identity.clone(), sender);
    let outbound_end = tokio::spawn(outgoing.run(outbound_events, Arc::clone(&mail)));
    let incoming = InboundTask {
        carrier: carrier.clone(),
        dir: dir.clone(),
        identity: identity.clone(),
        bus: Arc::clone(bus),
    };
    tokio::spawn(incoming.run(inbound_events));
    let channels = (inbound.clone(), outbound.clone());
    let members =
        PresenceTask::new(carrier.clone(), dir.clone(), identity.clone(), channels, replaces);
    let presence_end = tokio::spawn(members.run(presence_events, Arc::clone(&wake_for_members)));
    let tasks = Tasks { mail, members: wake_for_members, inbound, outbound, presence };
    (tasks, outbound_end, presence_end)
}

/// Waits for the end of the task for members, which ends by itself only if the host cannot be served.
async fn until_ended(task: &mut Option<PresenceEnd>) -> Result<(), HostFailure> {
    let Some(running) = task else { return std::future::pending().await };
    let ended = running.await;
    *task = None;
    match ended {
        Ok(Err(why)) => Err(HostFailure::of(
            "this host cannot be one of the team",
            &why,
            "choose another name (--name), or put this folder in its place (--replace)",
        )),
        Ok(Ok(())) | Err(_) => Ok(()),
    }
}

/// Waits until the folder was removed or replaced.
async fn until_gone(dir: &TeamDir) {
    while dir.is_still_there().is_ok() {
        tokio::time::sleep(POLL * 5).await;
    }
}

/// Gives an event of the carrier to the task that it is for.
fn route(tasks: &Tasks, carrier: &Carrier, event: Incoming) {
    let host = |name: &str| HostName::parse(name).ok();
    match event {
        Incoming::Connected => {
            check_server(carrier);
            drop(tasks.presence.send(PresenceEvent::Connected));
            drop(tasks.outbound.send(OutboundEvent::Heard(None)));
        }
        Incoming::Disconnected => tracing::warn!("there is no connection to the server"),
        Incoming::Frames(frames) => drop(tasks.inbound.send(InboundEvent::Frames(frames))),
        Incoming::Ack { from, body } => {
            if let Some(by) = host(&from) {
                drop(tasks.outbound.send(OutboundEvent::Acknowledged { by, body }));
            }
        }
        Incoming::Sync { from, body, reply } => {
            if let Some(from) = host(&from) {
                drop(tasks.inbound.send(InboundEvent::Question { from, body, reply }));
            }
        }
        Incoming::Beat { from, body } => {
            if let Some(from) = host(&from) {
                drop(tasks.presence.send(PresenceEvent::Beat { from, body }));
            }
        }
        Incoming::Value { key, value, .. } => {
            drop(tasks.presence.send(PresenceEvent::Value { key, value }));
        }
        Incoming::AllValues => drop(tasks.presence.send(PresenceEvent::AllValues)),
        Incoming::BucketMadeAnew => drop(tasks.presence.send(PresenceEvent::ValuesLost)),
    }
}

/// Warns of a server that takes no message as long as a line may be.
fn check_server(carrier: &Carrier) {
    let (most, needed) = (carrier.max_payload(), MAX_LINE_BYTES + FRAME_BYTES);
    tracing::info!(version = carrier.server_version(), most, "there is a connection to the server");
    if most < needed {
        tracing::error!(
            most,
            needed,
            "the server takes too small messages: set max_payload to 4MB"
        );
        say(&format!(
            "the server takes messages of {most} bytes at most, and a line of mail may be longer: set max_payload: 4MB in its configuration"
        ));
    }
}

/// Says something to the person at the terminal, if there is one.
fn say(text: &str) {
    drop(writeln!(io::stderr(), "team-host: {text}"));
}

/// Wakes a task whenever files of the team have changed. Several changes wake it once.
async fn watch(watcher: io::Result<TeamWatcher>, wake: Arc<Notify>) {
    let watcher =
        watcher.inspect_err(|why| tracing::warn!(%why, "no file events: files are polled"));
    loop {
        let is_told = match &watcher {
            Ok(watcher) => watcher.changed().await.is_ok(),
            Err(_) => false,
        };
        if !is_told {
            tokio::time::sleep(POLL).await;
        }
        wake.notify_one();
    }
}

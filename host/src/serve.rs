//! The work of the relay: its tasks, and what the carrier has for each of them.

use crate::carrier::{Carrier, CarrierConfig, Incoming, Security};
use crate::copies::{self, TaskListCopies, Transfers, WantedCopies};
use crate::failure::HostFailure;
use crate::inbound::{InboundEvent, InboundTask};
use crate::input::{self, InputEnd};
use crate::invitation::SERVING;
use crate::join;
use crate::membership::{OwnTrust, unusable};
use crate::name_claims::ReceivedClaim;
use crate::offload::offload;
use crate::orders::{
    IsNamed, KeysToSend, OrdersIn, OrdersOut, TaskOrdersIn, asked_for_bundle, sweep,
};
use crate::outbound::{MailEvents, OutboundEvent, OutboundTask};
use crate::own_server::{OwnServer, ServerAccess, ServerSettings};
use crate::presence::{NameLost, PresenceEvent, PresenceTask};
use crate::settings::security_of;
use crate::sign_in::SignIn;
use crate::signals::EndSignal;
use crate::ssh::{Ssh, SshLinks};
use crate::trust::{Trust, public_keys};
use agent_team::bus::Bus;
use agent_team::relay::{
    ChangedInboxes, KnownPlacements, Outbound, TeamWatcher, raise_descriptors,
};
use agent_team::store::relay::{HostIdentity, HostKeys, Servers};
use agent_team::store::{SharedClock, SystemClock, TeamDir};
use agent_team::wire::carried::{FRAME_BYTES, HostName};
use agent_team::wire::limits::MAX_LINE_BYTES;
use agent_team::{host_limits, relay_mail_limits};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;

/// The longest time for the last words of the tasks.
pub(crate) const END_WITHIN: Duration = Duration::from_secs(3);

/// The period in which files are looked at without file events.
const POLL: Duration = Duration::from_secs(1);

/// The time without a connection after which an invited relay ends. Its host starts another one.
const LOST_AFTER: Duration = Duration::from_secs(15);

/// The way in which a relay serves.
pub(crate) struct ServeOptions {
    /// Whether it ends with its standard input.
    pub(crate) ends_with_input: bool,
    /// The way to the server, for a relay that another host has invited.
    pub(crate) invited: Option<ServerAccess>,
    /// The program of the own server, if the host runs one.
    pub(crate) server: Option<PathBuf>,
    pub(crate) ssh: Ssh,
}

/// The channels to the tasks.
struct Tasks {
    dir: TeamDir,
    /// Notified when mail may have come into an inbox.
    mail: Arc<MailEvents>,
    /// Notified when the roster or the life of an agent may have changed.
    members: Arc<Notify>,
    inbound: UnboundedSender<InboundEvent>,
    outbound: UnboundedSender<OutboundEvent>,
    presence: UnboundedSender<PresenceEvent>,
    orders: OrdersIn,
    /// Notified when this host may have a new order for another one.
    new_orders: Arc<Notify>,
    /// Notified when somebody may want to see files of other hosts.
    new_wishes: Arc<Notify>,
    /// Notified when the list of tasks may have changed.
    task_list: Arc<Notify>,
    placements: KnownPlacements,
    sign_in: SignIn,
}

/// Serves a team folder until it is told to end.
///
/// # Errors
/// The folder or the server cannot be used, the name is taken, or an invited relay has lost its host.
pub(crate) async fn serve(
    dir: TeamDir,
    identity: HostIdentity,
    OwnTrust { keys, trust }: OwnTrust,
    options: ServeOptions,
) -> Result<(), HostFailure> {
    raise_descriptors();
    let mut signal = EndSignal::register().map_err(|why| {
        HostFailure::of("the relay cannot wait for signals", &why, "free some descriptors")
    })?;
    let own = start_server(&dir, &identity, &keys, &options).await?;
    let access = match (&own, &options.invited) {
        (Some(own), _) => own.access(),
        (None, Some(access)) => access.clone(),
        (None, None) => {
            // A server that limits its hosts asks for their keys.
            let asks_for_login = trust.is_limited();
            let Servers { addresses, pin, .. } = identity.servers.clone();
            ServerAccess { addresses, asks_for_login, pin }
        }
    };
    let key = access.asks_for_login.then(|| keys.connection.clone());
    // Those of this host are for servers that others run.
    let servers = Servers { pin: access.pin.clone(), ..identity.servers.clone() };
    let security = security_of(&servers, key)?;
    let has_pin = access.pin.is_some();
    let carrier =
        connect(&identity, access.addresses.clone(), Arc::clone(&trust), security).await?;
    let sign_in = SignIn {
        host: identity.host.clone(),
        team: identity.team.clone(),
        dir: dir.clone(),
        trust,
        server: own.as_ref().map(OwnServer::changed),
    };
    let helpers = Helpers::start(&dir, own, access, &options, &sign_in);
    let (limits, why) = relay_mail_limits(dir.root());
    if let Some(why) = why {
        tracing::warn!(why, "the settings are not understood: the defaults are in force");
    }
    let bus = Arc::new(Bus::new(dir.clone(), limits, Arc::new(SystemClock)));
    let (is_named, is_invited) = (IsNamed::default(), options.invited.is_some());
    let keys = KeysToSend::of_environment();
    let named = is_named.clone();
    let on_named = Box::new(move || {
        named.set();
        if is_invited {
            say_serving();
        }
    });
    let (tasks, outbound_end, presence_end) =
        start_tasks(&carrier, &dir, (&identity, sign_in), &bus, on_named, (is_named, keys.clone()));
    let watching = watch(&carrier, &dir, &tasks, has_pin);
    tracing::info!(host = %identity.host, team = identity.team, epoch = identity.epoch.as_str(), "the relay serves");
    if options.invited.is_none() {
        say(&format!(
            "{} of team {} serves {}",
            identity.host,
            identity.team,
            dir.root().display()
        ));
    }
    let mut presence_end = Some(presence_end);
    let mut input = options.ends_with_input.then(|| input::read(keys));
    let mut lost = options.invited.is_some().then(Instant::now);
    let mut incoming = carrier.receive();
    let mut gone = std::pin::pin!(until_gone(&dir));
    let ended = loop {
        tokio::select! {
            event = incoming.recv() => match event {
                None => break Ok(()),
                Some(event) => {
                    if options.invited.is_some() {
                        note_connection(&event, &mut lost);
                    }
                    route(&tasks, &carrier, event);
                }
            },
            () = signal.received() => break Ok(()),
            end = until_input_ends(&mut input) => {
                end.settle(&dir).await;
                break Ok(());
            }
            why = until_lost(lost, &carrier) => break Err(why),
            ended = until_ended(&mut presence_end) => break ended,
            () = &mut gone => break Err(HostFailure {
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
    helpers.end().await;
    tracing::info!("the relay ends");
    ended
}

/// Watches the connection, and the files for the tasks.
fn watch(carrier: &Carrier, dir: &TeamDir, tasks: &Tasks, has_pin: bool) -> Vec<JoinHandle<()>> {
    let presence = tasks.presence.clone();
    vec![
        tokio::spawn(tell_failures(carrier.clone(), has_pin)),
        tokio::spawn(watch_mail(TeamWatcher::of_mail(dir), Arc::clone(&tasks.mail))),
        tokio::spawn(watch_files(TeamWatcher::of_members(dir), Arc::clone(&tasks.members))),
        tokio::spawn(watch_files(TeamWatcher::of_orders(dir), Arc::clone(&tasks.new_orders))),
        tokio::spawn(watch_files(TeamWatcher::of_wishes(dir), Arc::clone(&tasks.new_wishes))),
        tokio::spawn(watch_files(TeamWatcher::of_tasks(dir), Arc::clone(&tasks.task_list))),
        tokio::spawn(tell_of_tasks(Arc::clone(&tasks.task_list), presence)),
    ]
}

/// Starts the server of this host, if it runs one.
async fn start_server(
    dir: &TeamDir,
    identity: &HostIdentity,
    keys: &HostKeys,
    options: &ServeOptions,
) -> Result<Option<OwnServer>, HostFailure> {
    let Some(program) = &options.server else { return Ok(None) };
    let settings = ServerSettings {
        team: identity.team.clone(),
        host: identity.host.clone(),
        own_key: public_keys(keys).map_err(unusable)?.connection,
        listen: identity.servers.listen,
    };
    OwnServer::start(dir, program.clone(), settings).await.map(Some)
}

async fn connect(
    identity: &HostIdentity,
    addresses: Vec<String>,
    trust: Arc<Trust>,
    security: Security,
) -> Result<Carrier, HostFailure> {
    let config = CarrierConfig::new(addresses, &identity.team, identity.host.as_str(), trust);
    let config = CarrierConfig { security, ..config };
    let hint = "the address is like nats://127.0.0.1:4222";
    let carrier = Carrier::start(config).await;
    carrier.map_err(|why| HostFailure::of("the server cannot be used", &why, hint))
}

/// The programs that the relay runs: `ssh` for each host that was added over it, and the server.
struct Helpers {
    links: Option<(watch::Sender<bool>, JoinHandle<()>)>,
    server: Option<(watch::Sender<bool>, JoinHandle<()>)>,
}

impl Helpers {
    fn start(
        dir: &TeamDir,
        own: Option<OwnServer>,
        access: ServerAccess,
        options: &ServeOptions,
        sign_in: &SignIn,
    ) -> Self {
        let server_address = own.as_ref().map(OwnServer::address);
        let server = own.map(|own| {
            let (end, ended) = watch::channel(false);
            (end, tokio::spawn(own.run(ended)))
        });
        let links = options.invited.is_none().then(|| {
            let (ssh, dir, sign_in) = (options.ssh.clone(), dir.clone(), sign_in.clone());
            let (end, ended) = watch::channel(false);
            (
                end,
                tokio::spawn(
                    SshLinks { ssh, dir, access, sign_in, server: server_address }.run(ended),
                ),
            )
        });
        Self { links, server }
    }

    /// Ends the other relays, which say good-bye through the server, and then the server.
    async fn end(self) {
        for (end, task) in self.links.into_iter().chain(self.server) {
            end.send_replace(true);
            drop(task.await);
        }
    }
}

/// Says that an invited relay serves, to the host that has invited it.
fn say_serving() {
    drop(writeln!(io::stdout(), "{SERVING}"));
}

/// Notes whether an invited relay has a connection.
fn note_connection(event: &Incoming, lost: &mut Option<Instant>) {
    match event {
        Incoming::Connected => *lost = None,
        Incoming::Disconnected => *lost = lost.or_else(|| Some(Instant::now())),
        Incoming::AllValues
        | Incoming::Frames(_)
        | Incoming::Ack { .. }
        | Incoming::Sync { .. }
        | Incoming::Order { .. }
        | Incoming::Bundle { .. }
        | Incoming::Copy { .. }
        | Incoming::Claim { .. }
        | Incoming::Join { .. }
        | Incoming::Beat { .. }
        | Incoming::ValuesBegin
        | Incoming::Value { .. }
        | Incoming::BucketMadeAnew => {}
    }
}

async fn until_input_ends(input: &mut Option<oneshot::Receiver<InputEnd>>) -> InputEnd {
    match input {
        Some(input) => input.await.unwrap_or(InputEnd::Asked),
        None => std::future::pending().await,
    }
}

/// Waits until an invited relay has been without a connection for too long.
async fn until_lost(since: Option<Instant>, carrier: &Carrier) -> HostFailure {
    let Some(since) = since else { return std::future::pending().await };
    tokio::time::sleep_until((since + LOST_AFTER).into()).await;
    let why = carrier.last_connection_error().unwrap_or_else(|| "it does not answer".into());
    HostFailure::usage(
        "the server of the team is gone",
        why,
        "the host that has added this one connects again",
    )
}

type PresenceEnd = JoinHandle<Result<(), NameLost>>;

fn start_tasks(
    carrier: &Carrier,
    dir: &TeamDir,
    (identity, sign_in): (&HostIdentity, SignIn),
    bus: &Arc<Bus>,
    on_named: Box<dyn Fn() + Send + Sync>,
    (is_named, keys): (IsNamed, KeysToSend),
) -> (Tasks, JoinHandle<()>, PresenceEnd) {
    let team = dir.clone();
    let (mail, wake_for_members) = (Arc::new(MailEvents::default()), Arc::new(Notify::new()));
    let (inbound, inbound_events) = mpsc::unbounded_channel();
    let (outbound, outbound_events) = mpsc::unbounded_channel();
    let (presence, presence_events) = mpsc::unbounded_channel();
    let clock: SharedClock = Arc::new(SystemClock);
    let placements = KnownPlacements::default();
    let trust = Arc::clone(&sign_in.trust);
    placements.set_leads(leads(&trust));
    tokio::spawn(follow_leads(placements.clone(), Arc::clone(&trust)));
    let known = placements.clone();
    let sender = Outbound::new(dir.clone(), identity.clone(), Arc::clone(bus), clock, known);
    let waiting = sender.waiting_lines();
    let outgoing = OutboundTask::new(carrier.clone(), identity.clone(), inbound.clone(), sender);
    let outbound_end = tokio::spawn(outgoing.run(outbound_events, Arc::clone(&mail)));
    let incoming = InboundTask {
        carrier: carrier.clone(),
        dir: dir.clone(),
        identity: identity.clone(),
        bus: Arc::clone(bus),
        placements: placements.clone(),
        transfers: Transfers::default(),
        // It must not hold its own channel open.
        events: inbound.downgrade(),
    };
    tokio::spawn(incoming.run(inbound_events));
    let (lists, list_versions) = mpsc::unbounded_channel();
    let channels = (inbound.clone(), outbound.clone(), lists);
    let (own_host, list_bus) = (identity.host.clone(), Arc::clone(bus));
    let (dir, identity, bus) = (dir.clone(), identity.clone(), Arc::clone(bus));
    let shared = (bus, waiting, placements.clone());
    let own = (identity, trust);
    let members = PresenceTask::new(carrier.clone(), dir, own, channels, shared, on_named);
    let presence_end = tokio::spawn(members.run(presence_events, Arc::clone(&wake_for_members)));
    let new_orders = Arc::new(Notify::new());
    let orders_out = OrdersOut {
        carrier: carrier.clone(),
        dir: team.clone(),
        presence: presence.clone(),
        is_named: is_named.clone(),
        keys,
        open: Arc::default(),
    };
    tokio::spawn(orders_out.run(Arc::clone(&new_orders)));
    let lists = TaskListCopies { carrier: carrier.clone(), dir: team.clone() };
    tokio::spawn(lists.run(list_versions));
    let new_wishes = Arc::new(Notify::new());
    let copies = WantedCopies { carrier: carrier.clone(), dir: team.clone() };
    tokio::spawn(copies.run(Arc::clone(&new_wishes)));
    tokio::spawn(sweep(team.clone()));
    let task_orders = TaskOrdersIn::new(team.clone(), own_host, placements.clone(), list_bus);
    tokio::spawn(task_orders.clone().release_abandoned());
    let known = placements.clone();
    let orders = OrdersIn::new(carrier.clone(), team.clone(), is_named, known, task_orders);
    let dir = team;
    let tasks = Tasks {
        dir,
        mail,
        members: wake_for_members,
        inbound,
        outbound,
        presence,
        orders,
        new_orders,
        new_wishes,
        task_list: Arc::new(Notify::new()),
        placements,
        sign_in,
    };
    (tasks, outbound_end, presence_end)
}

/// Returns the hosts that may have the lead: those in the limits of this host, else the one that has signed it in.
fn leads(trust: &Trust) -> BTreeSet<HostName> {
    match host_limits() {
        Ok(limits) => limits.leads.unwrap_or_else(|| BTreeSet::from([trust.authority().clone()])),
        Err(why) => {
            tracing::error!(why, "the limits of this host are not understood: it obeys nobody");
            BTreeSet::new()
        }
    }
}

/// Follows the limits of this host, which a person may change at any time.
async fn follow_leads(placements: KnownPlacements, trust: Arc<Trust>) {
    loop {
        tokio::time::sleep(POLL * 2).await;
        let trust = Arc::clone(&trust);
        placements.set_leads(offload(move || leads(&trust)).await);
    }
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
            "on the host that has signed the others in: team host invite HOST; it prints what to run here",
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
        Incoming::Order { from, body, reply } => {
            if let Some(from) = host(&from) {
                tasks.orders.asked(from, &body, reply);
            }
        }
        Incoming::Bundle { from, body, reply } => {
            if let Some(from) = host(&from) {
                asked_for_bundle(&tasks.dir, from, &body, reply);
            }
        }
        Incoming::Copy { from, body, reply } => {
            if let Some(from) = host(&from) {
                copies::asked(&tasks.dir, &tasks.placements, from, &body, reply);
            }
        }
        Incoming::Claim { from, body, reply } => {
            if let Some(from) = host(&from) {
                let claim = ReceivedClaim { from, body, reply };
                drop(tasks.presence.send(PresenceEvent::Claim(claim)));
            }
        }
        Incoming::Join { body, reply } => {
            tokio::spawn(join::answer(tasks.sign_in.clone(), body, reply));
        }
        Incoming::Beat { from, body } => {
            if let Some(from) = host(&from) {
                drop(tasks.presence.send(PresenceEvent::Beat { from, body }));
            }
        }
        Incoming::Value { key, value, revision } => {
            drop(tasks.presence.send(PresenceEvent::Value { key, value, revision }));
        }
        Incoming::ValuesBegin => drop(tasks.presence.send(PresenceEvent::ValuesBegin)),
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

/// Tells a person why there is no connection to the server, once for each reason.
async fn tell_failures(carrier: Carrier, has_pin: bool) {
    let mut told = None;
    let hint = if has_pin { " (or its certificate is not that of the invitation)" } else { "" };
    loop {
        tokio::time::sleep(POLL * 2).await;
        let why = carrier.last_connection_error().filter(|_| !carrier.is_connected());
        if let Some(why) = why.as_ref().filter(|why| told.as_ref() != Some(*why)) {
            tracing::warn!(why, "there is no connection to the server");
            say(&format!("there is no connection to the server: {why}{hint}; it is tried again"));
        }
        told = why.or(told.filter(|_| !carrier.is_connected()));
    }
}

/// Tells the other hosts that the list of tasks has changed. Many changes in a row are told together.
async fn tell_of_tasks(wake: Arc<Notify>, presence: UnboundedSender<PresenceEvent>) {
    loop {
        wake.notified().await;
        if presence.send(PresenceEvent::Tasks).is_err() {
            return;
        }
        tokio::time::sleep(POLL / 40).await;
    }
}

/// Tells the task for mail that leaves whenever inboxes have changed.
async fn watch_mail(watcher: io::Result<TeamWatcher>, mail: Arc<MailEvents>) {
    let watcher =
        watcher.inspect_err(|why| tracing::warn!(%why, "no file events: inboxes are polled"));
    loop {
        let changed = match &watcher {
            Ok(watcher) => watcher.changed_inboxes().await.ok(),
            Err(_) => None,
        };
        if changed.is_none() {
            tokio::time::sleep(POLL).await;
        }
        mail.tell(changed.unwrap_or(ChangedInboxes::Any));
    }
}

/// Wakes a task whenever files of the team have changed. Several changes wake it once.
async fn watch_files(watcher: io::Result<TeamWatcher>, wake: Arc<Notify>) {
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

//! A naive relay, to show that the rig can tell: it takes the server's word that a frame is stored, and keeps no number of
//! what it has appended. Everything else is the same code.

use crate::faults;
use crate::machines::{DEADLINE, Machine, Machines, TEAM, variable};
use crate::rig::faults::{FaultKind, Plan};
use crate::rig::nats_wire::NatsWire;
use crate::rig::trust::trust_of;
use crate::traffic::{Place, Traffic};
use agent_team::bus::{Bus, CarriedLine, MailLimits};
use agent_team::relay::{KnownPlacements, Outbound, Recipient};
use agent_team::store::inbox::Priority;
use agent_team::store::relay::{HostIdentity, RelayLock, Servers, name_host};
use agent_team::store::{SystemClock, TeamDir, roster};
use agent_team::wire::AgentName;
use agent_team::wire::carried::{Acknowledgement, Frame, HostName, LinkProgress, RELAY_PROTOCOL};
use std::collections::BTreeMap;
use std::env;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use team_host::carrier::{Carrier, CarrierConfig, Incoming};

const FOLDER: &str = "TEAM_TEST_NAIVE_FOLDER";
const HOST: &str = "TEAM_TEST_NAIVE_HOST";
const SERVER: &str = "TEAM_TEST_NAIVE_SERVER";

const PLACES: [Place; 2] = [("alice", "a"), ("bob", "b")];

/// Runs this binary as a naive relay, if the environment says so; as a test, it does nothing.
#[test]
fn entry() {
    let (Some(folder), Some(server)) = (variable(FOLDER), variable(SERVER)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(relay(&PathBuf::from(folder), server));
}

async fn relay(root: &std::path::Path, server: String) {
    let dir = TeamDir::open(root).unwrap();
    let host = variable(HOST).unwrap();
    let _lock = RelayLock::take(&dir).unwrap().unwrap();
    let identity =
        name_host(&dir, HostName::parse(&host).unwrap(), TEAM, Servers::default(), None).unwrap();
    let bus = Arc::new(Bus::new(dir.clone(), MailLimits::default(), Arc::new(SystemClock)));
    let (clock, placements) = (Arc::new(SystemClock), KnownPlacements::default());
    let mut outbound =
        Outbound::new(dir.clone(), identity.clone(), Arc::clone(&bus), clock, placements);
    let recipients = recipients(&dir);
    let others: Vec<_> = recipients.values().map(|recipient| recipient.host.clone()).collect();
    outbound.set_recipients(recipients).unwrap();
    let servers = vec![server];
    let trust = trust_of(TEAM, &host);
    let config = CarrierConfig::new(servers, TEAM, &host, trust);
    let carrier = Carrier::start(config).await.unwrap();
    let mut incoming = carrier.receive();
    loop {
        while let Ok(event) = incoming.try_recv() {
            if let Incoming::Frames(frames) = event {
                for frame in frames {
                    append(&bus, &frame.body);
                    frame.acknowledge().await;
                }
            }
        }
        outbound.take_in().unwrap();
        for other in &others {
            while let Some(frame) = outbound.next_frame(other).unwrap() {
                let body = bytes::Bytes::from(frame.body.clone());
                match carrier.publish_frame(other.as_str(), &frame.id, body).await {
                    // The server has it: so this host lets go of it.
                    Ok(()) => {
                        outbound.acknowledged(other, &stored(&identity, &frame.body)).unwrap();
                    }
                    Err(_) => {
                        outbound.send_again(other);
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Appends the lines of a frame, whatever has come before.
fn append(bus: &Bus, body: &[u8]) {
    for line in Frame::parse(body).unwrap().lines {
        let to = AgentName::mailbox(&line.to).unwrap();
        let carried = CarriedLine {
            line: line.line.get(),
            is_verified: line.verified,
            priority: Priority::Data,
        };
        bus.append_carried(&AgentName::system(), &to, &[carried]).unwrap();
    }
}

/// Takes the server's word for an acknowledgement of the recipient's host.
fn stored(identity: &HostIdentity, body: &[u8]) -> Acknowledgement {
    let mut next = BTreeMap::new();
    for line in Frame::parse(body).unwrap().lines {
        next.insert(line.to, line.seq + 1);
    }
    let progress = |(to, next)| LinkProgress { to, next, refused: BTreeMap::new(), again: false };
    let links = next.into_iter().map(progress).collect();
    Acknowledgement { v: RELAY_PROTOCOL, epoch: identity.epoch.clone(), links, pending: None }
}

fn recipients(dir: &TeamDir) -> BTreeMap<AgentName, Recipient> {
    let roster = roster::read(dir).unwrap();
    let remote = roster.members.iter().filter_map(|member| {
        let host = HostName::parse(member.host.as_deref()?).ok()?;
        let recipient = Recipient { host, incarnation: String::new(), is_alive: true };
        Some((AgentName::member(&member.name).ok()?, recipient))
    });
    remote.collect()
}

/// Replaces the relay of a host by a naive one, which does not change the roster.
fn make_naive(machine: &mut Machine, url: &str) {
    machine.kill_relay();
    let root = machine.dir.root().display().to_string();
    let name = machine.name.clone();
    machine.relay_program = Some((
        env::current_exe().unwrap(),
        vec!["naive::entry".into(), "--exact".into(), "--nocapture".into()],
    ));
    machine.relay_environment =
        vec![(FOLDER.into(), root), (SERVER.into(), url.into()), (HOST.into(), name)];
    machine.start_relay();
}

fn make_all_naive(machines: &mut Machines) {
    let url = machines.server.url();
    for machine in &mut machines.all {
        make_naive(machine, &url);
    }
}

/// Has the server forget what it has stored for a host that is cut off; returns whether all mail arrives in the end.
fn is_all_delivered_in_spite_of_a_forgetful_server(is_naive: bool) -> Option<bool> {
    let mut machines = Machines::or_skip(&["a", "b"])?;
    let mut traffic = Traffic::quiet(&machines, &PLACES);
    if is_naive {
        make_all_naive(&mut machines);
    }
    traffic.begin(&machines);
    machines.network.cut("b");
    let address = machines.server.address();
    let mut wire = machines.network.hub().enter(move || {
        let stream = TcpStream::connect(address).unwrap();
        NatsWire::open(stream, Duration::from_secs(10)).unwrap()
    });
    // Frames for the host that is cut off, which the server has stored. The relay before may have left some.
    let mut stored = || wire.stream_length(&format!("MAIL_{TEAM}")).unwrap().unwrap_or_default();
    let before = stored();
    machines.eventually("the server keeps mail for b", || stored() >= before + 5);
    machines.server.forget_everything();
    machines.network.heal("b");
    let within = if is_naive { Duration::from_secs(5) } else { DEADLINE };
    let report = traffic.finish(within);
    println!("naive: {is_naive}: {report}");
    Some(report.is_clean())
}

#[test]
fn a_relay_that_takes_the_servers_word_loses_what_the_server_forgets() {
    if let Some(is_all_delivered) = is_all_delivered_in_spite_of_a_forgetful_server(true) {
        assert!(!is_all_delivered, "the rig cannot tell a naive relay from a good one");
    }
}

#[test]
fn what_the_server_forgets_is_sent_again() {
    if let Some(is_all_delivered) = is_all_delivered_in_spite_of_a_forgetful_server(false) {
        assert!(is_all_delivered);
    }
}

/// Has faults of these kinds act on naive relays; returns whether no mail is lost, twice or out of order. `None` where this is not
/// possible.
fn is_clean_after(kinds: &[FaultKind]) -> Option<bool> {
    let machines = Machines::or_skip(&faults::HOSTS)?;
    let plan = Plan {
        kinds,
        hosts: &faults::HOSTS,
        total: Duration::from_secs(6),
        pause: (Duration::from_millis(50), Duration::from_millis(300)),
        length: (Duration::from_millis(100), Duration::from_millis(700)),
    };
    let report = faults::try_out(machines, make_all_naive, plan, Duration::from_secs(5));
    println!("naive, {kinds:?}: {report}");
    Some(report.is_clean())
}

/// The most tries of a run whose outcome is a matter of chance.
const TRIES: usize = 4;

/// Has naive relays fail by faults of these kinds.
fn must_fail_by(kinds: &[FaultKind]) {
    for _ in 0..TRIES {
        if is_clean_after(kinds) != Some(true) {
            return;
        }
    }
    panic!("the rig cannot tell a naive relay from a good one by {kinds:?}");
}

/// On a machine that stands still for seconds, something has failed.
#[test]
fn naive_relays_lose_no_mail_while_nothing_fails() {
    let mut reports = Vec::new();
    while reports.len() < TRIES {
        let Some(mut machines) = Machines::or_skip(&["a", "b"]) else { return };
        let mut traffic = Traffic::quiet(&machines, &PLACES);
        make_all_naive(&mut machines);
        traffic.begin(&machines);
        machines.eventually("much mail is accepted", || traffic.accepted() > 500);
        let report = traffic.finish(DEADLINE);
        if report.is_clean() {
            return;
        }
        reports.push(report.to_string());
    }
    panic!("{}", reports.join("\n"));
}

#[test]
fn naive_relays_fail_by_kills_of_relays() {
    must_fail_by(&[FaultKind::KillRelay]);
}

#[test]
fn naive_relays_fail_by_a_server_that_is_put_back_or_emptied() {
    must_fail_by(&[FaultKind::RollBackServer, FaultKind::ForgetServer]);
}

#[test]
fn naive_relays_fail_by_partitions() {
    must_fail_by(&[FaultKind::Cut, FaultKind::CutOut, FaultKind::CutIn]);
}

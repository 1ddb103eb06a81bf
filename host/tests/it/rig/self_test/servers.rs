//! Tests of the NATS server, on hosts and on the loopback interface.

use crate::rig::faults::{self, Fault, FaultKind, FaultTarget, Moment, Plan, Schedule};
use crate::rig::judge::{Mail, judge};
use crate::rig::namespaces::{Host, Network};
use crate::rig::nats_install::find_or_skip;
use crate::rig::nats_server::{NatsServer, ServerOptions};
use crate::rig::nats_wire::NatsWire;
use crate::rig::proxy::Proxy;
use crate::skips::skipped;
use std::io::Result;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);
const NEVER: Duration = Duration::from_millis(300);

fn connect(address: SocketAddr, patience: Duration) -> Result<NatsWire> {
    NatsWire::open(TcpStream::connect_timeout(&address, patience)?, patience)
}

fn connect_from(host: &Host, server: &NatsServer, patience: Duration) -> Result<NatsWire> {
    host.enter(|| connect(server.address(), patience))
}

/// Creates a network with a server on its hub, or reports that the test is skipped.
fn network_with_server(options: &ServerOptions) -> Option<(Network, NatsServer)> {
    let program = find_or_skip(skipped)?;
    let network = Network::or_skip(&["a", "b"], skipped)?;
    let begun = Instant::now();
    let server = NatsServer::on(network.hub(), &program, options);
    println!("the server was ready after {:?}", begun.elapsed());
    Some((network, server))
}

fn server_on_loopback(options: &ServerOptions) -> Option<NatsServer> {
    find_or_skip(skipped).map(|program| NatsServer::on_loopback(&program, options))
}

/// Publishes this many messages, and returns the length of the stream.
fn publish(wire: &mut NatsWire, count: u64) -> u64 {
    for number in 0..count {
        let acknowledged = wire.request("mail", format!("{number}").as_bytes()).unwrap();
        assert!(acknowledged["seq"].is_u64(), "{acknowledged}");
    }
    wire.stream_length("mail").unwrap().unwrap()
}

#[test]
fn a_server_in_the_hub_keeps_its_store_when_it_is_killed() {
    let Some((network, mut server)) = network_with_server(&ServerOptions::default()) else {
        return;
    };
    let (a, b) = (network.host("a"), network.host("b"));
    let mut wire = connect_from(a, &server, SOON).unwrap();
    assert_eq!(wire.create_stream("mail").unwrap()["config"]["name"], "mail");
    assert_eq!(publish(&mut wire, 20), 20);
    let pid = server.pid().unwrap();
    server.kill();
    assert_eq!(server.pid(), None);
    assert!(wire.stream_length("mail").is_err());
    assert!(connect_from(b, &server, NEVER).is_err());
    let begun = Instant::now();
    server.restart();
    println!("restarted in {:?}", begun.elapsed());
    assert_ne!(server.pid(), Some(pid));
    let mut wire = connect_from(b, &server, SOON).unwrap();
    assert_eq!(wire.stream_length("mail").unwrap(), Some(20));
    assert_eq!(publish(&mut wire, 1), 21);
    assert_eq!(server.url(), "nats://198.18.0.1:4222");
}

/// The server pings more often than this test is patient.
#[test]
fn a_request_without_an_answer_ends_although_the_server_pings() {
    let Some(server) = server_on_loopback(&ServerOptions::default()) else { return };
    let mut wire = connect(server.address(), Duration::from_secs(3)).unwrap();
    wire.request("nobody", b"").unwrap_err();
}

#[test]
fn a_rolled_back_server_forgets_what_came_after_the_snapshot() {
    let Some((network, mut server)) = network_with_server(&ServerOptions::default()) else {
        return;
    };
    let a = network.host("a");
    let mut wire = connect_from(a, &server, SOON).unwrap();
    wire.create_stream("mail").unwrap();
    assert_eq!(publish(&mut wire, 10), 10);
    server.snapshot();
    assert_eq!(publish(&mut wire, 15), 25);
    for _ in 0..2 {
        let begun = Instant::now();
        server.roll_back();
        println!("rolled back in {:?}", begun.elapsed());
        let mut wire = connect_from(a, &server, SOON).unwrap();
        assert_eq!(wire.stream_length("mail").unwrap(), Some(10));
        assert_eq!(publish(&mut wire, 3), 13);
    }
    server.forget_everything();
    let mut wire = connect_from(a, &server, SOON).unwrap();
    assert_eq!(wire.stream_length("mail").unwrap(), None);
    wire.create_stream("mail").unwrap();
    assert_eq!(publish(&mut wire, 2), 2);
}

#[test]
fn a_cut_host_does_not_reach_the_server_and_the_other_one_does() {
    let Some((network, server)) = network_with_server(&ServerOptions::default()) else { return };
    let (a, b) = (network.host("a"), network.host("b"));
    let mut wire = connect_from(b, &server, SOON).unwrap();
    wire.create_stream("mail").unwrap();
    network.cut("a");
    assert!(connect_from(a, &server, NEVER).is_err());
    assert_eq!(publish(&mut wire, 3), 3);
    network.heal("a");
    let mut wire = connect_from(a, &server, SOON).unwrap();
    assert_eq!(wire.stream_length("mail").unwrap(), Some(3));
    if let Some(why) = network.one_way_missing() {
        return skipped(&why);
    }
    network.cut_in("a");
    assert!(connect_from(a, &server, NEVER).is_err());
    network.heal("a");
    network.cut("hub");
    assert!(connect_from(a, &server, NEVER).is_err() && connect_from(b, &server, NEVER).is_err());
    network.heal("hub");
    assert!(connect_from(a, &server, SOON).is_ok() && connect_from(b, &server, SOON).is_ok());
}

#[test]
fn a_stopped_server_goes_on() {
    let Some(mut server) = server_on_loopback(&ServerOptions::default()) else { return };
    let mut wire = connect(server.address(), SOON).unwrap();
    wire.create_stream("mail").unwrap();
    server.pause();
    // The kernel accepts connections for it.
    assert!(connect(server.address(), NEVER).is_err());
    server.snapshot();
    assert!(connect(server.address(), NEVER).is_err(), "a snapshot does not let it go on");
    server.resume();
    assert_eq!(publish(&mut wire, 3), 3);
    server.pause();
    server.restart();
    let mut wire = connect(server.address(), SOON).unwrap();
    assert_eq!(wire.stream_length("mail").unwrap(), Some(3));
}

#[test]
fn a_stream_larger_than_the_limit_is_refused() {
    let options = ServerOptions { max_stream_bytes: Some(300_000), ..ServerOptions::default() };
    let Some(server) = server_on_loopback(&options) else { return };
    let mut wire = connect(server.address(), SOON).unwrap();
    let create = |bytes: u64| {
        let config = serde_json::json!(
            { "name": "mail", "subjects": ["mail"], "max_bytes": bytes, "discard": "new" }
        );
        config.to_string()
    };
    let subject = "$JS.API.STREAM.CREATE.mail";
    let refused = wire.request(subject, create(400_000).as_bytes()).unwrap();
    assert_eq!(refused["error"]["code"], 400, "{refused}");
    wire.request(subject, create(300_000).as_bytes()).unwrap();
    let body = [b'x'; 1000];
    let answers: Vec<_> = (0..400).map(|_| wire.request("mail", &body).unwrap()).collect();
    assert_eq!(answers.first().unwrap()["seq"], 1);
    assert_eq!(answers.last().unwrap()["error"]["err_code"], 10077, "{:?}", answers.last());
}

#[test]
fn a_line_of_two_mebibytes_fits_and_the_config_is_private() {
    let more_config = "authorization { user: u, password: p }\n".to_owned();
    let Some(server) = server_on_loopback(&ServerOptions { more_config, ..Default::default() })
    else {
        return;
    };
    let refused = connect(server.address(), SOON).unwrap_err();
    assert!(refused.to_string().contains("Authorization Violation"), "{refused}");
    let Some(server) = server_on_loopback(&ServerOptions::default()) else { return };
    let mut wire = connect(server.address(), SOON).unwrap();
    wire.create_stream("mail").unwrap();
    assert_eq!(wire.request("mail", &vec![b'x'; (4 << 20) - 1000]).unwrap()["seq"], 1);
    let mode = server.config_path().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn servers_on_loopback_do_not_meet() {
    let Some(first) = server_on_loopback(&ServerOptions::default()) else { return };
    let Some(second) = server_on_loopback(&ServerOptions::default()) else { return };
    assert_ne!(first.address(), second.address());
    connect(first.address(), SOON).unwrap().create_stream("mail").unwrap();
    let mut wire = connect(second.address(), SOON).unwrap();
    assert_eq!(wire.stream_length("mail").unwrap(), None);
}

#[test]
fn a_proxy_before_the_server_delays_and_holds() {
    let Some(server) = server_on_loopback(&ServerOptions::default()) else { return };
    let proxy = Proxy::new(server.address());
    let mut wire = connect(proxy.address(), SOON).unwrap();
    wire.create_stream("mail").unwrap();
    proxy.set_delay(Duration::from_millis(25));
    let begun = Instant::now();
    assert_eq!(publish(&mut wire, 1), 1);
    assert!(begun.elapsed() >= Duration::from_millis(100), "two round trips");
    proxy.hold();
    assert!(connect(proxy.address(), NEVER).is_err());
    proxy.release();
    assert_eq!(publish(&mut wire, 1), 2);
}

/// A sender that trusts the acknowledgements of the server, in the run of the whole rig: the judge tells what is lost.
#[test]
fn the_judge_finds_what_a_rolled_back_server_lost() {
    let Some((network, mut server)) = network_with_server(&ServerOptions::default()) else {
        return;
    };
    let (a, b) = (network.host("a"), network.host("b"));
    connect_from(a, &server, SOON).unwrap().create_stream("mail").unwrap();
    let mut accepted = Vec::new();
    let mut send = |server: &NatsServer, numbers: std::ops::Range<u64>| {
        let mut wire = connect_from(a, server, SOON).unwrap();
        for number in numbers {
            let answer = wire.request(&format!("mail.alice.bob.{number}"), b"").unwrap();
            assert!(answer["seq"].is_u64(), "{answer}");
            accepted.push(Mail::new("alice", "bob", number));
        }
    };
    send(&server, 0..20);
    server.snapshot();
    send(&server, 20..50);
    server.roll_back();
    send(&server, 50..60);
    let mut wire = connect_from(b, &server, SOON).unwrap();
    let count = wire.stream_length("mail").unwrap().unwrap();
    let arrived: Vec<_> = (1..=count)
        .map(|seq| {
            let body = format!("{{\"seq\":{seq}}}");
            let answer = wire.request("$JS.API.STREAM.MSG.GET.mail", body.as_bytes()).unwrap();
            let subject = answer["message"]["subject"].as_str().unwrap().to_owned();
            let number = subject.rsplit('.').next().unwrap().parse().unwrap();
            Mail::new("alice", "bob", number)
        })
        .collect();
    let report = judge(&accepted, &arrived);
    assert_eq!((report.accepted, report.arrived, report.lost.count), (60, 30, 30), "{report}");
    assert_eq!(report.lost.examples.first().unwrap(), "alice -> bob number 20");
    assert_eq!((report.twice.count, report.out_of_order.count), (0, 0), "{report}");
}

/// A target without relays.
struct Infrastructure {
    network: Network,
    server: NatsServer,
    of_relays: usize,
}

impl FaultTarget for Infrastructure {
    fn begin(&mut self, fault: &Fault) {
        let is_applied = faults::apply(fault, Moment::Begin, &self.network, &mut self.server);
        self.of_relays += usize::from(!is_applied);
    }

    fn end(&mut self, fault: &Fault) {
        let is_applied = faults::apply(fault, Moment::End, &self.network, &mut self.server);
        self.of_relays += usize::from(!is_applied);
    }
}

#[test]
fn a_schedule_of_all_faults_leaves_everything_healed() {
    let Some((network, server)) = network_with_server(&ServerOptions::default()) else { return };
    if let Some(why) = network.one_way_missing() {
        return skipped(&why);
    }
    let ms = Duration::from_millis;
    let plan = Plan {
        kinds: &FaultKind::ALL,
        hosts: &["a", "b"],
        total: ms(5000),
        pause: (ms(20), ms(200)),
        length: (ms(20), ms(400)),
    };
    let schedule = Schedule::new(5, &plan);
    let mut target = Infrastructure { network, server, of_relays: 0 };
    let begun = Instant::now();
    schedule.run(&mut target);
    println!("{} steps in {:?}\n{}", schedule.steps().len(), begun.elapsed(), schedule.text());
    assert!(target.of_relays > 0);
    for host in ["a", "b"] {
        let host = target.network.host(host);
        let mut wire = connect_from(host, &target.server, SOON).unwrap();
        wire.create_stream("mail").unwrap();
        assert!(publish(&mut wire, 1) >= 1);
    }
}

//! Tests of the hosts and of their network.

use crate::rig::namespaces::{HUB, Host, Network};
use crate::rig::process::{pid_of, spawn_tied};
use crate::skips::skipped;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The time in which a datagram or a connection passes, also on a loaded machine.
const SOON: Duration = Duration::from_secs(10);

/// The time after which what did not arrive was dropped.
const NEVER: Duration = Duration::from_millis(300);

/// Creates a network, or reports that the test is skipped.
fn network(names: &[&str]) -> Option<Network> {
    Network::or_skip(names, skipped)
}

fn udp_socket(host: &Host) -> UdpSocket {
    host.enter(|| UdpSocket::bind((host.address(), 900)).unwrap())
}

/// Whether one of several datagrams from one socket reaches the other until the time is over.
fn reaches(from: &UdpSocket, to: &UdpSocket, time: Duration) -> bool {
    let (mark, deadline) = (format!("{:?}", Instant::now()), Instant::now() + time);
    to.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut buffer = [0; 200];
    while Instant::now() < deadline {
        // An unplugged host may refuse to send.
        let _not_sent = from.send_to(mark.as_bytes(), to.local_addr().unwrap());
        // Older datagrams may be waiting.
        while let Ok(count) = to.recv(&mut buffer) {
            if buffer.get(..count) == Some(mark.as_bytes()) {
                return true;
            }
        }
    }
    false
}

/// Connects from a host to a listener on another one, and returns what the listener sends.
fn greeting(from: &Host, listener: &TcpListener, time: Duration) -> Option<String> {
    let address = listener.local_addr().unwrap();
    let mut stream = from.enter(|| TcpStream::connect_timeout(&address, time)).ok()?;
    let (mut accepted, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), from.address());
    accepted.write_all(b"hello").unwrap();
    drop(accepted);
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    Some(text)
}

#[test]
fn hosts_reach_each_other_and_nothing_else() {
    let begun = Instant::now();
    let Some(network) = network(&["a", "b"]) else { return };
    println!("a network of 3 hosts: {:?}", begun.elapsed());
    let (a, b) = (network.host("a"), network.host("b"));
    let pairs = [(a, b), (b, a), (a, network.hub()), (network.hub(), b), (a, a)];
    // A port of its own for each: children that other tests fork hold a closed listener until they execute a program.
    for ((from, to), port) in pairs.into_iter().zip(90..) {
        let listener = to.enter(|| TcpListener::bind((to.address(), port)).unwrap());
        assert_eq!(greeting(from, &listener, SOON).as_deref(), Some("hello"));
    }
    let names: Vec<_> = network.hosts().iter().map(Host::name).collect();
    assert_eq!(names, [HUB, "a", "b"]);
    // The loopback interface is the host's own, and there is no route to other networks.
    let outside = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = outside.local_addr().unwrap();
    assert!(a.enter(|| TcpStream::connect_timeout(&address, NEVER)).is_err());
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 80));
    let refused = a.enter(|| TcpStream::connect_timeout(&elsewhere, NEVER)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable);
    // The machine has no interface of the network.
    let interfaces = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert!(!interfaces.contains("br0:") && !interfaces.contains("p0:"), "{interfaces}");
    let of_a = a.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    assert_eq!(of_a.matches(':').count(), 2, "{of_a}");
}

#[test]
fn a_command_runs_on_its_host_and_ends_with_the_network() {
    let Some(network) = network(&["a", "b"]) else { return };
    let (a, b) = (network.host("a"), network.host("b"));
    let output = a.command("cat").arg("/proc/self/net/fib_trie").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("198.18.0.2") && !text.contains("198.18.0.3"), "{text}");

    // A shell with a child: the child is killed, too.
    let mut shell = a.command("sh");
    shell.args(["-c", "sleep 1000 & echo started; wait"]).stdout(Stdio::piped());
    let mut child = spawn_tied(shell).unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    let all = a.processes();
    assert!(all.len() == 2 && all.contains(&pid_of(&child)), "{all:?}");
    assert_eq!(b.processes(), []);
    a.kill_all();
    assert_eq!(a.processes(), []);
    assert!(!child.wait().unwrap().success());

    let mut sleep = b.command("sleep");
    sleep.arg("1000");
    let mut child = spawn_tied(sleep).unwrap();
    assert_eq!(b.processes(), [pid_of(&child)]);
    drop(network);
    assert!(!child.wait().unwrap().success());
}

/// The parent-death signal belongs to the thread that starts a process, and tests run on threads that end.
#[test]
fn a_process_outlives_the_thread_that_asked_for_it() {
    let start = || {
        let mut cat = std::process::Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::piped());
        spawn_tied(cat).unwrap()
    };
    let mut child = std::thread::spawn(start).join().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::park_timeout(Duration::from_millis(100));
    stdin.write_all(b"alive").unwrap();
    drop(stdin);
    assert_eq!(child.wait_with_output().unwrap().stdout, b"alive");
}

#[test]
fn a_cut_parts_a_host_both_ways_until_it_is_healed() {
    let Some(network) = network(&["a", "b", "c"]) else { return };
    let [a, b, c] = ["a", "b", "c"].map(|name| udp_socket(network.host(name)));
    assert!(reaches(&a, &b, SOON) && reaches(&b, &a, SOON));
    let listener = network.host("b").enter(|| TcpListener::bind(("0.0.0.0", 80)).unwrap());
    for round in 0..3 {
        let begun = Instant::now();
        network.cut("a");
        println!("cut in {:?}", begun.elapsed());
        assert!(!reaches(&a, &b, NEVER) && !reaches(&b, &a, NEVER), "round {round}");
        assert!(reaches(&b, &c, SOON) && reaches(&c, &b, SOON), "round {round}");
        let address = SocketAddr::from((network.host("b").address(), 80));
        let connect = || TcpStream::connect_timeout(&address, NEVER);
        assert!(network.host("a").enter(connect).is_err());
        let begun = Instant::now();
        network.heal("a");
        println!("healed in {:?}", begun.elapsed());
        let healed = Instant::now();
        assert!(reaches(&a, &b, SOON) && reaches(&b, &a, SOON), "round {round}");
        println!("datagrams both ways {:?} after the healing", healed.elapsed());
    }
    drop(listener);
}

/// A connection survives a cut, and delivers what was written meanwhile.
#[test]
fn a_connection_survives_a_short_cut() {
    let Some(network) = network(&["a", "b"]) else { return };
    let (a, b) = (network.host("a"), network.host("b"));
    let listener = b.enter(|| TcpListener::bind((b.address(), 80)).unwrap());
    let address = listener.local_addr().unwrap();
    let mut stream = a.enter(|| TcpStream::connect(address)).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    network.cut("a");
    accepted.write_all(b"meanwhile").unwrap();
    stream.set_read_timeout(Some(NEVER)).unwrap();
    let mut buffer = [0; 9];
    assert!(stream.read_exact(&mut buffer).is_err());
    network.heal("a");
    let healed = Instant::now();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.read_exact(&mut buffer).unwrap();
    println!("a connection went on {:?} after the healing", healed.elapsed());
    assert_eq!(&buffer, b"meanwhile");
}

#[test]
fn a_one_way_cut_drops_one_direction() {
    let Some(network) = network(&["a", "b", "c"]) else { return };
    if let Some(why) = network.one_way_missing() {
        return skipped(&why);
    }
    let [a, b, c] = ["a", "b", "c"].map(|name| udp_socket(network.host(name)));
    for round in 0..3 {
        network.cut_out("a");
        assert!(!reaches(&a, &b, NEVER), "round {round}");
        assert!(reaches(&b, &a, SOON) && reaches(&c, &a, SOON), "round {round}");
        assert!(reaches(&b, &c, SOON) && reaches(&c, &b, SOON), "round {round}");
        network.heal("a");
        assert!(reaches(&a, &b, SOON), "round {round}");

        network.cut_in("a");
        // A repeated cut is the same cut.
        network.cut_in("a");
        assert!(!reaches(&b, &a, NEVER) && !reaches(&c, &a, NEVER), "round {round}");
        assert!(reaches(&a, &b, SOON) && reaches(&a, &c, SOON), "round {round}");
        network.heal("a");
        assert!(reaches(&b, &a, SOON), "round {round}");
    }
    network.cut_in("a");
    network.cut_out("a");
    network.cut("a");
    assert!(!reaches(&a, &b, NEVER) && !reaches(&b, &a, NEVER));
    network.heal("a");
    assert!(reaches(&a, &b, SOON) && reaches(&b, &a, SOON));
}

/// Neighbours that were never heard answer ARP through a one-way cut, so that only the intended direction is lost.
#[test]
fn a_one_way_cut_works_before_the_first_contact() {
    let Some(network) = network(&["a", "b"]) else { return };
    if let Some(why) = network.one_way_missing() {
        return skipped(&why);
    }
    let [a, b] = ["a", "b"].map(|name| udp_socket(network.host(name)));
    network.cut_in("a");
    assert!(reaches(&a, &b, SOON));
    assert!(!reaches(&b, &a, NEVER));
}

#[test]
fn many_networks_at_once_do_not_meet() {
    let meet = |number: usize| {
        let Some(network) = network(&["a", "b"]) else { return };
        let b = network.host("b");
        let listener = b.enter(|| TcpListener::bind((b.address(), 80)).unwrap());
        if number.is_multiple_of(2) {
            network.cut("a");
            assert_eq!(greeting(network.host("a"), &listener, NEVER), None);
        } else {
            assert!(greeting(network.host("a"), &listener, SOON).is_some());
        }
    };
    std::thread::scope(|threads| {
        for number in 0..8 {
            threads.spawn(move || meet(number));
        }
    });
}

#[test]
fn a_network_of_fifty_hosts() {
    let names: Vec<_> = (0..49).map(|number| format!("h{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let begun = Instant::now();
    let Some(network) = network(&names) else { return };
    println!("a network of 50 hosts: {:?}", begun.elapsed());
    let [first, last] = ["h0", "h48"].map(|name| udp_socket(network.host(name)));
    assert!(reaches(&first, &last, SOON) && reaches(&last, &first, SOON));
}

//! Tests of the proxy.

use crate::rig::proxy::{Flow, Proxy};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);
const NEVER: Duration = Duration::from_millis(200);

/// Starts a server that sends back what it receives, for any number of connections, and returns its address.
fn start_echo() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut copy = stream.try_clone().unwrap();
                let _ended = std::io::copy(&mut stream, &mut copy);
                let _ended = copy.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

fn client(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Returns the bytes that arrive within the time, or none.
fn read(stream: &mut TcpStream, count: usize, time: Duration) -> Option<String> {
    stream.set_read_timeout(Some(time)).unwrap();
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).ok()?;
    Some(String::from_utf8(bytes).unwrap())
}

#[test]
fn bytes_pass_both_ways_and_so_does_the_end() {
    let proxy = Proxy::new(start_echo());
    let mut stream = client(&proxy);
    stream.write_all(b"one").unwrap();
    assert_eq!(read(&mut stream, 3, SOON).as_deref(), Some("one"));
    let big: Vec<u8> =
        (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let received = std::thread::scope(|threads| {
        threads.spawn(|| {
            writer.write_all(&big).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == big, "{} of {} bytes", received.len(), big.len());
}

/// The delay is one of time, not of throughput: many writes are under way at once.
#[test]
fn a_delay_applies_each_way() {
    let proxy = Proxy::new(start_echo());
    let one_way = Duration::from_millis(50);
    proxy.set_delay(one_way);
    let mut stream = client(&proxy);
    let begun = Instant::now();
    for _ in 0..100 {
        stream.write_all(b"x").unwrap();
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert!(read(&mut stream, 100, SOON).is_some());
    let took = begun.elapsed();
    assert!(took >= one_way * 2, "{took:?}");
    assert!(took < one_way * 100, "{took:?}: one after the other");
    println!("100 bytes, 1 ms apart, with 50 ms each way: {took:?}");
}

#[test]
fn held_bytes_pass_when_they_are_released() {
    let proxy = Proxy::new(start_echo());
    let mut stream = client(&proxy);
    for round in 0..3 {
        proxy.hold();
        stream.write_all(b"held").unwrap();
        assert_eq!(read(&mut stream, 4, NEVER), None, "round {round}");
        proxy.release();
        assert_eq!(read(&mut stream, 4, SOON).as_deref(), Some("held"), "round {round}");
    }
}

#[test]
fn one_direction_is_held_alone() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let proxy = Proxy::new(listener.local_addr().unwrap());
    let mut near = client(&proxy);
    let (mut far, _) = listener.accept().unwrap();
    for (flow, held_is_near) in [(Flow::ToServer, true), (Flow::ToClient, false)] {
        proxy.hold_flow(flow);
        near.write_all(b"n").unwrap();
        far.write_all(b"f").unwrap();
        let (held, free) = if held_is_near { (&mut far, &mut near) } else { (&mut near, &mut far) };
        assert!(read(free, 1, SOON).is_some(), "{flow:?}");
        assert!(read(held, 1, NEVER).is_none(), "{flow:?}");
        proxy.release();
        assert!(read(held, 1, SOON).is_some(), "{flow:?}");
    }
}

#[test]
fn new_connections_wait_for_the_release() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let proxy = Proxy::new(listener.local_addr().unwrap());
    proxy.hold();
    // The kernel accepts it; the proxy does not serve it.
    let _near = client(&proxy);
    listener.set_nonblocking(true).unwrap();
    std::thread::park_timeout(NEVER);
    assert!(listener.accept().is_err());
    proxy.release();
    listener.set_nonblocking(false).unwrap();
    drop(listener.accept().unwrap());
}

#[test]
fn disconnected_clients_can_connect_again_and_a_dropped_proxy_ends_them() {
    let proxy = Proxy::new(start_echo());
    let mut stream = client(&proxy);
    stream.write_all(b"x").unwrap();
    assert!(read(&mut stream, 1, SOON).is_some());
    proxy.disconnect();
    stream.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    let mut stream = client(&proxy);
    stream.write_all(b"y").unwrap();
    assert_eq!(read(&mut stream, 1, SOON).as_deref(), Some("y"));
    proxy.hold();
    stream.write_all(b"never").unwrap();
    let address = proxy.address();
    drop(proxy);
    stream.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    assert!(TcpStream::connect(address).is_err());
}

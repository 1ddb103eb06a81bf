//! The carrier with a real nats-server, which is killed, and loses its store.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of event")]

use crate::rig::nats_install::find_or_skip;
use crate::rig::nats_server::{NatsServer, ServerOptions};
use crate::rig::trust::trust_of;
use crate::skips::skipped;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use team_host::carrier::{Carrier, CarrierConfig, CarrierError, Frame, Incoming, StoredValue};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// The time limit of each wait. It is far above normal times, so that only a hang fails on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Starts a server, or reports that the test is skipped.
fn start_server() -> Option<NatsServer> {
    find_or_skip(skipped)
        .map(|program| NatsServer::on_loopback(&program, &ServerOptions::default()))
}

/// Changes a server on another thread: the carriers try to connect meanwhile.
async fn change(mut server: NatsServer, change: fn(&mut NatsServer)) -> NatsServer {
    let changed = spawn_blocking(move || {
        change(&mut server);
        server
    });
    changed.await.unwrap()
}

fn config(server: &NatsServer, host: &str) -> CarrierConfig {
    CarrierConfig::new(vec![server.url()], "t1", host, trust_of("t1", host))
}

/// Returns a value that is trusted; `None` if it was removed.
fn plain(value: StoredValue) -> Option<Bytes> {
    match value {
        StoredValue::Signed { body, .. } => Some(body),
        StoredValue::Removed => None,
        StoredValue::Untrusted(why) => panic!("a value is not trusted: {why}"),
    }
}

/// A carrier and its events.
struct Host {
    carrier: Carrier,
    events: mpsc::Receiver<Incoming>,
}

impl Host {
    async fn start(config: CarrierConfig) -> Self {
        let carrier = timeout(DEADLINE, Carrier::start(config)).await.unwrap().unwrap();
        let events = carrier.receive();
        Self { carrier, events }
    }

    /// Starts the carriers of the hosts a and b.
    async fn pair(server: &NatsServer) -> (Self, Self) {
        (Self::start(config(server, "a")).await, Self::start(config(server, "b")).await)
    }

    /// Reads events until one of them has the result.
    async fn until<T>(&mut self, what: &str, mut look: impl FnMut(Incoming) -> Option<T>) -> T {
        let search = async {
            loop {
                let event = self.events.recv().await.expect("the tasks run");
                if let Some(found) = look(event) {
                    return found;
                }
            }
        };
        let found = timeout(DEADLINE, search).await;
        found.unwrap_or_else(|late| panic!("{what} does not come: {late}"))
    }

    async fn connected(&mut self) {
        self.until("a connection", |event| matches!(event, Incoming::Connected).then_some(()))
            .await;
    }

    async fn disconnected(&mut self) {
        let is_end = |event| matches!(event, Incoming::Disconnected).then_some(());
        self.until("the end of the connection", is_end).await;
    }

    async fn frames(&mut self) -> Vec<Frame> {
        self.until("a frame", |event| match event {
            Incoming::Frames(frames) => Some(frames),
            _ => None,
        })
        .await
    }

    /// Reads until this body has come in a frame, and acknowledges all.
    async fn frame(&mut self, body: &str) {
        loop {
            let mut is_found = false;
            for frame in self.frames().await {
                is_found |= frame.body == body.as_bytes();
                frame.acknowledge().await;
            }
            if is_found {
                return;
            }
        }
    }

    async fn value(&mut self, key: &str) -> (Option<Bytes>, u64) {
        self.until(key, |event| match event {
            Incoming::Value { key: found, value, revision } if found == key => {
                Some((plain(value), revision))
            }
            _ => None,
        })
        .await
    }

    /// Acknowledges what comes again because an acknowledgement was lost, until nothing is left.
    async fn nothing_pending(&mut self) {
        eventually("end of the pending mail", async || {
            while let Ok(event) = self.events.try_recv() {
                if let Incoming::Frames(frames) = event {
                    for frame in frames {
                        frame.acknowledge().await;
                    }
                }
            }
            self.carrier.pending().await == Ok(0)
        })
        .await;
    }

    async fn put(&self, key: &str, value: Bytes) {
        let stored = retried(async || self.carrier.put(key, value.clone()).await).await;
        stored.unwrap();
    }

    /// Publishes as the relay does: again until the server has it.
    async fn publish(&self, to: &str, id: &str, body: &str) {
        let body = Bytes::copy_from_slice(body.as_bytes());
        eventually("a published frame", async || {
            self.carrier.publish_frame(to, id, body.clone()).await.is_ok()
        })
        .await;
    }
}

async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !check().await {
        assert!(Instant::now() < end, "no {what} in {DEADLINE:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Tries an operation again whose answer was late, as it may be on a loaded machine.
async fn retried<T>(
    mut operation: impl AsyncFnMut() -> Result<T, CarrierError>,
) -> Result<T, CarrierError> {
    let end = Instant::now() + DEADLINE;
    loop {
        let result = operation().await;
        let is_late =
            matches!(result, Err(CarrierError::Timeout { .. } | CarrierError::Disconnected));
        if !is_late || Instant::now() > end {
            return result;
        }
    }
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[tokio::test]
async fn a_thousand_frames_come_in_order() {
    let Some(server) = start_server() else { return };
    let (mut a, mut b) = Host::pair(&server).await;
    a.connected().await;
    let begun = Instant::now();
    let sent = stream::iter(0..1000)
        .map(|number: u32| {
            let carrier = a.carrier.clone();
            async move {
                let (id, body) = (format!("x.{number}"), text(&number.to_string()));
                retried(async || carrier.publish_frame("b", &id, body.clone()).await).await
            }
        })
        .buffered(8)
        .try_collect::<()>();
    let received = async {
        let mut next = 0;
        let mut batches = 0;
        while next < 1000 {
            batches += 1;
            for frame in b.frames().await {
                assert_eq!(frame.from, "a");
                let number: u32 = std::str::from_utf8(&frame.body).unwrap().parse().unwrap();
                // A frame comes again if its acknowledgement is late.
                assert!(number <= next, "{number} before {next}");
                next = next.max(number + 1);
                frame.acknowledge().await;
            }
        }
        batches
    };
    let (sent, batches) = tokio::join!(sent, received);
    sent.unwrap();
    println!("1000 frames in {:?}, {batches} batches", begun.elapsed());
    b.nothing_pending().await;
    // The server drops a second frame with an id that it knows.
    a.publish("b", "x.999", "copy").await;
    a.publish("b", "x.1000", "new").await;
    let frames = b.frames().await;
    assert_eq!(frames[0].body, "new");
}

#[tokio::test]
async fn hosts_talk_without_the_stream() {
    let Some(server) = start_server() else { return };
    let (mut a, mut b) = Host::pair(&server).await;
    a.connected().await;
    let missing = retried(async || a.carrier.request_sync("nobody", text("?")).await).await;
    assert_eq!(missing, Err(CarrierError::HostAway("nobody".into())));
    let asking = async {
        loop {
            // The other host may not listen yet.
            match a.carrier.request_sync("b", text("how far")).await {
                Ok(answer) => return answer,
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let answering = async {
        loop {
            let question = |event| match event {
                Incoming::Sync { from, body, reply } => Some((from, body, reply)),
                _ => None,
            };
            let (from, body, reply) = b.until("a sync", question).await;
            assert_eq!((from.as_str(), &body[..]), ("a", &b"how far"[..]));
            reply.answer(text("so far")).await.unwrap();
        }
    };
    let answer = tokio::select! {
        answer = asking => answer,
        never = answering => never,
    };
    assert_eq!(answer, "so far");
    a.carrier.publish_ack("b", text("acknowledged")).await.unwrap();
    b.until("an acknowledgement", |event| match event {
        Incoming::Ack { from, body } => {
            assert_eq!((from.as_str(), &body[..]), ("a", &b"acknowledged"[..]));
            Some(())
        }
        _ => None,
    })
    .await;
    b.carrier.publish_beat(text("here")).await.unwrap();
    a.carrier.publish_beat(text("here")).await.unwrap();
    // The own one does not come.
    let beat = |event| match event {
        Incoming::Beat { from, .. } => Some(from),
        _ => None,
    };
    assert_eq!(a.until("a beat", beat).await, "b");
    assert_eq!(b.until("a beat", beat).await, "a");
    // A host that hears the question and does not answer.
    let late = timeout(DEADLINE, a.carrier.request_sync("b", text("?"))).await.unwrap();
    let Err(CarrierError::Timeout { after, .. }) = late else { panic!("{late:?}") };
    assert!(after <= Duration::from_secs(2), "{after:?}");
}

#[tokio::test]
async fn a_killed_server_goes_on() {
    let Some(mut server) = start_server() else { return };
    let (mut a, mut b) = Host::pair(&server).await;
    a.publish("b", "1", "before").await;
    b.frame("before").await;
    b.nothing_pending().await;
    for round in 0..3 {
        let (waiting, next) = (format!("waiting {round}"), format!("next {round}"));
        drop(a.carrier.publish_frame("b", &waiting, text(&waiting)).await);
        server.kill();
        b.disconnected().await;
        a.disconnected().await;
        // It does not wait.
        let away = a.carrier.publish_frame("b", &next, text(&next)).now_or_never();
        assert_eq!(away, Some(Err(CarrierError::Disconnected)));
        server = change(server, NatsServer::restart).await;
        b.connected().await;
        let begun = Instant::now();
        a.publish("b", &next, &next).await;
        b.frame(&next).await;
        println!("delivered {:?} after the reconnection", begun.elapsed());
    }
    b.nothing_pending().await;
}

#[tokio::test]
async fn a_lost_store_is_made_anew() {
    let Some(mut server) = start_server() else { return };
    let (mut a, mut b) = Host::pair(&server).await;
    a.connected().await;
    a.put("host.a", text("1")).await;
    b.value("host.a").await;
    a.publish("b", "1", "old").await;
    let old = b.frames().await.remove(0);
    for round in 0..3 {
        server.kill();
        a.disconnected().await;
        server = change(server, NatsServer::forget_everything).await;
        let made_anew = |event| matches!(event, Incoming::BucketMadeAnew).then_some(());
        a.connected().await;
        let begun = Instant::now();
        a.until("the news of the bucket", made_anew).await;
        b.until("the news of the bucket", made_anew).await;
        println!("made anew {:?} after the reconnection", begun.elapsed());
        let value = text(&format!("again {round}"));
        a.put("host.a", value.clone()).await;
        assert_eq!(b.value("host.a").await.0, Some(value));
        if round < 2 {
            let body = format!("new {round}");
            a.publish("b", &body, &body).await;
            b.frame(&body).await;
        }
    }
    // The first frame of the new stream has the number of the old one.
    a.publish("b", "new", "new").await;
    let new = b.frames().await.remove(0);
    old.acknowledge().await;
    assert_eq!(retried(async || b.carrier.pending().await).await, Ok(1));
    new.acknowledge().await;
    b.nothing_pending().await;
}

#[tokio::test]
async fn storage_deleted_under_a_live_connection_is_made_anew() {
    let Some(server) = start_server() else { return };
    let (mut a, mut b) = Host::pair(&server).await;
    a.publish("b", "1", "before").await;
    b.frame("before").await;
    let other = async_nats::connect(server.url()).await.unwrap();
    let context = async_nats::jetstream::new(other);
    context.delete_stream("MAIL_t1").await.unwrap();
    a.publish("b", "2", "after").await;
    b.frame("after").await;
    context.delete_stream("KV_team_t1").await.unwrap();
    a.put("x", text("1")).await;
    let made_anew = |event| matches!(event, Incoming::BucketMadeAnew).then_some(());
    a.until("the news of the bucket", made_anew).await;
    // This host has only its missing heartbeats to go by.
    b.until("the news of the bucket", made_anew).await;
    assert_eq!(b.value("x").await.0, Some(text("1")));
}

#[tokio::test]
async fn values_are_created_changed_and_deleted() {
    let Some(server) = start_server() else { return };
    let mut a = Host::start(config(&server, "a")).await;
    a.connected().await;
    let all = |event| matches!(event, Incoming::AllValues).then_some(());
    a.until("the end of the empty bucket", all).await;
    let first = a.carrier.create("name.carol", text("1")).await.unwrap();
    assert_eq!(a.value("name.carol").await, (Some(text("1")), first));
    let again = a.carrier.create("name.carol", text("2")).await;
    assert_eq!(again, Err(CarrierError::AlreadyExists("name.carol".into())));
    let second = a.carrier.update("name.carol", text("3"), first).await.unwrap();
    let stale = a.carrier.update("name.carol", text("4"), first).await;
    assert_eq!(stale, Err(CarrierError::RevisionChanged("name.carol".into())));
    assert_eq!(a.value("name.carol").await, (Some(text("3")), second));
    a.carrier.delete("name.carol").await.unwrap();
    assert_eq!(a.value("name.carol").await.0, None);
    a.carrier.create("name.carol", text("5")).await.unwrap();
    a.put("host.b", text("6")).await;
    a.carrier.delete("host.b").await.unwrap();
    assert!(matches!(a.carrier.put("bad key", text("")).await, Err(CarrierError::Refused { .. })));
    // A second host sees the present state, then its end.
    let mut b = Host::start(config(&server, "b")).await;
    let mut seen = BTreeMap::new();
    b.until("all values", |event| match event {
        Incoming::Value { key, value, .. } => {
            seen.insert(key, plain(value));
            None
        }
        Incoming::AllValues => Some(()),
        _ => None,
    })
    .await;
    let expected = [("name.carol".to_owned(), Some(text("5"))), ("host.b".to_owned(), None)];
    assert_eq!(seen, BTreeMap::from(expected));
}

#[tokio::test]
async fn a_reading_of_values_that_fails_under_a_live_connection_goes_on_where_it_was() {
    let Some(server) = start_server() else { return };
    let mut a = Host::start(config(&server, "a")).await;
    a.connected().await;
    a.put("x", text("1")).await;
    a.value("x").await;
    let other = async_nats::connect(server.url()).await.unwrap();
    let bucket = async_nats::jetstream::new(other).get_stream("KV_team_t1").await.unwrap();
    bucket.delete_consumer("a").await.unwrap();
    a.put("y", text("2")).await;
    // The missing heartbeats tell.
    a.until("the value that came later", |event| match event {
        Incoming::Value { key, .. } => {
            assert_eq!(key, "y", "only that comes");
            Some(())
        }
        Incoming::ValuesBegin => panic!("it begins anew"),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn a_full_stream_and_a_large_frame_are_told_apart() {
    let Some(server) = start_server() else { return };
    let small = CarrierConfig { mail_max_bytes: Some(100_000), ..config(&server, "a") };
    let mut a = Host::start(small).await;
    a.connected().await;
    let body = Bytes::from(vec![b'x'; 30_000]);
    let mut full = None;
    for number in 0..10 {
        let id = number.to_string();
        let sent = retried(async || a.carrier.publish_frame("b", &id, body.clone()).await).await;
        if let Err(error) = sent {
            full = Some((number, error));
            break;
        }
    }
    assert!(matches!(full, Some((3, CarrierError::StreamFull(_)))), "{full:?}");
    assert_eq!(a.carrier.max_payload(), 4 * 1024 * 1024);
    let large = Bytes::from(vec![b'x'; 4 * 1024 * 1024]);
    let refused = a.carrier.publish_frame("b", "large", large.clone()).await;
    assert!(matches!(refused, Err(CarrierError::TooLarge { .. })), "{refused:?}");
    let refused = a.carrier.publish_ack("b", Bytes::from([&large[..], b"x"].concat())).await;
    assert!(matches!(refused, Err(CarrierError::TooLarge { .. })), "{refused:?}");
    // The receiver makes room.
    let mut b = Host::start(config(&server, "b")).await;
    let mut received = 0;
    while received < 3 {
        for frame in b.frames().await {
            frame.acknowledge().await;
            received += 1;
        }
    }
    a.publish("b", "room", "room").await;
    b.frame("room").await;
}

#[tokio::test]
async fn a_server_may_appear_later() {
    let Some(mut server) = start_server() else { return };
    // The address is known, and nothing listens there.
    server.kill();
    let (mut a, mut b) = Host::pair(&server).await;
    assert!(!a.carrier.is_connected());
    let is_away = Some(Err(CarrierError::Disconnected));
    assert_eq!(a.carrier.publish_ack("b", text("")).now_or_never(), is_away);
    assert_eq!(a.carrier.put("x", text("")).now_or_never(), Some(Err(CarrierError::Disconnected)));
    assert_eq!(a.carrier.pending().now_or_never(), Some(Err(CarrierError::Disconnected)));
    eventually("an error of the connection", async || a.carrier.last_connection_error().is_some())
        .await;
    let _server = change(server, NatsServer::restart).await;
    a.connected().await;
    assert!(a.carrier.is_connected());
    a.publish("b", "1", "there").await;
    b.frame("there").await;
}

#[tokio::test]
async fn a_refused_frame_comes_again() {
    let Some(server) = start_server() else { return };
    let (a, mut b) = Host::pair(&server).await;
    let begun = Instant::now();
    a.publish("b", "1", "frame").await;
    b.frames().await.remove(0).try_again_later().await;
    b.frame("frame").await;
    let after = begun.elapsed();
    assert!(after >= Duration::from_millis(500), "{after:?}");
    b.nothing_pending().await;
}

#[test]
fn no_task_outlives_its_carrier() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let metrics = runtime.metrics();
    let Some(mut server) = start_server() else { return };
    runtime.block_on(async {
        let mut a = Host::start(config(&server, "a")).await;
        a.connected().await;
        a.publish("a", "1", "to itself").await;
        a.frame("to itself").await;
        let before = metrics.num_alive_tasks();
        drop(a.events);
        eventually("end of the receiving tasks", async || metrics.num_alive_tasks() <= before - 5)
            .await;
        a.carrier.publish_beat(text("")).await.unwrap();
        drop(a.carrier);
        eventually("end of all tasks", async || metrics.num_alive_tasks() == 0).await;
    });
    // Without a server the connection task and its events stay, and do nothing.
    server.kill();
    runtime.block_on(async {
        let a = Host::start(config(&server, "a")).await;
        eventually("attempt", async || a.carrier.last_connection_error().is_some()).await;
        drop(a.events);
        drop(a.carrier);
        eventually("end of the tasks", async || metrics.num_alive_tasks() <= 2).await;
    });
}

#[tokio::test]
async fn the_latency_is_measured() {
    let Some(server) = start_server() else { return };
    let (mut a, mut b) = Host::pair(&server).await;
    a.connected().await;
    a.publish("b", "first", "first").await;
    b.frame("first").await;
    let mut delivered = Vec::new();
    let mut stored = Vec::new();
    for number in 0..300 {
        let (id, body) = (format!("l{number}"), format!("l{number}"));
        let begun = Instant::now();
        let publish = async {
            a.publish("b", &id, &body).await;
            begun.elapsed()
        };
        let receive = async {
            b.frame(&body).await;
            begun.elapsed()
        };
        let (published, received) = tokio::join!(publish, receive);
        stored.push(published);
        delivered.push(received);
    }
    for (what, mut times) in [("publish -> Frames", delivered), ("publish -> PubAck", stored)] {
        times.sort();
        println!("{what}: p50 {:?}, p99 {:?}, max {:?}", times[150], times[297], times[299]);
    }
}

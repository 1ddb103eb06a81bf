//! Outboxes and the record of arrived lines, after errors and kills at the worst moments.

use super::*;
use crate::store::mailbox::{Delivered, Delivery, KnownPart, MailSink};
use crate::store::{Clock, SystemClock, test_team};
use crate::wire::carried::FRAME_LINES;
use crate::wire::host_order::OrderSide;
use crate::wire::seal::Verification;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

fn carol() -> AgentName {
    AgentName::member("carol").unwrap()
}

fn opened(dir: &TeamDir) -> Outbox {
    Outbox::open(dir, &carol(), &OwnTerms::default()).unwrap()
}

fn compose(outbox: &mut Outbox, batch_id: &str, offset: u64, lines: &mut Vec<u8>) {
    let text = format!(r#"{{"id":"{batch_id}/{offset}","content":"x"}}"#);
    let verification = Verification::None;
    let at = 1.0.into();
    outbox.compose(&Delivery { at, batch_id, offset, text: &text, verification }, lines);
}

fn add(outbox: &mut Outbox, batch_id: &str, offsets: &[u64]) {
    let mut lines = Vec::new();
    for offset in offsets {
        compose(outbox, batch_id, *offset, &mut lines);
    }
    outbox.append_mail(&lines).unwrap();
    outbox.sync_mail(Fsync::Always).unwrap();
}

/// Returns the numbers of the lines that wait, each with its message's id.
fn waiting(outbox: &Outbox) -> Vec<(u64, String)> {
    let lines = outbox.lines_from(0, FRAME_LINES).unwrap().into_iter();
    let id = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["id"].clone();
    lines.map(|line| (line.seq, id(line.line.get()).as_str().unwrap().to_owned())).collect()
}

/// Returns the last delivered offset of each claim.
fn positions(dir: &TeamDir, outbox: &Outbox) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut note = |mail: &Delivered<'_>| {
        let last = found.entry(mail.batch_id.to_owned()).or_insert(mail.offset);
        *last = mail.offset.max(*last);
    };
    outbox.each_delivered(dir, &carol(), KnownPart::Current, &mut note).unwrap();
    found
}

fn number(seq: u64, id: &str) -> (u64, String) {
    (seq, id.to_owned())
}

fn ready() -> (tempfile::TempDir, TeamDir) {
    let (folder, dir) = test_team();
    drop(RelayLock::take(&dir).unwrap().unwrap());
    (folder, dir)
}

const G1: &str = "000000000001-0123abcd";
const G2: &str = "000000000002-0123abcd";

#[test]
fn a_relay_that_starts_waits_for_a_command_that_holds_its_lock() {
    let (_folder, dir) = test_team();
    let command = RelayLock::take(&dir).unwrap();
    assert!(command.is_some());
    assert!(RelayLock::take_within(&dir, Duration::ZERO).unwrap().is_none(), "it is held for long");
    let starts = dir.clone();
    let wait = move || RelayLock::take_within(&starts, Duration::from_secs(60)).unwrap();
    let relay = std::thread::spawn(wait);
    // It has tried by then.
    check_blocking("test");
    std::thread::park_timeout(Duration::from_millis(20));
    drop(command);
    assert!(relay.join().unwrap().is_some());
}

#[test]
fn numbers_are_dense_across_restarts_errors_and_compactions() {
    let (_folder, dir) = ready();
    let mut outbox = opened(&dir);
    add(&mut outbox, G1, &[0, 40]);
    // An error came between composing and writing.
    let mut lost = Vec::new();
    compose(&mut outbox, G1, 80, &mut lost);
    outbox.forget_composed();
    add(&mut outbox, G1, &[80]);
    let all = [number(1, &format!("{G1}/0")), number(2, &format!("{G1}/40"))];
    let third = number(3, &format!("{G1}/80"));
    assert_eq!(waiting(&outbox), [all[0].clone(), all[1].clone(), third.clone()]);
    outbox.acknowledge(3, &BTreeMap::new(), 1.0.into()).unwrap();
    assert_eq!((outbox.base(), outbox.next()), (2, 4));
    drop(outbox);
    let mut outbox = opened(&dir);
    assert_eq!((outbox.base(), outbox.next()), (0, 4), "what was acknowledged is not noted yet");
    outbox.acknowledge(3, &BTreeMap::new(), 1.0.into()).unwrap();
    outbox.compact().unwrap();
    add(&mut outbox, G2, &[0]);
    assert_eq!(waiting(&outbox), [third, number(4, &format!("{G2}/0"))]);
    drop(outbox);
    let outbox = opened(&dir);
    assert_eq!((outbox.base(), outbox.next()), (2, 5));
}

#[test]
fn a_compacted_outbox_knows_how_far_each_claim_that_is_there_was_read() {
    let (_folder, dir) = ready();
    let claim = |batch_id: &str| dir.claims().join(format!("carol.{batch_id}"));
    for batch_id in [G1, G2] {
        fs::File::create(claim(batch_id)).unwrap();
    }
    let mut outbox = opened(&dir);
    add(&mut outbox, G1, &[0, 40]);
    add(&mut outbox, G2, &[0]);
    outbox.acknowledge(4, &BTreeMap::new(), 1.0.into()).unwrap();
    outbox.compact().unwrap();
    drop(outbox);
    let mut outbox = opened(&dir);
    let both = BTreeMap::from([(G1.to_owned(), 40), (G2.to_owned(), 0)]);
    assert_eq!(positions(&dir, &outbox), both);
    for batch_id in [G1, G2] {
        fs::remove_file(claim(batch_id)).unwrap();
    }
    outbox.compact().unwrap();
    let newest = BTreeMap::from([(G2.to_owned(), 0)]);
    assert_eq!(positions(&dir, &outbox), newest, "the newest one continues the counter of claims");
    assert_eq!((outbox.base(), outbox.next()), (3, 4));
}

#[test]
fn a_tail_that_was_not_durable_is_removed_and_a_damaged_file_is_an_error() {
    let (_folder, dir) = ready();
    let path = dir.relay_outbox(&carol());
    add(&mut opened(&dir), G1, &[0, 40]);
    let whole = fs::read(&path).unwrap();
    let append = |bytes: &[u8]| {
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(bytes).unwrap();
    };
    let third = String::from_utf8(whole.clone()).unwrap();
    let third = third.lines().last().unwrap().replace("\"seq\":2", "\"seq\":3") + "\n";
    let fourth = third.replace("\"seq\":3", "\"seq\":4");
    for tail in [
        // A kill in the midst of a write; a power cut that left a hole, with and without a later line.
        b"{\"seq\":3,".to_vec(),
        [&[0; 50][..], b"\n"].concat(),
        [&[0; 50][..], b"\n", fourth.as_bytes()].concat(),
    ] {
        append(&tail);
        let outbox = opened(&dir);
        assert_eq!(outbox.next(), 3, "{tail:?}");
        assert_eq!(fs::read(&path).unwrap(), whole, "{tail:?}");
    }
    // A write that a full disk cut off was sealed, and the next one is whole.
    append(format!("{{\"seq\":3,\n{third}").as_bytes());
    assert_eq!(opened(&dir).next(), 4);
    // A line in the middle is gone: its number was given to the other host.
    append(fourth.replace("\"seq\":4", "\"seq\":5").as_bytes());
    let why = Outbox::open(&dir, &carol(), &OwnTerms::default()).unwrap_err().to_string();
    assert!(why.contains("damaged before byte"), "{why}");
}

#[test]
fn what_was_acknowledged_is_not_sent_again_by_the_next_process() {
    let (_folder, dir) = ready();
    let mut outbox = opened(&dir);
    add(&mut outbox, "g1", &[0, 10, 20]);
    outbox.acknowledge(3, &BTreeMap::new(), 1.0.into()).unwrap();
    assert_eq!(opened(&dir).base(), 0, "it is not noted yet");
    outbox.note_acknowledged().unwrap();
    add(&mut outbox, "g1", &[30]);
    drop(outbox);
    let mut outbox = opened(&dir);
    assert_eq!((outbox.base(), outbox.next()), (2, 5));
    assert_eq!(waiting(&outbox), [number(3, "g1/20"), number(4, "g1/30")]);
    outbox.acknowledge(5, &BTreeMap::new(), 1.0.into()).unwrap();
    outbox.note_acknowledged().unwrap();
    assert!(!opened(&dir).has_waiting());
    outbox.compact().unwrap();
    add(&mut outbox, "g2", &[0]);
    drop(outbox);
    let outbox = opened(&dir);
    assert_eq!((outbox.base(), waiting(&outbox)), (4, vec![number(5, "g2/0")]));
}

#[test]
fn the_record_of_arrived_lines_survives_a_torn_line_and_resolves_what_is_in_doubt() {
    let (_folder, dir) = ready();
    let link =
        Link { host: HostName::parse("a").unwrap(), epoch: Epoch::of(7), to: "carol".into() };
    let range = |first, last| Range { link: link.clone(), first, last, refused: BTreeMap::new() };
    let refused = BTreeMap::from([(2, "is shutdown".to_owned())]);
    let mut arrivals = Arrivals::open(&dir).unwrap();
    arrivals.intend(vec![Range { refused: refused.clone(), ..range(1, 3) }]).unwrap();
    arrivals.done(&[4], Fsync::Never).unwrap();
    drop(arrivals);
    let mut arrivals = Arrivals::open(&dir).unwrap();
    assert_eq!(arrivals.link(&link), LinkState { next: 4, refused });
    // The source knows the refusal.
    arrivals.note_base(&link, 2);
    assert_eq!(arrivals.link(&link), LinkState { next: 4, refused: BTreeMap::new() });
    // Two of three lines stand in the inbox, one of them torn, when the process is killed.
    arrivals.intend(vec![range(4, 6)]).unwrap();
    drop(arrivals);
    let via = |seq: u64| {
        format!(
            r#"{{"via":{{"host":"a","epoch":"{}","seq":{seq}}},"content":"x"}}"#,
            Epoch::of(7).as_str()
        )
    };
    let inbox = format!("{}\n{}", via(4), via(5).trim_end_matches('}'));
    fs::File::create(dir.inbox(&carol())).unwrap().write_all(inbox.as_bytes()).unwrap();
    let file = OpenOptions::new().write(true).open(dir.relay_arrivals()).unwrap();
    let end = file.metadata().unwrap().len();
    file.write_all_at(b"{\"d\":[", end).unwrap();
    let arrivals = Arrivals::open(&dir).unwrap();
    assert_eq!(arrivals.link(&link).next, 5, "the torn line comes again");
    let text = fs::read_to_string(dir.relay_arrivals()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn an_order_that_a_power_cut_has_emptied_is_removed_after_its_time() {
    let (_folder, dir) = test_team();
    make_order_folders(&dir).unwrap();
    let (id, side) = (order_id("text"), OrderSide::Out);
    drop(fs::File::create(dir.relay_order(side, &id)).unwrap());
    read_order(&dir, side, &id).unwrap_err();
    let age = Duration::from_secs(600);
    let now = SystemClock.now();
    remove_old_orders(&dir, side, now, age).unwrap();
    assert_eq!(open_orders(&dir, side).unwrap().len(), 1, "it may just be written");
    remove_old_orders(&dir, side, now + age * 2, age).unwrap();
    assert!(open_orders(&dir, side).unwrap().is_empty());
}

//! Lines with attachments on their way between hosts.

use super::tests::{Host, Owner, acknowledge, deliver, frames_for, host, name};
use super::{Arrived, AttachmentOutcome, Inbound};
use crate::bus::Outgoing;
use crate::store::{Fsync, attachments};
use crate::wire::attachment::{ATTACHMENTS, Attachment, set_attachments};
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::Write;

fn sender() -> Host {
    Host::new("a", &[("alice", None), ("carol", Some("b")), ("cleo", Some("b"))])
}

fn receiver() -> Host {
    Host::new("b", &[("alice", Some("a")), ("carol", None), ("cleo", None)])
}

/// Keeps a file of this content on a host.
fn kept(on: &Host, content: &[u8]) -> Attachment {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plot.png");
    File::create(&path).unwrap().write_all(content).unwrap();
    attachments::AttachableFile::open(&path).unwrap().keep(&on.dir, Fsync::Never).unwrap()
}

fn send(from: &Host, to: &str, text: &str, files: &[Attachment]) {
    let outgoing = Outgoing::text(text).with_attachments(files);
    from.bus.send(&name("alice"), to, outgoing).unwrap();
}

/// Returns the messages in an inbox.
fn inbox(on: &Host, of: &str) -> Vec<Map<String, Value>> {
    let text = fs::read_to_string(on.dir.inbox(&name(of))).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whether all that is acknowledged is to be sent again.
fn asks_again(
    told: &[(crate::wire::carried::HostName, crate::wire::carried::Acknowledgement)],
) -> bool {
    !told.is_empty() && told.iter().all(|(_, it)| it.links.iter().all(|link| link.again))
}

fn bring(inbound: &mut Inbound, out: &mut super::Outbound) -> Arrived {
    out.send_again(&host("b"));
    let arrived = deliver(inbound, &host("a"), &frames_for(out, &host("b")));
    acknowledge(out, &host("b"), &arrived);
    arrived
}

#[test]
fn a_line_waits_for_its_attachment_and_those_after_it_wait_behind_it() {
    let (a, b) = (sender(), receiver());
    let plot = kept(&a, b"a plot");
    let _carol = Owner::of(&b, "carol");
    send(&a, "carol", "one", &[]);
    send(&a, "carol", "see the plot", std::slice::from_ref(&plot));
    send(&a, "carol", "later", &[]);
    send(&a, "cleo", "of another link", &[]);
    let mut out = a.outbound();
    out.take_in().unwrap();
    let mut inbound = b.inbound();
    let arrived = bring(&mut inbound, &mut out);
    assert_eq!(arrived.appended, 2, "what does not wait behind it");
    assert_eq!(arrived.attachments, [(host("a"), plot.clone())]);
    assert!(arrived.later.iter().chain(&arrived.awaits_files).all(|it| *it), "{arrived:?}");
    assert_eq!(bring(&mut inbound, &mut out).attachments, [], "it is asked for once");
    // It did not come: with the line, it is asked for again.
    assert_eq!(inbound.attachment_came((&host("a"), &plot), AttachmentOutcome::Later), []);
    assert_eq!(bring(&mut inbound, &mut out).attachments, [(host("a"), plot.clone())]);
    attachments::write_part(&b.dir, &host("a"), &plot, (0, b"a plot")).unwrap();
    assert!(attachments::finish(&b.dir, &host("a"), &plot).unwrap());
    assert!(asks_again(&inbound.attachment_came((&host("a"), &plot), AttachmentOutcome::Here)));
    assert_eq!(bring(&mut inbound, &mut out).appended, 2);
    let mail = inbox(&b, "carol");
    let texts: Vec<_> = mail.iter().map(|it| it["content"].as_str().unwrap()).collect();
    assert_eq!(texts, ["one", "see the plot", "later"]);
    let here = Attachment::all_of(&mail[1]);
    assert_eq!(here[0].path, attachments::path_of(&b.dir, &plot).to_str().unwrap());
    assert_eq!(fs::read(&here[0].path).unwrap(), b"a plot");
    assert_eq!((here[0].missing, &here[0].hash), (false, &plot.hash));
    assert!(!mail[2].contains_key(ATTACHMENTS));
}

#[test]
fn a_line_comes_without_an_attachment_that_is_not_to_be_had_and_says_so() {
    let (a, b) = (sender(), receiver());
    let plot = kept(&a, b"a plot");
    let _carol = Owner::of(&b, "carol");
    send(&a, "carol", "see the plot", std::slice::from_ref(&plot));
    let mut out = a.outbound();
    out.take_in().unwrap();
    let mut inbound = b.inbound();
    assert_eq!(bring(&mut inbound, &mut out).appended, 0);
    assert!(asks_again(&inbound.attachment_came((&host("a"), &plot), AttachmentOutcome::Missing)));
    assert_eq!(bring(&mut inbound, &mut out).appended, 1);
    let here = Attachment::all_of(&inbox(&b, "carol")[0]);
    assert!(here[0].missing, "{here:?}");
    assert!(here[0].path.starts_with(b.dir.root().to_str().unwrap()));
    // A later line asks for it again, and the word of this host says nothing of another one.
    send(&a, "carol", "see the plot once more", std::slice::from_ref(&plot));
    out.take_in().unwrap();
    let arrived = bring(&mut inbound, &mut out);
    assert_eq!((arrived.appended, arrived.attachments), (0, vec![(host("a"), plot.clone())]));
    let other = host("c");
    assert_eq!(inbound.attachment_came((&other, &plot), AttachmentOutcome::Missing), []);
    assert_eq!(bring(&mut inbound, &mut out).appended, 0);
}

#[test]
fn nothing_is_fetched_for_a_line_that_is_refused() {
    let (a, b) = (sender(), Host::new("b", &[("alice", Some("a"))]));
    let plot = kept(&a, b"a plot");
    send(&a, "carol", "see the plot", &[plot]);
    let mut out = a.outbound();
    out.take_in().unwrap();
    let arrived = bring(&mut b.inbound(), &mut out);
    assert_eq!((arrived.appended, arrived.attachments), (0, Vec::new()));
    assert_eq!(arrived.acknowledgements[0].1.links[0].refused.len(), 1);
}

#[test]
fn a_field_of_this_name_that_is_somebodys_own_holds_up_nothing_and_stays_as_it_is() {
    let (a, b) = (sender(), receiver());
    let _carol = Owner::of(&b, "carol");
    let mut bad = kept(&a, b"x");
    bad.path = "/etc/..".into();
    let mut extra = Map::new();
    set_attachments(&mut extra, &[bad]);
    let own = extra.clone();
    a.bus.send(&name("alice"), "carol", Outgoing { extra, ..Outgoing::text("mine") }).unwrap();
    let mut out = a.outbound();
    out.take_in().unwrap();
    let arrived = bring(&mut b.inbound(), &mut out);
    assert_eq!((arrived.appended, arrived.attachments), (1, Vec::new()));
    assert_eq!(inbox(&b, "carol")[0][ATTACHMENTS], own[ATTACHMENTS]);
}

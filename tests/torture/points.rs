//! R2: every named place of the mail at which a process can be told to die.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::child::{Job, append, line, start, start_armed, team, was_killed};
use crate::history::{Sent, finish, judge, sent, taken_in};
use agent_team::store::inbox;
use agent_team::wire::AgentName;
use std::collections::BTreeMap;

/// The places, and with which chance a random storm dies there at each pass.
pub(crate) const MAIL: [(&str, &str); 9] = [
    ("send.locked", "0.002"),
    ("send.written", "0.002"),
    ("drain.before_link", "0.01"),
    ("drain.linked", "0.02"),
    ("drain.renamed", "0.01"),
    ("drain.claimed", "0.02"),
    ("drain.reading", "0.01"),
    ("drain.delivered", "0.02"),
    ("drain.before_unlink", "0.02"),
];

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let measure = |what: &str| format!("each of {} failpoints of the mail: {what}", MAIL.len());
    if cfg!(not(debug_assertions)) {
        let why = "a release build has no failpoints: run it without --release";
        return vec![Finding::skipped(&measure("kills"), "all reached, 0/0/0", why)];
    }
    let times: u64 = run.of(1, 5, 200);
    let (mut unreached, mut faults) = (Vec::new(), Vec::new());
    for _ in 0..times {
        std::thread::scope(|scope| {
            let deaths = MAIL.map(|(point, _)| (point, scope.spawn(move || die_at(point))));
            for (point, death) in deaths {
                match death.join().unwrap() {
                    Some(found) if found.is_empty() => {}
                    Some(found) => faults.push(format!("{point}: {found}")),
                    None => unreached.push(point),
                }
            }
        });
    }
    let first = faults.first().map_or(String::new(), |first| format!(", first {first}"));
    let result = format!("{} faults{first}", faults.len());
    let kills = measure(&format!("{times} kills each"));
    let reached = format!("{} unreached {}", unreached.len(), unreached.join(", "));
    vec![
        Finding::new(
            &kills,
            "0 lost, 0 twice, 0 out of order",
            &result,
            Verdict::of(faults.is_empty()),
        ),
        Finding::new(&measure("reached"), "all", reached.trim(), Verdict::of(unreached.is_empty())),
    ]
}

/// Dies there, comes back, and judges. `None` if nobody came to that point.
fn die_at(point: &str) -> Option<String> {
    let (folder, dir) = team();
    let alice = AgentName::member("alice").unwrap();
    inbox::ensure(&dir, &alice).unwrap();
    append(&dir.inbox(&alice), [line("carl", 0, 9), line("carl", 1, 9)].concat());
    let log = folder.path().join("log");
    let send = Job::Send {
        to: "alice".into(),
        from: "bob".into(),
        log: log.clone(),
        count: 5,
        fsync: true,
    };
    let read = Job::Read { name: "alice".into(), settle: true };
    let armed = format!("{point}:1");
    let job = if point.starts_with("send.") { &send } else { &read };
    if !was_killed(start_armed(&dir, job.clone(), Some((&armed, 1))).wait()) {
        return None;
    }
    assert!(start(&dir, send).wait().success());
    finish(&dir);
    let sent = BTreeMap::from([
        ("bob".to_owned(), sent(&log)),
        ("carl".to_owned(), Sent { begun: 2, acked: 2 }),
    ]);
    let faults = judge(&sent, &taken_in(&dir, "alice"));
    Some(if faults.is_empty() { String::new() } else { format!("{faults:?}") })
}

//! Files that come with messages, on one host. Between hosts: `attachments` in the tests of the relay.

use crate::support::harness::Team;
use crate::support::scripts::{bash, calls, headless, says, script, spawn};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Returns the copies in the team folder.
fn copies(team: &Team) -> Vec<PathBuf> {
    let folders = fs::read_dir(team.workspace().join(".team/attachments")).into_iter().flatten();
    let folders = folders.map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn files_come_as_they_were_and_stay_until_they_are_purged() {
    let team = Team::without_walls();
    let path = team.workspace().join("data.csv");
    fs::File::create(&path).unwrap().write_all(b"1,2,3\n").unwrap();
    let attach = json!({ "to": "bob", "content": "the data", "attach": ["data.csv"] });
    let outside = json!({ "to": "bob", "content": "no", "attach": ["data.csv", "/etc/hostname"] });
    let look = "cat .team/attachments/*/data.csv; echo changed > data.csv";
    let replies = [
        calls("lead", &[spawn("bob"), ("send_message", attach), ("send_message", outside)]),
        says("lead", "sent"),
        calls("bob", &[bash(&format!("until {look}; do sleep 0.1; done"))]),
        says("bob", "done"),
    ];
    headless(&team, &script(&team, &replies), "begin").expect(0);
    assert!(team.has_mail("bob", "lead", "the data"), "{}", team.describe());
    assert!(!team.has_mail("bob", "lead", "no"), "nothing is sent with a file from elsewhere");
    let [copy] = &copies(&team)[..] else { panic!("{:?}", copies(&team)) };
    assert_eq!(fs::read(copy).unwrap(), b"1,2,3\n");
    let shown = team.team(&["transcript", "bob"]).expect(0).out;
    assert!(shown.contains(&format!("[attached: {}, 6 bytes]", copy.display())), "{shown}");

    for (args, why) in [
        (&["send", "lead", "--attach", "none"][..], "none cannot be attached"),
        (&["send", "nobody", "--attach", "data.csv"], "not on the roster"),
        (&["send", "lead", "x", "--field", "attachments=x"], "attach files with --attach"),
        (&["send", "--jsonl", "--attach", "data.csv"], "cannot be used with"),
    ] {
        let ran = team.team(args);
        assert!(ran.code != Some(0) && ran.err.contains(why), "{args:?}: {}", ran.err);
    }
    assert_eq!(copies(&team).len(), 1, "what is not sent is not kept");
    team.team(&["send", "lead", "--attach", "data.csv"]).expect(0);
    let mail = team.team(&["inbox", "lead"]).expect(0).out;
    assert!(mail.contains("data.csv") && mail.contains(", 8 bytes]"), "{mail}");

    let kept = team.team(&["clean"]).expect(0).out;
    assert!(kept.contains("attachment: attachments/"), "{kept}");
    assert_eq!(copies(&team).len(), 2);
    team.team(&["clean", "--purge", "--yes"]).expect(0);
    assert_eq!(copies(&team), Vec::<PathBuf>::new());
}

//! Command output beyond the limit for a model is kept in a file that the model can read. The file lacks the
//! agent's key, its size is bounded, and `team clean` lists and removes it.

use crate::support::fake::Reply;
use crate::support::fake_models::{KEY, call, headless, results, team_with_fake};
use crate::support::harness::Team;
use crate::support::scripts::assert_left_in_order;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// The sorted names of the kept output files.
fn spilled(team: &Team) -> Vec<String> {
    let entries = fs::read_dir(team.path("log/.out")).unwrap().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Line 40,000 of a long output is in the omitted part. The model reads it in the file that the result names, and
/// the printed key is not in that file.
#[test]
fn the_model_reads_the_omitted_output() {
    let (team, fake) = team_with_fake(|view| match view.number {
        0 => {
            let command = format!("seq 40000; echo {KEY}; seq 40001 80000; echo it is over");
            call(view, "bash", &json!({ "command": command }))
        }
        1 => {
            let said = results(view);
            let path = said.split_once("all of it is in ").unwrap().1.split(' ').next().unwrap();
            call(view, "read_file", &json!({"path": path, "offset": 39_999, "limit": 4}))
        }
        _ => Reply::text(&results(view)),
    });
    let ran = headless(&team, "Print much.", &[]).expect(0);
    assert!(
        ran.out.starts_with("39999\n40000\n[redacted]\n40001\n"),
        "{} {}",
        ran.out,
        fake.requests()[1].body["messages"]
    );
    let shown = results(&fake.requests()[1]);
    assert!(shown.chars().count() <= 50_000 && shown.ends_with("it is over\n"), "{shown}");
    assert_eq!(spilled(&team), ["lead-1.txt"]);
    let file = team.path("log/.out/lead-1.txt");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.lines().count() == 80_002 && !text.contains(KEY));
    assert_left_in_order(&team);

    let listed = |further: &[&str]| -> Vec<Value> {
        let ran = team.team(&[&["clean", "--json"], further].concat()).expect(0).json();
        ran[if further.is_empty() { "kept" } else { "removed" }].as_array().unwrap().clone()
    };
    let is_it =
        |find: &Value| find["kind"] == "kept result" && find["file"] == "log/.out/lead-1.txt";
    assert!(listed(&[]).iter().any(is_it), "a conversation refers to it");
    assert!(listed(&["--purge", "--yes"]).iter().any(is_it));
    assert!(spilled(&team).is_empty());
}

/// Twenty commands print 9 MB each. The first 8 MiB of the last sixteen outputs are kept.
#[test]
fn endless_output_does_not_fill_the_disk() {
    let (team, fake) = team_with_fake(|view| match view.number {
        0..20 => call(view, "bash", &json!({"command": "head -c 9000000 /dev/zero | tr '\\0' x"})),
        _ => Reply::text("Enough."),
    });
    headless(&team, "Print on.", &[]).expect(0);
    assert!(
        results(&fake.requests()[1]).contains("its first 8 MiB are in .team/log/.out/lead-1.txt")
    );
    let names = spilled(&team);
    assert!(names.len() == 16 && names.contains(&"lead-20.txt".into()), "{names:?}");
    let sizes =
        names.iter().map(|name| fs::metadata(team.path("log/.out").join(name)).unwrap().len());
    assert!(sizes.clone().all(|size| size == 8 * 1024 * 1024), "{:?}", sizes.collect::<Vec<_>>());
}

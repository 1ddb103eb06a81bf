//! Opening and closing a view changes nothing in `.team/`, even if the folder is a fresh clone. Orders that change
//! the team still work.

use crate::support::http::ask;
use crate::support::terminal::Terminal;
use crate::support::{child_process::write, harness::Team};
use crate::ui::log_and_trace::{run_of_two, snapshot};
use crate::ui::web::Page;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

/// Opens a view in a terminal and closes it with a key.
fn in_a_terminal(team: &Team, args: &[&str], shows: &str, close: &str) {
    let mut view = Terminal::of_size(team.command("team", args), (24, 80));
    view.expect_screen(shows);
    view.press(close);
    assert_eq!(view.wait().code(), Some(0), "{args:?}");
}

/// Opens the page, requests its parts, and closes it.
fn in_a_browser(team: &Team, id: &str) {
    let page = Page::open(team, &["--control"]);
    let events = page.follow("/events");
    events.data.recv_timeout(crate::support::harness::PATIENCE).expect("what there is");
    let _conversation = page.follow("/conversation?name=bob");
    assert_eq!(page.get(&format!("/trace?id={id}")).status, 200);
    assert_eq!(page.get("/").status, 200);
    page.close();
}

#[test]
fn no_view_changes_anything() {
    let team = run_of_two();
    let mail = "{\"from\":\"user\",\"content\":\"waits\",\"id\":\"w\"}\n";
    write(&team.path("inbox/bob.jsonl"), mail);
    // These defects would be repaired by a program that writes.
    fs::set_permissions(team.path(""), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(team.path("config.json"), Permissions::from_mode(0o644)).unwrap();
    fs::remove_dir(team.path("dead/.claim")).unwrap();
    let id = team.mail_of("lead")[0]["id"].as_str().unwrap().to_owned();
    let before = snapshot(&team.path(""));
    let unchanged = |view: &str| assert_eq!(snapshot(&team.path("")), before, "{view}");
    for view in [
        &["ls"][..],
        &["ls", "--json"],
        &["requests"],
        &["roles"],
        &["log"],
        &["log", "--type", "mail"],
        &["transcript", "bob"],
        &["trace", &id],
    ] {
        team.team(view).expect(0);
        unchanged(view[0]);
    }
    in_a_terminal(&team, &["top"], "user → bob: waits", "2kj345x?\u{1b}/a\u{1b}q");
    unchanged("top");
    in_a_terminal(&team, &["attach", "bob"], "bob is not running", "\u{4}");
    unchanged("attach");
    in_a_browser(&team, &id);
    unchanged("web");
}

#[test]
fn views_of_a_fresh_clone_change_nothing() {
    let team = Team::new();
    fs::create_dir(team.path("")).unwrap();
    fs::set_permissions(team.path(""), Permissions::from_mode(0o755)).unwrap();
    write(&team.path("settings.toml"), "max_rounds = 3\n");
    let before = snapshot(&team.path(""));
    in_a_terminal(&team, &["top"], "No members yet", "q");
    in_a_browser(&team, "user:1");
    assert_eq!(snapshot(&team.path("")), before);

    let page = Page::open(&team, &["--control"]);
    let host = page.host();
    let headers = [("host", host.as_str()), ("content-type", "application/json")];
    let order = r#"{"do":"send","to":"lead","text":"hello"}"#;
    let done = ask(page.port, "POST", &page.target("/orders"), &headers, order);
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(fs::metadata(team.path("")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(team.lines("inbox/lead.jsonl")[0]["content"], "hello");
    page.close();
}

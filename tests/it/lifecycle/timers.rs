//! Timers: each reminder comes once, through kills, at the next start, and by the wall clock.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, calls, headless, lead, says, script, scripted_lead, spawn, tool_results,
};
use crate::support::terminal::{ANY_SIZE, Terminal};
use agent_team::store::{Clock, SystemClock};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;

const HOUR: f64 = 3600.0;

fn now() -> f64 {
    SystemClock.now().as_secs()
}

fn remind(input: Value) -> (&'static str, Value) {
    ("remind", input)
}

/// Returns the texts of the reminders that an agent has received.
fn reminders(team: &Team, name: &str) -> Vec<String> {
    let mail = team.mail_of(name).into_iter().filter(|mail| mail["from"] == "system");
    let texts = mail.filter_map(|mail| mail["content"].as_str().map(ToOwned::to_owned));
    texts.filter(|text| text.starts_with("Reminder (")).collect()
}

/// Returns the open timers as `team remind --json` lists them.
fn open_timers(team: &Team) -> Vec<Value> {
    let listed = team.team(&["remind", "--json"]).expect(0).json();
    assert_eq!((&listed["schema"], &listed["problems"]), (&json!(1), &json!([])));
    listed["timers"].as_array().unwrap().clone()
}

/// A kill between the reply and the end of the turn makes alice reply again, so two of her replies are the same.
fn alice_at_rest() -> Vec<Value> {
    vec![
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        says("alice", "ready"),
        says("alice", "alice has looked"),
        says("alice", "alice has looked"),
        says("alice", "alice has read"),
    ]
}

fn quit(team: &Team, mut lead: Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(team);
}

/// Alice is killed before the reminder is sent, before the timer ends, and after that.
#[test]
fn a_reminder_wakes_an_idle_teammate_once_whenever_it_is_killed() {
    for point in ["timer.due", "timer.sent", "timer.settled"] {
        let team = Team::new();
        let token = team.workspace().join("token");
        fs::File::create(&token).unwrap();
        team.variable("TEAM_FIRST_PAUSE_MS", "50");
        team.variable("TEAM_FAILPOINTS", &format!("alice/{point}={}", token.display()));
        let lead = scripted_lead(&team, &alice_at_rest());
        team.wait_status("alice", "idle");
        let set = team.team(&["remind", "alice", "1s", "look at the deployment"]).expect(0);
        assert!(set.out.starts_with("alice-1: alice is reminded at "), "{}", set.out);
        team.eventually("alice acts", || team.has_mail("lead", "alice", "alice has looked"));
        // She may act on the reminder before the thread that has sent it comes to the last point.
        team.eventually(&format!("alice is killed at {point}"), || {
            !token.exists() && team.member("alice")["restarts"] == 1
        });
        // Mail that is sent later is delivered later.
        team.team(&["send", "alice", "the last one"]).expect(0);
        team.eventually("the last mail", || team.has_mail("alice", "user", "the last one"));
        let told = reminders(&team, "alice");
        assert_eq!(told.len(), 1, "{point}: {}", team.describe());
        assert!(told[0].ends_with(", set by user): look at the deployment"), "{told:?}");
        assert_eq!(open_timers(&team), Vec::<Value>::new());
        team.wait_status("alice", "idle");
        quit(&team, lead);
    }
}

/// A run goes on for a reminder that comes once. Its model sees each result of the tool.
#[test]
fn a_model_sets_lists_and_cancels_its_timers_and_the_run_waits_for_one() {
    let team = Team::new();
    let lines = [
        calls(
            "lead",
            &[
                remind(json!({ "in": "1h", "text": "too late" })),
                remind(json!({ "every": "30m", "text": "again" })),
                remind(json!({ "every": "59s", "text": "too often" })),
                remind(json!({ "at": "2001-01-01 09:00", "text": "long ago" })),
                remind(json!({ "in": "soon", "text": "no time" })),
                remind(json!({ "in": "1m", "at": "14:30", "text": "two times" })),
                remind(json!({ "in": "1m" })),
                remind(json!({})),
                remind(json!({ "cancel": "lead-1" })),
                remind(json!({ "cancel": "lead-1" })),
                remind(json!({ "in": "2s", "text": "look at the build" })),
            ],
        ),
        says("lead", "waiting"),
        says("lead", "the build is green"),
    ];
    let ran = headless(&team, &script(&team, &lines), "begin").expect(0);
    assert!(ran.out.contains("the build is green"), "{}", ran.out);
    assert!(ran.err.contains("timers are left: lead-2 ("), "{}", ran.err);
    let results = tool_results(&team, "lead");
    let parts = [
        ("Set lead-1: ", false),
        ("Set lead-2: ", false),
        ("a timer repeats at most every 1m", true),
        ("2001-01-01 09:00:00 has passed", true),
        ("\"soon\" is no time", true),
        ("give one of in, at, every", true),
        ("the reminder has no text", true),
        ("Open:\n- lead-2: ", false),
        ("Cancelled lead-1.", false),
        ("there is no timer \"lead-1\"", true),
        ("Set lead-3: ", false),
    ];
    assert_eq!(results.len(), parts.len());
    for ((_, text, is_error), (part, is_refusal)) in results.iter().zip(parts) {
        assert!(text.contains(part) && *is_error == is_refusal, "{part}: {text}");
    }
    assert!(results[10].1.contains("- lead-2: "), "{}", results[10].1);
    let told = reminders(&team, "lead");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with(", set by lead): look at the build"), "{told:?}");
    let left = open_timers(&team);
    assert_eq!(
        (left.len(), &left[0]["id"], &left[0]["every_s"]),
        (1, &json!("lead-2"), &json!(1800))
    );
}

/// The call is repeated after a crash, under its id.
#[test]
fn a_call_that_a_kill_has_cut_off_sets_one_timer() {
    let team = Team::new();
    let token = team.workspace().join("token");
    fs::File::create(&token).unwrap();
    team.variable("TEAM_FIRST_PAUSE_MS", "50");
    team.variable("TEAM_FAILPOINTS", &format!("alice/tool.ran={}", token.display()));
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[remind(json!({ "in": "1h", "text": "once" }))]),
        says("alice", "alice is done"),
    ];
    let lead = scripted_lead(&team, &lines);
    team.eventually("alice reports", || team.has_mail("lead", "alice", "alice is done"));
    assert!(!token.exists(), "alice was not killed");
    let open = open_timers(&team);
    assert_eq!((open.len(), &open[0]["id"]), (1, &json!("alice-1")), "{open:?}");
    assert!(tool_results(&team, "alice")[0].1.contains("Set alice-1: "));
    team.wait_status("alice", "idle");
    quit(&team, lead);
}

#[test]
fn a_reminder_of_a_member_that_does_not_run_comes_at_its_next_start() {
    let team = Team::new();
    let model = script(&team, &[says("lead", "first"), says("lead", "second")]);
    headless(&team, &model, "begin").expect(0);
    let set = team.team_with_input(&["remind", "lead", "1s", "-"], "from a pipe\n").expect(0);
    assert!(set.out.contains("lead is not running: "), "{}", set.out);
    team.eventually("the timer is due", || open_timers(&team)[0]["due"].as_f64().unwrap() < now());
    assert!(reminders(&team, "lead").is_empty());
    let mut session = lead(&team, &model);
    team.eventually("the reminder", || !reminders(&team, "lead").is_empty());
    session.expect("from a pipe");
    team.eventually("the timer is over", || open_timers(&team).is_empty());
    assert!(reminders(&team, "lead")[0].ends_with("): from a pipe"));
    session.type_line("/quit");
    assert_eq!(session.wait().code(), Some(0));
}

/// The text of a reminder has a time in words, which another time zone would change.
#[test]
fn a_reminder_that_is_sent_again_in_another_time_zone_is_delivered_once() {
    let team = Team::new();
    let model = script(&team, &[says("lead", "first"), says("lead", "second"), says("lead", "ok")]);
    headless(&team, &model, "begin").expect(0);
    team.team(&["remind", "lead", "1s", "look"]).expect(0);
    team.eventually("the timer is due", || open_timers(&team)[0]["due"].as_f64().unwrap() < now());
    let token = team.workspace().join("token");
    fs::File::create(&token).unwrap();
    team.variable("TEAM_FAILPOINTS", &format!("lead/timer.sent={}", token.display()));
    team.variable("TZ", "ONE-1");
    let resume = ["lead", "--resume", "--model", &model];
    let mut killed = Terminal::of_size(team.command("team", &resume), ANY_SIZE);
    assert_eq!(killed.wait().signal(), Some(9), "{}", killed.screen());
    team.variable("TZ", "NINE-9");
    let session = Terminal::of_size(team.command("team", &resume), ANY_SIZE);
    team.eventually("the timer is over", || open_timers(&team).is_empty());
    team.team(&["send", "lead", "the last one"]).expect(0);
    team.eventually("the last mail", || team.has_mail("lead", "user", "the last one"));
    assert_eq!(reminders(&team, "lead").len(), 1, "{}", team.describe());
    assert!(!team.path("dead/lead.jsonl").exists(), "{}", team.describe());
    team.wait_status("lead", "idle");
    quit(&team, session);
}

/// As after a long sleep of the machine: hours of repetitions were missed. The file is written by another program.
#[test]
fn missed_repetitions_send_one_reminder_and_a_bad_file_is_put_aside() {
    let team = Team::new();
    let lead = scripted_lead(&team, &alice_at_rest());
    team.wait_status("alice", "idle");
    let due = now() - 5.5 * HOUR;
    let timer = json!({ "id": "hourly", "text": "look", "due": due, "every_s": 3600, "color": 7 });
    let file = team.path("timers/alice.json");
    write(&file, json!({ "timers": [timer] }).to_string());
    team.eventually("alice acts", || team.has_mail("lead", "alice", "alice has looked"));
    team.team(&["send", "alice", "the last one"]).expect(0);
    team.eventually("the last mail", || team.has_mail("alice", "user", "the last one"));
    assert_eq!(reminders(&team, "alice").len(), 1, "{}", team.describe());
    let open = open_timers(&team);
    let next = open[0]["due"].as_f64().unwrap();
    assert!((next - due - 6.0 * HOUR).abs() < 1.0, "{open:?}");
    assert_eq!((&open[0]["color"], &open[0]["to"]), (&json!(7), &json!("alice")));
    write(&file, "{");
    let listed = team.team(&["remind"]).expect(0);
    // Alice may have put the file aside before it is listed.
    let told = ["alice.json: not a list of timers", "alice.json.bad-1: no timers could be read"];
    assert!(told.iter().any(|part| listed.err.contains(part)), "{}", listed.err);
    team.eventually("it is put aside", || team.path("timers/alice.json.bad-1").exists());
    assert!(team.team(&["doctor"]).out.contains("alice.json.bad-1"));
    fs::remove_file(team.path("timers/alice.json.bad-1")).unwrap();
    quit(&team, lead);
}

#[test]
fn timers_are_listed_and_cancelled_and_a_wrong_command_changes_nothing() {
    let team = Team::new();
    let mut lead = scripted_lead(&team, &alice_at_rest());
    team.wait_status("alice", "idle");
    for (args, part) in [
        (&["remind", "alcie", "30m", "x"][..], "did you mean alice?"),
        (&["remind", "user", "30m", "x"], "no process of yours"),
    ] {
        let refused = team.team(args).expect(1);
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    for (args, part) in [
        (&["remind", "alice", "2001-01-31", "09:00", "x"][..], "2001-01-31 09:00:00 has passed"),
        (&["remind", "alice", "soon", "x"], "\"soon\" is no time: write 30m, "),
        (&["remind", "alice", "every", "10s", "x"], "repeats at most every 1m"),
        (&["remind", "alice", "30m", " "], "the reminder has no text"),
        (&["remind", "alice", "30m"], "remind needs NAME, WHEN and TEXT"),
        (&["remind", "alice", "2031-01-31", "09:00"], "remind needs NAME, WHEN and TEXT"),
        (&["remind", "--cancel", "alice-1", "alice"], "cannot be used with"),
    ] {
        let refused = team.team(args).expect(2);
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    assert!(!team.path("timers/alice.json").exists());
    assert_eq!(team.team(&["remind"]).expect(0).out, "no timer is open\n");
    let set = team.team(&["remind", "alice", "2031-01-31", "09:00", "tag it", "--json"]).expect(0);
    let set = set.json();
    assert_eq!((&set["to"], &set["is_running"]), (&json!("alice"), &json!(true)), "{set}");
    team.team(&["remind", "lead", "every", "1h", "ask\u{1b}[2J for news"]).expect(0);
    let table = team.team(&["remind"]).expect(0).out;
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[1].starts_with("alice-1  alice  2031-01-31 09:00:00  -"), "{rows:?}");
    assert!(rows[2].contains("1h") && rows[2].ends_with("ask for news"), "{rows:?}");
    lead.type_line("/reminders");
    lead.expect("alice-1");
    let wrong = team.team(&["remind", "--cancel", "alice-7"]).expect(1);
    assert!(wrong.err.contains("did you mean alice-1?"), "{}", wrong.err);
    let gone = team.team(&["remind", "--cancel", "alice-1"]).expect(0);
    assert_eq!(gone.out, "alice-1 is cancelled\n");
    let ids: Vec<Value> = open_timers(&team).iter().map(|timer| timer["id"].clone()).collect();
    assert_eq!(ids, ["lead-1"]);
    quit(&team, lead);
    // Open timers are kept, and a file without one is removed.
    let cleaned = team.team(&["clean", "--json"]).expect(0).json();
    let files = |list: &Value| -> Vec<String> {
        let files = list.as_array().unwrap().iter();
        files.map(|it| it["file"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert!(files(&cleaned["kept"]).contains(&"timers/lead.json".into()), "{cleaned}");
    assert!(files(&cleaned["removed"]).contains(&"timers/alice.json".into()), "{cleaned}");
}

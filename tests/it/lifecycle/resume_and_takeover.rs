//! `team lead --resume` and `--takeover`: a whole team is resumed, or its lead is replaced.

use crate::support::child_process::write;
use crate::support::harness::{PATIENCE, Team, in_parallel};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, kill_9, last_exit, lead, lead_of_size, says,
    script, scripted_lead, signal, spawn, tool_results, wait, wait_file,
};
use crate::support::terminal::{SIZES, Terminal};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Instant;

/// An interactive lead that resumes the last team.
fn resumed(team: &Team, model: &str) -> Terminal {
    let lead = Terminal::start(team.command("team", &["lead", "--resume", "--model", model]));
    lead.expect("/quit ends the team");
    lead
}

fn notes(team: &Team, name: &str) -> String {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    let notes = lines.iter().filter(|line| line["kind"] == "note");
    notes.filter_map(|note| note["content"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The kernel removes a killed process in steps, so a new lead may find a killed member still alive. Here the test
/// holds the member's life lock.
#[test]
fn a_member_that_exits_during_recovery_is_restarted() {
    let team = Team::new();
    let lines = [
        calls("lead", &[spawn("bob")]),
        says("lead", "bob is at work"),
        calls("bob", &[bash("touch bob.here; sleep 1000")]),
        says("bob", "bob went on"),
        says("lead", "noted"),
        says("lead", "noted"),
    ];
    let mut first = scripted_lead(&team, &lines);
    wait_file(&team, "bob.here");
    team.wait_status("lead", "idle");
    for name in ["lead", "bob"] {
        signal(team.pid_of(name), Signal::SIGSTOP);
    }
    for name in ["bob", "lead"] {
        kill_9(&team, name);
    }
    first.wait();
    let life = fs::File::open(team.path("run/bob.lock")).unwrap();
    fs4::FileExt::lock(&life).unwrap();
    let model = format!("script:{}", team.workspace().join("script.jsonl").display());
    let mut next = team.start(&["lead", "--resume", "-p", "--model", &model]);
    let log = team.path("log/lead.jsonl");
    team.eventually("the next lead has looked", || {
        fs::read_to_string(&log).unwrap().contains("looked for commands of a dead lead")
    });
    // The lead now polls the members every 50 ms while one of them is alive.
    std::thread::park_timeout(std::time::Duration::from_millis(300));
    drop(life);
    assert_eq!(wait(&team, &mut next), Some(0), "{}", team.describe());
    assert!(team.has_mail("lead", "bob", "bob went on"), "{}", team.describe());
    assert_left_in_order(&team);
}

#[test]
fn a_team_killed_at_once_is_resumed() {
    let team = Team::new();
    let lines = [
        calls("lead", &["alice", "bob", "carol"].map(spawn)),
        calls("lead", &[("shutdown_teammate", serde_json::json!({ "name": "carol" }))]),
        says("lead", "all at work"),
        says("carol", "ready"),
        says("alice", "alice's first"),
        calls("bob", &[bash("touch bob.here; sleep 1000")]),
        says("bob", "bob went on"),
        says("lead", "noted"),
        says("lead", "noted"),
        says("lead", "noted"),
        says("lead", "noted"),
    ];
    let mut first = scripted_lead(&team, &lines);
    wait_file(&team, "bob.here");
    team.wait_status("carol", "shutdown");
    team.wait_status("alice", "idle");
    team.eventually("alice has reported", || team.has_mail("lead", "alice", "alice's first"));
    team.wait_status("lead", "idle");
    team.team(&["send", "bob", "before the storm"]).expect(0);
    let turns = team.roster()["lead"]["usage"]["turns"].as_u64().unwrap();
    let memory = fs::read_to_string(team.path("transcript/lead.jsonl")).unwrap();
    for name in ["lead", "alice", "bob"] {
        signal(team.pid_of(name), Signal::SIGSTOP);
    }
    for name in ["alice", "bob", "lead"] {
        kill_9(&team, name);
    }
    first.wait();

    // Without a prompt, the interrupted turns continue until all members are idle.
    let model = format!("script:{}", team.workspace().join("script.jsonl").display());
    let ran = team.team(&["lead", "--resume", "-p", "--model", &model]).expect(0);
    assert!(ran.err.contains("alice, bob had exited"), "{ran:#?}");
    assert!(ran.err.contains("bob (in the middle of a turn, during bash)"), "{ran:#?}");
    assert!(ran.err.contains("not resumed, because they were stopped: carol"), "{ran:#?}");
    assert!(team.has_mail("lead", "bob", "bob went on"), "{}", team.describe());
    assert!(team.has_mail("bob", "user", "before the storm"), "{}", team.describe());
    for name in ["alice", "bob"] {
        assert_eq!(last_exit(&team, name), ("team_stopped".into(), Some(0), None), "{name}");
        assert!(notes(&team, name).contains("the team had ended and has been resumed"), "{name}");
        assert_eq!(team.member(name)["restarts"], 0, "{name}");
    }
    assert_eq!(last_exit(&team, "carol").0, "stopped");
    assert!(notes(&team, "lead").contains("the user has resumed the team. Resumed: alice"));
    let now = fs::read_to_string(team.path("transcript/lead.jsonl")).unwrap();
    assert!(now.starts_with(&memory), "the lead's conversation goes on");
    assert!(team.roster()["lead"]["usage"]["turns"].as_u64().unwrap() > turns, "and its count");
    assert!(tool_results(&team, "bob")[0].1.contains("state unknown"));
    assert_left_in_order(&team);
}

/// A team is resumed after `/quit`, then after a kill of the lead alone while members may still be shutting down.
#[test]
fn a_team_is_resumed_after_a_quit_and_after_a_kill_of_its_lead() {
    let team = Team::new();
    let mut first = lead(&team, "rehearsal");
    first.type_line("Spawn alice (coder) and bob (tester).");
    for name in ["alice", "bob"] {
        team.wait_status(name, "idle");
    }
    team.wait_status("lead", "idle");
    first.type_line("/quit");
    assert_eq!(first.wait().code(), Some(0));
    assert_eq!(last_exit(&team, "alice").0, "team_stopped");

    let mut second = resumed(&team, "rehearsal");
    second.expect("Resumed: alice (it was idle), bob (it was idle).");
    for name in ["alice", "bob"] {
        team.wait_status(name, "idle");
    }
    assert_eq!(team.member("alice")["role"], "coder");
    let work = "touch alice.here; until [ -e go ]; do sleep 0.05; done; touch alice.done";
    team.team(&["send", "alice", &format!("Run the command `{work}`")]).expect(0);
    wait_file(&team, "alice.here");
    let bob = team.pid_of("bob");
    kill_9(&team, "lead");
    second.wait();
    team.eventually("bob is gone", || team.processes().iter().all(|(pid, _)| *pid != bob));
    let log = team.path("log/lead.jsonl");
    let looks = || fs::read_to_string(&log).unwrap().matches("commands of a dead lead").count();
    let before = looks();
    let mut third =
        Terminal::start(team.command("team", &["lead", "--resume", "--model", "rehearsal"]));
    team.eventually("the third lead has looked", || looks() > before);
    // The lead probes its members at once, and alice needs longer to end after her command.
    std::thread::park_timeout(std::time::Duration::from_millis(300));
    write(&team.workspace().join("go"), "");
    third.expect("alice of an earlier lead ended");
    assert!(team.workspace().join("alice.done").exists(), "a running tool may finish");
    for name in ["alice", "bob"] {
        team.wait_status(name, "idle");
    }
    third.type_line("/stop alice");
    third.expect("alice ended when asked");
    third.type_line("/quit");
    assert_eq!(third.wait().code(), Some(0));

    let mut fourth = resumed(&team, "rehearsal");
    fourth.expect("Resumed: bob (it was idle); not resumed, because they were stopped: alice.");
    team.wait_status("bob", "idle");
    assert_eq!(team.status("alice"), "shutdown");
    fourth.type_line("/quit");
    assert_eq!(fourth.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// However a process ends in the middle of a turn, the resumed team continues the turn, once.
#[test]
fn every_way_to_end_within_a_turn_is_continued_by_a_resume() {
    type End = fn(&Team);
    let ends: [(&str, End); 5] = [
        ("the lead is killed and the command ends", |team| {
            kill_9(team, "lead");
            // The kernel closes the files of a killed process some time later, and bob may begin another call until then.
            team.eventually("bob knows", || {
                let log = fs::read_to_string(team.path("log/bob.jsonl")).unwrap_or_default();
                log.contains("the lead is gone")
            });
            write(&team.workspace().join("go"), "");
        }),
        ("the lead is killed, and then bob", |team| {
            kill_9(team, "lead");
            kill_9(team, "bob");
        }),
        ("all are killed", |team| {
            let both = ["bob", "lead"].map(|name| team.pid_of(name));
            for pid in both {
                signal(pid, Signal::SIGSTOP);
            }
            for pid in both {
                signal(pid, Signal::SIGKILL);
            }
        }),
        ("all are terminated", |team| {
            let both = ["bob", "lead"].map(|name| team.pid_of(name));
            for pid in both {
                signal(pid, Signal::SIGTERM);
            }
        }),
        ("the team is stopped", |team| {
            team.team(&["stop", "--all", "--now"]).expect(0);
        }),
    ];
    in_parallel(ends, |(what, end)| {
        let team = Team::new();
        let lines = [
            calls("lead", &[spawn("bob")]),
            says("lead", "bob is at work"),
            calls("bob", &[bash("touch bob.here; until [ -e go ]; do sleep 0.05; done")]),
            calls("bob", &[bash("echo once >> the.rest")]),
            says("bob", "bob went on"),
            says("lead", "noted"),
            says("lead", "noted"),
            says("lead", "noted"),
        ];
        let mut first = scripted_lead(&team, &lines);
        wait_file(&team, "bob.here");
        team.wait_status("lead", "idle");
        end(&team);
        first.wait();
        team.wait_no_process();
        assert!(!team.workspace().join("the.rest").exists(), "{what}: {}", team.describe());
        // The lead learns of a turn that had only tool calls.
        if last_exit(&team, "bob").0 == "lead_lost" {
            let inbox = fs::read_to_string(team.path("inbox/lead.jsonl")).unwrap();
            assert!(inbox.contains("in the middle of this turn"), "{what}: {inbox}");
        }
        let model = format!("script:{}", team.workspace().join("script.jsonl").display());
        for _ in 0..2 {
            let ran = team.team(&["lead", "--resume", "-p", "--model", &model]).expect(0);
            assert!(!ran.err.contains("its last turn was interrupted"), "{what}: {ran:#?}");
        }
        let rest = fs::read_to_string(team.workspace().join("the.rest"));
        assert_eq!(rest.ok().as_deref(), Some("once\n"), "{what}: {}", team.describe());
        assert!(team.has_mail("lead", "bob", "bob went on"), "{what}: {}", team.describe());
        assert_left_in_order(&team);
    });
}

/// A lead whose process ended within a turn goes on with it, and its session knows that a turn runs: the turn takes a
/// prompt, the end of the input ends the session after it, and Esc interrupts it.
#[test]
fn a_turn_that_goes_on_takes_a_prompt_and_can_be_interrupted() {
    in_parallel([false, true], |is_interrupted| {
        let team = Team::new();
        let wait_for_go =
            |here: &str| bash(&format!("touch {here}; until [ -e go ]; do sleep 0.05; done"));
        let lines = [
            calls("lead", &[wait_for_go("first.here")]),
            calls("lead", &[wait_for_go("second.here")]),
            says("lead", "the turn is over"),
            says("lead", "if the prompt came late, its own turn is over"),
        ];
        let mut first = scripted_lead(&team, &lines);
        wait_file(&team, "first.here");
        kill_9(&team, "lead");
        first.wait();
        let model = script(&team, &lines);
        if is_interrupted {
            let mut second = resumed(&team, &model);
            wait_file(&team, "second.here");
            second.press("\u{1b}");
            team.eventually("it is interrupted", || turn_ends(&team) == ["interrupted"]);
            second.type_line("/quit");
            assert_eq!(second.wait().code(), Some(0));
        } else {
            let mut command = team.command("team", &["lead", "--resume", "--model", &model]);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut second = command.spawn().unwrap();
            wait_file(&team, "second.here");
            second.stdin.take().unwrap().write_all(b"and then?\n").unwrap();
            write(&team.workspace().join("go"), "");
            team.eventually("it has ended", || second.try_wait().unwrap().is_some());
            assert_eq!(second.wait().unwrap().code(), Some(0));
            let prompted = |line: &Value| line["kind"] == "user" && line["content"] == "and then?";
            assert!(team.lines("transcript/lead.jsonl").iter().any(prompted));
            assert!(turn_ends(&team).iter().all(|outcome| outcome == "done"));
        }
        assert_left_in_order(&team);
    });
}

fn turn_ends(team: &Team) -> Vec<String> {
    let lines = team.lines("transcript/lead.jsonl").into_iter();
    let ends = lines.filter(|line| line["kind"] == "turn_end");
    ends.map(|end| end["outcome"].as_str().unwrap().to_owned()).collect()
}

/// A turn that its user interrupted is over, and so is that of a member that was stopped by name.
#[test]
fn a_turn_that_a_person_ended_is_not_continued() {
    let team = Team::new();
    let lines = [
        calls("lead", &[spawn("bob"), bash("touch lead.here; sleep 1000")]),
        calls("bob", &[bash("touch bob.here; sleep 1000")]),
        says("bob", "bob went on"),
        says("lead", "bob is gone, then"),
        says("lead", "an answer to bob"),
    ];
    let mut first = scripted_lead(&team, &lines);
    wait_file(&team, "lead.here");
    wait_file(&team, "bob.here");
    team.team(&["stop", "bob", "--now"]).expect(0);
    first.press("\u{3}");
    // The report of bob's end is mail, which the lead answers in a turn of its own.
    let transcript = team.path("transcript/lead.jsonl");
    let told = || fs::read_to_string(&transcript).unwrap();
    team.eventually("the answer to the report", || told().contains("bob is gone, then"));
    team.wait_status("lead", "idle");
    first.type_line("/quit");
    assert_eq!(first.wait().code(), Some(0));
    let model = format!("script:{}", team.workspace().join("script.jsonl").display());
    let ran = team.team(&["lead", "--resume", "-p", "--model", &model]).expect(0);
    assert!(ran.err.contains("nothing was left to do"), "{ran:#?} {}", team.describe());
    assert_eq!(team.status("bob"), "shutdown");
    assert_left_in_order(&team);
    // A lead took mail in as it ended, after an interrupted turn. It answers the mail, and is not told to go on with
    // the turn.
    let end =
        serde_json::json!({ "kind": "turn_end", "at": 1.0, "outcome": "interrupted", "rounds": 1 });
    let mail = serde_json::json!({ "kind": "mail", "at": 1.0, "gen": "000000000009-00000000", "offset": 0, "message":
        { "type": "message", "from": "bob", "to": "lead", "content": "bye", "id": "bye", "timestamp": 1.0 } });
    write(&transcript, format!("{}{end}\n{mail}\n", told()));
    let ran = team.team(&["lead", "--resume", "-p", "--model", &model]).expect(0);
    let told = told();
    assert!(ran.out.contains("an answer to bob"), "{ran:#?}");
    assert!(told.contains("the last mail before this start is not answered yet"), "{told}");
    assert!(!told.contains("in the middle of a turn"), "{told}");
    assert_left_in_order(&team);
}

/// The permission mode of the last run comes back, unless a flag names another one. A roster that was copied from
/// elsewhere loosens nothing.
#[test]
fn a_resumed_team_keeps_its_mode() {
    let team = Team::new();
    team.variable("TEAM_MODE", "");
    let run = |args: &[&str]| {
        let rehearsal = ["lead", "-p", "Run touch here", "--model", "rehearsal"];
        team.team(&[&rehearsal, args].concat())
    };
    run(&["--mode", "bypass"]).expect(0);
    let here = team.workspace().join("here");
    fs::remove_file(&here).unwrap();
    let ran = run(&["--resume"]).expect(0);
    assert!(ran.err.contains("Mode bypass, as in the last run"), "{ran:#?}");
    fs::remove_file(&here).unwrap();
    let ran = run(&["--resume", "--mode", "plan"]);
    assert!(!ran.err.contains("as in the last run") && !here.exists(), "{ran:#?}");
    let ran = run(&["--resume"]);
    assert!(ran.err.contains("Mode plan, as in the last run") && !here.exists(), "{ran:#?}");
    // The roster alone cannot loosen the mode, even if it names the recorded lead.
    let roster = fs::read_to_string(team.path("config.json")).unwrap();
    write(&team.path("config.json"), roster.replace("\"mode\": \"plan\"", "\"mode\": \"bypass\""));
    assert_eq!(team.roster()["lead"]["mode"], "bypass");
    let ran = run(&["--resume"]);
    assert!(ran.err.contains("Mode default, not bypass") && !here.exists(), "{ran:#?}");
    run(&["--mode", "bypass"]).expect(0);
    fs::remove_file(&here).unwrap();
    fs::remove_dir_all(team.workspace().join(".local/state/team/leads")).unwrap();
    let ran = run(&["--resume"]);
    assert!(ran.err.contains("not bypass as in the last run") && !here.exists(), "{ran:#?}");
    assert_left_in_order(&team);
}

#[test]
fn a_resumed_team_keeps_its_model() {
    let team = Team::new();
    team.team(&["lead", "-p", "Run echo one", "--model", "rehearsal"]).expect(0);
    team.team(&["lead", "-p", "Run echo two"]).expect(4);
    let ran = team.team(&["lead", "--resume", "-p", "Run echo three"]).expect(0);
    assert!(ran.out.contains("three"), "{ran:?}");
    assert_left_in_order(&team);
}

#[test]
fn without_a_team_resume_and_takeover_are_refused() {
    let team = Team::new();
    let ran = team.team(&["lead", "--resume", "-p", "--model", "rehearsal"]).expect(1);
    assert!(ran.err.contains("there is no team here"), "{ran:?}");
    assert!(!team.path("").exists(), "and none is made");
}

/// Scripted calls have the same ids in every run. The mail of a second run in the same folder must not count as
/// repeated.
#[test]
fn a_second_run_of_a_script_is_not_mistaken_for_the_first() {
    let team = Team::new();
    let message = ("send_message", serde_json::json!({ "to": "bob", "content": "good morning" }));
    let lines = [
        calls("lead", &[spawn("bob"), message]),
        says("lead", "sent"),
        says("bob", "read"),
        says("bob", "read again"),
        says("bob", "read once more"),
    ];
    let model = script(&team, &lines);
    for run in 1..=2 {
        headless(&team, &model, "begin").expect(0);
        let messages = team.mail_of("bob");
        let of = |text: &str| messages.iter().filter(|mail| mail["content"] == text).count();
        assert_eq!((of("begin"), of("good morning")), (run, run), "{}", team.describe());
    }
    let dead = team.lines("dead/bob.jsonl");
    assert!(dead.is_empty(), "{dead:?}");
    assert_left_in_order(&team);
}

/// The old lead names the new one, and gives its terminal back.
#[test]
fn a_takeover_stops_the_old_lead_and_its_team() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let mut first = lead_of_size(&team, "rehearsal", size);
        first.type_line("Spawn alice (coder).");
        team.wait_status("alice", "idle");
        let pid = team.pid_of("lead");
        let refused = team.team(&["lead", "-p", "hello", "--model", "rehearsal"]).expect(5);
        assert!(refused.err.contains(&format!("pid {pid}, since ")), "{refused:?}");
        assert!(refused.err.contains("--takeover"), "{refused:?}");

        let args = ["lead", "--takeover", "--resume", "--model", "rehearsal"];
        let mut second = Terminal::of_size(team.command("team", &args), size);
        assert_eq!(first.wait().code(), Some(143));
        let by = second.child.id();
        first.expect_screen("another lead took over at ");
        first.expect_screen(&format!(": process {by} of "));
        first.expect_screen(" on /dev/pts/");
        // Nothing is left of the pane.
        let screen = first.screen();
        let rows = screen.split("another lead took over at ").nth(1).unwrap();
        assert!(!rows.contains("team>"), "{screen}");
        first.assert_restored();
        second.expect_screen("Resumed: alice");
        second.expect_screen("team>");
        team.wait_status("alice", "idle");
        assert_ne!(team.pid_of("lead"), pid);
        second.type_line("/quit");
        assert_eq!(second.wait().code(), Some(0));
        second.assert_restored();
        assert_left_in_order(&team);
    });
}

/// A roster that would take a program a minute or longer to read is quarantined and rebuilt from its copy.
#[test]
fn a_roster_too_long_or_too_deep_is_quarantined() {
    let many = |n: usize| format!(r#"{{"version":1,"members":[{}]}}"#, member_lines(n));
    for hostile in [many(1_000_000), format!(r#"{{"version":1,"x":{}"#, "[".repeat(100_000))] {
        let team = Team::new();
        headless(&team, "rehearsal", "Spawn alice (coder).").expect(0);
        let good = team.roster();
        write(&team.path("config.json"), &hostile);
        let begun = Instant::now();
        let shown = team.team(&["ls", "--json"]).expect(0).json();
        assert_eq!(shown["members"].as_array().unwrap().len(), 1, "as the copy says: {shown}");
        let ran = headless(&team, "rehearsal", "Check the lead inbox for any messages").expect(0);
        assert!(ran.err.contains("its roster was damaged and was rebuilt"), "{ran:#?}");
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
        assert_eq!(team.member("alice")["name"], good["members"][0]["name"]);
        let beside = fs::read(team.path("config.json.bad-1")).unwrap();
        assert!(beside == hostile.as_bytes(), "kept as it was");
        fs::remove_file(team.path("config.json.bad-1")).unwrap();
        assert_left_in_order(&team);
    }
}

fn member_lines(count: usize) -> String {
    let lines: Vec<String> =
        (0..count).map(|n| format!(r#"{{"name":"m{n}","status":"working"}}"#)).collect();
    lines.join(",")
}

#[test]
fn a_damaged_roster_is_rebuilt_and_reported() {
    let team = Team::new();
    let mut first = lead(&team, "rehearsal");
    first.type_line("Spawn alice (coder).");
    team.wait_status("alice", "idle");
    first.type_line("/quit");
    assert_eq!(first.wait().code(), Some(0));
    for file in ["config.json", "config.json.bak"] {
        write(&team.path(file), "{ torn");
    }
    let ran = headless(&team, "rehearsal", "Check the lead inbox for any messages").expect(0);
    assert!(ran.err.contains("its roster was damaged and was rebuilt"), "{ran:#?}");
    assert!(team.path("config.json.bad-1").exists());
    let alice: Value = team.member("alice");
    assert_eq!(alice["status"], "failed", "known by her life lock: {alice}");
    fs::remove_file(team.path("config.json.bad-1")).unwrap();
    assert_left_in_order(&team);
}

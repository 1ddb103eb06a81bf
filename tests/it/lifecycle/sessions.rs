//! Earlier conversations of the lead: the question at the start, `team sessions`, `--resume=ID`, and what never displaces
//! a conversation.

use crate::support::approvals::append;
use crate::support::child_process::write;
use crate::support::harness::{Team, in_parallel};
use crate::support::scripts::{
    assert_left_in_order, headless, kill_9, lead, lead_of_size, signal, turns, wait_file,
};
use crate::support::terminal::{ANY_SIZE, SIZES, Size, Terminal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

/// Starts a lead at a terminal and does not wait for it.
fn at_terminal(team: &Team, options: &[&str]) -> Terminal {
    at_terminal_of_size(team, options, ANY_SIZE)
}

fn at_terminal_of_size(team: &Team, options: &[&str], size: Size) -> Terminal {
    let words = [&["lead", "--model", "rehearsal"], options].concat();
    Terminal::of_size(team.command("team", &words), size)
}

fn quit(mut lead: Terminal) -> String {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    lead.printed()
}

/// Returns the sessions that `team sessions --json` lists.
fn sessions(team: &Team) -> Vec<Value> {
    let listed = team.team(&["sessions", "--json"]).expect(0).json();
    assert_eq!(listed["schema"], 1);
    listed["sessions"].as_array().unwrap().clone()
}

fn id_of(team: &Team, title: &str) -> String {
    let found = sessions(team).into_iter().find(|it| it["title"] == title);
    found.unwrap_or_else(|| panic!("{title}: {:?}", sessions(team)))["id"].as_str().unwrap().into()
}

fn titles(team: &Team) -> Vec<String> {
    sessions(team).iter().map(|it| it["title"].as_str().unwrap().to_owned()).collect()
}

/// Returns the prompts in the lead's current transcript.
fn prompts(team: &Team) -> Vec<String> {
    let lines = team.lines("transcript/lead.jsonl").into_iter();
    let prompts = lines.filter(|line| line["kind"] == "user");
    prompts.map(|line| line["content"].as_str().unwrap().to_owned()).collect()
}

/// Returns the contents of all files below a folder.
fn files_below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if path.is_file() {
            found.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn a_lead_where_there_is_a_past_asks_and_nothing_is_lost() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let begin = |options: &[&str]| at_terminal_of_size(&team, options, size);
        let mut first = begin(&[]);
        first.expect("/quit ends the team");
        assert!(!first.printed().contains("Resume"), "there is no past: {}", first.printed());
        first.type_line("Spawn alice (coder).");
        // She may be idle before she has her first prompt, too.
        team.eventually("she has ended a turn", || turns(&team, "alice") > 0);
        team.wait_status("alice", "idle");
        team.wait_status("lead", "idle");
        assert!(quit(first).trim_end().ends_with("To resume: team lead --resume"));

        // The question is one row with members, age and title. Enter resumes the lead and its teammate.
        let mut second = begin(&[]);
        second.expect_screen("\")? [Y/n/list]");
        let screen = second.screen();
        let asked = screen.lines().find(|row| row.starts_with("Resume (1 teammate, ")).unwrap();
        assert!(asked.trim_end().ends_with(": \"Spawn alice (coder).\")? [Y/n/list]"), "{screen}");
        assert!(asked.contains("just now") || asked.contains(" min ago"), "{screen}");
        second.press("\r");
        second.expect_screen("Resumed: alice (it was idle).");
        second.expect_screen("team>");
        team.wait_status("alice", "idle");
        quit(second);
        assert_eq!(prompts(&team), ["Spawn alice (coder)."]);

        // Another answer is refused; `n` begins anew and says how to come back.
        let alice = id_of(&team, "Spawn alice (coder).");
        let mut third = begin(&[]);
        third.expect_screen("[Y/n/list]");
        third.type_line("maybe");
        third.expect_screen("Type y to resume it, n for a new session, or list.");
        third.type_line("N");
        third.expect(&format!("The last one is kept: team lead --resume={alice}"));
        third.expect("/quit ends the team");
        third.type_line("Run echo two");
        team.eventually("the command ran", || {
            team.lines("transcript/lead.jsonl").iter().any(|line| line["kind"] == "turn_end")
        });
        quit(third);
        assert_eq!(titles(&team), ["Run echo two", "Spawn alice (coder)."]);
        let two = id_of(&team, "Run echo two");

        // The list is a way to the older one.
        let mut fourth = begin(&[]);
        fourth.expect_screen("\"Run echo two\")? [Y/n/list]");
        fourth.type_line("list");
        fourth.expect_screen("Number or id");
        let screen = fourth.screen();
        for (number, id, title) in
            [("1", &two, "Run echo two"), ("2", &alice, "Spawn alice (coder).")]
        {
            let row = screen.lines().find(|row| row.contains(id)).unwrap();
            assert!(row.starts_with(number) && row.ends_with(title), "{screen}");
        }
        fourth.type_line("99999");
        fourth.expect_screen("there is no session \"99999\"");
        fourth.type_line("2");
        fourth.expect_screen("Resumed: alice");
        fourth.expect_screen("team>");
        team.wait_status("alice", "idle");
        quit(fourth);
        assert_eq!(prompts(&team), ["Spawn alice (coder)."]);
        assert_eq!(id_of(&team, "Spawn alice (coder)."), alice, "an id stays");

        // So is an id, also for a run without a person. Alice is of the other conversation and does not come back.
        let resume = format!("--resume={}", &two[..6]);
        let fifth = begin(&[&resume]);
        fifth.expect_screen("There are no teammates to resume.");
        fifth.expect_screen("team>");
        assert!(!fifth.printed().contains("Resume ("), "{}", fifth.printed());
        quit(fifth);
        assert_eq!(
            (&*team.status("alice"), &prompts(&team)[..]),
            ("shutdown", &["Run echo two".into()][..])
        );
        team.team(&["lead", &resume, "-p", "Run echo three", "--model", "rehearsal"]).expect(0);
        assert_eq!(prompts(&team), ["Run echo two", "Run echo three"]);
        assert_left_in_order(&team);
    });
}

#[test]
fn a_person_who_goes_away_at_the_question_changes_nothing() {
    let team = Team::new();
    headless(&team, "rehearsal", "Run echo one").expect(0);
    let before = files_below(&team.path(""));
    // Ctrl-C, Ctrl-D, Ctrl-C within an answer or at the list, and a signal.
    for (list, keys, code) in [
        (false, "\u{3}", 130),
        (false, "\u{4}", 130),
        (false, "yes\u{3}", 130),
        (true, "\u{3}", 130),
        (false, "", 143),
    ] {
        let mut lead = at_terminal(&team, &[]);
        lead.expect("[Y/n/list]");
        if list {
            lead.type_line("list");
            lead.expect("Number or id");
        }
        lead.press(keys);
        if keys.is_empty() {
            signal(i32::try_from(lead.child.id()).unwrap(), Signal::SIGTERM);
        }
        assert_eq!(lead.wait().code(), Some(code), "{keys:?}: {}", lead.screen());
        lead.assert_restored();
        assert!(files_below(&team.path("")) == before, "{keys:?}");
    }
    assert_left_in_order(&team);
}

#[test]
fn only_a_person_at_a_terminal_is_asked() {
    let team = Team::new();
    headless(&team, "rehearsal", "Run echo one").expect(0);
    // `--new` and a run of a script begin anew as before.
    let lead = at_terminal(&team, &["--new"]);
    lead.expect("/quit ends the team");
    assert!(!lead.printed().contains("Resume ("), "{}", lead.printed());
    quit(lead);
    headless(&team, "rehearsal", "Run echo two").expect(0);
    let ran = team.team_with_input(&["lead", "--model", "rehearsal"], "Run echo three\n").expect(0);
    assert!(!ran.err.contains("Resume (") && !ran.out.contains("To resume"), "{ran:#?}");
    assert_eq!(titles(&team), ["Run echo three", "Run echo two", "Run echo one"]);
    for id in ["", "zzz"] {
        let ran = team.team(&["lead", &format!("--resume={id}x"), "--model", "rehearsal"]);
        assert!(ran.err.contains("there is no session"), "{ran:#?}");
        ran.expect(1);
    }
    let both = team.team(&["lead", "--new", "--resume", "--model", "rehearsal"]);
    both.expect(2);
    assert_left_in_order(&team);
}

/// A lead that starts and ends without a word leaves the conversation before it where `--resume` finds it. Mail that it
/// has taken in stays delivered, once.
#[test]
fn an_empty_conversation_displaces_none_and_loses_no_mail() {
    let team = Team::new();
    headless(&team, "rehearsal", "Run echo one").expect(0);
    let memory = fs::read_to_string(team.path("transcript/lead.jsonl")).unwrap();
    for _ in 0..2 {
        quit(lead(&team, "rehearsal"));
        assert_eq!(titles(&team), ["Run echo one"]);
    }
    let quiet = lead(&team, "rehearsal");
    // Such mail begins no turn.
    let notice = json!({"type": "idle_notification", "from": "zoe", "to": "lead", "id": "zoe:1",
        "content": "", "timestamp": 1.5, "reason": "available"});
    let echo = || {
        let line = format!("echo '{notice}' >> .team/inbox/lead.jsonl");
        assert!(team.shell(&line).status().unwrap().success());
    };
    echo();
    team.eventually("the mail is taken in", || team.mail_of("lead").len() == 1);
    quit(quiet);
    assert_eq!(titles(&team), ["Run echo one"]);
    echo();
    let resumed = at_terminal(&team, &["--resume"]);
    resumed.expect("/quit ends the team");
    team.eventually("the mail is known", || {
        let log = team.lines("log/lead.jsonl");
        log.iter().any(|line| line["message"] == "a message came again and was dropped")
    });
    quit(resumed);
    let now = fs::read_to_string(team.path("transcript/lead.jsonl")).unwrap();
    assert!(now.starts_with(&memory), "the conversation goes on: {now}");
    let kept: Vec<_> = files_below(&team.path("transcript")).into_values().collect();
    let kept = String::from_utf8(kept.concat()).unwrap();
    assert_eq!(kept.matches("zoe:1").count(), 1, "{kept}");
    assert_eq!(titles(&team), ["Run echo one"]);
    assert_left_in_order(&team);
}

/// A lead that is killed between the two renames of a change leaves both conversations where the next one finds them.
#[test]
fn a_kill_within_a_change_loses_no_conversation() {
    in_parallel(["recover.gathered", "recover.archived", "lead.entered"], |point| {
        let team = Team::new();
        headless(&team, "rehearsal", "Run echo one").expect(0);
        headless(&team, "rehearsal", "Run echo two").expect(0);
        let (one, two) = (id_of(&team, "Run echo one"), id_of(&team, "Run echo two"));
        let archived = fs::read(team.path("transcript/archive/lead-000001.jsonl")).unwrap();
        let current = fs::read(team.path("transcript/lead.jsonl")).unwrap();
        let token = team.workspace().join("token");
        write(&token, "");
        let resume = format!("--resume={one}");
        let mut command =
            team.command("team", &["lead", &resume, "-p", "Run echo x", "--model", "rehearsal"]);
        command.env("TEAM_FAILPOINTS", format!("lead/{point}={}", token.display()));
        let killed = command.output().unwrap();
        assert_eq!(killed.status.signal(), Some(9), "{point}: {killed:?}");
        assert!(!token.exists(), "{point}");
        assert_eq!(team.path("transcript/lead.jsonl").exists(), point != "recover.archived");
        let transcripts: Vec<_> = files_below(&team.path("transcript")).into_values().collect();
        for whole in [&archived, &current] {
            assert!(transcripts.contains(whole), "{point}: {transcripts:?}");
        }
        assert_eq!(titles(&team), ["Run echo two", "Run echo one"], "{point}");
        // Without an id, the conversation that was the current one goes on.
        team.team(&["lead", "--resume", "-p", "Run echo three", "--model", "rehearsal"]).expect(0);
        assert_eq!(prompts(&team), ["Run echo two", "Run echo three"], "{point}");
        team.team(&["lead", &resume, "-p", "Run echo four", "--model", "rehearsal"]).expect(0);
        assert_eq!(prompts(&team), ["Run echo one", "Run echo four"], "{point}");
        assert_eq!((id_of(&team, "Run echo one"), id_of(&team, "Run echo two")), (one, two));
        assert_left_in_order(&team);
    });
}

/// A claim outlives a change of the conversation. Its mail is not delivered to the next conversation, in whichever
/// archive it is by then.
#[test]
fn mail_is_delivered_once_across_changes() {
    let team = Team::new();
    headless(&team, "rehearsal", "Run echo zero").expect(0);
    for title in ["Run echo one", "Run echo two", "Run echo three"] {
        // Each has mail of its own.
        let line = format!(
            "echo '{{\"from\":\"bob\",\"content\":\"{title}\"}}' >> .team/inbox/lead.jsonl"
        );
        assert!(team.shell(&line).status().unwrap().success());
        headless(&team, "rehearsal", title).expect(0);
        assert_eq!(team.mail_of("lead").len(), 1);
    }
    let ids = ["Run echo one", "Run echo two", "Run echo three"].map(|title| id_of(&team, title));
    // The writer keeps the inbox open, so that the claim stays.
    let mut writer =
        team.shell("exec 9>> .team/inbox/lead.jsonl; until [ -e go ]; do sleep 0.05; done");
    let mut writer = writer.spawn().unwrap();
    let resume = |id: &str| at_terminal(&team, &[&format!("--resume={id}")]);
    let mut first = resume(&ids[2]);
    first.expect("/quit ends the team");
    team.team(&["send", "lead", "a message for the third"]).expect(0);
    team.eventually("it is taken in", || team.mail_of("lead").len() == 2);
    kill_9(&team, "lead");
    first.wait();
    for id in [&ids[0], &ids[1], &ids[0]] {
        let mut next = resume(id);
        next.expect("/quit ends the team");
        team.wait_status("lead", "idle");
        kill_9(&team, "lead");
        next.wait();
    }
    let next = resume(&ids[1]);
    next.expect("/quit ends the team");
    team.wait_status("lead", "idle");
    write(&team.workspace().join("go"), "");
    assert!(writer.wait().unwrap().success());
    quit(next);
    let all: Vec<_> = files_below(&team.path("transcript")).into_values().collect();
    let all = String::from_utf8(all.concat()).unwrap();
    let is_it =
        |line: &&str| line.starts_with("{\"kind\":\"mail\"") && line.contains("for the third");
    assert_eq!(all.lines().filter(is_it).count(), 1, "{all}");
    assert_left_in_order(&team);
}

#[test]
fn sessions_are_listed_and_shown() {
    let team = Team::new();
    team.team(&["sessions"]).expect(1);
    headless(&team, "rehearsal", "Run echo one\nand more").expect(0);
    headless(&team, "rehearsal", "Run echo two").expect(0);
    let listed = sessions(&team);
    let [two, one] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((&two["current"], &one["current"]), (&json!(true), &json!(false)));
    assert_eq!(
        (&one["title"], &one["prompts"], &one["turns"]),
        (&json!("Run echo one"), &json!(1), &json!(1))
    );
    assert!(one["output_tokens"].as_u64().unwrap() > 0 && one["exact"] == true, "{one}");
    assert!(one["began_at"].as_f64() <= one["last_used_at"].as_f64(), "{one}");
    let table = team.team(&["sessions"]).expect(0).out;
    assert!(table.contains("LAST USED") && table.contains("*  "), "{table}");
    let id = one["id"].as_str().unwrap();
    let shown = team.team(&["sessions", "show", id]).expect(0).out;
    assert!(shown.contains("and more") && !shown.contains("echo two"), "{shown}");
    let shown = team.team(&["sessions", "show", id, "--json"]).expect(0).out;
    assert_eq!(
        shown,
        fs::read_to_string(team.path("transcript/archive/lead-000001.jsonl")).unwrap()
    );
    team.team(&["sessions", "show", "nothing"]).expect(1);
    assert_left_in_order(&team);
}

/// `--resume` never makes a team, nor does a mistyped folder.
#[test]
fn nothing_is_made_where_there_is_no_team_to_resume() {
    let team = Team::new();
    let here = team.workspace().display().to_string();
    let lead = ["lead", "--model", "rehearsal"];
    for (words, code) in [
        (&["--resume"][..], 1),
        (&["--resume", "-p"], 1),
        (&["--resume=0badcafe"], 1),
        (&["--resume", "--dir", &format!("{here}/nowhere/.team")], 2),
        (&["-p", "hi", "--dir", &format!("{here}/nowhere/.team")], 2),
        (&["-p", "hi", "-C", &format!("{here}/nowhere")], 2),
        (&["--resume", "--dir", &format!("{here}/nowhere")], 1),
    ] {
        let ran = team.team(&[&lead, words].concat()).expect(code);
        assert!(ran.err.contains("why:") && ran.err.contains("now:"), "{ran:#?}");
        assert_eq!(fs::read_dir(team.workspace()).unwrap().count(), 0, "{words:?}");
    }
    for verb in [&["ls"][..], &["sessions"], &["config"], &["send", "lead", "hi"], &["init"]] {
        team.team(&[verb, &["-C", "nowhere"]].concat()).expect(2);
        team.team(&[verb, &["--dir", "nowhere/.team"]].concat()).expect(2);
    }
    assert_eq!(fs::read_dir(team.workspace()).unwrap().count(), 0);
    fs::create_dir(team.workspace().join("there")).unwrap();
    let words = ["-p", "Run echo one", "--dir", "there/.team"];
    team.team(&[&lead, &words[..]].concat()).expect(0);
    assert!(team.workspace().join("there/.team/transcript/lead.jsonl").exists());
    // The last line names the folder where that is needed.
    let mut away = at_terminal(&team, &["--resume", "--dir", "there/.team"]);
    away.expect("/quit ends the team");
    away.type_line("/quit");
    assert_eq!(away.wait().code(), Some(0));
    away.expect(&format!("To resume: team -C {here}/there lead --resume"));
}

/// A person reads why nothing begins, in rows that begin at the edge of the screen.
#[test]
fn a_mistyped_folder_is_a_readable_error_in_a_terminal() {
    for size in SIZES {
        let team = Team::new();
        for (words, code, what) in [
            (&["--resume"][..], 1, "error: there is no team here"),
            (&["--resume", "--dir", "/nonexist"], 1, "error: there is no team here"),
            (&["--resume", "--dir", "/nonexist/.team"], 2, "error: --dir /nonexist/.team cannot"),
            (&["-C", "/nonexist"], 2, "error: -C /nonexist cannot be used"),
            (&["-C", "nowhere", "--resume"], 2, "error: -C nowhere cannot be used"),
        ] {
            let mut lead = at_terminal_of_size(&team, words, size);
            assert_eq!(lead.wait().code(), Some(code), "{words:?}: {}", lead.screen());
            // The terminal may show the last words of a process after its end.
            lead.expect("  now: ");
            let screen = lead.screen();
            for start in [what, "  why: ", "  now: "] {
                let has_row = screen.lines().any(|row| row.starts_with(start));
                assert!(has_row, "{words:?}: no {start:?} in\n{screen}");
            }
            assert!(!lead.printed().contains("team>"), "{words:?}: {screen}");
            lead.assert_restored();
            assert!(!Path::new("/nonexist").exists(), "{words:?}");
            assert_eq!(fs::read_dir(team.workspace()).unwrap().count(), 0, "{words:?}");
        }
    }
}

/// A name that is spawned again after a kill in the middle of a command gets a new prompt: the old turn is over, and its
/// command is not run again.
#[test]
fn a_name_that_is_spawned_again_does_not_go_on_with_a_cut_off_turn() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        team.variable("TEAM_RESTART", "never");
        let mut first = lead_of_size(&team, "rehearsal", size);
        let run = "echo once >> ran; touch bob.here; sleep 1000";
        first.type_line(&format!("Spawn bob (coder). Ask him to run `{run}`."));
        wait_file(&team, "bob.here");
        kill_9(&team, "bob");
        team.wait_status("bob", "failed");
        quit(first);
        let old = team.lines("transcript/bob.jsonl").len();

        let mut second = lead_of_size(&team, "rehearsal", size);
        second.type_line("Spawn bob (coder).");
        team.wait_status("bob", "idle");
        team.wait_status("lead", "idle");
        team.eventually("bob has answered the new prompt", || {
            let new = team.lines("transcript/bob.jsonl").split_off(old);
            new.iter().filter(|line| line["kind"] == "turn_end").count() == 2
        });
        assert_eq!(fs::read_to_string(team.workspace().join("ran")).unwrap(), "once\n");
        let new = team.lines("transcript/bob.jsonl").split_off(old);
        let kinds: Vec<&str> = new.iter().map(|line| line["kind"].as_str().unwrap()).collect();
        let begin = ["session", "tool_result", "turn_end", "note", "mail", "assistant"];
        assert_eq!(kinds[..begin.len()], begin, "{new:#?}");
        assert_eq!(new[2]["outcome"], "interrupted");
        let note = new[3]["content"].as_str().unwrap();
        let is_over = "(during bash); that turn is over: do not go on with it";
        assert!(note.contains(is_over), "{note}");
        // The person sees him idle, and nothing of the old command.
        second.expect_screen("○ bob");
        assert!(!second.printed().contains("bob  bash"), "{}", second.printed());
        quit(second);
        assert_left_in_order(&team);
    });
}

/// Farewells of the last team that are still in the inbox are taken in, and are no news for the person.
#[test]
fn a_resumed_session_does_not_show_the_farewells_of_the_last_team() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        headless(&team, "rehearsal", "Spawn alice (coder).").expect(0);
        let last = team.mail_of("lead").into_iter().find(|it| it["type"] == "shutdown_response");
        let mut last = last.unwrap_or_else(|| panic!("{}", team.describe()));
        last["id"] = json!("alice:old");
        append(&team, "lead", &last);
        let ended = json!({"type": "teammate_terminated", "from": "alice", "to": "lead", "id": "alice:end",
            "content": "alice has ended", "name": "alice", "cause": "crashed", "exit": "signal 9",
            "timestamp": last["timestamp"]});
        append(&team, "lead", &ended);
        let resumed = at_terminal_of_size(&team, &["--resume"], size);
        resumed.expect_screen("Resumed: alice");
        team.eventually("the old one is taken in", || {
            team.mail_of("lead").iter().any(|it| it["id"] == "alice:end")
        });
        // A word of this session comes after it and is shown.
        let word = json!({"from": "alice", "content": "a word of today", "timestamp": 9e9});
        append(&team, "lead", &word);
        resumed.expect_screen("a word of today");
        let printed = resumed.printed();
        for farewell in ["alice has ended", "shuts down", "ended when asked", "Stopping"] {
            assert!(!printed.contains(farewell), "{farewell}: {printed}");
        }
        quit(resumed);
        assert_left_in_order(&team);
    });
}

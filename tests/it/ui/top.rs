//! `team top` in a pseudo-terminal: its content at several sizes, its keys, and that it changes nothing.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    bash, calls, kill_9, lead, says, script, signal, spawn, stop_process, turns, wait_file,
};
use crate::support::terminal::{SIZES, Terminal};
use nix::sys::signal::Signal;
use nix::sys::termios::LocalFlags;
use serde_json::json;

/// Starts the view in a terminal of this size.
fn top(team: &Team, rows: u16, columns: u16) -> Terminal {
    Terminal::of_size(team.command("team", &["top"]), (rows, columns))
}

/// Starts a lead with alice, and waits until alice is idle after her first turn.
fn team_of_two(team: &Team) -> Terminal {
    lead_of(team, "I have begun.")
}

/// Starts a lead with alice, whose first result is `said`, and waits until both are idle.
fn lead_of(team: &Team, said: &str) -> Terminal {
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "she is there"),
        says("alice", said),
        says("lead", "thank you"),
        says("alice", "heard you"),
        says("lead", "fine"),
    ];
    let mut lead = lead(team, &script(team, &lines));
    lead.type_line("begin");
    team.eventually("alice has reported", || team.has_mail("lead", "alice", said));
    team.wait_status("alice", "idle");
    team.wait_status("lead", "idle");
    lead
}

fn leave(lead: &mut Terminal) {
    lead.type_line("/quit");
    assert!(lead.wait().success());
}

#[test]
fn a_team_is_steered() {
    let team = Team::new();
    let mut lead = team_of_two(&team);
    let mut view = top(&team, 24, 80);
    view.expect_screen("2 of 2 alive");
    view.expect_screen("alice → lead [result]: I have begun.");
    view.expect_screen("q quit");

    // The keys that the footer names.
    view.press("j\r");
    view.expect_screen("▸ Conversation of alice");
    view.expect_screen("lead -> alice");
    view.press("?");
    view.expect_screen("Stop the selected teammate");
    view.press(" ");
    view.expect_screen("Leave at once");
    view.press("\u{1b}");
    view.expect_screen("▸ Conversation of alice");
    view.press("\u{1b}");
    view.expect_screen("▸ 1 Members");
    view.press("mhello from the view\r");
    view.expect_screen("Sent to alice");
    team.eventually("alice has the message", || {
        team.has_mail("alice", "user", "hello from the view")
    });
    view.press("2");
    view.expect_screen("user → alice: hello from the view");

    team.wait_status("alice", "idle");
    team.wait_status("lead", "idle");
    view.press("sn");
    // A stopped alice does not end before the view shows that she is asked to.
    stop_process(&team, "alice");
    view.press("sy");
    view.expect_screen("Stopping alice");
    signal(team.pid_of("alice"), Signal::SIGCONT);
    team.wait_status("alice", "shutdown");
    view.expect_screen("· shutdown");
    view.press("q");
    assert_eq!(view.wait().code(), Some(0));
    leave(&mut lead);
}

#[test]
fn a_turn_is_interrupted_and_its_teammate_stays_at_three_sizes() {
    let team = Team::new();
    let mut lines = vec![calls("lead", &[spawn("alice")]), says("lead", "she is there")];
    lines.extend(SIZES.map(|(_, columns)| {
        calls("alice", &[bash(&format!("touch began-{columns}; sleep 1000"))])
    }));
    lines.extend(SIZES.map(|_| says("lead", "noted")));
    let mut lead = lead(&team, &script(&team, &lines));
    lead.type_line("begin");
    let mut pid = None;
    for (rows, columns) in SIZES {
        wait_file(&team, &format!("began-{columns}"));
        let mut view = top(&team, rows, columns);
        view.expect_screen("▸ 1 Members (2)");
        view.press("i");
        view.expect_screen("press Esc there");
        view.press("ji");
        view.expect_screen("Interrupt the turn of alice? y: yes");
        view.press("y");
        view.expect_screen("alice was interrupted and is waiting for mail");
        team.wait_status("alice", "idle");
        view.press("i");
        view.press("y");
        view.expect_screen("alice is idle: there is no turn to interrupt");
        assert_eq!(*pid.get_or_insert_with(|| team.pid_of("alice")), team.pid_of("alice"));
        view.press("mgo on\r");
        view.expect_screen("Sent to alice");
        view.press("q");
        assert_eq!(view.wait().code(), Some(0));
    }
    team.team(&["stop", "alice", "--now"]).expect(0);
    leave(&mut lead);
}

#[test]
fn every_pane_is_shown_or_named_at_three_sizes() {
    let team = Team::new();
    let mut lead = team_of_two(&team);
    let names = ["1 Members", "2 Messages", "3 Conversation", "4 Tasks", "5 Questions"];
    for (rows, columns) in SIZES {
        let mut view = top(&team, rows, columns);
        for name in names {
            view.expect_screen(name);
        }
        let shows_all = columns >= 100;
        for (key, name) in ("12345".chars()).zip(names) {
            view.press(&key.to_string());
            view.expect_screen(&format!("▸ {name} ").replace("3 Conversation ", "3 Conversation"));
        }
        // The pane alone has the whole screen, and the row of tabs names all.
        view.press("4z");
        view.expect_screen("▸4 Tasks");
        view.expect_screen("▸ 4 Tasks (0) ─");
        let tabs = " 1 Members  2 Messages  3 Conversation ▸4 Tasks  5 Questions";
        view.expect_screen(tabs);
        team.eventually("the pane is alone", || !view.screen().contains("1 Members ("));
        view.press("z");
        view.expect_screen("1 Members (2)");
        team.eventually("the tabs are there if needed", || {
            view.screen().contains(tabs) != shows_all
        });
        view.press("q");
        assert_eq!(view.wait().code(), Some(0));
    }
    leave(&mut lead);
}

#[test]
fn protocol_is_filtered_out_at_three_sizes() {
    let team = Team::new();
    let mut lead = team_of_two(&team);
    for (rows, columns) in SIZES {
        let mut view = top(&team, rows, columns);
        view.press("2");
        view.expect_screen("▸ 2 Messages (2, protocol hidden)");
        view.expect_screen("[result]: I have begun.");
        assert!(!view.screen().contains("idle_notification"), "{}", view.screen());
        view.press("p");
        view.expect_screen("with protocol) ─");
        view.expect_screen("[idle_notification]");
        view.press("p");
        view.expect_screen("▸ 2 Messages (2, protocol hidden)");
        team.eventually("it is hidden", || !view.screen().contains("idle_notification"));
        view.press("q");
        assert_eq!(view.wait().code(), Some(0));
    }
    leave(&mut lead);
}

#[test]
fn a_message_and_a_conversation_open_in_full_at_three_sizes() {
    let team = Team::new();
    let rows: Vec<String> = (0..300).map(|row| format!("row {row}.")).collect();
    let mut lead = lead_of(&team, &rows.join("\n"));
    for (rows, columns) in SIZES {
        let mut view = top(&team, rows, columns);
        view.press("2\r");
        // All of the message is read from the files, not only the beginning that lists show.
        view.expect_screen("▸ Message to lead, 1-");
        view.expect_screen(" of 304 ─");
        view.expect_screen("row 0.");
        view.press("jj");
        view.expect_screen("▸ Message to lead, 3-");
        view.press("k\u{1b}[A");
        view.expect_screen("▸ Message to lead, 1-");
        let page = usize::from(rows) - 4;
        view.press("\u{1b}[6~");
        view.expect_screen(&format!("to lead, {page}-"));
        view.press("\u{1b}[5~G");
        view.expect_screen("-304 of 304");
        view.expect_screen("row 299.");
        view.press("\u{1b}[H");
        view.expect_screen("to lead, 1-");
        view.press("\u{1b}[F");
        view.expect_screen("-304 of 304");
        view.press("g");
        view.expect_screen("to lead, 1-");
        view.press("\u{1b}");
        view.expect_screen("▸ 2 Messages (2, protocol hidden)");
        // The selected member's conversation.
        view.press("1j\r");
        view.expect_screen("▸ Conversation of alice (protocol hidden), ");
        view.expect_screen("row 299.");
        view.press("g");
        view.expect_screen("lead -> alice");
        view.expect_screen("row 0.");
        view.press("\u{1b}");
        view.expect_screen("▸ 1 Members (2)");
        view.press("q");
        assert_eq!(view.wait().code(), Some(0));
    }
    leave(&mut lead);
}

#[test]
fn the_search_finds_in_the_pane_in_front_at_three_sizes() {
    let team = Team::new();
    let rows: Vec<String> = (0..300).map(|row| format!("row {row}.")).collect();
    let mut lead = lead_of(&team, &rows.join("\n"));
    for (rows, columns) in SIZES {
        let mut view = top(&team, rows, columns);
        view.press("2/BEGIN");
        view.expect_screen("/BEGIN  Match 1 of 1");
        view.press("\r");
        view.expect_screen("› ✓");
        team.eventually("the match is marked", || view.marked_text() == "begin");
        // In the open message; the keys do not reach the list behind it.
        view.press("\u{1b}");
        view.press("G\r/row 7");
        view.expect_screen("/row 7  Match 1 of 11");
        view.press("7.\r");
        view.expect_screen("Match 1 of 1");
        view.expect_screen("row 77.");
        team.eventually("the match is marked", || view.marked_text() == "row 77.");
        view.press("/9.\r");
        view.expect_screen("Match 8 of 30");
        view.press("n");
        view.expect_screen("Match 9 of 30");
        view.expect_screen("row 89.");
        view.press("NN");
        view.expect_screen("Match 7 of 30");
        view.expect_screen("row 69.");
        view.press("/nowhere\r");
        view.expect_screen("No match");
        view.press("\u{1b}");
        team.eventually("the search is over", || !view.screen().contains("nowhere"));
        assert!(view.screen().contains("▸ Message to lead"), "{}", view.screen());
        view.press("qq");
        assert_eq!(view.wait().code(), Some(0));
    }
    leave(&mut lead);
}

/// Starts a lead that asks before each command, with alice.
fn asking_team(team: &Team) -> Terminal {
    let args = ["lead", "--model", "rehearsal", "--mode", "default"];
    let mut lead = Terminal::start(team.command("team", &args));
    lead.expect("/quit ends the team");
    lead.type_line("Spawn alice (coder).");
    team.wait_status("alice", "idle");
    lead
}

fn asks(team: &Team, command: &str) {
    team.wait_status("alice", "idle");
    team.team(&["send", "alice", &format!("Run {command}")]).expect(0);
    team.wait_status("alice", "waiting");
}

#[test]
fn questions_are_flagged_and_answered_at_three_sizes() {
    let team = Team::new();
    let mut lead = asking_team(&team);
    for (rows, columns) in SIZES {
        let mut view = top(&team, rows, columns);
        view.expect_screen("5 Questions");
        view.expect_screen("2 of 2 alive");
        assert!(!view.screen().contains("waits"), "{}", view.screen());
        asks(&team, &format!("touch yes{columns}"));
        view.expect_screen("1 open question");
        view.expect_screen(" ? alice");
        view.expect_screen("5 Questions (1)");
        // Nothing is answered outside of the question.
        view.press("ya");
        view.press("5\r");
        view.expect_screen("▸ Question of alice");
        // Nor by keys that are no answer.
        view.expect_screen(&format!("  touch yes{columns}"));
        view.expect_screen("y yes  n no  a always");
        view.press("xis\r");
        assert_eq!(team.status("alice"), "waiting");
        view.press("y");
        view.expect_screen("alice: approved");
        wait_file(&team, &format!("yes{columns}"));
        view.expect_screen("team  2 of 2 alive");
        asks(&team, &format!("touch no{columns}"));
        view.expect_screen("1 open question");
        view.press("w");
        view.expect_screen(&format!("  touch no{columns}"));
        view.press("nnot yet, y\r");
        view.expect_screen("alice: rejected");
        view.expect_screen("team  2 of 2 alive");
        team.wait_status("alice", "idle");
        let reason = team.lines("transcript/alice.jsonl").into_iter().rev();
        let reason = reason
            .filter(|line| line["kind"] == "decision")
            .find_map(|line| line["reason"].as_str().map(str::to_owned));
        assert_eq!(reason.as_deref(), Some("not yet, y"));
        assert!(!team.workspace().join(format!("no{columns}")).exists());
        asks(&team, &format!("touch always{columns}"));
        view.expect_screen("1 open question");
        view.press("w");
        view.expect_screen(&format!("  touch always{columns}"));
        view.press("at");
        view.expect_screen("alice: approved");
        wait_file(&team, &format!("always{columns}"));
        team.wait_status("alice", "idle");
        // The same command is not asked about again.
        let turns_before = turns(&team, "alice");
        let again = format!("Run touch always{columns}");
        team.team(&["send", "alice", &again]).expect(0);
        team.eventually("alice is done", || turns(&team, "alice") > turns_before);
        view.press("q");
        assert_eq!(view.wait().code(), Some(0));
    }
    leave(&mut lead);
}

#[test]
fn a_long_question_is_approved_only_after_all_of_it_was_shown() {
    let team = Team::new();
    let mut lead = asking_team(&team);
    for (rows, columns) in SIZES {
        let long = "x".repeat(15_000);
        asks(&team, &format!("echo {long} > long{columns}"));
        let mut view = top(&team, rows, columns);
        view.expect_screen("1 open question");
        view.press("w");
        view.expect_screen("▸ Question of alice");
        view.press("y");
        view.expect_screen("Not yet: ");
        let end = format!("long{columns}");
        view.press("G");
        view.expect_screen(&end);
        view.press("a");
        view.expect_screen("Not yet: ");
        assert_eq!(team.status("alice"), "waiting");
        // Each page is drawn before the next key.
        view.press("g");
        team.eventually("the first page is there", || {
            view.screen().contains(", 1-") && !view.screen().contains(&end)
        });
        let page = usize::from(rows) - 5;
        let mut first = 1;
        while !view.screen().contains(&end) {
            first += page;
            view.press(" ");
            team.eventually("the next page is there", || {
                view.screen().contains(&format!(", {first}-")) || view.screen().contains(&end)
            });
        }
        view.press("y");
        view.expect_screen("alice: approved");
        wait_file(&team, &end);
        view.press("q");
        assert_eq!(view.wait().code(), Some(0));
    }
    leave(&mut lead);
}

#[test]
fn an_answer_to_a_question_that_is_gone_does_nothing() {
    let team = Team::new();
    let mut lead = asking_team(&team);
    for (rows, columns) in SIZES {
        asks(&team, &format!("touch first{columns}"));
        let mut view = top(&team, rows, columns);
        view.expect_screen("1 open question");
        view.press("w");
        view.expect_screen(&format!("  touch first{columns}"));
        team.team(&["deny", "alice"]).expect(0);
        asks(&team, &format!("touch second{columns}"));
        view.expect_screen("Question of alice, no longer open");
        for key in ["y", "a", "n"] {
            view.press(key);
            view.expect_screen("This question is no longer open: nothing was answered");
            // The next key removes the words.
            view.press("k");
            team.eventually("the words are gone", || !view.screen().contains("was answered"));
        }
        assert_eq!(team.status("alice"), "waiting");
        view.expect_screen("1 open question");
        view.press("w");
        view.expect_screen(&format!("  touch second{columns}"));
        view.press("n\r");
        view.expect_screen("alice: rejected");
        for word in ["first", "second"] {
            assert!(!team.workspace().join(format!("{word}{columns}")).exists());
        }
        view.press("q");
        assert_eq!(view.wait().code(), Some(0));
    }
    leave(&mut lead);
}

#[test]
fn it_is_resized_while_it_is_open() {
    let team = Team::new();
    let mut lead = asking_team(&team);
    asks(&team, "touch small");
    let mut view = top(&team, 24, 80);
    view.expect_screen("? keys");
    view.resize(5, 20);
    view.expect_screen("team  1 asked");
    view.expect_screen("▸1Me 2Ms 3Co 4Ta 5Qu");
    view.resize(3, 10);
    view.expect_screen("Needs 20x5");
    view.resize(50, 160);
    view.expect_screen("1 open question");
    view.expect_screen("▸ 1 Members (2)");
    view.resize(5, 20);
    view.expect_screen("▸1Me 2Ms 3Co 4Ta 5Qu");
    view.press("w");
    view.expect_screen("  touch small");
    view.press("\u{1b}?");
    view.expect_screen("In a pane");
    view.press("5\r");
    // The list has the same row as the open question, for which alone an answer counts, once it was drawn.
    team.eventually("it is approved", || {
        view.press("y");
        team.workspace().join("small").exists()
    });
    view.press("q");
    assert_eq!(view.wait().code(), Some(0));
    leave(&mut lead);
}

#[test]
fn a_dead_team_is_shown_and_answers_nothing() {
    let team = Team::new();
    let lead = asking_team(&team);
    asks(&team, "touch late");
    team.eventually("the mail is taken in", || team.open_claims().is_empty());
    signal(team.pid_of("lead"), Signal::SIGSTOP);
    kill_9(&team, "alice");
    kill_9(&team, "lead");
    drop(lead);
    for (rows, columns) in SIZES {
        let mut view = top(&team, rows, columns);
        view.expect_screen("0 of 2 alive");
        // A question of an agent that does not run waits for nobody, and cannot be answered.
        view.press("5");
        view.expect_screen("alice (not running) asks for bash: ");
        assert!(!view.screen().contains("open question"), "{}", view.screen());
        view.press("\r");
        view.expect_screen("  touch late");
        view.press("y");
        view.expect_screen("alice is not running; it asks again when it is");
        view.press("\u{1b}");
        view.expect_screen("alice (not running)");
        view.press("m");
        view.expect_screen("To lead:");
        view.press("\u{1b}");
        view.press("1j\r");
        view.expect_screen("▸ Conversation of alice");
        view.press("qq");
        view.wait();
    }
    assert!(!team.workspace().join("late").exists());
}

#[test]
fn no_message_controls_the_terminal() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let evil = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}live";
    team.team(&["send", "user", evil, "--from", "lead"]).expect(0);
    let mut view = top(&team, 24, 80);
    view.expect_screen("lead → user: ");
    // The footer is drawn last: the whole frame is there.
    for text in ["live", "Messages (1", "q quit"] {
        view.expect_screen(text);
    }
    let screen = view.screen();
    assert!(!screen.contains(['\u{202e}', '\u{9b}']), "{screen}");
    view.press("q");
    assert_eq!(view.wait().code(), Some(0));
}

#[test]
fn the_terminal_is_restored_after_every_exit() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    for (end, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 143), (Signal::SIGINT, 130)] {
        let mut view = top(&team, 24, 80);
        view.expect_screen("No members yet");
        assert!(!view.settings().local_flags.contains(LocalFlags::ICANON));
        signal(i32::try_from(view.child.id()).unwrap(), end);
        assert_eq!(view.wait().code(), Some(code), "{end}");
        let cooked = LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
        assert!(view.settings().local_flags.contains(cooked), "{end}");
        team.eventually("its own screen is left", || !view.is_on_another_screen());
    }
    let mut view = top(&team, 24, 80);
    view.expect_screen("No members yet");
    view.press("\u{3}");
    assert_eq!(view.wait().code(), Some(0));
    let mut view = top(&team, 24, 80);
    view.expect_screen("No members yet");
    view.hang_up();
    assert_eq!(view.wait().code(), Some(143));
}

#[test]
fn no_color_turns_colours_off() {
    let team = Team::new();
    let mut lead = team_of_two(&team);
    leave(&mut lead);
    for (no_color, is_colored) in [("", true), ("1", false)] {
        if !no_color.is_empty() {
            team.variable("NO_COLOR", no_color);
        }
        let mut view = top(&team, 24, 80);
        view.expect_screen("alice → lead [result]");
        assert_eq!(view.has_colors(), is_colored);
        view.press("q");
        assert_eq!(view.wait().code(), Some(0));
    }
}

#[test]
fn top_without_a_terminal_is_refused() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let refused = team.team(&["top"]).expect(2);
    assert!(refused.err.contains("team ls --json"), "{refused:?}");
}

#[test]
fn a_subagent_is_a_branch_below_its_caller() {
    let team = Team::new();
    let lines = [
        calls("lead", &[("run_subagent", json!({ "task": "look around" }))]),
        says("lead", "it has looked"),
        calls("lead:1", &[bash("touch looks; until [ -e go ]; do sleep 0.05; done")]),
        says("lead:1", "all is well"),
    ];
    let mut lead = lead(&team, &script(&team, &lines));
    lead.type_line("begin");
    wait_file(&team, "looks");
    let mut view = top(&team, 24, 80);
    view.expect_screen("└ lead:1 bash");
    view.expect_screen("Members (1)");
    view.press("j\r");
    view.expect_screen("▸ Conversation of lead:1");
    view.expect_screen("look around");
    write(&team.workspace().join("go"), b"");
    view.expect_screen("all is well");
    view.press("q");
    view.expect_screen("1 of 1 alive");
    view.press("q");
    assert!(view.wait().success());
    leave(&mut lead);
}

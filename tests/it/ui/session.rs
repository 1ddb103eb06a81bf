//! The lead's terminal as a person uses it, at three sizes: questions, steering, reading, and what is typed.

use crate::support::approvals::{careful_team, requests};
use crate::support::child_process::write;
use crate::support::harness::{Team, in_parallel};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, says, script, signal, spawn, turns, wait_file,
};
use crate::support::terminal::{SIZES, Size, Terminal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const CTRL_O: &str = "\u{f}";
const CTRL_Z: &str = "\u{1a}";
const ESC: &str = "\u{1b}";
const UP: &str = "\u{1b}[A";

/// Starts a lead on scripted replies in a terminal of this size.
fn session(team: &Team, lines: &[Value], size: Size) -> Terminal {
    let model = script(team, lines);
    let command = team.command("team", &["lead", "--model", &model]);
    let lead = Terminal::of_size(command, size);
    lead.expect("/quit ends the team");
    lead
}

fn quit(team: &Team, mut lead: Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(team);
}

fn exists(team: &Team, file: &str) -> bool {
    team.workspace().join(file).exists()
}

/// The prompts that the lead's model has got.
fn prompts(team: &Team) -> Vec<String> {
    let lines = team.lines("transcript/lead.jsonl");
    let prompts = lines.iter().filter(|line| line["kind"] == "user");
    prompts.map(|line| line["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_half_typed_answer_is_for_its_question_alone() {
    in_parallel(SIZES, |size| {
        let team = careful_team();
        let lines = [
            calls("lead", &[spawn("alice"), spawn("bob")]),
            says("lead", "both are at work"),
            calls("alice", &[bash("touch alice.txt")]),
            calls("bob", &[bash("touch bob.txt")]),
        ];
        let mut lead = session(&team, &lines, size);
        lead.type_line("begin");
        lead.expect_screen("(1 of 2)");
        lead.press("y");
        lead.expect_screen("answer> y");
        // Somebody else answers the question in front.
        let front =
            if lead.screen().contains("? alice asks to run: touch") { "alice" } else { "bob" };
        let other = if front == "alice" { "bob" } else { "alice" };
        let asked = requests(&team).into_iter().find(|it| it["from"] == front).unwrap();
        team.team(&["deny", asked["request_id"].as_str().unwrap()]).expect(0);
        lead.expect_screen(&format!("? {other} asks to run: touch {other}.txt"));
        lead.press("\r");
        lead.type_line("/mode");
        lead.expect("mode default: commands");
        assert!(requests(&team).iter().any(|it| it["from"] == other), "{}", team.describe());
        // An approval by the first Enter may not have arrived yet, but then this answer is none.
        lead.type_line("n not this one");
        team.eventually("the other was denied", || {
            let decided = team.lines(&format!("transcript/{other}.jsonl"));
            decided.iter().any(|line| line["reason"] == "not this one")
        });
        assert!(!exists(&team, "alice.txt") && !exists(&team, "bob.txt"));
        quit(&team, lead);
    });
}

#[test]
fn every_form_of_yes_is_an_answer_and_nothing_else_reaches_the_model() {
    in_parallel(SIZES, |size| {
        let team = careful_team();
        let commands: Vec<_> = (0..5).map(|n| bash(&format!("touch {n}.txt"))).collect();
        let lines = [calls("lead", &commands), says("lead", "all done")];
        let mut lead = session(&team, &lines, size);
        lead.type_line("begin");
        for (number, yes) in ["YES", "Yes", "ok", "y please"].iter().enumerate() {
            lead.expect_screen(&format!("? lead asks to run: touch {number}.txt"));
            lead.type_line("do it differently");
            lead.expect("not an answer, nothing was decided");
            lead.expect_screen(&format!("? lead asks to run: touch {number}.txt"));
            lead.type_line(yes);
            team.eventually("it ran", || exists(&team, &format!("{number}.txt")));
        }
        lead.expect_screen("? lead asks to run: touch 4.txt");
        lead.press(ESC);
        lead.expect_screen("1 question waiting");
        lead.type_line("/requests");
        lead.expect("  5  lead asks to run: touch 4.txt");
        lead.type_line("/approve 4");
        lead.expect("no question has the number 4");
        lead.type_line("/approve 5");
        lead.expect("all done");
        assert!(exists(&team, "4.txt"));
        assert_eq!(prompts(&team), ["begin"]);
        quit(&team, lead);
    });
}

#[test]
fn a_question_that_is_put_off_comes_back_and_can_be_denied_by_number() {
    in_parallel(SIZES, |size| {
        let team = careful_team();
        let lines = [calls("lead", &[bash("touch a.txt")]), says("lead", "all done")];
        let mut lead = session(&team, &lines, size);
        lead.type_line("begin");
        // Each row is printed after the input has changed, and stays.
        let waits_for = |lead: &Terminal, start: &str, times: usize| {
            team.eventually(start, || {
                lead.screen().lines().filter(|row| row.starts_with(start)).count() == times
            });
        };
        lead.expect_screen("answer>");
        lead.press(ESC);
        waits_for(&lead, "postponed: Enter shows it again", 1);
        lead.press("\r");
        waits_for(&lead, "    touch a.txt", 2);
        lead.expect_screen("answer>");
        lead.press(ESC);
        waits_for(&lead, "postponed: Enter shows it again", 2);
        lead.type_line("/deny 1 not today");
        lead.expect("all done");
        assert!(!exists(&team, "a.txt"));
        let denied = team.lines("transcript/lead.jsonl");
        assert!(denied.iter().any(|it| it["reason"] == "not today"), "{}", team.describe());
        quit(&team, lead);
    });
}

#[test]
fn an_answer_for_always_says_for_whom_and_is_taken_back() {
    in_parallel(SIZES, |size| {
        let team = careful_team();
        let touch = || bash("echo x >> log.txt");
        let lines = [
            calls("lead", &[touch(), touch()]),
            says("lead", "twice"),
            calls("lead", &[touch()]),
            says("lead", "thrice"),
        ];
        let mut lead = session(&team, &lines, size);
        lead.type_line("begin");
        lead.expect_screen("always [agent|session|team|good]");
        lead.type_line("always session");
        lead.expect("from now on without a question: all agents, until the lead ends");
        lead.expect("twice");
        lead.type_line("/permissions");
        lead.expect("bash(echo x >> log.txt)");
        lead.type_line("/permissions revoke 7");
        lead.expect("no answer has made a rule 7");
        lead.type_line("/permissions revoke 1");
        lead.expect("bash(echo x >> log.txt) asks again");
        lead.type_line("again");
        lead.expect_screen("? lead asks to run: echo x >> log.txt");
        lead.type_line("n");
        lead.expect("thrice");
        assert_eq!(fs::read_to_string(team.workspace().join("log.txt")).unwrap(), "x\nx\n");
        quit(&team, lead);
    });
}

#[test]
fn a_running_command_shows_its_time_and_output_and_what_is_queued() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let wait = "n=0; until [ -e go ]; do n=$((n+1)); echo step $n; sleep 0.2; done";
        let lines =
            [calls("lead", &[bash(wait)]), says("lead", "all done"), says("lead", "more done")];
        let mut lead = session(&team, &lines, size);
        lead.type_line("begin");
        lead.expect_screen("lead  bash n=0; until");
        lead.expect_screen("  └ step 3");
        team.eventually("the elapsed time", || {
            let screen = lead.screen();
            let row = screen.lines().find(|row| row.contains("lead  bash")).unwrap_or_default();
            row.contains("  1s") || row.contains("  2s") || row.contains("  3s")
        });
        lead.type_line("and then this");
        lead.expect_screen("queued: and then this");
        fs::File::create(team.workspace().join("go")).unwrap();
        lead.expect("all done");
        team.eventually("it is no longer queued", || !lead.screen().contains("queued:"));
        lead.expect_screen("   ✓ ");
        assert_eq!(prompts(&team), ["begin", "and then this"]);
        quit(&team, lead);
    });
}

#[test]
fn leaving_while_somebody_works_asks_first_and_says_who_is_awaited() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let lines = [
            calls("lead", &[spawn("alice")]),
            says("lead", "alice is at work"),
            calls("alice", &[bash("touch alice.here; until [ -e go ]; do sleep 0.1; done")]),
            says("alice", "done"),
        ];
        let mut lead = session(&team, &lines, size);
        lead.type_line("begin");
        wait_file(&team, "alice.here");
        lead.expect_screen("alice  bash");
        lead.press(CTRL_D);
        lead.expect_screen("alice is at work; Ctrl-D again stops the team");
        assert_eq!(team.status("alice"), "working");
        // Under load the second press may come too late to confirm the first.
        team.eventually("the end waits for alice", || {
            lead.press(CTRL_D);
            lead.screen().contains("waiting for alice")
        });
        fs::File::create(team.workspace().join("go")).unwrap();
        assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
        assert!(!lead.screen().contains("team>\n"), "{}", lead.screen());
        assert_left_in_order(&team);
    });
}

#[test]
fn a_suspended_lead_goes_on_with_its_line() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let shell = team.shell("exec bash --norc --noprofile -i");
        let mut terminal = Terminal::of_size(shell, size);
        terminal.type_line("PS1='shell$ '; team lead --model rehearsal");
        terminal.expect("/quit ends the team");
        terminal.press("half a li");
        terminal.expect_screen("team> half a li");
        terminal.press(CTRL_Z);
        terminal.expect_screen("Stopped");
        terminal.expect_screen("shell$");
        assert!(!terminal.screen().contains("team> half"), "{}", terminal.screen());
        terminal.type_line("fg");
        terminal.expect_screen("team> half a li");
        team.eventually("a paste is one line again", || terminal.has_paste_brackets());
        terminal.press("ne");
        terminal.expect_screen("team> half a line");
        // The signal means the same as the key.
        signal(team.pid_of("lead"), Signal::SIGTSTP);
        team.eventually("it is suspended again", || {
            terminal.screen().trim_end().ends_with("shell$")
        });
        terminal.type_line("fg");
        terminal.expect_screen("team> half a line");
        terminal.press(CTRL_C);
        terminal.type_line("/quit");
        team.eventually("the shell is back", || {
            team.status("lead") == "shutdown" && terminal.screen().trim_end().ends_with("shell$")
        });
        terminal.type_line("exit");
        terminal.wait();
        assert_left_in_order(&team);
    });
}

#[test]
fn one_event_is_told_once() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let lines = [
            calls("lead", &[spawn("alice")]),
            says("lead", "alice is at work"),
            // Her report comes after the lead's first turn, and so begins another.
            calls("alice", &[bash("until [ -e go ]; do sleep 0.1; done")]),
            says("alice", "a report of alice\n\nwith details"),
            says("lead", "understood"),
            calls("lead", &[bash("touch lead.here; sleep 1000")]),
        ];
        let mut lead = session(&team, &lines, size);
        lead.type_line("begin");
        team.eventually("the lead's first turn is over", || turns(&team, "lead") == 1);
        fs::File::create(team.workspace().join("go")).unwrap();
        lead.expect("understood");
        let screen = lead.screen();
        assert_eq!(screen.matches("a report of alice").count(), 1, "{screen}");
        assert!(screen.contains("✉ alice: a report of alice  … 1 more (Ctrl-O)"), "{screen}");
        assert!(!screen.contains("a turn begins") && !screen.contains("│ alice"), "{screen}");
        // A key opens the folded rest.
        team.wait_status("lead", "idle");
        lead.press(CTRL_O);
        lead.expect_screen("  with details");
        lead.type_line("go on");
        wait_file(&team, "lead.here");
        lead.press(ESC);
        lead.expect_screen("(interrupted)");
        team.wait_status("lead", "idle");
        let screen = lead.screen();
        assert_eq!(screen.matches("nterrupted").count(), 1, "{screen}");
        quit(&team, lead);
    });
}

#[test]
fn text_and_calls_and_changes_are_readable() {
    in_parallel(SIZES, |size| {
        let team = careful_team();
        fs::File::create(team.workspace().join("a.txt")).unwrap();
        let text = "# Heading\n\nSome **bold** words, with `code`.\n\n| who | what |\n|---|---|\n| alice | \
                    edits |\n\n```rust\nfn main() {}\n```\n\n";
        let long = (100..180).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
        let write = ("write_file", json!({"path": "a.txt", "content": "one\ntwo\n"}));
        let lines = [
            says("lead", &format!("{text}{long}")),
            calls("lead", &[("read_file", json!({"path": "a.txt"})), write]),
            says("lead", "all done"),
        ];
        let mut lead = session(&team, &lines, size);
        lead.type_line("begin");
        lead.expect("word179");
        team.wait_status("lead", "idle");
        let printed = lead.printed();
        for raw in ["```", "**", "# Heading", "|---|", "{\""] {
            assert!(!printed.contains(raw), "{raw}: {printed}");
        }
        lead.expect_screen("fn main() {}");
        let is_whole = |word: &str| word.len() == 7 && word.starts_with("word1");
        // A look in the midst of a redraw may see a part of a row.
        team.eventually("no word is broken", || {
            let screen = lead.screen();
            let rows: Vec<&str> = screen.lines().filter(|row| row.contains("word1")).collect();
            !rows.is_empty() && rows.iter().all(|row| row.split_whitespace().all(is_whole))
        });
        let typed = (100..125).map(|n| format!("typed{n}")).collect::<Vec<_>>().join(" ");
        lead.type_line(&typed);
        lead.expect_screen("⏺ read_file  a.txt");
        lead.expect_screen("? lead asks to use write_file: a.txt");
        let screen = lead.screen();
        let rows: Vec<&str> = screen.lines().filter(|row| row.contains("typed")).collect();
        let words = rows.iter().flat_map(|row| row.split_whitespace()).filter(|it| *it != "team>");
        assert_eq!(words.collect::<Vec<_>>().join(" "), typed, "{screen}");
        lead.expect_screen("+ one");
        assert!(lead.has_colors());
        lead.type_line("y");
        lead.expect("all done");
        lead.type_line("/mode bypass");
        lead.expect_screen("mode bypass: tools run without asking");
        team.eventually("the status shows it", || {
            lead.screen().lines().last().is_some_and(|row| row.starts_with("bypass"))
        });
        quit(&team, lead);
    });
}

#[test]
fn a_mistyped_command_is_explained_and_words_of_farewell_leave() {
    in_parallel(SIZES, |size| {
        for farewell in ["quit", "Exit"] {
            let team = Team::new();
            let mut lead = session(&team, &[says("lead", "never")], size);
            for (typed, said) in [
                ("/tasks x", "/tasks takes no arguments"),
                ("/hel", "/hel is not a command; did you mean /help?"),
                ("/sotp alice", "did you mean /stop?"),
                ("/stop zoe", "there is no teammate zoe"),
                ("/mode fast", "\"fast\" is not a mode"),
                ("@zoe hello", "nothing was sent"),
            ] {
                lead.type_line(typed);
                lead.expect(said);
            }
            lead.type_line(farewell);
            assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
            assert_eq!(prompts(&team), Vec::<String>::new());
            assert_left_in_order(&team);
        }
    });
}

#[test]
fn lines_are_kept_between_sessions_and_words_are_completed() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        fs::File::create(team.workspace().join("notes.txt")).unwrap();
        let lines =
            [calls("lead", &[spawn("alice")]), says("lead", "here"), says("alice", "ready")];
        let mut lead = session(&team, &lines, size);
        lead.type_line("remember this line");
        team.wait_status("alice", "idle");
        lead.expect_screen("○ alice");
        for (typed, completed) in [
            ("/mo\t", "team> /mode"),
            ("/mode by\t", "team> /mode bypass"),
            ("/stop a\t", "team> /stop alice"),
            ("look at @note\t", "team> look at @notes.txt"),
            ("tell @al\t", "team> tell @alice"),
        ] {
            lead.press(typed);
            lead.expect_screen(completed);
            lead.press(CTRL_C);
            team.eventually("the line is cleared", || !lead.screen().contains(completed));
        }
        lead.press("/int");
        lead.expect_screen("end a teammate's turn, not the teammate");
        lead.press(CTRL_C);
        lead.type_line("/quit");
        assert_eq!(lead.wait().code(), Some(0));
        let model = script(&team, &lines);
        let again = team.command("team", &["lead", "--new", "--model", &model]);
        let mut lead = Terminal::of_size(again, size);
        lead.expect("/quit ends the team");
        lead.press(UP);
        lead.expect_screen("team> /quit");
        lead.press(UP);
        lead.expect_screen("team> remember this line");
        lead.press(CTRL_C);
        lead.press("\u{12}reme");
        lead.expect_screen("(search) reme: remember this line");
        lead.press(ESC);
        team.eventually("the search is closed", || !lead.screen().contains("(search)"));
        quit(&team, lead);
    });
}

#[test]
fn the_persons_own_command_is_told_to_the_lead_with_the_next_prompt() {
    let team = Team::new();
    let mut lead = session(&team, &[says("lead", "I see")], SIZES[1]);
    lead.type_line("!echo from the shell; touch own.txt");
    lead.expect("(the lead sees this with your next prompt)");
    lead.expect_screen("from the shell");
    assert!(exists(&team, "own.txt"));
    lead.type_line("!touch still.here; sleep 1000");
    wait_file(&team, "still.here");
    lead.press(CTRL_C);
    lead.expect("killed");
    team.eventually("its processes are gone", || {
        !team.processes().iter().any(|(_, line)| line.contains("sleep 1000"))
    });
    lead.type_line("what do you think?");
    lead.expect("I see");
    let [prompt] = &prompts(&team)[..] else { panic!("{}", team.describe()) };
    assert!(
        prompt.contains("from the shell") && prompt.ends_with("what do you think?"),
        "{prompt}"
    );
    quit(&team, lead);
}

#[test]
fn changes_are_shown_and_taken_back_and_a_turn_is_interrupted() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let change = ("write_file", json!({"path": "a.txt", "content": "new\n"}));
        let lines = [
            calls("lead", &[spawn("alice")]),
            says("lead", "alice is at work"),
            calls("alice", &[("read_file", json!({"path": "a.txt"})), change]),
            calls("alice", &[bash("touch alice.here; sleep 1000")]),
            says("alice", "I go on"),
        ];
        write(&team.workspace().join("a.txt"), "old\n");
        let mut lead = session(&team, &lines, size);
        lead.type_line("begin");
        wait_file(&team, "alice.here");
        lead.type_line("/interrupt alice");
        lead.expect("alice was interrupted");
        team.wait_status("alice", "idle");
        lead.type_line("/diff");
        lead.expect("1 + new");
        lead.type_line("/undo alice");
        lead.expect_screen("? undo asks to take back 1 file of alice");
        lead.type_line("n");
        lead.expect("nothing was taken back");
        // A frame that is drawn in pieces has no input for a moment, so the empty prompt counts.
        team.eventually("the input is free", || {
            lead.screen().trim_end().lines().rev().nth(1).is_some_and(|row| row.trim() == "team>")
        });
        lead.type_line("/undo alice");
        lead.expect_screen("? undo asks to take back 1 file of alice");
        lead.type_line("y");
        lead.expect("1 file is as before");
        assert_eq!(fs::read_to_string(team.workspace().join("a.txt")).unwrap(), "old\n");
        quit(&team, lead);
    });
}

#[test]
fn another_model_and_another_conversation_go_on_in_the_same_terminal() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let lines = [says("lead", "first answer"), says("lead", "second answer")];
        let mut lead = session(&team, &lines, size);
        lead.type_line("/model no-such-model");
        lead.expect("is not a model that this version can use");
        lead.type_line("begin");
        lead.expect("first answer");
        team.wait_status("lead", "idle");
        let printed = lead.printed().matches("/quit ends the team").count();
        let again = |lead: &Terminal, times: usize| {
            lead.printed().matches("/quit ends the team").count() == printed + times
        };
        lead.type_line("/model rehearsal");
        lead.expect_screen("model rehearsal from the next model call on");
        assert_eq!(team.roster()["lead"]["model"], "rehearsal");
        assert_eq!(prompts(&team), ["begin"], "the conversation goes on");
        lead.type_line("/clear");
        team.eventually("a new session", || again(&lead, 1));
        let listed = team.team(&["sessions", "--json"]).expect(0).json();
        let id = listed["sessions"][0]["id"].as_str().unwrap().to_owned();
        lead.type_line("/resume");
        lead.expect_screen("/resume ID resumes one of them");
        let screen = lead.screen();
        let row = screen.lines().find(|row| row.contains(&id)).unwrap();
        assert!(row.ends_with("  begin"), "{screen}");
        lead.type_line("/resume zzz");
        lead.expect_screen("there is no session \"zzz\"");
        lead.type_line(&format!("/resume {id}"));
        team.eventually("the old session", || again(&lead, 2));
        lead.expect_screen("team>");
        assert_eq!(prompts(&team), ["begin"]);
        quit(&team, lead);
    });
}

#[test]
fn plain_lines_have_no_escape_sequence() {
    let team = careful_team();
    let model = script(&team, &[calls("lead", &[bash("touch a.txt")]), says("lead", "# All done")]);
    for (argument, term) in [(Some("--plain"), "xterm"), (None, "dumb")] {
        team.variable("TERM", term);
        let words = ["lead", "--model", &model].into_iter().chain(argument).collect::<Vec<_>>();
        let mut lead = Terminal::start(team.command("team", &words));
        lead.expect("/quit ends the team");
        lead.type_line("begin");
        lead.expect("y yes · n no");
        lead.type_line("what is this?");
        lead.expect("not an answer, nothing was decided");
        lead.type_line("y");
        lead.expect("All done");
        lead.type_line("/quit");
        assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
        assert!(!lead.has_colors() || argument.is_some(), "{}", lead.screen());
        assert!(!lead.printed().contains("team>"), "{}", lead.printed());
        fs::remove_file(team.workspace().join("a.txt")).unwrap();
        fs::remove_dir_all(team.path("")).unwrap();
    }
}

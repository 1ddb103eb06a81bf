//! `team top` in a pseudo-terminal: its content at several sizes, its keys, and that it changes nothing.

use crate::support::harness::Team;
use crate::support::scripts::{calls, lead, says, script, signal, spawn, stop_process};
use crate::support::terminal::Terminal;
use nix::sys::signal::Signal;
use nix::sys::termios::LocalFlags;

/// Starts the view in a terminal of this size.
fn top(team: &Team, rows: u16, columns: u16) -> Terminal {
    Terminal::of_size(team.command("team", &["top"]), rows, columns)
}

/// Starts a lead with alice, and waits until alice is idle after her first turn.
fn team_of_two(team: &Team) -> Terminal {
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "she is there"),
        says("alice", "I have begun."),
        says("lead", "thank you"),
        says("alice", "heard you"),
        says("lead", "fine"),
    ];
    let mut lead = lead(team, &script(team, &lines));
    lead.type_line("begin");
    team.eventually("alice has reported", || team.has_mail("lead", "alice", "I have begun."));
    team.wait_status("alice", "idle");
    team.wait_status("lead", "idle");
    lead
}

fn leave(lead: &mut Terminal) {
    lead.type_line("/quit");
    assert!(lead.wait().success());
}

#[test]
fn a_team_is_seen_at_three_sizes_and_steered() {
    let team = Team::new();
    let mut lead = team_of_two(&team);
    let mut view = top(&team, 24, 80);
    view.expect_screen("2 of 2 alive");
    view.expect_screen("alice → lead [result]: I have begun.");
    view.expect_screen("q quit");

    // The keys that the footer names.
    view.press("j\r");
    view.expect_screen("▸ 3 conversation of alice");
    view.expect_screen("lead -> alice");
    view.press("?");
    view.expect_screen("stop the selected teammate");
    view.press(" \u{1b}");
    view.expect_screen("▸ 1 members");
    view.press("mhello from the view\r");
    view.expect_screen("sent to alice");
    team.eventually("alice has the message", || {
        team.has_mail("alice", "user", "hello from the view")
    });
    view.press("2");
    view.expect_screen("user → alice: hello from the view");
    view.press("/begun\r");
    view.expect_screen("only: begun");
    view.press("\u{1b}");

    view.resize(30, 130);
    view.expect_screen("▸ 2 messages");
    view.expect_screen("conversation of alice");
    view.expect_screen("nothing waits for an answer");
    view.resize(10, 40);
    view.expect_screen("› alice");
    view.resize(5, 30);
    view.expect_screen("too small: 30x5");
    view.resize(24, 80);
    view.expect_screen("▸ 2 messages");

    team.wait_status("alice", "idle");
    team.wait_status("lead", "idle");
    view.press("sn");
    // A stopped alice does not end before the view shows that she is asked to.
    stop_process(&team, "alice");
    view.press("sy");
    view.expect_screen("stopping alice");
    signal(team.pid_of("alice"), Signal::SIGCONT);
    team.wait_status("alice", "shutdown");
    view.expect_screen("· shutdown");
    view.press("q");
    assert_eq!(view.wait().code(), Some(0));
    leave(&mut lead);
}

#[test]
fn requests_are_answered_inside_top() {
    let team = Team::new();
    let args = ["lead", "--model", "rehearsal", "--mode", "default"];
    let mut lead = Terminal::start(team.command("team", &args));
    lead.expect("/quit ends the team");
    lead.type_line("Spawn alice (coder).");
    team.wait_status("alice", "idle");
    let mut view = top(&team, 24, 80);
    for (key, verb, outcome) in [("a", "approve", "approved"), ("d", "deny", "rejected")] {
        team.team(&["send", "alice", &format!("Run touch {verb}")]).expect(0);
        team.wait_status("alice", "waiting");
        view.press("5");
        view.expect_screen(&format!("asks for bash: touch {verb}"));
        view.press(key);
        view.expect_screen(&format!("{verb} alice bash: touch {verb}"));
        view.press("y");
        view.expect_screen(outcome);
        team.wait_status("alice", "idle");
    }
    assert!(team.workspace().join("approve").exists());
    assert!(!team.workspace().join("deny").exists());
    view.press("q");
    assert_eq!(view.wait().code(), Some(0));
    leave(&mut lead);
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
    for text in ["live", "messages (1)", "q quit"] {
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
        view.expect_screen("no members yet");
        assert!(!view.settings().local_flags.contains(LocalFlags::ICANON));
        signal(i32::try_from(view.child.id()).unwrap(), end);
        assert_eq!(view.wait().code(), Some(code), "{end}");
        let cooked = LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
        assert!(view.settings().local_flags.contains(cooked), "{end}");
        team.eventually("its own screen is left", || !view.is_on_another_screen());
    }
    let mut view = top(&team, 24, 80);
    view.expect_screen("no members yet");
    view.press("\u{3}");
    assert_eq!(view.wait().code(), Some(0));
    let mut view = top(&team, 24, 80);
    view.expect_screen("no members yet");
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

//! The ways to end an interactive lead. Each stops the team, restores the terminal, and has its own exit code.

use crate::support::harness::{ASK_DEADLINE, Team, in_parallel};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, last_exit, lead, says, script, scripted_lead, signal, spawn,
    tool_results, turns, wait_file,
};
use crate::support::terminal::{SIZES, Size, Terminal};
use agent_team::wire::limits;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";

/// Ends a lead with one idle teammate, and asserts the exit code and that the terminal is restored, in terminals of all
/// sizes.
fn leave(way: impl Fn(&mut Terminal) + Sync, code: i32) {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        leave_at(&team, size, &way, code);
        assert_eq!(team.status("lead"), "shutdown");
        assert_eq!(team.status("alice"), "shutdown");
        assert_eq!(last_exit(&team, "alice"), ("team_stopped".into(), Some(0), None));
    });
}

fn leave_at(team: &Team, size: Size, way: impl FnOnce(&mut Terminal), code: i32) {
    let model = script(team, &[calls("lead", &[spawn("alice")]), says("alice", "ready")]);
    let mut lead = Terminal::of_size(team.command("team", &["lead", "--model", &model]), size);
    let before = lead.settings_before.clone();
    lead.expect("/quit ends the team");
    team.eventually("keys come one by one while a line is typed", || lead.settings() != before);
    lead.type_line("begin");
    team.eventually("her report is in", || team.has_mail("lead", "alice", "ready"));
    team.wait_status("alice", "idle");
    team.wait_status("lead", "idle");
    way(&mut lead);
    assert_eq!(lead.wait().code(), Some(code), "{}", lead.screen());
    if lead.settings_if_open().is_some() {
        lead.assert_restored();
        assert!(
            !lead.screen().trim_end().ends_with("team>"),
            "the pane is left: {}",
            lead.screen()
        );
    }
    assert_left_in_order(team);
}

fn send(to: Signal) -> impl Fn(&mut Terminal) {
    move |lead| signal(i32::try_from(lead.child.id()).unwrap(), to)
}

#[test]
fn quit_leaves_in_order() {
    leave(|lead| lead.type_line("/quit"), 0);
}

#[test]
fn ctrl_d_leaves_in_order() {
    // The first may come while the lead hears the report, and then only asks.
    leave(|lead| lead.press(&CTRL_D.repeat(2)), 0);
}

#[test]
fn sigterm_leaves_with_143() {
    leave(send(Signal::SIGTERM), 143);
}

#[test]
fn sighup_leaves_with_143() {
    leave(send(Signal::SIGHUP), 143);
}

#[test]
fn a_closed_terminal_leaves_with_143() {
    leave(Terminal::hang_up, 143);
}

#[test]
fn a_storm_of_signals_is_one_signal() {
    leave(
        |lead| {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(lead.child.id()).unwrap());
            for _ in 0..1000 {
                nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
            }
        },
        143,
    );
}

/// A headless lead that takes the team over ends the interactive one, which gives its terminal back.
#[test]
fn a_takeover_leaves_with_143() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let take_over = |_: &mut Terminal| {
            let args = ["lead", "--takeover", "-p", "Run echo mine", "--model", "rehearsal"];
            team.team(&args).expect(0);
        };
        leave_at(&team, size, take_over, 143);
        assert_eq!(team.status("lead"), "shutdown");
    });
}

/// Ctrl-C clears typed text; without text, an idle lead prints how to quit. The key and the signal have the same
/// effect.
#[test]
fn ctrl_c_at_an_idle_lead_ends_nothing() {
    let team = Team::new();
    let mut lead = lead(&team, "rehearsal");
    lead.press("some half-typed words");
    lead.expect("half-typed words");
    lead.press(CTRL_C);
    lead.type_line("/mode");
    lead.expect("mode bypass: tools run without asking");
    assert!(!lead.printed().contains("to quit:"), "the first only cleared the line");
    lead.press(CTRL_C);
    lead.expect("to quit: /quit");
    // The next key removes the hint.
    lead.press(" ");
    team.eventually("the hint is gone", || !lead.screen().contains("to quit:"));
    lead.press("\u{7f}");
    let times = lead.printed().matches("to quit: /quit").count();
    signal(team.pid_of("lead"), Signal::SIGINT);
    team.eventually("the signal means the same", || {
        lead.printed().matches("to quit: /quit").count() > times
    });
    lead.press(CTRL_C);
    lead.press(CTRL_C);
    assert_eq!(team.status("lead"), "idle");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn ctrl_c_interrupts_a_turn_and_the_team_stays() {
    let team = Team::new();
    let mut lead = scripted_lead(
        &team,
        &[
            calls(
                "lead",
                &[spawn("alice"), bash("setsid sleep 1000 & touch lead.here; sleep 1000")],
            ),
            says("alice", "ready"),
            says("lead", "another turn"),
            calls("lead", &[bash("touch lead.again; sleep 1000")]),
            says("lead", "over"),
        ],
    );
    wait_file(&team, "lead.here");
    team.eventually("alice is ready", || {
        turns(&team, "alice") == 1 && team.status("alice") == "idle"
    });
    let alice = team.pid_of("alice");
    lead.press(&CTRL_C.repeat(2));
    lead.expect("Ctrl-C once more stops the team");
    team.eventually("the command is gone", || {
        !team.processes().iter().any(|(_, line)| line.contains("sleep"))
    });
    team.eventually("the call is answered", || {
        tool_results(&team, "lead")
            .iter()
            .any(|(tool, text, error)| tool == "bash" && *error && text.contains("interrupted"))
    });
    team.eventually("the report is taken in", || team.has_mail("lead", "alice", "ready"));
    assert_eq!((team.status("alice"), team.pid_of("alice")), ("idle".into(), alice));
    // After two seconds, the next Ctrl-C counts as the first one again.
    let pressed = Instant::now();
    team.eventually("two seconds have passed", || pressed.elapsed() > Duration::from_secs(2));
    // The report may have begun another turn.
    team.wait_status("lead", "idle");
    lead.press(CTRL_C);
    lead.expect("to quit: /quit");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// The first press interrupts the turn, the second only warns, the third stops the team politely, the fourth sends
/// SIGTERM. A fifth one does not change the outcome.
#[test]
fn each_further_ctrl_c_takes_the_next_rung() {
    let team = Team::new();
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("bob"), spawn("carol"), bash("touch lead.here; sleep 1000")]),
            calls("bob", &[bash("setsid sleep 1000 & touch bob.here; sleep 1000")]),
            calls("carol", &[bash("setsid sleep 1000 & touch carol.here; sleep 1000")]),
        ],
    );
    for file in ["lead.here", "bob.here", "carol.here"] {
        wait_file(&team, file);
    }
    let before = Instant::now();
    // Each press must follow within two seconds.
    lead.press(&CTRL_C.repeat(3));
    lead.expect("Stopping the team, waiting for");
    team.wait_status("bob", "stopping");
    team.wait_status("carol", "stopping");
    assert_eq!(lead.child.try_wait().unwrap(), None, "members at work have time");
    let terminated = Instant::now();
    lead.press(CTRL_C);
    // Until the lead knows of its end, a fifth press sends SIGKILL: bob may have left the process list before that.
    team.eventually("the lead knows that bob has ended", || {
        team.log("lead").lines().any(|line| line.contains("member stopped") && line.contains("bob"))
    });
    let is_late = terminated.elapsed() >= limits::STOP_NOW_TERMINATE;
    lead.press(CTRL_C);
    assert_eq!(lead.wait().code(), Some(130), "{}", lead.screen());
    lead.assert_restored();
    assert!(before.elapsed() < ASK_DEADLINE, "{:?}", before.elapsed());
    if !is_late {
        // Under load, bob may exit only after the deadline of this rung.
        lead.expect("bob ended on SIGTERM");
    }
    for name in ["bob", "carol"] {
        assert_eq!(team.status(name), "shutdown", "{name}");
        assert_eq!(last_exit(&team, name).0, "team_stopped", "{name}");
    }
    assert_left_in_order(&team);
}

#[test]
fn the_end_of_a_team_waits_for_those_that_the_lead_has_started_and_names_no_other_one() {
    let team = Team::new();
    let mut lead = scripted_lead(
        &team,
        &[calls("lead", &[spawn("bob")]), calls("bob", &[bash("touch bob.here; sleep 1000")])],
    );
    wait_file(&team, "bob.here");
    let mut carol = team.start(&["teammate", "carol", "--model", "rehearsal"]);
    team.wait_status("carol", "idle");
    lead.press(&CTRL_D.repeat(2));
    lead.expect("Stopping the team, waiting for bob … (Ctrl-C: now)");
    assert!(!lead.screen().contains("carol …"), "{}", lead.screen());
    team.wait_status("bob", "stopping");
    lead.press(CTRL_C);
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_eq!(carol.try_wait().unwrap(), None, "it has no lead, and stays");
    team.team(&["stop", "carol"]).expect(0);
    carol.wait().unwrap();
    assert_left_in_order(&team);
}

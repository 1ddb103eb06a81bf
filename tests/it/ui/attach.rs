//! `team attach` in a real terminal, shell completions and manual pages.

use crate::support::approvals::{careful_team, wait_asked};
use crate::support::child_process::write;
use crate::support::harness::{SYSTEM_PATH, Team, in_parallel};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, says, scripted_lead_of_size, spawn, wait,
};
use crate::support::skips::skipped;
use crate::support::terminal::{SIZES, Terminal};
use std::path::Path;
use std::process::Child;

const CTRL_D: &str = "\u{4}";

fn bob(team: &Team) -> Child {
    let bob = team.start(&[
        "teammate",
        "bob",
        "--model",
        "rehearsal",
        "--prompt",
        "Run echo first-light",
    ]);
    team.wait_status("bob", "idle");
    bob
}

fn attach(team: &Team) -> Terminal {
    let window = Terminal::start(team.command("team", &["attach", "bob"]));
    window.expect("bob is running");
    window.expect("first-light");
    window
}

#[test]
fn typed_text_is_sent_replies_are_shown_and_leaving_has_no_effect() {
    let team = Team::new();
    let mut bob = bob(&team);
    let pid = team.pid_of("bob");
    let mut window = attach(&team);
    window.type_line("Run echo second-light");
    team.eventually("bob has the line", || team.has_mail("bob", "user", "second-light"));
    window.expect("second-light");
    team.wait_status("bob", "idle");
    window.press(CTRL_D);
    assert_eq!(window.wait().code(), Some(0));
    window.expect("bob is not affected");
    let mut window = attach(&team);
    window.press("\u{3}");
    assert_eq!(window.wait().code(), Some(0));
    team.wait_status("bob", "idle");
    assert_eq!(team.pid_of("bob"), pid);

    let mut window = attach(&team);
    team.team(&["stop", "bob"]).expect(0);
    wait(&team, &mut bob);
    window.expect("bob has ended");
    window.type_line("are you there?");
    window.expect("error: ");
    window.hang_up();
    window.wait();
    assert_eq!(std::fs::read_to_string(team.path("inbox/bob.jsonl")).unwrap(), "");
}

/// Answers, modes and requests to end are told as a person would say them.
#[test]
fn control_mail_is_shown_in_words() {
    in_parallel(SIZES, |size| {
        let team = careful_team();
        let lines = [
            calls("lead", &[spawn("alice")]),
            says("lead", "alice is at work"),
            calls("alice", &[bash("touch a.txt")]),
            says("alice", "ready"),
            says("lead", "understood"),
        ];
        let mut lead = scripted_lead_of_size(&team, &lines, size);
        wait_asked(&team, "alice");
        let mut window = Terminal::of_size(team.command("team", &["attach", "alice"]), size);
        window.expect_screen("alice is running");
        window.expect_screen("? asks (permission): touch a.txt");
        lead.expect_screen("answer>");
        lead.type_line("always session");
        // The words are in the row of the kind, or below it where they do not fit.
        let shows = |kind: &str, words: &str| {
            window.expect_screen(&format!("lead -> alice [{kind}]"));
            window.expect_screen(words);
        };
        shows("permission_response", "allowed for this session");
        shows("permission_update", "new permission rules: allow bash(touch a.txt)");
        team.wait_status("alice", "idle");
        lead.expect_screen("team>");
        lead.type_line("/mode accept_edits");
        shows("mode_set_request", "continue in mode accept_edits");
        lead.type_line("/stop alice");
        shows("shutdown_request", "please shut down: the user stops you");
        window.expect_screen("alice has ended");
        let printed = window.printed();
        for raw in ["{\"", "\":", "request_id", "rule_scope"] {
            assert!(!printed.contains(raw), "{raw}: {printed}");
        }
        window.press(CTRL_D);
        assert_eq!(window.wait().code(), Some(0));
        window.assert_restored();
        lead.type_line("/quit");
        assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
        assert_left_in_order(&team);
    });
}

/// A session that is killed, closed or interrupted does not affect bob, and its half-typed line is not sent.
#[test]
fn a_closed_window_has_no_effect_on_the_member() {
    let team = Team::new();
    let mut bob = bob(&team);
    let pid = team.pid_of("bob");
    for end in ["killed", "closed", "interrupted at work"] {
        let mut window = attach(&team);
        match end {
            "killed" => {
                window.press("half a li");
                window.expect("half a li");
                window.child.kill().unwrap();
            }
            "closed" => {
                window.press("half a li");
                window.expect("half a li");
                window.hang_up();
            }
            _ => {
                window.type_line("Run `until [ -e go ]; do sleep 0.05; done; echo not-cut-short`");
                team.wait_status("bob", "working");
                window.press("\u{3}");
            }
        }
        window.wait();
    }
    write(&team.workspace().join("go"), "");
    team.eventually("bob has finished", || {
        team.has_mail("bob", "user", "not-cut-short") && team.status("bob") == "idle"
    });
    let results = crate::support::scripts::tool_results(&team, "bob");
    assert!(results.iter().any(|(_, text, _)| text.contains("not-cut-short")), "{results:?}");
    assert!(!team.has_mail("bob", "user", "half a li"));
    assert_eq!(team.pid_of("bob"), pid);
    team.team(&["stop", "bob"]).expect(0);
    wait(&team, &mut bob);
}

#[test]
fn attach_sends_piped_input_and_refuses_an_unknown_name() {
    let team = Team::new();
    let mut bob = bob(&team);
    let ran = team.team_with_input(&["attach", "bob"], "Run echo from-a-pipe\n").expect(0);
    assert!(ran.out.contains("first-light"), "{ran:#?}");
    team.eventually("bob has the line", || team.has_mail("bob", "user", "from-a-pipe"));
    team.wait_status("bob", "idle");
    let ran = team.team(&["attach", "zoe"]).expect(1);
    assert!(ran.err.contains("cannot attach to zoe"), "{ran:#?}");
    team.team(&["stop", "bob"]).expect(0);
    wait(&team, &mut bob);
}

fn has(reader: &str) -> bool {
    let found = SYSTEM_PATH.split(':').any(|folder| Path::new(folder).join(reader).exists());
    if !found {
        skipped(&format!("{reader} is not installed: it did not read what is made for it"));
    }
    found
}

#[test]
fn completions_have_the_commands_and_live_members() {
    let team = Team::new();
    assert_eq!(team.team(&["__names"]).expect(0).out, "lead\nuser\n");
    assert!(!team.path("").exists());
    let mut bob = bob(&team);
    assert_eq!(team.team(&["__names"]).expect(0).out, "lead\nuser\nbob\n");
    let complete = |words: &str| {
        let line = format!(
            "source <(team completions bash); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); \
             _team_with_names team \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let output = team.shell(&line).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(complete("team tran").contains("transcript"));
    assert!(complete("team transcript b").lines().any(|word| word == "bob"));
    assert!(complete("team stop b").lines().any(|word| word == "bob"));
    assert!(complete("team ls b").lines().any(|word| word == "bob"));
    assert!(!complete("team doctor b").lines().any(|word| word == "bob"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = team.team(&["completions", shell]).expect(0).out;
        assert!(script.contains("transcript"), "{shell}");
        let names = ["bash", "zsh", "fish"].contains(&shell);
        assert_eq!(script.contains("__names 2>"), names, "{shell}");
    }
    if has("fish") {
        let complete = |words: &str| {
            let line = format!(
                "fish --no-config -c 'source (team completions fish | psub); complete -C \"{words}\"'"
            );
            String::from_utf8(team.shell(&line).output().unwrap().stdout).unwrap()
        };
        assert!(complete("team tran").starts_with("transcript"));
        assert_eq!(complete("team transcript b"), "bob\n");
        assert_eq!(complete("team doctor b"), "");
    }
    if has("zsh") {
        let begin = "mkdir f; team completions zsh > f/_team; fpath=($PWD/f $fpath); autoload -U compinit; \
                     compinit -u -D; echo able";
        let mut zsh = Terminal::start(team.shell("exec zsh -f -i"));
        zsh.type_line(begin);
        zsh.expect("\nable");
        zsh.press("team transcript b\t");
        zsh.expect("team transcript bob ");
        zsh.press("\u{15}team tran\t");
        zsh.expect("team transcript ");
        zsh.press("\u{15}exit\r");
        zsh.wait();
    }
    let zsh = team.team(&["completions", "zsh"]).expect(0).out;
    assert!(zsh.matches(":_team_names'").count() >= 5, "{zsh}");
    team.team(&["completions", "tcsh"]).expect(2);
    team.team(&["stop", "bob"]).expect(0);
    wait(&team, &mut bob);
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let team = Team::new();
    let page = team.team(&["man"]).expect(0).out;
    assert!(page.contains(".TH team 1") && page.contains("transcript"), "{page}");
    team.team(&["man", "--out", "pages/man1"]).expect(0);
    for page in ["team.1", "team-send.1", "team-task-add.1", "team-doctor.1"] {
        assert!(team.workspace().join("pages/man1").join(page).is_file(), "{page}");
    }
    assert!(!team.workspace().join("pages/man1/team-__names.1").exists());
    if !has("man") {
        return;
    }
    for page in std::fs::read_dir(team.workspace().join("pages/man1")).unwrap() {
        let page = page.unwrap().path();
        let mut man = team.shell("exec man --warnings -E UTF-8 -P cat -l \"$0\"");
        let output = man.arg(&page).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && complaints.is_empty(),
            "{}: {complaints}",
            page.display()
        );
    }
}

//! Rules against commands and paths, and what each mode makes of them.

use super::*;
use proptest::prelude::*;

fn lists(allow: &[&str], ask: &[&str], deny: &[&str]) -> RuleLists {
    let own = |list: &[&str]| list.iter().map(ToString::to_string).collect();
    RuleLists { allow: own(allow), ask: own(ask), deny: own(deny) }
}

fn policy(mode: Mode, allow: &[&str], ask: &[&str], deny: &[&str]) -> Policy {
    Policy::new(mode, &lists(allow, ask, deny)).unwrap()
}

fn bash(policy: &Policy, line: &str) -> Verdict {
    policy.judge("bash", &Subject::Command(line.into()))
}

fn file(policy: &Policy, tool: &str, path: &str) -> Verdict {
    policy.judge(tool, &Subject::Path(path.into()))
}

#[test]
fn an_allowed_prefix_is_not_fooled() {
    let policy = policy(Mode::Default, &["bash(cargo test:*)", "bash(git status)"], &[], &[]);
    for line in [
        "cargo test",
        "cargo test --lib 'a; b'",
        "cargo test && cargo test --doc",
        "git status; cargo test | cargo test x",
        "  cargo   test  ",
    ] {
        assert_eq!(bash(&policy, line), Verdict::Run, "{line}");
    }
    for line in [
        "cargo testify",
        "cargo",
        "cargo test; rm -rf x",
        "cargo test && rm x",
        "cargo test || rm x",
        "cargo test | sh",
        "cargo test & rm x",
        "cargo test\nrm x",
        "cargo test $(rm x)",
        "cargo test `rm x`",
        "cargo test \"$(rm x)\"",
        "cargo test > Cargo.toml",
        "cargo test <(rm x)",
        "RUSTC=./evil cargo test",
        "env RUSTC=./evil cargo test",
        "(cargo test)",
        "cargo test # note",
        "git status -s",
        "git 'status' --x",
        "\"cargo test\" x",
        "cargo\\ test x",
    ] {
        assert_eq!(bash(&policy, line), Verdict::Ask, "{line}");
    }
}

#[test]
fn deny_wins_then_ask_then_allow_then_the_mode() {
    let rules = |mode| {
        policy(
            mode,
            &["bash(git:*)"],
            &["bash(git push:*)"],
            &["bash(rm:*)", "write_file(secrets/**)"],
        )
    };
    let default = rules(Mode::Default);
    assert_eq!(bash(&default, "git log"), Verdict::Run);
    assert_eq!(bash(&default, "git push"), Verdict::Ask);
    assert_eq!(bash(&default, "git log && git push"), Verdict::Ask);
    for mode in Mode::ALL {
        let policy = rules(mode);
        assert!(matches!(bash(&policy, "git log; rm x"), Verdict::Refuse(_)), "{mode}");
        assert!(matches!(bash(&policy, "git log $(rm x)"), Verdict::Refuse(_)), "{mode}");
        let secret = file(&policy, "write_file", "secrets/key");
        assert!(matches!(secret, Verdict::Refuse(_)), "{mode}");
    }
    assert_eq!(bash(&rules(Mode::Bypass), "git push"), Verdict::Run, "bypass never asks");
}

#[test]
fn each_mode_has_its_own_idea_of_what_is_free() {
    let verdicts = |mode: Mode| {
        let policy = policy(mode, &[], &[], &[]);
        let read = file(&policy, "read_file", "a");
        let spawn = policy.judge("spawn_teammate", &Subject::Nothing);
        assert_eq!((read, spawn), (Verdict::Run, Verdict::Run), "{mode}");
        (
            file(&policy, "write_file", "a"),
            bash(&policy, "ls"),
            policy.judge("mcp_x", &Subject::Nothing),
        )
    };
    assert_eq!(verdicts(Mode::Default), (Verdict::Ask, Verdict::Ask, Verdict::Ask));
    assert_eq!(verdicts(Mode::AcceptEdits), (Verdict::Run, Verdict::Ask, Verdict::Ask));
    assert_eq!(verdicts(Mode::Bypass), (Verdict::Run, Verdict::Run, Verdict::Run));
    let (write, bash, unknown) = verdicts(Mode::Plan);
    for refused in [write, bash, unknown] {
        assert!(matches!(refused, Verdict::Refuse(why) if why.contains("submit_plan")));
    }
}

#[test]
fn in_plan_mode_no_rule_opens_the_gate() {
    let policy = policy(Mode::Plan, &["bash", "bash(*)", "write_file(**)", "edit_file"], &[], &[]);
    for tool in ["bash", "write_file", "edit_file", "anything_new"] {
        for subject in [Subject::Command("ls".into()), Subject::Path("a".into()), Subject::Nothing]
        {
            assert!(
                matches!(policy.judge(tool, &subject), Verdict::Refuse(_)),
                "{tool} {subject:?}"
            );
        }
    }
}

#[test]
fn always_means_this_very_thing() {
    for (tool, subject, other) in [
        (
            "bash",
            Subject::Command("echo a > b; rm c".into()),
            Subject::Command("echo a > b".into()),
        ),
        ("bash", Subject::Command("echo $(x)".into()), Subject::Command("echo $(y)".into())),
        ("write_file", Subject::Path("a*b".into()), Subject::Path("axb".into())),
    ] {
        let rules = rules_for(About::Permission, tool, &subject);
        let [rule] = rules.as_slice() else { panic!("one rule: {rules:?}") };
        let policy = policy(Mode::Default, &[rule], &[], &[]);
        assert_eq!(policy.judge(tool, &subject), Verdict::Run, "{rule}");
        assert_eq!(policy.judge(tool, &other), Verdict::Ask, "{rule}");
    }
}

/// Outside the workspace: asked about first, whatever else is allowed, and never by itself.
#[test]
fn the_workspace_is_left_only_when_somebody_says_so() {
    let out = |policy: &Policy, tool: &str| {
        policy.judge(tool, &Subject::Outside("/srv/notes/a.txt".into()))
    };
    let refused = |verdict: Verdict| matches!(verdict, Verdict::Refuse(_));
    let all = ["read_file", "write_file(**)", "edit_file"];
    for mode in [Mode::Default, Mode::AcceptEdits] {
        for tool in ["read_file", "write_file", "edit_file"] {
            let free = policy(mode, &all, &[], &[]);
            assert_eq!(out(&free, tool), Verdict::AskToLeave, "{mode} {tool}");
        }
        let open = policy(mode, &["outside(/srv/notes/**)"], &[], &[]);
        assert_eq!(out(&open, "read_file"), Verdict::Run, "{mode}");
        assert_eq!(out(&open, "write_file"), Verdict::Ask, "{mode}: opened, not allowed");
        let asks = policy(mode, &["outside"], &["outside(/srv/**)"], &[]);
        assert_eq!(out(&asks, "read_file"), Verdict::AskToLeave, "{mode}");
    }
    let plan = policy(Mode::Plan, &["outside"], &[], &[]);
    assert!(refused(out(&plan, "write_file")) && out(&plan, "read_file") == Verdict::Run);
    let bypass = policy(Mode::Bypass, &[], &[], &[]);
    assert!(refused(out(&bypass, "read_file")), "bypass asks nobody");
    for deny in ["outside", "outside(/srv/**)", "read_file(/srv/notes/*)"] {
        for mode in Mode::ALL {
            assert!(refused(out(&policy(mode, &["outside"], &[], &[deny]), "read_file")), "{deny}");
        }
    }
    let subject = Subject::Outside("/srv/notes/a.txt".into());
    let rules = rules_for(About::Sandbox, "write_file", &subject);
    let always = policy(Mode::Default, &[&rules[0], &rules[1]], &[], &[]);
    assert_eq!(out(&always, "write_file"), Verdict::Run, "{rules:?}");
    assert_eq!(out(&always, "edit_file"), Verdict::Ask);
    let other = always.judge("write_file", &Subject::Outside("/srv/notes/b.txt".into()));
    assert_eq!(other, Verdict::AskToLeave);
}

#[test]
fn a_rule_that_is_none_is_named() {
    for rule in ["", "bash(", "bash()", "bash( )", "two words", "(x)", "bash(x) y"] {
        let why = Policy::new(Mode::Default, &lists(&[rule], &[], &[])).unwrap_err();
        assert!(why.to_string().contains(&format!("{rule:?}")), "{why}");
    }
}

proptest! {
    /// Whatever stands behind an allowed command and a separator is looked at as well.
    #[test]
    fn no_tail_rides_along(
        tail in "[a-z$`(){}<>;&| \"'\\\\#=!\n-]{1,40}",
        separator in prop::sample::select(vec![";", "&&", "||", "|", "&", "\n"]),
    ) {
        let policy = policy(Mode::Default, &["bash(cargo test:*)"], &[], &[]);
        let line = format!("cargo test {separator} {tail}");
        if bash(&policy, &line) == Verdict::Run {
            let commands = shell::plain(&line).unwrap();
            for words in commands {
                prop_assert_eq!(&words[..2], &["cargo".to_owned(), "test".to_owned()]);
            }
        }
    }
}

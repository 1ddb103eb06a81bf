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
        let rule = rule_for(tool, &subject);
        let policy = policy(Mode::Default, &[&rule], &[], &[]);
        assert_eq!(policy.judge(tool, &subject), Verdict::Run, "{rule}");
        assert_eq!(policy.judge(tool, &other), Verdict::Ask, "{rule}");
    }
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

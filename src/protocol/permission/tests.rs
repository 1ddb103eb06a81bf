//! Rules for commands and paths, in each mode.

use super::*;
use PermissionMode::{AcceptEdits, Bypass, Default, Plan};
use PermissionSubject::{Command, Nothing, Outside, Path, Unsandboxed};
use PermissionVerdict::{Ask, AskToLeave, NeedsPlan, Refuse, Run};
use proptest::prelude::*;

fn lists(allow: &[&str], ask: &[&str], deny: &[&str]) -> RuleLists {
    let own = |list: &[&str]| list.iter().map(ToString::to_string).collect();
    RuleLists { allow: own(allow), ask: own(ask), deny: own(deny) }
}

fn policy(mode: PermissionMode, allow: &[&str], ask: &[&str], deny: &[&str]) -> Policy {
    Policy::new(mode, &lists(allow, ask, deny)).unwrap()
}

/// Returns a tool of this name. In these tests `read_file` reads, `spawn_teammate` talks, `fetch_url` reaches another
/// machine, and every other tool changes something.
fn spec(name: &'static str) -> ToolSpec {
    let effect = match name {
        "read_file" => Effect::Reads,
        "spawn_teammate" => Effect::Talks,
        "fetch_url" => Effect::Reaches,
        _ => Effect::Changes,
    };
    ToolSpec { name, effect, ..ToolSpec::STRICT }
}

fn bash(policy: &Policy, line: &str) -> PermissionVerdict {
    policy.judge(&spec("bash"), &Command(line.into()))
}

fn file(policy: &Policy, tool: &'static str, path: &str) -> PermissionVerdict {
    policy.judge(&spec(tool), &Path(path.into()))
}

fn is_refused(verdict: &PermissionVerdict) -> bool {
    matches!(verdict, Refuse(_) | NeedsPlan)
}

#[test]
fn an_allowed_prefix_covers_no_other_command() {
    let policy = policy(Default, &["bash(cargo test:*)", "bash(git status)"], &[], &[]);
    let allowed = "cargo test ¦ cargo test --lib 'a; b' ¦ cargo test && cargo test --doc
        ¦ git status; cargo test | cargo test x ¦   cargo   test  ";
    for line in allowed.split('¦') {
        assert_eq!(bash(&policy, line), Run, "{line}");
    }
    let others = r#"cargo testify ¦ cargo ¦ cargo test; rm -rf x ¦ cargo test && rm x ¦ cargo test || rm x
        ¦ cargo test | sh ¦ cargo test & rm x ¦ cargo test $(rm x) ¦ cargo test `rm x` ¦ cargo test "$(rm x)"
        ¦ cargo test > Cargo.toml ¦ cargo test <(rm x) ¦ RUSTC=./evil cargo test ¦ env RUSTC=./evil cargo test
        ¦ (cargo test) ¦ cargo test # note ¦ git status -s ¦ git 'status' --x ¦ "cargo test" x ¦ cargo\ test x"#;
    for line in others.split('¦').map(str::trim).chain(["cargo test\nrm x"]) {
        assert_eq!(bash(&policy, line), Ask, "{line}");
    }
}

#[test]
fn deny_wins_then_ask_then_allow_then_the_mode() {
    let deny = ["bash(rm:*)", "write_file(secrets/**)"];
    let rules = |mode| policy(mode, &["bash(git:*)"], &["bash(git push:*)"], &deny);
    let default = rules(Default);
    assert_eq!(bash(&default, "git log"), Run);
    assert_eq!(bash(&default, "git push"), Ask);
    assert_eq!(bash(&default, "git log && git push"), Ask);
    for mode in PermissionMode::ALL {
        let policy = rules(mode);
        assert!(is_refused(&bash(&policy, "git log; rm x")), "{mode}");
        assert!(is_refused(&bash(&policy, "git log $(rm x)")), "{mode}");
        assert!(is_refused(&file(&policy, "write_file", "secrets/key")), "{mode}");
    }
    let bypass = rules(Bypass);
    assert_eq!(bash(&bypass, "git push"), Run, "bypass never asks");
}

#[test]
fn each_mode_allows_its_own_calls_without_a_rule() {
    let verdicts = |mode: PermissionMode| {
        let policy = policy(mode, &[], &[], &[]);
        let read = file(&policy, "read_file", "a");
        let spawn = policy.judge(&spec("spawn_teammate"), &Nothing);
        assert_eq!((read, spawn), (Run, Run), "{mode}");
        let unknown = policy.judge(&spec("another_tool"), &Nothing);
        [file(&policy, "write_file", "a"), bash(&policy, "ls"), unknown]
    };
    assert_eq!(verdicts(Default), [Ask, Ask, Ask]);
    assert_eq!(verdicts(AcceptEdits), [Run, Ask, Ask]);
    assert_eq!(verdicts(Bypass), [Run, Run, Run]);
    for refused in verdicts(Plan) {
        assert_eq!(refused, NeedsPlan);
    }
}

#[test]
fn no_rule_allows_work_in_plan_mode() {
    let allow = ["bash", "bash(*)", "write_file(**)", "edit_file"];
    let policy = policy(Plan, &allow, &[], &[]);
    let path = Path("a".into());
    for subject in [Command("ls".into()), path, Nothing] {
        for tool in ["bash", "write_file", "edit_file", "anything_new"] {
            assert!(is_refused(&policy.judge(&spec(tool), &subject)), "{tool} {subject:?}");
        }
    }
}

#[test]
fn always_covers_only_the_same_subject() {
    for (tool, subject, other) in [
        ("bash", Command("echo a > b; rm c".into()), Command("echo a > b".into())),
        ("bash", Command("echo $(x)".into()), Command("echo $(y)".into())),
        ("write_file", Path("a*b".into()), Path("axb".into())),
    ] {
        let rules = rules_for(QuestionKind::Permission, tool, &subject);
        let [rule] = rules.as_slice() else { panic!("one rule: {rules:?}") };
        let policy = policy(Default, &[rule], &[], &[]);
        assert_eq!(policy.judge(&spec(tool), &subject), Run, "{rule}");
        assert_eq!(policy.judge(&spec(tool), &other), Ask, "{rule}");
    }
}

#[test]
fn the_workspace_is_left_only_by_permission() {
    let subject = Outside("/srv/notes/a.txt".into());
    let out = |policy: &Policy, tool: &'static str| policy.judge(&spec(tool), &subject);
    let all = ["read_file", "write_file(**)", "edit_file"];
    for mode in [Default, AcceptEdits] {
        for tool in ["read_file", "write_file", "edit_file"] {
            let free = policy(mode, &all, &[], &[]);
            assert_eq!(out(&free, tool), AskToLeave, "{mode} {tool}");
        }
        let open = policy(mode, &["outside(/srv/notes/**)"], &[], &[]);
        assert_eq!(out(&open, "read_file"), Run, "{mode}");
        assert_eq!(out(&open, "write_file"), Ask, "{mode}: opened, not allowed");
        let asks = policy(mode, &["outside"], &["outside(/srv/**)"], &[]);
        assert_eq!(out(&asks, "read_file"), AskToLeave, "{mode}");
    }
    let plan = policy(Plan, &["outside"], &[], &[]);
    assert!(is_refused(&out(&plan, "write_file")));
    assert_eq!(out(&plan, "read_file"), Run);
    let bypass = policy(Bypass, &[], &[], &[]);
    assert!(is_refused(&out(&bypass, "read_file")), "bypass asks nobody");
    for deny in ["outside", "outside(/srv/**)", "read_file(/srv/notes/*)"] {
        for mode in PermissionMode::ALL {
            let denied = policy(mode, &["outside"], &[], &[deny]);
            assert!(is_refused(&out(&denied, "read_file")), "{mode} {deny}");
        }
    }
    let rules = rules_for(QuestionKind::Sandbox, "write_file", &subject);
    let always = policy(Default, &[&rules[0], &rules[1]], &[], &[]);
    assert_eq!(out(&always, "write_file"), Run, "{rules:?}");
    assert_eq!(out(&always, "edit_file"), Ask);
    let other = always.judge(&spec("write_file"), &Outside("/srv/notes/b.txt".into()));
    assert_eq!(other, AskToLeave);
}

#[test]
fn the_walls_are_left_only_by_permission() {
    let judge =
        |policy: &Policy, line: &str| policy.judge(&spec("bash"), &Unsandboxed(line.into()));
    let push = "git push origin main";
    for mode in [Default, AcceptEdits] {
        for allow in ["bash", "bash(git push:*)", "outside", "unsandboxed(git pull:*)"] {
            assert_eq!(
                judge(&policy(mode, &[allow], &[], &[]), push),
                AskToLeave,
                "{mode} {allow}"
            );
        }
        let open = policy(mode, &["unsandboxed(git push:*)"], &[], &[]);
        assert_eq!(judge(&open, push), Run, "{mode}: no rule for bash is needed");
        for more in ["git push; id", "git push $(id)", "git push > /etc/x"] {
            assert_eq!(judge(&open, more), AskToLeave, "{mode} {more}");
        }
        for ask in ["bash(git push:*)", "unsandboxed", "unsandboxed(git push:*)"] {
            let asks = policy(mode, &["unsandboxed"], &[ask], &[]);
            assert_eq!(judge(&asks, push), AskToLeave, "{mode} {ask}");
        }
    }
    assert!(is_refused(&judge(&policy(Plan, &["unsandboxed"], &[], &[]), push)));
    assert!(is_refused(&judge(&policy(Bypass, &["bash"], &[], &[]), push)), "bypass asks nobody");
    assert_eq!(judge(&policy(Bypass, &["unsandboxed(git push:*)"], &[], &[]), push), Run);
    for deny in ["bash", "bash(git push:*)", "unsandboxed", "unsandboxed(git:*)"] {
        for mode in PermissionMode::ALL {
            let denied = policy(mode, &["unsandboxed", "bash"], &[], &[deny]);
            assert!(is_refused(&judge(&denied, &format!("cd x && {push}"))), "{mode} {deny}");
        }
    }
    let rules = rules_for(QuestionKind::Sandbox, "bash", &Unsandboxed(push.into()));
    assert_eq!(rules, [format!("unsandboxed({push})")]);
    let always = policy(Default, &[&rules[0]], &[], &[]);
    assert_eq!((judge(&always, push), bash(&always, push)), (Run, Ask));
}

fn page(host: &str, is_walled_off: bool) -> PermissionSubject {
    let (url, host) = (format!("https://{host}/x"), HostPattern::parse(host).unwrap());
    PermissionSubject::Page { url, host, port: 443, is_walled_off }
}

#[test]
fn a_rule_of_the_network_with_a_port_holds_for_pages_of_that_port() {
    let fetch = |policy: &Policy, port: u16| {
        let (url, host) = ("http://a.example/x".into(), HostPattern::parse("a.example").unwrap());
        let page = PermissionSubject::Page { url, host, port, is_walled_off: false };
        policy.judge(&spec("fetch_url"), &page)
    };
    let allow = ["fetch_url(a.example)"];
    for mode in PermissionMode::ALL {
        let denied =
            policy(mode, &allow, &[], &["network(a.example:80)", "network(b.example:443)"]);
        assert!(is_refused(&fetch(&denied, 80)), "{mode}");
        assert_eq!(fetch(&denied, 443), Run, "{mode}");
    }
    for mode in [Plan, Default, AcceptEdits] {
        let asked = policy(mode, &allow, &["network(a.example:80)"], &[]);
        assert_eq!((fetch(&asked, 80), fetch(&asked, 443)), (Ask, Run), "{mode}");
    }
    let with_port =
        policy(Default, &["fetch_url(a.example:443)", "network(a.example:443)"], &[], &[]);
    assert_eq!(fetch(&with_port, 443), Ask, "no rule with a port allows a page");
}

#[test]
fn a_page_asks_about_its_host_in_each_mode_but_bypass() {
    let fetch = |policy: &Policy, host: &str| policy.judge(&spec("fetch_url"), &page(host, false));
    for mode in [Plan, Default, AcceptEdits] {
        let rules = policy(
            mode,
            &["fetch_url(a.example)", "fetch_url(*.b.example)", "bash", "network"],
            &["fetch_url(asked.b.example)"],
            &["fetch_url(no.b.example)", "network(*.off.example)"],
        );
        for (host, verdict) in [
            ("a.example", Run),
            ("x.b.example", Run),
            ("b.example", Ask),
            ("x.a.example", Ask),
            ("other.example", Ask),
            ("asked.b.example", Ask),
        ] {
            assert_eq!(fetch(&rules, host), verdict, "{mode} {host}");
        }
    }
    for mode in PermissionMode::ALL {
        let denied =
            policy(mode, &["fetch_url"], &[], &["fetch_url(no.example)", "network(*.off.example)"]);
        assert_eq!(fetch(&denied, "yes.example"), Run, "{mode}");
        for host in ["no.example", "x.off.example"] {
            assert!(is_refused(&fetch(&denied, host)), "{mode} {host}");
        }
        for all in ["fetch_url", "network"] {
            let denied = policy(mode, &["fetch_url"], &[], &[all]);
            assert!(is_refused(&fetch(&denied, "yes.example")), "{mode} {all}");
        }
    }
    assert_eq!(fetch(&policy(Bypass, &[], &["fetch_url"], &[]), "a.example"), Run);
    let rules = rules_for(QuestionKind::Permission, "fetch_url", &page("a.example", false));
    assert_eq!(rules, ["fetch_url(a.example)"]);
    let always = policy(Default, &[&rules[0]], &[], &[]);
    assert_eq!((fetch(&always, "a.example"), fetch(&always, "b.example")), (Run, Ask));
}

#[test]
fn a_page_of_a_host_that_walls_keep_from_commands_is_not_fetched_unasked() {
    let fetch = |mode: PermissionMode, allow: &[&str]| {
        let policy = policy(mode, allow, &[], &[]);
        policy.judge(&spec("fetch_url"), &page("a.example", true))
    };
    for mode in [Plan, Default, AcceptEdits] {
        assert_eq!(fetch(mode, &["network(a.example)"]), Ask, "{mode}");
        assert_eq!(fetch(mode, &["fetch_url(a.example)"]), Run, "{mode}");
    }
    let Refuse(why) = fetch(Bypass, &["bash"]) else { panic!("it is not refused") };
    assert!(why.contains("\"fetch_url(a.example)\" under `allow`"), "{why}");
    for allow in ["fetch_url", "fetch_url(b.example)", "network(a.example)"] {
        let is_other = allow == "fetch_url(b.example)";
        assert_eq!(is_refused(&fetch(Bypass, &[allow])), is_other, "{allow}");
    }
}

#[test]
fn walled_commands_may_be_free_of_questions() {
    for mode in [Default, AcceptEdits] {
        let mut policy = policy(mode, &[], &["bash(rm:*)"], &["bash(sudo:*)"]);
        assert_eq!(bash(&policy, "make"), Ask);
        policy.free_walled_commands(true);
        assert_eq!((bash(&policy, "make"), bash(&policy, "make; rm x")), (Run, Ask));
        assert!(is_refused(&bash(&policy, "sudo make")));
        assert_eq!(policy.judge(&spec("bash"), &Unsandboxed("make".into())), AskToLeave);
        assert_eq!(policy.judge(&spec("task"), &Nothing), Ask, "other tools ask as before");
        policy.set_mode(Plan);
        assert!(is_refused(&bash(&policy, "make")));
    }
}

#[test]
fn rules_with_a_pattern_keep_files_from_a_tool_in_each_mode() {
    let deny = ["read_file", "read_file(keys/**)", "outside(/srv/**)", "bash(cat:*)"];
    for mode in [Default, Bypass] {
        let denied = policy(mode, &["read_file"], &[], &deny).denied_files(&spec("read_file"));
        let is_denied = |subject| denied.contains(&subject);
        assert!(is_denied(Path("keys/a".into())) && is_denied(Outside("/srv/a".into())));
        assert!(!is_denied(Path("a".into())) && !is_denied(Outside("/opt/a".into())));
    }
}

#[test]
fn a_malformed_rule_is_refused_by_name() {
    for rule in ["", "bash(", "bash()", "bash( )", "two words", "(x)", "bash(x) y"] {
        let why = Policy::new(Default, &lists(&[rule], &[], &[])).unwrap_err();
        assert!(why.to_string().contains(&format!("{rule:?}")), "{why}");
    }
}

proptest! {
    /// The text after an allowed command and a separator is checked as well.
    #[test]
    fn a_command_after_a_separator_needs_its_own_rule(
        tail in "[a-z$`(){}<>;&| \"'\\\\#=!\n-]{1,40}",
        separator in prop::sample::select(vec![";", "&&", "||", "|", "&", "\n"]),
    ) {
        let policy = policy(Default, &["bash(cargo test:*)"], &[], &[]);
        let line = format!("cargo test {separator} {tail}");
        if bash(&policy, &line) == Run {
            for words in shell::plain(&line).unwrap() {
                prop_assert_eq!(&words[..2], &["cargo".to_owned(), "test".to_owned()]);
            }
        }
    }
}

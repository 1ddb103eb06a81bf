//! Tests of single commands: environment, input, exit status, and memory for endless output.

use super::*;

#[test]
fn endless_output_needs_little_memory() {
    for command in ["yes", "cat /dev/urandom", "tr '\\0' '\\377' </dev/zero", "yes >&2 & yes"] {
        let fixture = Fixture::new();
        let said = fixture.agent_says(command, 2);
        assert!(said.contains("characters cut here") && said.contains("timed out"), "{command}");
        let (_, peak) = said.rsplit_once("VmHWM:").unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak < 64 * 1024, "{command}: {peak} kB");
    }
}

#[test]
fn there_is_no_input_and_no_terminal() {
    let fixture = Fixture::new();
    assert_eq!(run(&fixture, "cat; echo $?", 60), "0\n");
    let said = run(&fixture, "read -r line </dev/tty", 60);
    assert!(said.contains("/dev/tty") && said.ends_with("[exit code 1]"), "{said}");
}

#[test]
fn exit_codes_and_signals_are_reported() {
    let fixture = Fixture::new();
    let cases = [
        ("true", "(no output)"),
        ("echo out; echo err >&2; echo out", "out\nerr\nout\n"),
        ("printf x; exit 3", "x\n[exit code 3]"),
        ("kill -9 $$", "[ended by signal 9]"),
        ("kill -TERM $$", "[ended by signal 15]"),
        ("exit 255", "[exit code 255]"),
        ("exec >&- 2>&-; sleep 0.1; exit 4", "[exit code 4]"),
        ("printf '\\377\\033[31mred'", "\u{fffd}\u{1b}[31mred"),
        ("-x", "bash: line 1: -x: command not found\n[exit code 127]"),
    ];
    for (command, expected) in cases {
        assert_eq!(run(&fixture, command, 60), expected, "{command}");
    }
}

#[test]
fn commands_start_with_a_clean_environment() {
    let fixture = Fixture::new();
    let folder = fixture.path().canonicalize().unwrap();
    let names = format!("PATH PWD SHLVL TEAM_RUN TERM _ {}\n", folder.display());
    for (command, expected) in [
        ("env | cut -d= -f1 | sort | tr '\\n' ' '; pwd -P", &*names),
        (
            "grep -E '^Sig(Blk|Ign)' /proc/self/status; cat /proc/self/oom_score_adj",
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n500\n",
        ),
        ("ulimit -c; ls /proc/self/fd | tr '\\n' ' '", "0\n0 1 2 3 "),
    ] {
        assert_eq!(run(&fixture, command, 60), expected, "{command}");
    }
}

#[test]
fn sh_replaces_a_missing_bash() {
    let fixture = Fixture::new();
    std::os::unix::fs::symlink("/bin/sh", fixture.path().join("sh")).unwrap();
    let path = vec![("PATH".into(), fixture.path().display().to_string())];
    let setup = command_setup(path, uuid::Uuid::now_v7().to_string());
    let bash = Bash { command: "echo $0".into(), timeout: None };
    let output_store = OutputStore::below(fixture.path());
    assert_eq!(block_on(bash.run_in(fixture.path(), &setup, &output_store)).unwrap(), "sh\n");
}

#[test]
fn an_invalid_call_says_what_to_do() {
    let fixture = Fixture::new();
    let (folder, missing) = (fixture.path(), fixture.path().join("gone"));
    let long = format!("true {}", "x".repeat(131_071));
    for (folder, command, timeout, says) in [
        (folder, " ", 60, "give the command"),
        (folder, "a\0b", 60, "NUL"),
        (folder, long.as_str(), 60, "write_file"),
        (folder, "true", 0, "from 1 to 3600"),
        (folder, "true", 120_000, "timeout is in seconds"),
        (missing.as_path(), "true", 60, "could not be run"),
    ] {
        let why = block_on(bash(folder, &fixture.run_id, command, timeout)).unwrap_err();
        assert!(matches!(&why, ToolError::Reply(text) if text.contains(says)), "{why}");
    }
    let longest = format!("true {}", "x".repeat(131_066));
    assert_eq!(run(&fixture, &longest, 60), "(no output)");
}

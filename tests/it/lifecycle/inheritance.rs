//! The process attributes that a teammate and its commands inherit from the process that starts them.

use crate::support::harness::{Team, may_inspect_agents, program};
use crate::support::scripts::{assert_left_in_order, bash, calls, script, spawn, wait_file};
use crate::support::terminal::Terminal;
use std::fs;

/// The targets of a process's open descriptors.
fn descriptors(pid: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.map(|target| target.to_string_lossy().into_owned()).collect()
}

fn oom_score(pid: i32) -> i32 {
    fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
}

#[test]
fn a_teammate_and_its_commands_inherit_only_what_they_need() {
    let team = Team::new();
    let look = "umask; ulimit -Sn; ls -l /proc/self/fd | grep -c -e /leak -e '[.]team/'; \
        cat /proc/self/oom_score_adj; grep -E '^Sig(Blk|Ign)' /proc/self/status; ps -o sid= -p $$";
    let looking = format!("({look}) >seen 2>&1; touch here; until [ -e go ]; do sleep 0.02; done");
    let model = script(&team, &[calls("lead", &[spawn("bob")]), calls("bob", &[bash(&looking)])]);
    // A lead with descriptors, signal settings and limits that no child may inherit.
    let line = format!(
        "umask 027; ulimit -Sn 300; trap '' USR1 USR2 TTIN TTOU; touch leak; \
         exec 7<leak 8>>leak; exec {} lead --model {model}",
        program("team").display()
    );
    let mut lead = Terminal::start(team.shell(&line));
    lead.expect("/quit ends the team");
    lead.type_line("begin");
    wait_file(&team, "here");
    let bob = team.pid_of("bob");
    if may_inspect_agents("its descriptors") {
        let open = descriptors(&bob.to_string());
        assert!(
            !open.iter().any(|target| target.contains("leak") || target.contains("pts")),
            "{open:?}"
        );
    }
    let own = oom_score(team.pid_of("lead"));
    assert_eq!((own, oom_score(bob)), (oom_score(std::process::id().try_into().unwrap()), 300));
    let lead_limits = fs::read_to_string(format!("/proc/{}/limits", team.pid_of("lead"))).unwrap();
    let files = lead_limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(words[3], words[4], "the lead takes what it may: {files}");
    let seen = fs::read_to_string(team.workspace().join("seen")).unwrap();
    let seen: Vec<&str> = seen.lines().collect();
    let zero = "0000000000000000";
    let none = [format!("SigBlk:\t{zero}"), format!("SigIgn:\t{zero}")];
    assert_eq!(seen[..6], ["0027", "300", "0", "500", &none[0], &none[1]]);
    assert_ne!(seen[6].trim(), bob.to_string(), "a session of its own");
    fs::File::create(team.workspace().join("go")).unwrap();
    team.wait_status("bob", "idle");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

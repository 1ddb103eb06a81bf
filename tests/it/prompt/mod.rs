//! Texts that people write for agents, in requests as they are sent: skills and instructions.

mod cost;
mod instructions;
mod skills;

use crate::support::child_process::write;
use crate::support::harness::Team;
use std::fs;

/// Writes files in the workspace, and creates their folders.
fn put(team: &Team, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = team.workspace().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, text);
    }
}

/// Returns this text of all lines of the lead's log.
fn logged(team: &Team, field: &str) -> Vec<String> {
    let lines = team.lines("log/lead.jsonl");
    lines.iter().filter_map(|line| line[field].as_str().map(str::to_owned)).collect()
}

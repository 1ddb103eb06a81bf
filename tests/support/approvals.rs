//! Teams that ask for permission: their open requests, and lines appended to an inbox.

use crate::support::harness::Team;
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write;

/// Creates a team that asks before every change.
pub(crate) fn careful_team() -> Team {
    let team = Team::new();
    team.variable("TEAM_MODE", "default");
    team
}

/// Returns the open requests, from `team requests`.
pub(crate) fn requests(team: &Team) -> Vec<Value> {
    let listed = team.team(&["requests", "--json"]).expect(0).json();
    assert_eq!(listed["schema"], 1);
    listed["requests"].as_array().unwrap().clone()
}

/// Waits until a live member has an open request and returns its id.
pub(crate) fn wait_asked(team: &Team, name: &str) -> String {
    team.wait_status(name, "waiting");
    let mut id = None;
    team.eventually(&format!("{name} asks"), || {
        let mine = requests(team).into_iter();
        id = mine
            .filter(|request| request["from"] == name && request["waiting"] == true)
            .find_map(|request| request["request_id"].as_str().map(ToOwned::to_owned));
        id.is_some()
    });
    id.unwrap()
}

/// Appends a line to an inbox without taking the program's locks.
pub(crate) fn append(team: &Team, inbox: &str, line: &Value) {
    append_to(team, &format!("inbox/{inbox}.jsonl"), line);
}

/// Appends a line to a file of the team without taking the program's locks.
pub(crate) fn append_to(team: &Team, inside: &str, line: &Value) {
    let mut file = OpenOptions::new().append(true).open(team.path(inside)).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

//! Teams with a scripted agent that speaks the Agent Client Protocol (`acp_agent.py`), as `acp/fake`.

use crate::support::child_process::write;
use crate::support::harness::{Team, has_python};
use crate::support::scripts::{assert_left_in_order, turns, wait};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Creates a team that asks before every change and can spawn `acp/fake`. Its settings get these lines as well. Returns
/// `None` without python3.
pub(crate) fn agent_team(script: &Value, settings: &str) -> Option<Team> {
    has_python("the scripted agent").then(|| {
        let team = Team::new();
        team.variable("TEAM_MODE", "default");
        write_script(&team, script);
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/acp_agent.py");
        let here = team.workspace();
        let words = ["python3".into(), own, here.join("agent.json"), here.join("agent.log")];
        let words = json!(words.map(|word| word.display().to_string()));
        let folder = here.join(".config/team");
        fs::create_dir_all(&folder).unwrap();
        let text = format!("[agents.fake]\ncommand = {words}\n{settings}\n");
        write(&folder.join("settings.toml"), text);
        team
    })
}

/// Replaces the script of the agent's next process.
pub(crate) fn write_script(team: &Team, script: &Value) {
    write(&team.workspace().join("agent.json"), script.to_string());
}

/// Returns the messages that the agent has received.
pub(crate) fn received(team: &Team) -> Vec<Value> {
    let text = fs::read_to_string(team.workspace().join("agent.log")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the parameters of the calls of a method.
pub(crate) fn calls_of(team: &Team, method: &str) -> Vec<Value> {
    let of_method = received(team).into_iter().filter(|message| message["method"] == method);
    of_method.map(|message| message["params"].clone()).collect()
}

/// Returns the texts of the prompts.
pub(crate) fn prompts(team: &Team) -> Vec<String> {
    let text = |params: Value| params["prompt"][0]["text"].as_str().unwrap().to_owned();
    calls_of(team, "session/prompt").into_iter().map(text).collect()
}

/// Returns the options by which the agent's questions were answered.
pub(crate) fn answers(team: &Team) -> Vec<String> {
    let of = |message: Value| {
        let outcome = message["result"].get("outcome")?.clone();
        let option = outcome["optionId"].as_str().or(outcome["outcome"].as_str());
        option.map(ToOwned::to_owned)
    };
    received(team).into_iter().filter_map(of).collect()
}

/// Returns the call that spawns a teammate on the agent.
pub(crate) fn spawn_agent(name: &str) -> (&'static str, Value) {
    let input = json!({ "name": name, "role": "worker", "prompt": "begin", "model": "acp/fake" });
    ("spawn_teammate", input)
}

/// Lets bob work through a prompt without a lead, until he has left in order.
pub(crate) fn work_once(team: &Team) {
    let mut bob = team.start(&["teammate", "bob", "--model", "acp/fake"]);
    team.wait_status("bob", "idle");
    team.team(&["send", "bob", "work"]).expect(0);
    team.eventually("the turn is over", || turns(team, "bob") == 1);
    team.wait_status("bob", "idle");
    team.team(&["stop", "bob"]).expect(0);
    wait(team, &mut bob);
    assert_left_in_order(team);
}

/// Returns the pids of the processes of a team with this text in their command line.
pub(crate) fn pids(team: &Team, text: &str) -> Vec<i32> {
    let found = team.processes().into_iter().filter(|(_, line)| line.contains(text));
    found.map(|(pid, _)| pid).collect()
}

/// Whether a teammate that was started by hand has sent a lead that does not run this report.
pub(crate) fn reports(team: &Team, text: &str) -> bool {
    team.lines("inbox/lead.jsonl").iter().any(|mail| mail["content"] == text)
}

/// Waits for a report of a teammate that was started by hand. It is sent after the end of its turn is recorded.
pub(crate) fn wait_report(team: &Team, text: &str) {
    team.eventually(&format!("{text:?} is reported"), || reports(team, text));
}

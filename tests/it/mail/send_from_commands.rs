//! `team` commands inside an agent's shell command: `team send` sends as the agent, the others refuse, whatever the
//! environment says.

use crate::support::harness::{Team, program};
use crate::support::scripts::{assert_left_in_order, bash, calls, headless, script, spawn};
use serde_json::json;
use std::fs;

#[test]
fn an_agents_command_sends_as_the_agent_and_steers_nothing() {
    let team = Team::without_walls();
    let bin = program("team");
    let bin = bin.display();
    let tries = [
        ("send-as-user", format!("{bin} send lead 'as the user' --from user")),
        ("send-as-user-unset", format!("env -u TEAM_RUN {bin} send lead x --from user")),
        ("send-elsewhere", format!("env -i {bin} --dir other/.team send lead x")),
        ("stop-unset", format!("env -u TEAM_RUN {bin} stop --all --now")),
        ("stop-empty", format!("env -i {bin} stop --all --now")),
        ("stop-orphan", format!("env -i setsid -w bash -c '(exec {bin} stop --all --now)'")),
        ("stop-renamed", format!("env -i bash -c 'exec -a lead {bin} stop --all --now'")),
        ("stop-other-run", format!("TEAM_RUN=x {bin} stop bob")),
        ("approve", format!("env -u TEAM_RUN {bin} approve bob")),
        ("deny", format!("env -u TEAM_RUN {bin} deny bob")),
        ("trust", format!("env -u TEAM_RUN {bin} trust")),
        ("web", format!("env -u TEAM_RUN {bin} web --control")),
        ("stop", format!("{bin} stop bob")),
        ("stop-all", format!("{bin} stop --all --now")),
        ("lead", format!("{bin} lead -p hi --model rehearsal")),
        ("teammate", format!("{bin} teammate eve --model rehearsal")),
        ("broadcast", format!("{bin} broadcast hello")),
        ("task-add", format!("{bin} task add x")),
        ("task-claim", format!("{bin} task claim 1 --as bob")),
        ("task-done", format!("{bin} task done 1")),
        ("task-fail", format!("{bin} task fail 1")),
        ("task-cancel", format!("{bin} task cancel 1")),
        ("leases-release", format!("{bin} leases release src")),
        ("drain", format!("{bin} inbox lead --drain")),
    ];
    let mut lines: Vec<String> = tries
        .iter()
        .map(|(name, command)| {
            format!("{command} > {name}.out 2> {name}.err; echo $? > {name}.code")
        })
        .collect();
    lines.push(format!(
        "env -u TEAM_RUN {bin} send lead 'from a shell' > send.out 2> send.err; echo $? > send.code"
    ));
    lines.push(format!("{bin} ls --json > ls.json"));
    lines.push(format!("{bin} task ls --json > tasks.json"));
    fs::create_dir(team.workspace().join("other")).unwrap();
    team.team(&["-C", "other", "init"]).expect(0);
    let model =
        script(&team, &[calls("lead", &[spawn("bob")]), calls("bob", &[bash(&lines.join("\n"))])]);
    headless(&team, &model, "begin").expect(0);
    let file = |name: &str| fs::read_to_string(team.workspace().join(name)).unwrap();
    for (name, _) in &tries {
        assert_eq!(
            (file(&format!("{name}.code")).trim(), file(&format!("{name}.out")).as_str()),
            ("1", "")
        );
        let said = file(&format!("{name}.err"));
        assert!(said.contains("this runs below process"), "{name}: {said}");
    }
    assert_eq!(file("send.code").trim(), "0", "{}", file("send.err"));
    assert!(team.has_mail("lead", "bob", "from a shell"), "{}", team.describe());
    let seen: serde_json::Value = serde_json::from_str(&file("ls.json")).unwrap();
    assert_eq!(seen["schema"], json!(1), "looking is allowed");
    let seen: serde_json::Value = serde_json::from_str(&file("tasks.json")).unwrap();
    assert_eq!(seen["tasks"], json!([]), "no task was made");
    assert!(team.member("eve").is_null());
    assert_left_in_order(&team);
}

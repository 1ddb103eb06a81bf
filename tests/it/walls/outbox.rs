//! Mail of walled commands: a command puts it into its outbox, and its agent sends it.

use super::lacking::{WRITABLE, landlock_version, team_without_namespaces};
use super::teams::{printed, walled_team};
use crate::support::child_process::write;
use crate::support::harness::{Team, copy_program, has_python, program};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, kill_9, says, script, scripted_lead, spawn, wait,
    wait_file,
};
use std::fs;

/// Creates a team behind walls. Its commands reach `./team`: the folder of the programs may be hidden.
fn team_with_program() -> Option<Team> {
    let team = walled_team("workspace")?;
    copy_program(&program("team"), &team.workspace().join("team"));
    Some(team)
}

/// Runs commands of bob in a headless team, and returns their results.
fn results_of(team: &Team, commands: &[&str]) -> Vec<String> {
    let tools: Vec<_> = commands.iter().map(|command| bash(command)).collect();
    let replies = [
        calls("lead", &[spawn("bob")]),
        says("lead", "spawned"),
        calls("bob", &tools),
        says("bob", "done"),
    ];
    headless(team, &script(team, &replies), "begin").expect(0);
    printed(team, "bob")
}

/// Returns the number of messages with this text that the lead has got from bob's commands.
fn count_of(team: &Team, text: &str) -> usize {
    let mail = team.mail_of("lead").into_iter();
    mail.filter(|mail| mail["content"] == text && mail["from"] == "bob" && mail["via"] == "command")
        .count()
}

#[test]
fn a_command_sends_as_its_agent_after_it_has_ended() {
    let Some(team) = team_with_program() else { return };
    let raw = "echo '{\"from\":\"user\",\"to\":\"lead\",\"content\":\"raw\",\"id\":\"x\"}' >>$TEAM_OUTBOX";
    let lines = "printf '{\"to\":\"user\",\"content\":\"a\"}\\n{\"to\":\"lead\",\"content\":\"b\"}\\n' | ./team send --jsonl";
    let said = results_of(&team, &[&format!("./team send lead typed && {raw}"), lines, "exit 3"]);
    let told = "in the outbox; sent to lead after this command, unless it is interrupted\n";
    assert_eq!(said[0], format!("{told}\n[outbox: sent to lead (2)]"));
    assert!(said[1].ends_with("[outbox: sent to user, lead]"), "{said:?}");
    assert_eq!(said[2], "[exit code 3]");
    for text in ["typed", "raw", "b"] {
        assert_eq!(count_of(&team, text), 1, "{text}: {}", team.describe());
    }
    assert!(team.mail_of("lead").iter().all(|mail| mail["verified"] != false));
    assert_left_in_order(&team);
}

#[test]
fn a_command_reads_what_came_with_a_message_and_neither_changes_nor_attaches_files() {
    let Some(team) = team_with_program() else { return };
    write(&team.workspace().join("data.csv"), "1,2,3\n");
    team.team(&["send", "user", "the data", "--attach", "data.csv"]).expect(0);
    let change = "echo x >> .team/attachments/*/data.csv; rm .team/attachments/*/data.csv";
    let said = results_of(
        &team,
        &[
            "cat .team/attachments/*/data.csv",
            change,
            "./team send lead typed --attach data.csv",
            "cat .team/attachments/*/data.csv",
        ],
    );
    assert_eq!((said[0].as_str(), said[3].as_str()), ("1,2,3\n", "1,2,3\n"), "{said:?}");
    assert!(said[1].contains("[exit code 1]"), "{said:?}");
    assert!(said[2].contains("--attach does not work here"), "{said:?}");
    assert_eq!(count_of(&team, "typed"), 0);
    assert_left_in_order(&team);
}

#[test]
fn a_line_that_cannot_be_sent_is_named_in_the_result() {
    let Some(team) = team_with_program() else { return };
    let order =
        "echo '{\"type\":\"shutdown_request\",\"to\":\"lead\",\"content\":\"go\"}' >>$TEAM_OUTBOX";
    let long = "head -c 400000 /dev/zero | tr '\\0' y | ./team send lead -";
    let refused = ["--from user", "--type result", "--field a=b"]
        .map(|option| format!("./team send lead x {option}; echo $?"));
    let said = results_of(
        &team,
        &[
            &format!("./team send leed x; {order}; echo broken >>$TEAM_OUTBOX; {long}"),
            &refused.join("; "),
            "for to in all 'no name' bob; do ./team send \"$to\" x; echo $?; done; ./team send lead ''; echo $?",
            "echo secret >x; ln -s $PWD/x $TEAM_OUTBOX",
            "mkfifo $TEAM_OUTBOX",
            "mkdir $TEAM_OUTBOX; ./team send lead x; echo $?",
            "for i in $(seq 120); do echo '{}'; done >$TEAM_OUTBOX; ./team send lead x",
            "./team broadcast x",
        ],
    );
    let report = said[0].lines().last().unwrap();
    for part in [
        "[outbox: NOT sent: line 1 to \"leed\": ",
        "did you mean lead?",
        "NOT sent: line 2: a command can send the type message only",
        "NOT sent: line 3: it is not a message",
        "NOT sent: line 4 to \"lead\": the message has 400000 bytes",
    ] {
        assert!(report.contains(part), "{part}: {said:?}");
    }
    assert_eq!(said[1].matches("nothing was sent").count(), 3, "{said:?}");
    assert_eq!(said[2].matches("\n1\n").count(), 3, "{said:?}");
    assert!(said[2].contains("[outbox: NOT sent: line 1 to \"bob\": bob cannot write"), "{said:?}");
    assert!(said[3].contains("cannot be read") && said[3].contains("a symbolic link"), "{said:?}");
    assert!(said[4].contains("cannot be read") && said[4].contains("a pipe"), "{said:?}");
    assert!(said[5].contains("\n1\n") && said[5].contains("a folder"), "{said:?}");
    assert!(said[6].contains("it is full") && said[6].contains("more than 100 lines"), "{said:?}");
    assert!(said[7].contains("[exit code 1]"), "{said:?}");
    for mail in team.mail_of("lead") {
        assert!(mail["type"] != "shutdown_request" && mail.get("via").is_none(), "{mail}");
    }
    assert_left_in_order(&team);
}

/// Landlock alone refuses the files of the team folder, and shows its names.
#[test]
fn a_command_behind_landlock_alone_sends_too() {
    if !has_python("mail of a command behind Landlock alone") {
        return;
    }
    let Some(team) = team_without_namespaces(landlock_version()) else { return };
    copy_program(&program("team"), &team.workspace().join(WRITABLE).join("team"));
    let said = results_of(
        &team,
        &["work/team send lead hello", "work/team ls", "work/team send lead x --from user"],
    );
    assert!(said[0].contains("\n[outbox: sent to lead]"), "{said:?}");
    assert!(said[1].contains("the team folder is hidden from an agent's command"), "{said:?}");
    assert!(said[2].contains("--from does not work here"), "{said:?}");
    assert_eq!(count_of(&team, "hello"), 1);
    assert_left_in_order(&team);
}

/// Mail of commands counts as mail that the model sends.
#[test]
fn mail_of_commands_has_the_limit_of_the_tool() {
    let Some(team) = team_with_program() else { return };
    team.variable("TEAM_MAX_SENDS", "2");
    let said = results_of(&team, &["for text in a b c; do ./team send lead $text; done"]);
    assert!(said[0].contains("[outbox: sent to lead (2); NOT sent: line 3 "), "{said:?}");
    assert!(said[0].contains("you send too many messages"), "{said:?}");
    assert_eq!(["a", "b", "c"].map(|text| count_of(&team, text)), [1, 1, 0]);
}

/// The agent is killed between two lines. Its next process sends those that are left; the recipient drops the others,
/// which have the same ids.
#[test]
fn an_agent_that_is_killed_between_two_lines_sends_each_once() {
    for point in ["send.locked", "send.written", "send.synced", "send.synced+1", "send.synced+2"] {
        let Some(team) = team_with_program() else { return };
        let token = team.workspace().join("token");
        fs::File::create(&token).unwrap();
        team.variable("TEAM_FIRST_PAUSE_MS", "50");
        team.variable("TEAM_FAILPOINTS", &format!("bob/{point}={}", token.display()));
        let replies = [
            calls("lead", &[spawn("bob")]),
            says("lead", "spawned"),
            calls("bob", &[bash("for text in one two three; do ./team send lead $text; done")]),
            says("bob", "bob is back"),
        ];
        let mut lead = scripted_lead(&team, &replies);
        team.eventually("bob reports", || team.has_mail("lead", "bob", "bob is back"));
        assert!(!token.exists(), "bob was not killed at {point}");
        for text in ["one", "two", "three"] {
            team.eventually(&format!("{text} has come"), || count_of(&team, text) > 0);
        }
        let told = team.lines("transcript/bob.jsonl");
        let told: Vec<_> = told.iter().filter(|line| line["kind"] == "note").collect();
        let notes = format!("{told:?}");
        assert!(notes.contains("had put into its outbox: sent to lead (3)"), "{point}: {notes}");
        lead.type_line("/quit");
        assert_eq!(lead.wait().code(), Some(0));
        for text in ["one", "two", "three"] {
            assert_eq!(count_of(&team, text), 1, "{point} {text}: {}", team.describe());
        }
        assert_left_in_order(&team);
    }
}

/// The command itself is cut off with its agent.
#[test]
fn a_killed_agent_sends_the_mail_of_its_command_at_its_next_start() {
    let Some(team) = team_with_program() else { return };
    team.variable("TEAM_FIRST_PAUSE_MS", "50");
    let command = "./team send lead early; echo $TMPDIR >name; touch up; sleep 1000";
    let replies = [
        calls("lead", &[spawn("bob")]),
        says("lead", "spawned"),
        calls("bob", &[bash(command)]),
        says("bob", "bob is back"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    wait_file(&team, "up");
    team.wait_status("lead", "idle");
    assert_eq!(count_of(&team, "early"), 0, "the command has not ended");
    kill_9(&team, "bob");
    team.eventually("bob reports", || team.has_mail("lead", "bob", "bob is back"));
    team.eventually("the mail has come", || count_of(&team, "early") == 1);
    let temp = fs::read_to_string(team.workspace().join("name")).unwrap();
    assert!(!fs::exists(temp.trim()).unwrap(), "{temp} is left");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// Nobody else ends the commands of a teammate that was started by hand, without a lead.
#[test]
fn a_manual_teammate_sends_the_mail_that_its_killed_process_has_left() {
    let Some(team) = team_with_program() else { return };
    let command = "./team send user early; echo $TMPDIR >name; touch up; sleep 1000";
    let model = script(&team, &[calls("bob", &[bash(command)]), says("bob", "bob is back")]);
    let bob = ["teammate", "bob", "--model", &model, "--prompt", "go"];
    let mut first = team.start(&bob);
    wait_file(&team, "up");
    kill_9(&team, "bob");
    wait(&team, &mut first);
    team.team(&[&bob[..], &["--once"]].concat()).expect(0);
    let mail = fs::read_to_string(team.path("inbox/user.jsonl")).unwrap();
    assert_eq!(mail.matches("\"content\":\"early\"").count(), 1, "{mail}");
    let temp = fs::read_to_string(team.workspace().join("name")).unwrap();
    assert!(!fs::exists(temp.trim()).unwrap(), "{temp} is left");
    assert_left_in_order(&team);
}

/// The lead is killed with its command, and resumed.
#[test]
fn a_resumed_lead_sends_the_mail_of_its_command() {
    let Some(team) = team_with_program() else { return };
    let command = "./team send bob early; touch up; sleep 1000";
    let replies = [
        calls("lead", &[spawn("bob")]),
        says("bob", "bob is ready"),
        calls("lead", &[bash(command)]),
        says("lead", "the lead is back"),
        says("bob", "bob has read"),
    ];
    let mut first = scripted_lead(&team, &replies);
    wait_file(&team, "up");
    kill_9(&team, "lead");
    first.wait();
    team.wait_no_process();
    let model = script(&team, &replies);
    team.team(&["lead", "--resume", "-p", "go on", "--model", &model]).expect(0);
    let mail = team.mail_of("bob").into_iter();
    let early = mail.filter(|mail| mail["content"] == "early" && mail["via"] == "command");
    assert_eq!(early.count(), 1, "{}", team.describe());
    assert_left_in_order(&team);
}

/// The hooks of the user see the mail of commands, and may refuse it.
#[test]
fn a_hook_refuses_mail_of_a_command() {
    let Some(team) = team_with_program() else { return };
    let folder = team.workspace().join(".config/team");
    fs::create_dir_all(&folder).unwrap();
    let hook = "grep -q forbidden && { echo no such words >&2; exit 2; }; exit 0";
    let settings = format!("[[hooks]]\nevent = \"message_sent\"\ncommand = '''{hook}'''\n");
    write(&folder.join("settings.toml"), settings);
    let said = results_of(&team, &["./team send lead fine; ./team send lead forbidden"]);
    let report = said[0].lines().last().unwrap();
    let begin =
        "[outbox: sent to lead; NOT sent: line 2 to \"lead\": refused by a hook of the user";
    assert!(report.starts_with(begin) && report.contains("no such words"), "{said:?}");
    assert_eq!(["fine", "forbidden"].map(|text| count_of(&team, text)), [1, 0]);
}

#[test]
fn an_interrupted_command_sends_nothing() {
    let Some(team) = team_with_program() else { return };
    let replies = [
        calls("lead", &[spawn("bob")]),
        says("bob", "bob is ready"),
        calls("lead", &[bash("./team send bob early; touch up; sleep 1000")]),
        calls("lead", &[bash("./team send bob late")]),
        says("lead", "over"),
        says("bob", "bob has read"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    wait_file(&team, "up");
    lead.press("\x03");
    team.wait_status("lead", "idle");
    lead.type_line("go on");
    team.eventually("the second command is over", || printed(&team, "lead").len() == 2);
    assert_eq!(printed(&team, "lead")[1].lines().last(), Some("[outbox: sent to bob]"));
    team.eventually("its mail has come", || team.has_mail("bob", "lead", "late"));
    assert!(!team.has_mail("bob", "lead", "early"));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

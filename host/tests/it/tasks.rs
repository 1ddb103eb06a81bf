//! The shared task list of a team on several hosts: the host of the lead keeps it, and agents of all hosts change it.

use crate::machines::{Machine, Machines};
use crate::rig::process::spawn_tied;
use agent_team::store::failpoint::VARIABLE as FAILPOINTS;
use agent_team::store::relay::{order_id, put_order, read_answer};
use agent_team::store::{Clock, SystemClock};
use agent_team::wire::AgentName;
use agent_team::wire::carried::HostName;
use agent_team::wire::host_order::{HostOrder, Order, OrderAnswer, OrderSide};
use agent_team::wire::task::TaskId;
use agent_team::wire::task_order::{NewTask, OrderedTaskChange, TaskOrder};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// An agent without a terminal, which is killed with the test.
struct Agent(Child);

impl Agent {
    fn start(machine: &Machine, log: &str, args: &[&str]) -> Self {
        let mut command = machine.command("team");
        command.args(args).args(["--model", "rehearsal"]).stdin(Stdio::piped());
        let log = File::create(machine.folder().join(log)).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Self(spawn_tied(command).unwrap())
    }

    fn lead(machine: &Machine) -> Self {
        Self::start(machine, "lead.out", &["lead"])
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns a task as it is on the disk of a host: nothing is repaired by the look.
fn task(machine: &Machine, id: &str) -> Option<Value> {
    let text = fs::read_to_string(machine.dir.task(TaskId::parse(id).unwrap())).ok()?;
    serde_json::from_str(&text).ok()
}

fn status(machine: &Machine, id: &str) -> String {
    task(machine, id).map_or_else(String::new, |task| task["status"].as_str().unwrap().to_owned())
}

/// Returns the history of a task, each event with its name.
fn history(machine: &Machine, id: &str) -> Vec<String> {
    let task = task(machine, id).unwrap();
    let events = task["history"].as_array().unwrap().iter();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    events.map(|event| format!("{} {}", word(&event["by"]), word(&event["what"]))).collect()
}

fn tasks_of(machine: &Machine) -> usize {
    let files = fs::read_dir(machine.dir.task(TaskId::parse("1").unwrap()).parent().unwrap());
    let is_task = |name: &str| Path::new(name).extension().is_some_and(|end| end == "json");
    let names = files.unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| is_task(name)).count()
}

/// Copies the task files of one host to another one, as its relay does, also while the hosts are parted.
fn copy_tasks(from: &Machine, to: &Machine) {
    let folder =
        |machine: &Machine| machine.dir.tasks_lock().ancestors().nth(2).unwrap().to_owned();
    for file in fs::read_dir(folder(from)).unwrap() {
        let file = file.unwrap();
        if file.path().extension().is_some_and(|end| end == "json") {
            let part = folder(to).join("copied");
            fs::copy(file.path(), &part).unwrap();
            fs::rename(&part, folder(to).join(file.file_name())).unwrap();
        }
    }
    fs::create_dir_all(to.dir.tasks_lock().parent().unwrap()).unwrap();
    let lock = File::options().create(true).append(true).open(to.dir.tasks_lock()).unwrap();
    lock.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts a lead on the first host, which the others know then.
fn lead_on_first(machines: &Machines) -> Agent {
    let lead = Agent::lead(&machines.all[0]);
    for other in &machines.all[1..] {
        machines.eventually("the others know the lead", || other.is_alive("lead") == Some(true));
    }
    lead
}

#[test]
fn an_agent_of_another_host_creates_claims_and_completes_tasks_of_the_one_list() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let lead = lead_on_first(&machines);
    let carol = Agent::start(gpu, "carol.out", &["teammate", "carol"]);
    let dave = Agent::start(gpu, "dave.out", &["teammate", "dave"]);
    for name in ["carol", "dave"] {
        machines.wait_known(name, true);
    }
    let ask = |name: &str, text: &str| ann.team_ok(&["send", name, text]);
    ask("carol", "Create a task \"Run make\". Claim task 1.");
    let is_claimed =
        || task(ann, "1").is_some() && history(ann, "1").contains(&"carol claimed".to_owned());
    machines.eventually("the task is claimed", is_claimed);
    let claimed = task(ann, "1").unwrap();
    assert_eq!(claimed["origin"].as_str().unwrap().split(':').next(), Some("carol"));
    // A member of another host is told by the host of the one that assigns it.
    ask("carol", "Create a task \"Be quiet\" for dave after task 1.");
    machines.eventually("dave is told to wait", || gpu.has_mail("dave", "wait until you are told"));
    ask("carol", "Claim task 9.");
    machines.eventually("a refusal has the words of the other host", || {
        gpu.transcript("carol")
            .contains("there is no task 9; there are 1, 2; look at the task list for its id")
    });
    ask("carol", "Complete task 1.");
    machines.eventually("the task is completed", || status(ann, "1") == "completed");
    machines.eventually("dave is told to begin", || gpu.has_mail("dave", "yours and can begin"));
    machines.eventually("she has the answer", || {
        gpu.transcript("carol").contains("Task 2 can begin now (dave's, who was told)")
    });
    // As on one host, she may have given it back at the end of a turn.
    let events = history(ann, "1");
    assert_eq!(events[..2], ["carol created", "carol claimed"], "{events:?}");
    assert_eq!(events.last().unwrap(), "carol completed");
    assert!(events.iter().all(|event| event.starts_with("carol ")), "{events:?}");
    assert_eq!(history(ann, "2")[..2], ["carol created", "carol assigned"]);
    machines.eventually("gpu1 has a copy of the list", || {
        ["1", "2"].iter().all(|id| task(gpu, id) == task(ann, id))
    });
    machines.eventually("no order is left", || {
        fs::read_dir(gpu.dir.relay_orders(OrderSide::Out)).unwrap().count() == 0
    });
    for agent in [lead, carol, dave] {
        agent.kill();
    }
}

#[test]
fn an_idle_member_of_another_host_takes_a_task_and_its_end_releases_it() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let lead = lead_on_first(&machines);
    let gpu = machines.get("gpu1");
    File::create(gpu.dir.settings()).unwrap().write_all(b"auto_claim = true\n").unwrap();
    let carol = Agent::start(gpu, "carol.out", &["teammate", "carol", "--mode", "bypass"]);
    machines.wait_known("carol", true);
    let ann = machines.get("ann");
    assert_eq!(ann.team_ok(&["task", "add", "Run \"sleep 600\"."]).trim(), "1");
    machines.eventually("carol takes the task", || gpu.has_mail("carol", "it is claimed for you"));
    let taken = task(ann, "1").unwrap();
    assert_eq!((&taken["status"], &taken["owner"]), (&"in_progress".into(), &"carol".into()));
    assert_eq!(taken["lease"], gpu.member("carol").unwrap()["incarnation"], "{taken}");
    // The task stays hers while her host is away, and while no relay holds her name.
    machines.network.cut("gpu1");
    machines.eventually("gpu1 is away", || {
        machines.get("ann").member("carol").unwrap()["away"] == true
    });
    machines.get("ann").team_ok(&["task", "ls"]);
    machines.get_mut("ann").kill_relay();
    machines.get("ann").team_ok(&["task", "ls"]);
    assert_eq!(history(machines.get("ann"), "1"), ["user created", "carol claimed"]);
    machines.network.heal("gpu1");
    machines.get_mut("ann").start_relay();
    let ann = machines.get("ann");
    machines.eventually("gpu1 is back", || {
        ann.member("carol").is_some_and(|carol| carol["away"] == false)
            && ann.team_ok(&["host", "ls"]).contains(" up ")
    });
    carol.kill();
    // Nobody looks at the list but the relay.
    machines.eventually("the task is released", || status(ann, "1") == "pending");
    assert_eq!(history(ann, "1"), ["user created", "carol claimed", "system released"]);
    lead.kill();
}

/// Starts a change of the list by the person on a host.
fn start_change(machine: &Machine, args: &[&str]) -> thread::JoinHandle<std::process::Output> {
    let mut command: Command = machine.command("team");
    // A relay needs a moment to start, on a loaded machine a long one.
    command.arg("task").args(args).env("TEAM_SHORTEST_DEADLINE_MS", "60000");
    thread::spawn(move || command.output().unwrap())
}

#[test]
fn a_change_is_made_once_though_relays_are_killed() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    machines.get("ann").limit("leads = [\"ann\", \"gpu1\"]\n");
    machines.get_mut("ann").kill_relay();
    machines.get_mut("ann").start_relay();
    let lead = lead_on_first(&machines);
    // The relay of ann is killed once the task is stored, before the answer.
    let ann = machines.get_mut("ann");
    let token = ann.folder().join("token");
    drop(File::create(&token).unwrap());
    ann.relay_environment = vec![(FAILPOINTS.into(), format!("tasks.stored={}", token.display()))];
    ann.kill_relay();
    ann.start_relay();
    ann.relay_environment.clear();
    let is_up =
        |machines: &Machines| machines.get("gpu1").team_ok(&["host", "ls"]).contains(" up ");
    machines.eventually("gpu1 hears ann", || is_up(&machines));
    let added = start_change(machines.get("gpu1"), &["add", "once"]);
    machines.eventually("the relay of ann is killed", || !token.exists());
    assert_eq!(tasks_of(machines.get("ann")), 1);
    machines.get_mut("ann").kill_relay();
    machines.get_mut("ann").start_relay();
    let output = added.join().unwrap();
    assert!(output.status.success(), "{}\n{}", said(&output), machines.get("ann").describe());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1");
    // The relay of gpu1 is not there, and then carries the order.
    machines.get_mut("gpu1").kill_relay();
    let added = start_change(machines.get("gpu1"), &["add", "twice"]);
    machines.get_mut("gpu1").start_relay();
    let output = added.join().unwrap();
    assert!(output.status.success(), "{}\n{}", said(&output), machines.get("gpu1").describe());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2");
    let ann = machines.get("ann");
    assert_eq!((tasks_of(ann), history(ann, "1"), history(ann, "2")), {
        let created = || vec!["user created".to_owned()];
        (2, created(), created())
    });
    lead.kill();
}

#[test]
fn a_change_while_the_host_of_the_list_is_away_is_refused_with_the_reason() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let lead = lead_on_first(&machines);
    File::create(gpu.dir.settings()).unwrap().write_all(b"auto_claim = true\n").unwrap();
    let carol = Agent::start(gpu, "carol.out", &["teammate", "carol"]);
    machines.wait_known("carol", true);
    machines.network.cut("gpu1");
    ann.team_ok(&["task", "add", "Send lead \"hello\"."]);
    machines.eventually("ann is away", || gpu.member("lead").unwrap()["away"] == true);
    // She sees a task that she cannot claim.
    copy_tasks(ann, gpu);
    let log = gpu.dir.log(&AgentName::member("carol").unwrap());
    let failures = || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let failed = log.lines().filter(|line| line.contains("a task could not be taken"));
        failed.filter(|line| line.contains("which has been away for")).count()
    };
    machines.eventually("she cannot take the task", || failures() > 0);
    let output = gpu.team(&["task", "claim", "1", "--as", "carol"]);
    let why = said(&output);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("the task list is kept on ann, which has been away for"), "{why}");
    assert!(why.contains("the list can be read here, and changed when ann is heard"), "{why}");
    assert!(gpu.team_ok(&["task", "ls"]).contains("Send lead"), "it can be read");
    assert_eq!(history(ann, "1"), ["user created"], "nothing was changed");
    machines.network.heal("gpu1");
    machines.eventually("she does it once ann is back", || status(ann, "1") == "completed");
    assert_eq!(history(ann, "1"), ["user created", "carol claimed", "carol completed"]);
    assert_eq!(failures(), 1, "one reason is one line of her log");
    for agent in [lead, carol] {
        agent.kill();
    }
}

#[test]
fn a_host_changes_the_list_in_no_name_but_those_of_its_own_agents() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1", "gpu2"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let lead = lead_on_first(&machines);
    let dave = Agent::start(machines.get("gpu2"), "dave.out", &["teammate", "dave"]);
    machines.wait_known("dave", true);
    let refusal = |by: &str| {
        let id = order_id(by);
        let by = AgentName::mailbox(by).unwrap();
        let new = NewTask { subject: "forged".into(), ..NewTask::default() };
        let change = OrderedTaskChange::Create(new);
        let order = HostOrder {
            host: HostName::parse("ann").unwrap(),
            until: SystemClock.now() + Duration::from_secs(60),
            order: Order::Task(Box::new(TaskOrder { by, incarnation: None, change })),
        };
        put_order(&gpu.dir, OrderSide::Out, &id, &order).unwrap();
        machines.eventually("the order is answered", || {
            read_answer(&gpu.dir, OrderSide::Out, &id).unwrap().is_some()
        });
        let answer = read_answer(&gpu.dir, OrderSide::Out, &id).unwrap();
        let Some(OrderAnswer::TaskRefused { why, .. }) = answer else {
            panic!("another answer: {answer:?}");
        };
        why
    };
    assert_eq!(refusal("dave"), "ann keeps the task list, and dave is on gpu2, not on gpu1");
    assert!(refusal("lead").contains("obeys the lead only on a host that may have the lead"));
    assert!(refusal("user").contains("obeys the person only on a host that may have the lead"));
    let output = gpu.team(&["task", "add", "x"]);
    assert!(
        !output.status.success() && said(&output).contains("run it on ann"),
        "{}",
        said(&output)
    );
    assert_eq!(tasks_of(ann), 0, "nothing was made");
    for agent in [lead, dave] {
        agent.kill();
    }
}

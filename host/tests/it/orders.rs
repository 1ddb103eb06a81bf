//! Orders between hosts: a lead starts teammates on another host, its supervisor there starts them again after a crash, and the
//! whole ladder of a stop goes over hosts.

use crate::lead::{Lead, said};
use crate::machines::{DEADLINE, Machine, Machines, program};
use crate::rig::process::{signal, wait_until};
use agent_team::store::relay::{
    is_supervised, open_orders, order_id, put_order, read_answer, read_order,
};
use agent_team::store::{Clock, Fsync, SystemClock, roster};
use agent_team::wire::carried::HostName;
use agent_team::wire::host_order::{HostOrder, Order, OrderId, OrderSide, SpawnThere};
use agent_team::wire::permission::PermissionMode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

/// Returns the process of a member on its own host.
fn pid_of(machine: &Machine, member: &str) -> Option<i32> {
    i32::try_from(machine.member(member)?["pid"].as_i64()?).ok()
}

fn is_idle(machine: &Machine, member: &str) -> bool {
    machine.member(member).is_some_and(|it| it["status"] == "idle" && it["alive"] == true)
}

/// Returns an order to start carol on gpu1, for whose answer somebody waits so long.
fn spawn_order(id: &str, within: Duration) -> (OrderId, HostOrder) {
    let spawn = SpawnThere {
        sent_keys: Vec::new(),
        name: "carol".into(),
        role: "trainer".into(),
        role_has_file: false,
        prompt: "Train.".into(),
        message_id: id.into(),
        model: Some("rehearsal".into()),
        model_of_lead: None,
        mode_of_lead: PermissionMode::Default,
        mode: None,
        isolation: None,
        clone: None,
    };
    let order = HostOrder {
        host: HostName::parse("gpu1").unwrap(),
        until: SystemClock.now() + within,
        order: Order::Spawn(Box::new(spawn)),
    };
    (order_id(id), order)
}

fn is_gone(machine: &Machine, pid: i32) -> bool {
    machine.is_alive("carol") != Some(true) && kill(Pid::from_raw(pid), None).is_err()
}

#[test]
fn a_lead_starts_a_teammate_on_another_host_and_ends_it_with_itself() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle, as ann knows", || is_idle(ann, "carol"));
    let entry = ann.member("carol").unwrap();
    assert_eq!((&entry["host"], &entry["role"]), (&"gpu1".into(), &"trainer".into()), "{entry}");
    assert!(gpu.has_mail("carol", "You are carol, the trainer"), "her prompt is mail on her host");
    let supervisor = gpu.dir.clone();
    assert!(is_supervised(&supervisor).unwrap());
    // She writes back, and a second prompt goes to the same process.
    let pid = pid_of(gpu, "carol").unwrap();
    lead.say("Ask carol to send lead \"trained\".");
    machines.eventually("the lead hears of her", || ann.has_mail("lead", "trained"));
    machines.eventually("carol is idle again", || is_idle(ann, "carol"));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("she has the new prompt", || {
        ann.transcript("lead").contains("carol was idle and has the new prompt")
    });
    assert_eq!(pid_of(gpu, "carol"), Some(pid));
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
    machines.eventually("carol has ended with the lead", || is_gone(gpu, pid));
    assert_eq!(gpu.member("carol").unwrap()["status"], "shutdown");
    machines
        .eventually("the supervisor has nothing to do", || !is_supervised(&supervisor).unwrap());
}

#[test]
fn a_headless_lead_waits_for_its_teammate_on_another_host() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    machines.eventually("ann hears gpu1", || ann.team_ok(&["host", "ls"]).contains(" up "));
    let prompt = "Spawn carol (trainer) on gpu1, then ask her to write \"42\" to result.txt.";
    let output =
        ann.team(&["lead", "--model", "rehearsal", "--mode", "accept_edits", "-p", prompt]);
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stderr),
        gpu.describe()
    );
    let result = fs::read_to_string(gpu.folder().join("result.txt")).unwrap_or_default();
    assert_eq!(result.trim(), "42", "{}\n{}", ann.transcript("lead"), gpu.describe());
    machines.eventually("carol has ended with the run", || gpu.is_alive("carol") == Some(false));
}

#[test]
fn a_teammate_that_crashes_on_another_host_is_started_again_there() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    let first = pid_of(gpu, "carol").unwrap();
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    machines.eventually("she is started again", || {
        pid_of(gpu, "carol").is_some_and(|pid| pid != first) && is_idle(ann, "carol")
    });
    ann.team_ok(&["send", "carol", "send lead \"I am back\""]);
    machines.eventually("she goes on", || ann.has_mail("lead", "I am back"));
    // A stop is no crash.
    let second = pid_of(gpu, "carol").unwrap();
    let stopped = ann.team_ok(&["stop", "carol"]);
    assert!(stopped.contains("carol ended when asked"), "{stopped}");
    assert!(is_gone(gpu, second));
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn the_lead_is_told_when_the_supervisor_of_another_host_is_killed_with_its_teammates() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    let pid = pid_of(gpu, "carol").unwrap();
    let parent = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let parent = parent.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
    kill(Pid::from_raw(parent.parse().unwrap()), Signal::SIGKILL).unwrap();
    machines.eventually("carol has ended", || is_gone(gpu, pid));
    machines.eventually("the lead is told", || ann.has_mail("lead", "It was ended on host gpu1"));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("she is there again", || is_idle(ann, "carol"));
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn a_member_that_does_not_answer_is_ended_by_signals_of_its_own_host() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    // Also one that was started by hand.
    let mut carol = gpu.start_member("carol");
    machines.wait_known("carol", true);
    signal(&carol, Signal::SIGSTOP);
    let stopped = ann.team_ok(&["stop", "carol", "--now"]);
    assert!(
        stopped.contains("ended on SIGTERM") || stopped.contains("had to be killed"),
        "{stopped}"
    );
    carol.wait().unwrap();
    machines.wait_known("carol", false);
}

#[test]
fn a_lead_that_ends_while_a_host_is_away_says_who_may_still_run_there() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    let pid = pid_of(gpu, "carol").unwrap();
    machines.network.cut("gpu1");
    machines.eventually("gpu1 is away", || ann.member("carol").unwrap()["away"] == true);
    // At the end of its input alone, it would wait for her for a while if she was at work.
    lead.say("/quit");
    assert_eq!(lead.quit(), Some(1), "{}", said(ann));
    let said = said(ann);
    assert!(
        said.contains("carol is on host gpu1, and may still run: gpu1 has been away"),
        "{said}"
    );
    assert!(kill(Pid::from_raw(pid), None).is_ok(), "nobody is ended because a host is away");
    machines.network.heal("gpu1");
    machines.eventually("the request to end has reached her", || is_gone(gpu, pid));
}

#[test]
fn teammates_whose_lead_is_not_heard_for_too_long_are_ended_and_others_stay() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let settings = gpu.folder().join(".team/settings.toml");
    File::create(settings).unwrap().write_all(b"lead_away = 3\n").unwrap();
    let mut dave = gpu.start_member("dave");
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    let pid = pid_of(gpu, "carol").unwrap();
    lead.kill();
    machines.eventually("carol has ended", || is_gone(gpu, pid));
    // Her host says why a moment after her process has said that it ends.
    machines.eventually("the cause is known", || {
        gpu.member("carol").unwrap()["last_exit"]["cause"] == "lead_lost"
    });
    assert_eq!(gpu.is_alive("dave"), Some(true), "the user has started him");
    dave.kill().unwrap();
    dave.wait().unwrap();
}

#[test]
fn a_lead_whose_host_was_lost_is_resumed_there_and_its_teammate_is_ended_meanwhile() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let settings = machines.get("gpu1").folder().join(".team/settings.toml");
    File::create(settings).unwrap().write_all(b"lead_away = 3\n").unwrap();
    let spawn = |machines: &Machines, args: &[&str]| {
        let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
        let mut lead = Lead::start(ann, args);
        machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
        lead.say("Spawn carol (trainer) on gpu1.");
        // On ann, she may be shown as she was before.
        machines.eventually("carol is idle", || is_idle(gpu, "carol"));
        (lead, pid_of(gpu, "carol").unwrap())
    };
    let (lead, first) = spawn(&machines, &[]);
    machines.get("ann").team_ok(&["send", "carol", "send lead \"before\""]);
    let has = |machines: &Machines, text| machines.get("ann").has_mail("lead", text);
    machines.eventually("the lead has it", || has(&machines, "before"));
    machines.get_mut("ann").kill_all();
    lead.kill();
    machines.eventually("carol has ended", || is_gone(machines.get("gpu1"), first));
    machines.get_mut("ann").start_relay();
    let (lead, second) = spawn(&machines, &["--resume"]);
    assert_ne!(first, second);
    assert!(has(&machines, "before"), "it is the same conversation");
    let memory = machines.get("gpu1").transcript("carol");
    assert!(memory.contains("before"), "she has hers: {memory}");
    machines.eventually("ann knows of the new one", || {
        machines.get("ann").team(&["send", "carol", "send lead \"after\""]).status.success()
    });
    machines.eventually("the lead has that, too", || has(&machines, "after"));
    assert_eq!(lead.quit(), Some(0));
    machines.wait_known("carol", false);
}

#[test]
fn teammates_of_a_lead_that_is_cut_off_work_until_lead_away_and_not_longer() {
    unheard_lead(Some(12));
}

/// Cuts the host of a lead off, whose teammate works on another one, until that ends it. `lead_away` is in seconds; `None` for the
/// default, 600.
pub(crate) fn unheard_lead(lead_away: Option<u64>) {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    if let Some(seconds) = lead_away {
        let settings = gpu.folder().join(".team/settings.toml");
        File::create(settings)
            .unwrap()
            .write_all(format!("lead_away = {seconds}\n").as_bytes())
            .unwrap();
    }
    let limit = Duration::from_secs(lead_away.unwrap_or(600));
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    let pid = pid_of(gpu, "carol").unwrap();
    machines.network.cut("ann");
    let cut = Instant::now();
    // She has work meanwhile, by the mail of her own host.
    let mut number = 0;
    let mut last_turn = Duration::ZERO;
    while !is_gone(gpu, pid) {
        let before = turns(gpu);
        number += 1;
        // Refused once she has ended.
        drop(gpu.team(&["send", "carol", &format!("send user \"word {number}\"")]));
        wait_until(Duration::from_secs(1), || turns(gpu) > before || is_gone(gpu, pid));
        if turns(gpu) > before {
            last_turn = cut.elapsed();
        }
        assert!(cut.elapsed() < limit + DEADLINE, "{}", gpu.describe());
    }
    let ended = cut.elapsed();
    println!(
        "lead_away {limit:?}: the last turn began {last_turn:?} after the cut, she ended after {ended:?}"
    );
    // The last sign of life came up to two seconds before the cut, and a missed one counts as two more.
    assert!(ended + Duration::from_secs(6) > limit && !last_turn.is_zero(), "{}", gpu.describe());
    let turns_at_end = turns(gpu);
    machines.network.heal("ann");
    machines.eventually("the lead is told", || {
        ann.member("carol").is_some_and(|it| it["alive"] == false)
    });
    machines.eventually("the cause is known", || {
        gpu.member("carol").unwrap()["last_exit"]["cause"] == "lead_lost"
    });
    assert_eq!(turns(gpu), turns_at_end, "no model is asked after her end");
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

/// Returns the number of answers of the model of carol so far.
fn turns(machine: &Machine) -> usize {
    machine.transcript("carol").matches("\"kind\":\"assistant\"").count()
}

#[test]
fn teammates_go_on_while_the_relay_of_their_host_is_killed() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut lead = Lead::start(machines.get("ann"), &[]);
    machines
        .eventually("gpu1 knows the lead", || machines.get("gpu1").is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    // Before her answer has come, most likely: the next relay goes on with the order.
    machines.eventually("the order is given", || {
        let ann = machines.get("ann");
        !open_orders(&ann.dir, OrderSide::Out).unwrap().is_empty() || is_idle(ann, "carol")
    });
    machines.get_mut("ann").kill_relay();
    machines.get_mut("ann").start_relay();
    machines.eventually("carol is idle", || is_idle(machines.get("ann"), "carol"));
    let pid = pid_of(machines.get("gpu1"), "carol").unwrap();
    machines.get_mut("gpu1").kill_relay();
    machines.eventually("gpu1 is away", || {
        machines.get("ann").member("carol").unwrap()["away"] == true
    });
    machines.get_mut("gpu1").start_relay();
    machines.eventually("gpu1 is back", || {
        machines.get("ann").member("carol").unwrap()["away"] == false
    });
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    assert_eq!(pid_of(gpu, "carol"), Some(pid));
    ann.team_ok(&["send", "carol", "send lead \"still here\""]);
    machines.eventually("she answers", || ann.has_mail("lead", "still here"));
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
    machines.eventually("carol has ended with the lead", || is_gone(gpu, pid));
}

#[test]
fn a_host_is_chosen_by_a_label_and_a_wrong_one_is_refused() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    machines.eventually("ann hears gpu1", || {
        machines.get("ann").team_ok(&["host", "ls"]).contains(" up ")
    });
    let gpu = machines.get_mut("gpu1");
    assert_eq!(gpu.end_relay(), Some(0));
    gpu.relay_program =
        Some((program("team-host"), vec!["run".into(), "--label".into(), "gpu".into()]));
    let nats = gpu.server_args();
    gpu.relay_program.as_mut().unwrap().1.extend(nats);
    gpu.start_relay();
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    machines.eventually("ann knows the label", || {
        let hosts = ann.team_ok(&["host", "ls"]);
        hosts.contains("LABELS") && hosts.contains(" gpu ") && hosts.contains("up")
    });
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    assert_eq!(ann.member("carol").unwrap()["host"], "gpu1");
    lead.say("Spawn dave on tpu.");
    machines.eventually("the lead is told which hosts there are", || {
        ann.transcript("lead").contains("the hosts are ann, gpu1 (gpu)")
    });
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn a_host_carries_out_orders_within_its_own_limits() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    gpu.limit("max_members = 1\nmode = \"plan\"\n");
    let mut lead = Lead::start(ann, &["--mode", "bypass"]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    assert_eq!(gpu.member("carol").unwrap()["mode"], "plan", "the limit of her host");
    let mut refused = |machines: &Machines, name: &str, whys: &[&str]| {
        let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
        let count = || {
            let said = ann.transcript("lead");
            whys.iter().map(|why| said.matches(why).count()).sum::<usize>()
        };
        let before = count();
        lead.say(&format!("Spawn {name} on gpu1."));
        machines.eventually(whys[0], || count() > before);
        assert_ne!(gpu.is_alive(name), Some(true));
    };
    let too_many = "it takes at most 1 teammates of other hosts (max_members)";
    refused(&machines, "dave", &[too_many]);
    gpu.limit("folders = [\"/nowhere\"]\n");
    refused(&machines, "erin", &["is in none of the `folders` of host.toml"]);
    // Its relay may read them before its supervisor does.
    let obeys_nobody = "that host obeys no orders of ann";
    gpu.limit("most = 1\n");
    refused(&machines, "fred", &["its limits cannot be read", obeys_nobody]);
    // A relay reads them at its start, too.
    machines.get_mut("gpu1").kill_relay();
    machines.get("gpu1").limit("leads = []\n");
    machines.get_mut("gpu1").start_relay();
    refused(&machines, "gina", &[obeys_nobody]);
    assert_eq!(lead.quit(), Some(0), "{}", said(machines.get("ann")));
}

#[test]
fn a_role_that_only_the_host_of_the_lead_has_is_not_played_without_its_limits() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let role = b"---\nname: reader\ndescription: reads\ntools: read_file\n---\nRead.\n";
    let put = |machine: &Machine| {
        fs::create_dir_all(machine.dir.roles()).unwrap();
        File::create(machine.dir.roles().join("reader.md")).unwrap().write_all(role).unwrap();
    };
    put(ann);
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (reader) on gpu1.");
    machines.eventually("it is refused", || {
        ann.transcript("lead").contains("the role reader has a file on ann and none on that host")
    });
    assert_ne!(gpu.is_alive("carol"), Some(true));
    put(gpu);
    lead.say("Spawn carol (reader) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn an_agent_that_starts_after_nobody_waits_for_it_any_more_is_ended() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    machines.eventually("ann hears gpu1", || ann.team_ok(&["host", "ls"]).contains("up"));
    // Her start is held up by the lock of the roster of her host.
    let team = gpu.dir.clone();
    let (held, is_held) = std::sync::mpsc::channel();
    let holder = std::thread::spawn(move || {
        roster::update(&team, Fsync::Never, |_| {
            held.send(()).unwrap();
            std::thread::park_timeout(Duration::from_secs(3));
        })
        .unwrap();
    });
    is_held.recv().unwrap();
    let (id, order) = spawn_order("late", Duration::from_millis(1500));
    put_order(&ann.dir, OrderSide::Out, &id, &order).unwrap();
    machines.eventually("the order is given up", || {
        read_order(&ann.dir, OrderSide::Out, &id).unwrap().is_none()
    });
    holder.join().unwrap();
    machines.eventually("carol has started after all", || {
        read_answer(&gpu.dir, OrderSide::In, &id).unwrap().is_some()
    });
    let log = || fs::read_to_string(gpu.dir.relay_log()).unwrap_or_default();
    machines.eventually("she is ended: her name is ann's", || {
        log().contains("an agent has ended: its name belongs to another host")
    });
    machines.eventually("and does not come back", || gpu.is_alive("carol") == Some(false));
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn a_lead_starts_a_teammate_of_a_host_that_was_given_up_anew() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1", "gpu2"]) else { return };
    let mut lead = Lead::start(machines.get("ann"), &[]);
    for host in ["gpu1", "gpu2"] {
        machines.eventually("the hosts know the lead", || {
            machines.get(host).is_alive("lead") == Some(true)
        });
    }
    lead.say("Spawn carol (trainer) and dave on gpu1.");
    machines.eventually("dave is idle", || is_idle(machines.get("ann"), "dave"));
    machines.get_mut("gpu1").kill_all();
    let ann = machines.get("ann");
    machines.eventually("gpu1 is away", || ann.member("carol").unwrap()["away"] == true);
    let given_up = ann.team_ok(&["host", "give-up", "gpu1"]);
    assert!(given_up.contains("carol") && given_up.contains("dave"), "{given_up}");
    // On this host, since no other one is named; and on a third one.
    lead.say("Spawn carol (trainer).");
    lead.say("Spawn dave on gpu2.");
    machines.eventually("carol is here", || {
        is_idle(ann, "carol") && ann.member("carol").unwrap()["host"] != "gpu1"
    });
    machines.eventually("dave is on gpu2", || {
        is_idle(ann, "dave") && ann.member("dave").unwrap()["host"] == "gpu2"
    });
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn a_supervisor_that_cannot_start_says_why_and_is_not_started_again_and_again() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    let settings = gpu.folder().join(".team/settings.toml");
    File::create(&settings).unwrap().write_all(b"lead_away = \"soon\"\n").unwrap();
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("the lead is told the reason", || {
        let transcript = ann.transcript("lead");
        transcript.contains("no supervisor runs there") && transcript.contains("lead_away")
    });
    let log = fs::read_to_string(gpu.dir.relay_log()).unwrap();
    assert_eq!(log.matches("the supervisor of this host is started").count(), 1, "{log}");
    fs::remove_file(settings).unwrap();
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn a_prompt_that_does_not_reach_a_host_ends_nobody_there() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    let pid = pid_of(gpu, "carol").unwrap();
    machines.network.cut("gpu1");
    let (id, order) = spawn_order("again", Duration::from_millis(1500));
    put_order(&ann.dir, OrderSide::Out, &id, &order).unwrap();
    machines.eventually("the order is given up", || {
        read_order(&ann.dir, OrderSide::Out, &id).unwrap().is_none()
    });
    machines.network.heal("gpu1");
    machines.eventually("gpu1 is back", || ann.member("carol").unwrap()["away"] == false);
    ann.team_ok(&["send", "carol", "send lead \"still here\""]);
    machines.eventually("she goes on", || ann.has_mail("lead", "still here"));
    assert_eq!(pid_of(gpu, "carol"), Some(pid));
    let log = fs::read_to_string(ann.dir.relay_log()).unwrap();
    assert!(!log.contains("a name is taken back"), "{log}");
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn a_lead_that_quits_while_a_teammate_starts_on_another_host_leaves_none_behind() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("the order is given", || {
        !open_orders(&ann.dir, OrderSide::Out).unwrap().is_empty() || is_idle(ann, "carol")
    });
    lead.say("/quit");
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
    machines.eventually("nobody runs on gpu1", || {
        gpu.is_alive("carol") != Some(true) && !is_supervised(&gpu.dir).unwrap()
    });
    assert!(open_orders(&ann.dir, OrderSide::Out).unwrap().is_empty());
}

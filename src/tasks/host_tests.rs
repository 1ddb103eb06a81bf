//! Tests of the task list of a team on several hosts, on the host that keeps it and on another one.

use super::*;
use crate::bus::MailLimits;
use crate::store::relay::{
    HostIdentity, KnownHost, RelayLock, Servers, make_order_folders, name_host, open_orders,
    put_answer, read_order, write_hosts,
};
use crate::store::{Fsync, SystemClock, test_team};
use crate::wire::WallTime;
use crate::wire::carried::{HostName, RELAY_PROTOCOL};
use crate::wire::host_order::{Order, OrderAnswer, OrderSide};
use crate::wire::roster::Lead;
use crate::wire::task_order::{ChangedTask, TaskOrder};
use std::thread;

fn name(name: &str) -> AgentName {
    AgentName::mailbox(name).unwrap()
}

/// A team folder of the host `own`, as its relay has written it: the lead is on ann, carol on gpu1.
struct Host {
    _folder: tempfile::TempDir,
    tasks: Tasks,
}

impl Host {
    fn new(own: &str) -> Self {
        let (folder, dir) = test_team();
        let limits = MailLimits { fsync: Fsync::Never, ..MailLimits::default() };
        let clock: SharedClock = Arc::new(SystemClock);
        let bus = Arc::new(Bus::new(dir, limits, Arc::clone(&clock)));
        let host = Self { _folder: folder, tasks: Tasks::new(bus, clock, |_, _| true) };
        let dir = host.tasks.dir();
        make_order_folders(dir).unwrap();
        let own = HostName::parse(own).unwrap();
        let HostIdentity { host: own, .. } =
            name_host(dir, own, "team", Servers::default(), None).unwrap();
        let other = |host: &str| (host != own.as_str()).then(|| host.to_owned());
        roster::update(dir, Fsync::Never, |roster| {
            let lead = Lead { host: other("ann"), alive: Some(true), ..Lead::default() };
            roster.lead = Some(lead.into());
            let carol = roster.enter("carol", 0.0);
            (carol.status, carol.incarnation) = (Status::Idle, "carol-1".into());
            (carol.host, carol.alive) = (other("gpu1"), Some(true));
        })
        .unwrap();
        host
    }

    fn change_carol(&self, change: impl FnOnce(&mut Member)) {
        roster::update(self.tasks.dir(), Fsync::Never, |roster| {
            change(roster.member_mut("carol").unwrap());
        })
        .unwrap();
    }

    /// Writes what its relay knows of ann.
    fn hear_ann(&self, away_since: Option<WallTime>) {
        let ann = KnownHost {
            host: HostName::parse("ann").unwrap(),
            version: "1".into(),
            protocol: RELAY_PROTOCOL,
            labels: Vec::new(),
            away_since,
            is_heard: true,
            waiting: 0,
            waiting_for: BTreeMap::new(),
            is_given_up: false,
            told: None,
        };
        write_hosts(self.tasks.dir(), &[ann]).unwrap();
    }

    fn add(&self) -> TaskId {
        let new = NewTask { subject: "x".into(), ..NewTask::default() };
        self.tasks.create(&new, &AgentName::lead()).unwrap().task.id
    }
}

fn order_of_carol(change: OrderedTaskChange) -> TaskOrder {
    TaskOrder { by: name("carol"), incarnation: Some("carol-1".into()), change }
}

fn changed(answer: Option<OrderAnswer>) -> ChangedTask {
    match answer {
        Some(OrderAnswer::TaskChanged(changed)) => *changed,
        other => panic!("another answer: {other:?}"),
    }
}

#[test]
fn a_claim_of_a_member_of_another_host_lasts_until_that_member_ends() {
    let ann = Host::new("ann");
    let id = ann.add();
    let claim = order_of_carol(OrderedTaskChange::Claim { task_id: id });
    // No relay holds her life lock: it was killed.
    let task = changed(ann.tasks.carry_out(&claim, false)).task.unwrap();
    assert_eq!((task.owner.as_deref(), task.lease.as_deref()), (Some("carol"), Some("carol-1")));
    ann.change_carol(|carol| carol.away_since = Some(WallTime::from(1.0)));
    assert!(ann.tasks.release_abandoned().unwrap().is_empty(), "her host is merely away");
    ann.change_carol(|carol| carol.incarnation = "carol-2".into());
    assert_eq!(
        ann.tasks.release_abandoned().unwrap().len(),
        1,
        "her next process began without it"
    );
    let again = order_of_carol(OrderedTaskChange::Claim { task_id: id });
    assert_eq!(ann.tasks.carry_out(&again, false), None, "that process is not known");
    let again = TaskOrder { incarnation: Some("carol-2".into()), ..again };
    changed(ann.tasks.carry_out(&again, false));
    ann.change_carol(|carol| carol.alive = Some(false));
    assert_eq!(ann.tasks.release_abandoned().unwrap().len(), 1);
    let late = TaskOrder { incarnation: None, ..again };
    let Some(OrderAnswer::TaskRefused { why, hint }) = ann.tasks.carry_out(&late, false) else {
        panic!("a claim of a member that has ended");
    };
    let here = ann.tasks.claim(id, &name("carol")).unwrap_err();
    assert_eq!((why, hint), (here.to_string(), here.hint()));
}

#[test]
fn an_order_that_may_have_been_carried_out_is_not_carried_out_twice() {
    let ann = Host::new("ann");
    let (first, _) = (ann.add(), ann.add());
    let take = order_of_carol(OrderedTaskChange::TakeNext);
    let taken = changed(ann.tasks.carry_out(&take, false)).task.unwrap();
    let again = changed(ann.tasks.carry_out(&take, true)).task.unwrap();
    assert_eq!((taken.id, again.id), (first, first));
    let new = NewTask {
        subject: "waits".into(),
        blocked_by: vec![first],
        origin: Some("carol:1".into()),
        ..NewTask::default()
    };
    let create = order_of_carol(OrderedTaskChange::Create(new));
    let made = changed(ann.tasks.carry_out(&create, false));
    assert_eq!(made.waits_for, [first]);
    assert_eq!(changed(ann.tasks.carry_out(&create, true)), made);
    let done = TaskEdit::status(TaskStatus::Completed, None);
    let done = TaskOrder {
        by: AgentName::user(),
        incarnation: None,
        change: OrderedTaskChange::Update { task_id: first, edit: done },
    };
    let ended = changed(ann.tasks.carry_out(&done, false));
    assert_eq!(ended.ready, [made.task.unwrap()]);
    assert_eq!(changed(ann.tasks.carry_out(&done, true)), ended);
    let refused = ann.tasks.carry_out(&done, false);
    assert!(matches!(refused, Some(OrderAnswer::TaskRefused { .. })), "a new one is refused");
}

#[test]
fn an_idle_member_of_another_host_counts_as_one_that_takes_tasks() {
    let ann = Host::new("ann");
    assert!(!ann.tasks.is_any_wanted().unwrap());
    ann.add();
    assert!(ann.tasks.is_any_wanted().unwrap());
    let now = ann.tasks.clock.now();
    ann.change_carol(|carol| carol.away_since = Some(now));
    assert!(ann.tasks.is_any_wanted().unwrap(), "her host may come back at once");
    ann.change_carol(|carol| carol.away_since = Some(WallTime::from(1.0)));
    assert!(!ann.tasks.is_any_wanted().unwrap(), "nobody waits for her any more");
    ann.change_carol(|carol| (carol.away_since, carol.alive) = (None, Some(false)));
    assert!(!ann.tasks.is_any_wanted().unwrap());
}

#[test]
fn the_lead_that_has_moved_takes_the_list_with_it() {
    let gpu = Host::new("gpu1");
    let take = order_of_carol(OrderedTaskChange::TakeNext);
    let Some(OrderAnswer::TaskRefused { why, hint }) = gpu.tasks.carry_out(&take, false) else {
        panic!("the list is not kept here");
    };
    assert_eq!(why, "the lead is on ann now, which keeps the task list");
    assert_eq!(hint, "try again");
}

#[test]
fn a_host_that_does_not_keep_the_list_reads_a_copy_and_writes_nothing() {
    let (ann, gpu) = (Host::new("ann"), Host::new("gpu1"));
    let id = ann.add();
    let mut task = ann.tasks.get(id).unwrap().0;
    // Of an owner that is unknown on gpu1.
    (task.status, task.owner) = (TaskStatus::InProgress, Some("dave".into()));
    task.lease = Some("dave-1".into());
    let mut copy = TaskList::of(gpu.tasks.dir(), Fsync::Never);
    copy.change(|_, _| (vec![task.clone()], ())).unwrap();
    let read = || std::fs::read_to_string(gpu.tasks.dir().task(id)).unwrap();
    let copied = read();
    assert_eq!(gpu.tasks.snapshot().unwrap().board[&id], task);
    assert!(gpu.tasks.release_abandoned().unwrap().is_empty());
    assert_eq!(read(), copied);
}

#[test]
fn a_change_while_the_other_host_is_away_says_so_and_leaves_nothing() {
    let gpu = Host::new("gpu1");
    let _relay = RelayLock::take(gpu.tasks.dir()).unwrap().unwrap();
    let since = gpu.tasks.clock.now().since(WallTime::from(40.0));
    gpu.hear_ann(Some(WallTime::from(since.as_secs_f64())));
    let new = NewTask { subject: "x".into(), ..NewTask::default() };
    let why = gpu.tasks.create(&new, &name("carol")).unwrap_err();
    let words = why.to_string();
    assert!(
        words.starts_with("the task list is kept on ann, which has been away for 4"),
        "{words}"
    );
    assert_eq!(
        why.hint(),
        "nothing was changed; the list can be read here, and changed when ann is heard"
    );
    assert_eq!(why.cause(), "the task list is kept on ann, which is away");
    assert!(open_orders(gpu.tasks.dir(), OrderSide::Out).unwrap_or_default().is_empty());
}

/// Answers the next order of a host as a relay would.
fn answer_next(dir: &TeamDir, answer: &OrderAnswer) -> TaskOrder {
    loop {
        let open = open_orders(dir, OrderSide::Out).unwrap_or_default();
        let Some(id) = open.first() else {
            thread::yield_now();
            continue;
        };
        let Some(order) = read_order(dir, OrderSide::Out, id).unwrap() else { continue };
        put_answer(dir, OrderSide::Out, id, answer).unwrap();
        let Order::Task(order) = order.order else { panic!("another order") };
        return *order;
    }
}

#[test]
fn a_change_on_another_host_is_an_order_with_the_words_of_its_answer() {
    let gpu = Host::new("gpu1");
    let _relay = RelayLock::take(gpu.tasks.dir()).unwrap().unwrap();
    gpu.hear_ann(None);
    let id = TaskId::parse("7").unwrap();
    let given = |answer: OrderAnswer| {
        let dir = gpu.tasks.dir().clone();
        let relay = thread::spawn(move || answer_next(&dir, &answer));
        let done = gpu.tasks.claim(id, &name("carol"));
        (done, relay.join().unwrap())
    };
    let refusal = OrderAnswer::TaskRefused { why: "why".into(), hint: "hint".into() };
    let (refused, order) = given(refusal);
    let refused = refused.unwrap_err();
    assert_eq!((refused.to_string(), refused.hint()), ("why".into(), "hint".into()));
    assert_eq!(order.by, name("carol"));
    assert_eq!(order.change, OrderedTaskChange::Claim { task_id: id });
    let task = Task { id, subject: "x".into(), ..Task::default() };
    let changed = ChangedTask { task: Some(task.into()), ..ChangedTask::default() };
    let (done, _) = given(OrderAnswer::TaskChanged(Box::new(changed)));
    assert_eq!(done.unwrap().task.id, id);
    let left = std::fs::read_dir(gpu.tasks.dir().relay_orders(OrderSide::Out)).unwrap().count();
    assert_eq!(left, 0, "an answered order is removed");
}

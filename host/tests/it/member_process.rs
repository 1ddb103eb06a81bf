//! Members as processes of their own, for tests that stop and kill them at any moment: this test binary, started again.
//!
//! A process runs `entry`, a test that does nothing unless the environment has its orders. It logs what was accepted in a
//! folder that no fault of its host takes away. What has arrived stands in its transcript.

use crate::machines::variable;
use crate::rig::judge::Mail;
use crate::rig::process::spawn_tied;
use crate::traffic::{id_of, mail_of};
use agent_team::bus::{Bus, MailLimits, Outgoing};
use agent_team::store::{
    Fsync, Keyring, LifeLock, LifeRecord, MailNotice, MailPolicy, Mailbox, SystemClock, TeamDir,
    Transcript,
};
use agent_team::wire::AgentName;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const VARIABLE: &str = "TEAM_RIG_MEMBER";

/// The pause of a sender between two messages. A sync of a sender makes durable what others have written, on some file systems:
/// so most of the time, none is on its way.
const SEND_EVERY: Duration = Duration::from_millis(30);

/// The pause of an owner between two looks at its inbox, so that lines are there when the power is cut.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// The size of a message: relays compact their files again and again.
const BYTES: usize = 3000;

/// The orders of a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MemberOrders {
    /// Its team folder.
    pub(crate) team: PathBuf,
    pub(crate) name: String,
    /// The members to which it writes.
    pub(crate) to: Vec<String>,
    /// The number of its first message. A number is never used twice.
    pub(crate) first: u64,
    /// The folder of the logs.
    pub(crate) logs: PathBuf,
}

/// Returns the log of the messages of a member that were accepted.
pub(crate) fn accepted_log(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{name}.accepted"))
}

/// Returns the log of the copies that the mailbox of a member has dropped by their ids.
pub(crate) fn copies_log(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{name}.copies"))
}

/// Returns the file that ends all senders.
pub(crate) fn enough(logs: &Path) -> PathBuf {
    logs.join("enough")
}

/// Starts the process of a member.
pub(crate) fn start(orders: &MemberOrders) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "member_process::entry", "--nocapture"]);
    command.env(VARIABLE, serde_json::to_string(orders).unwrap());
    let said = append_to(&orders.logs.join(format!("{}.err", orders.name)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    spawn_tied(command).unwrap()
}

fn append_to(path: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(path).unwrap()
}

#[test]
fn entry() {
    let Some(orders) = variable(VARIABLE) else { return };
    let orders: MemberOrders = serde_json::from_str(&orders).unwrap();
    // A member with one thread left would look like one that gets no mail.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let dir = TeamDir::open(&orders.team).unwrap();
    let name = AgentName::member(&orders.name).unwrap();
    let life = LifeLock::take(&dir, &name, LifeRecord::of_this_process()).unwrap();
    thread::scope(|threads| {
        threads.spawn(|| own(&dir, &life, &orders));
        send(&dir, &name, &orders);
    });
}

/// Takes in the mail of the member until it is killed.
fn own(dir: &TeamDir, life: &LifeLock, orders: &MemberOrders) {
    let mut copies = append_to(&copies_log(&orders.logs, &orders.name));
    let keyring = Arc::new(Keyring::new(dir.clone()));
    keyring.own(life.name(), Fsync::Always).unwrap();
    let transcript = Transcript::open(dir, life.name()).unwrap();
    let policy = MailPolicy { fsync: Fsync::Always, max_content: 10_000 };
    let clock = Arc::new(SystemClock);
    let mut mailbox = Mailbox::open(dir, life, transcript, policy, clock, keyring).unwrap();
    loop {
        mailbox.acknowledge_events().unwrap();
        if mailbox.has_unread() {
            for notice in mailbox.drain().unwrap().notices {
                if let MailNotice::Repeated { id, .. } = notice
                    && let Some(mail) = mail_of(&id)
                {
                    note(&mut copies, &mail);
                }
            }
            mailbox.mark_taken().unwrap();
        }
        let _settled = mailbox.settle().unwrap();
        thread::park_timeout(LOOK_EVERY);
    }
}

/// Writes to all others, and logs each message after it was accepted.
fn send(dir: &TeamDir, name: &AgentName, orders: &MemberOrders) {
    let mut accepted = append_to(&accepted_log(&orders.logs, &orders.name));
    let enough = enough(&orders.logs);
    let bus = Bus::new(dir.clone(), MailLimits::default(), Arc::new(SystemClock));
    for number in orders.first.. {
        if enough.exists() {
            return;
        }
        for to in &orders.to {
            let mail = Mail::new(name.as_str(), to, number);
            let content = format!("{number:0BYTES$}");
            let outgoing = Outgoing { id: Some(id_of(&mail)), ..Outgoing::text(content) };
            // A refused one is not counted: the hosts may not know each other yet.
            if bus.send(name, to, outgoing).is_ok() {
                note(&mut accepted, &mail);
            }
        }
        thread::park_timeout(SEND_EVERY);
    }
}

/// Writes a line that `judge::parse_log` reads.
fn note(log: &mut File, Mail { from, to, number }: &Mail) {
    log.write_all(format!("{from} {to} {number}\n").as_bytes()).unwrap();
}

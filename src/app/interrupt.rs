//! Interrupts the running turn of a teammate, in the user's name. The teammate's process and its memory stay.

use super::names::{did_you_mean, member_name, member_names};
use super::stop_members::is_alive;
use crate::bus::{Bus, names, new_id};
use crate::error::{Exit, Failure, OrFail};
use crate::os::deadline::deadline;
use crate::os::spawn::{spawn_blocking, spawn_local};
use crate::store::asynchronous::offload;
use crate::store::tail::Tail;
use crate::store::{Liveness, TeamDir, liveness, roster};
use crate::wire::AgentName;
use crate::wire::message::{Body, Correlation};
use crate::wire::transcript::{Entry, InterruptOutcome, Line};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// The time that a teammate has to end its turn. A tool is killed with its processes, and its turn is recorded.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The result of an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// The turn was ended.
    Turn,
    /// No turn was running: nothing has changed.
    NoTurn,
    /// The process has ended meanwhile.
    Ended,
}

impl Interrupted {
    /// Returns the word for the result in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Turn => InterruptOutcome::Interrupted.word(),
            Self::NoTurn => InterruptOutcome::NoTurn.word(),
            Self::Ended => "ended",
        }
    }

    /// Describes the result to a person; the name of the teammate stands before.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Turn => "was interrupted and is waiting for mail",
            Self::NoTurn => "is idle: there is no turn to interrupt",
            Self::Ended => "has ended before it could be interrupted",
        }
    }
}

/// Parses the name of a teammate whose turn is to be interrupted. Fails if there is no such member, or if it does not run.
pub(crate) fn interruptible(team: &TeamDir, given: &str) -> Result<AgentName, Failure> {
    if given == "lead" {
        let (what, why) =
            ("`team interrupt` cannot interrupt the lead", "only the user at its terminal can");
        return Err(Failure::new(Exit::Usage, what, why, "press Ctrl-C there"));
    }
    let name = member_name(given)?;
    let members = member_names(&*roster::read(team)?);
    if is_alive(team, &name) {
        return Ok(name);
    }
    let hint = "`team ls` lists the members";
    if members.contains(&name) {
        let what = format!("{name} was not interrupted");
        return Err(Failure::new(Exit::Failure, what, "it is not running", hint));
    }
    let why = match members.as_slice() {
        [] => "the team has no members".into(),
        members => format!("the team is: {}", names(members)),
    };
    let hint = format!("{}{hint}", did_you_mean(&name, &members));
    Err(Failure::new(Exit::Failure, format!("there is no member {name}"), why, hint))
}

/// Interrupts the running turn of a teammate, and waits until it has ended. Fails if the teammate does not run, or does not
/// answer.
pub(crate) async fn interrupt(
    bus: &Arc<Bus>,
    name: &AgentName,
    reason: Option<String>,
) -> Result<Interrupted, Failure> {
    let team = bus.dir();
    let refuse = |why: String, hint: &str| {
        Failure::new(Exit::Failure, format!("{name} was not interrupted"), why, hint)
    };
    let Ok(Liveness::Alive(Some(record))) = liveness::probe(team, name) else {
        return Err(refuse("it is not running".into(), "`team ls` lists the members"));
    };
    let user = AgentName::user();
    let (request_id, incarnation) = (new_id(&user), record.incarnation);
    // The answer cannot be older than the end of the transcript now.
    let mut answers = Tail::of_last(team.transcript(name), 0);
    let correlation =
        Correlation { request_id: request_id.clone(), incarnation: incarnation.clone() };
    let (sender, to) = (Arc::clone(bus), name.clone());
    let send = move || sender.control(&user, &to, Body::InterruptRequest { reason }, correlation);
    offload(send).await.map_err(|why| refuse(why.to_string(), &why.hint()))?;
    let give_up = tokio::time::Instant::now() + deadline(ANSWER_LIMIT);
    while tokio::time::Instant::now() < give_up {
        // Its last words are in the transcript before its life lock is free.
        let has_ended = !is_of(team, name, &incarnation);
        let id = request_id.clone();
        let look = spawn_blocking(move || (outcome(&mut answers, &id), answers));
        let found;
        (found, answers) = look.await.or_fail("the answer cannot be read", "`team ls` shows it")?;
        match found {
            Some(InterruptOutcome::Interrupted) => return Ok(Interrupted::Turn),
            Some(InterruptOutcome::NoTurn) => return Ok(Interrupted::NoTurn),
            None if has_ended => return Ok(Interrupted::Ended),
            None => tokio::time::sleep(CHECK_INTERVAL).await,
        }
    }
    let why = "it has the request but has not acted on it yet".into();
    Err(refuse(
        why,
        "`team log NAME` shows why; a teammate of an older version does not know this request",
    ))
}

/// Interrupts the running turn of a teammate beside the caller's work. The result comes as a line for a person, which a
/// session that has ended reads no more. Fails if the teammate does not run.
pub(crate) fn interrupt_beside(
    bus: &Arc<Bus>,
    given: &str,
    outcomes: &UnboundedSender<String>,
) -> Result<AgentName, Failure> {
    let interrupted = interruptible(bus.dir(), given)?;
    let (bus, name, outcomes) = (Arc::clone(bus), interrupted.clone(), outcomes.clone());
    spawn_local(async move {
        let text = match interrupt(&bus, &name, None).await {
            Ok(outcome) => format!("{name} {}", outcome.words()),
            Err(why) => why.to_string(),
        };
        let _unread = outcomes.send(text);
    });
    Ok(interrupted)
}

/// Whether this incarnation of a member is alive.
fn is_of(team: &TeamDir, name: &AgentName, incarnation: &str) -> bool {
    matches!(liveness::probe(team, name), Ok(Liveness::Alive(Some(record))) if record.incarnation == incarnation)
}

fn outcome(answers: &mut Tail, wanted: &str) -> Option<InterruptOutcome> {
    let lines = answers.read_new().unwrap_or_default();
    lines.iter().find_map(|line| {
        let Entry::Interrupt { request_id, outcome, .. } = Line::read(line)?.entry else {
            return None;
        };
        (request_id == wanted).then_some(outcome)
    })
}

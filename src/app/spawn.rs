//! The person's order to start a teammate, from outside the lead: only a lead starts teammates, so its program
//! carries the order out and answers.

use crate::bus::{Bus, new_id};
use crate::error::{Exit, Failure, OrFail};
use crate::os::spawn::spawn_blocking;
use crate::store::asynchronous::offload;
use crate::store::tail::Tail;
use crate::store::{Liveness, TeamDir, liveness, unread};
use crate::wire::isolation::Isolation;
use crate::wire::message::{Body, Correlation, Message};
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, permission::PermissionMode};
use std::sync::Arc;
use std::time::Duration;

/// The time for which an answer of the lead is awaited. A lead acts when its model or its tool has answered, and a
/// start takes some seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

const CHECK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpawnByPerson {
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) prompt: String,
    pub(crate) model: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) isolation: Option<String>,
}

/// Asks the running lead to start a teammate, waits until it is ready, and returns the lead's words.
pub(crate) async fn spawn(bus: &Arc<Bus>, order: SpawnByPerson) -> Result<String, Failure> {
    let SpawnByPerson { name, role, prompt, model, mode, isolation } = order;
    let what = format!("{name:?} was not started");
    let refuse = |why: String, hint: &str| Failure::new(Exit::Failure, what.clone(), why, hint);
    AgentName::member(&name).map_err(|why| refuse(why.to_string(), &why.hint()))?;
    for (field, text) in [("role", &role), ("prompt", &prompt)] {
        if text.trim().is_empty() {
            return Err(refuse(format!("its {field} is empty"), "give one"));
        }
    }
    let [model, mode, isolation] =
        [model, mode, isolation].map(|it| it.filter(|text| !text.trim().is_empty()));
    if let Some(word) = mode.as_ref().filter(|word| PermissionMode::parse(word).is_none()) {
        let modes = format!("give one of {}", PermissionMode::WORDS.join(", "));
        return Err(refuse(format!("{word:?} is not a mode"), &modes));
    }
    if let Some(word) = isolation.as_ref().filter(|word| Isolation::parse(word).is_none()) {
        let words = format!("give one of {}", Isolation::WORDS.join(", "));
        return Err(refuse(format!("{word:?} is not a kind of isolation"), &words));
    }
    let (team, lead, user) = (bus.dir().clone(), AgentName::lead(), AgentName::user());
    let Ok(Liveness::Alive(Some(record))) = liveness::probe(&team, &lead) else {
        let hint = "start one with `team lead`, then try again";
        return Err(refuse("only a lead starts teammates, and none is running".into(), hint));
    };
    let request_id = new_id(&user);
    let correlation =
        Correlation { request_id: request_id.clone(), incarnation: record.incarnation };
    let mut answers = Answers { tail: Tail::of_last(team.transcript(&user), 0), team };
    let body = Body::SpawnRequest { name, role, prompt, model, mode, isolation };
    let sender = Arc::clone(bus);
    let send = move || sender.control(&user, &lead, body, correlation);
    offload(send).await.map_err(|why| refuse(why.to_string(), &why.hint()))?;
    let give_up = tokio::time::Instant::now() + ANSWER_LIMIT;
    while tokio::time::Instant::now() < give_up {
        let id = request_id.clone();
        let look = spawn_blocking(move || (answers.find(&id), answers));
        let hint = "`team ls` shows whether it runs";
        let (found, back) = look.await.or_fail("the lead's answer cannot be read", hint)?;
        answers = back;
        match found {
            Some((true, words)) => return Ok(words),
            Some((false, why)) => return Err(refuse(why, "change the request, and try again")),
            None => tokio::time::sleep(CHECK_INTERVAL).await,
        }
    }
    let why = "the lead has the request but has not answered yet".into();
    Err(refuse(why, "`team ls` shows whether it runs; a busy lead acts later"))
}

/// The mail of the user, unread or shown by an interactive lead meanwhile.
struct Answers {
    tail: Tail,
    team: TeamDir,
}

impl Answers {
    fn find(&mut self, request_id: &str) -> Option<(bool, String)> {
        let lines = self.tail.read_new().unwrap_or_default();
        let shown = lines.iter().filter_map(|line| {
            let Entry::Mail { message, .. } = Line::read(line)?.entry else { return None };
            Message::read(&message).ok()
        });
        let unread = unread::waiting(&self.team, &AgentName::user()).unwrap_or_default();
        let unread = unread.into_iter().filter_map(|waiting| waiting.message);
        shown.chain(unread).find_map(|message| {
            let Body::SpawnResponse { approve, reason } = message.body else { return None };
            let is_answer = message.from == AgentName::lead().as_str()
                && message.request_id.as_deref() == Some(request_id);
            is_answer.then(|| (approve, reason.unwrap_or_default()))
        })
    }
}

//! Carries out the orders of the page of `team web`, with the same code as the commands.

use super::spawn::{SpawnByPerson, spawn};
use super::stop_members::{members_named, outcome_lines, stop_members};
use super::{context::repair, requests, send};
use crate::bus::{Bus, Outgoing};
use crate::error::{Failure, OrFail};
use crate::os::spawn::spawn_blocking;
use crate::protocol::{ladder::Urgency, request::RequestVerdict};
use crate::tools::approval_decision::ApprovalDecision;
use crate::web::{Control, Order, Outcome};
use crate::wire::{AgentName, roster::ExitCause};
use std::rc::Rc;
use std::sync::Arc;

pub(crate) fn team_control(bus: Arc<Bus>) -> Rc<Control> {
    Rc::new(move |order| {
        let bus = Arc::clone(&bus);
        Box::pin(async move {
            match carry_out(bus, order).await {
                Ok(said) => Outcome::Done { said },
                Err(Failure { what, why, hint, exit: _ }) => Outcome::Failed { what, why, hint },
            }
        })
    })
}

async fn carry_out(bus: Arc<Bus>, order: Order) -> Result<String, Failure> {
    repair(bus.dir())?;
    let (id, verdict) = match order {
        Order::Send { to, text } => {
            // On another thread, because a send may wait for a lock and for the disk.
            let sent = spawn_blocking(move || {
                let sender = AgentName::user();
                if to == "all" {
                    let sent = send::broadcast(&bus, &sender, &Outgoing::broadcast(text))?;
                    send::require_all(&send::unreached(&sent))?;
                    let ids: Vec<String> = sent.into_iter().filter_map(|(_, id)| id.ok()).collect();
                    return Ok(ids.join("\n"));
                }
                let sent = bus.send(&sender, &to, Outgoing::text(text));
                sent.map_err(|why| send::send_failure(&to, &why))
            });
            return sent
                .await
                .or_fail("it is not known whether the message was sent", "try again")?;
        }
        Order::Spawn { name, role, prompt, model, mode, isolation } => {
            let order = SpawnByPerson { name, role, prompt, model, mode, isolation };
            return spawn(&bus, order).await;
        }
        Order::Stop { name } => {
            let names = members_named(bus.dir(), &[name])?;
            let outcomes = stop_members(&bus, ExitCause::Stopped, Urgency::Polite, names).await;
            return Ok(outcome_lines(&outcomes));
        }
        Order::Approve { id } => (id, RequestVerdict::Approve),
        Order::Deny { id } => (id, RequestVerdict::Reject),
    };
    let answer = ApprovalDecision::once(verdict, None);
    requests::decide(&bus, &id, answer).await.map(str::to_owned)
}

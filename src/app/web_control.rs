//! The orders of the page of `team web`, carried out as the commands carry them out.

use super::context::repair;
use super::requests::{self, Answer};
use super::send;
use super::stop_members::{members_named, outcome_line, stop_members};
use crate::bus::Bus;
use crate::error::{Failure, OrFail};
use crate::protocol::ladder::Urgency;
use crate::web::{Control, Order, Outcome};
use crate::wire::message::Scope;
use crate::wire::roster::ExitCause;
use std::rc::Rc;
use std::sync::Arc;

/// Control over a team.
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
    match order {
        Order::Send { to, text } => deliver(bus, to, text).await,
        Order::Stop { name } => {
            let names = members_named(bus.dir(), &[name])?;
            let outcomes = stop_members(bus, ExitCause::Stopped, Urgency::Polite, names).await;
            Ok(outcomes.iter().map(outcome_line).collect::<Vec<_>>().join("\n"))
        }
        Order::Approve { id } => answer(&bus, &id, Answer::Approve(Scope::Once)).await,
        Order::Deny { id } => answer(&bus, &id, Answer::Deny).await,
    }
}

/// Sends on another thread, because a send may wait for a lock and for the disk.
async fn deliver(bus: Arc<Bus>, to: String, text: String) -> Result<String, Failure> {
    let sent = tokio::task::spawn_blocking(move || {
        if to == "all" { send::to_all(&bus, &text) } else { send::to_one(&bus, &to, text) }
    });
    sent.await.or_fail("nothing is known of the message", "try again")?
}

async fn answer(bus: &Arc<Bus>, id: &str, answer: Answer) -> Result<String, Failure> {
    requests::decide(bus, id, answer, None).await.map(str::to_owned)
}

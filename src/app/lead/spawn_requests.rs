//! Teammates that the person orders from outside the lead, such as on the page of `team web`.
//!
//! The order is a `spawn_request` from `user` to this incarnation of the lead. The program carries it out as it does
//! a call of the lead's model, and answers `user` with a `spawn_response`. The model only learns of it.

use super::runtime::LeadRuntime;
use crate::agent::event::MachineEvent;
use crate::os::spawn::spawn_local;
use crate::store::asynchronous::offload;
use crate::tools::{SpawnOrder, TeamOps, ToolError};
use crate::wire::AgentName;
use crate::wire::isolation::Isolation;
use crate::wire::log_words;
use crate::wire::message::{Body, Correlation, Message};
use crate::wire::permission::PermissionMode;
use std::sync::Arc;

/// Carries out the order in a message, if it is one.
pub(super) fn on_mail(runtime: &LeadRuntime, message: &Message) {
    let Body::SpawnRequest { name, role, prompt, model, mode, isolation } = &message.body else {
        return;
    };
    let is_bound = message.is_verified()
        && message.from == AgentName::user().as_str()
        && message.incarnation.as_deref() == Some(runtime.incarnation.as_str());
    let Some(request_id) = message.request_id.clone().filter(|_| is_bound) else {
        let from = &message.from;
        tracing::warn!(from, name, "a spawn request was ignored: it is not the user's");
        return;
    };
    let order =
        order(&request_id, name, role, prompt, [model, mode, isolation].map(Option::as_deref));
    let (runtime, what) = (runtime.clone(), format!("{name} ({role})"));
    spawn_local(async move {
        let result = match order {
            Ok(order) => runtime.supervisor.spawn(order).await.map_err(|why| why.to_string()),
            Err(why) => Err(why.to_string()),
        };
        tracing::info!(
            request_id,
            result = log_words::done(&result),
            "a spawn request was carried out"
        );
        let approve = result.is_ok();
        if approve {
            let notice = format!("The user has started the teammate {what} without you.");
            runtime.send(MachineEvent::Notice(notice).into());
        }
        let reason = Some(result.unwrap_or_else(|why| why));
        let body = Body::SpawnResponse { approve, reason };
        let correlation = Correlation { request_id, incarnation: runtime.incarnation.clone() };
        let bus = Arc::clone(&runtime.bus);
        let answer = move || bus.control(&AgentName::lead(), &AgentName::user(), body, correlation);
        if let Err(why) = offload(answer).await {
            tracing::warn!(%why, "the answer to a spawn request was not sent");
        }
    });
}

fn order(
    request_id: &str,
    name: &str,
    role: &str,
    prompt: &str,
    [model, mode, isolation]: [Option<&str>; 3],
) -> Result<SpawnOrder, ToolError> {
    let name = AgentName::member(name)?;
    for (what, text) in [("role", role), ("prompt", prompt)] {
        if text.trim().is_empty() {
            return Err(ToolError::Reply(format!("the {what} is empty; give one")));
        }
    }
    let mode = mode.map(|word| {
        let modes = PermissionMode::WORDS.join(", ");
        let unknown = || ToolError::Reply(format!("{word:?} is not a mode; give one of {modes}"));
        PermissionMode::parse(word).ok_or_else(unknown)
    });
    let isolation = isolation.map(|word| {
        let words = Isolation::WORDS.join(", ");
        let unknown = || {
            ToolError::Reply(format!("{word:?} is not a kind of isolation; give one of {words}"))
        };
        Isolation::parse(word).ok_or_else(unknown)
    });
    Ok(SpawnOrder {
        name,
        role: role.trim().into(),
        prompt: prompt.into(),
        message_id: request_id.into(),
        model: model.map(ToOwned::to_owned),
        mode: mode.transpose()?,
        isolation: isolation.transpose()?,
        host: None,
        clone_of: None,
    })
}

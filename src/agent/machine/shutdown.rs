//! Requests to shut down: which of them bind this life, and what the model is told.

use crate::agent::conversation::Effect;
use crate::agent::event::{Action, StopCause};
use crate::agent::identity::Identity;
use crate::wire::message::{Body, Message};

/// Finds the first shutdown request that binds this life. Others are logged, and shown as mail.
pub(super) fn find(me: &Identity, mail: &[Message], todo: &mut Vec<Action>) -> Option<StopCause> {
    mail.iter().find_map(|message| {
        let Body::ShutdownRequest { reason, .. } = &message.body else { return None };
        let from = &message.from;
        let is_bound = message.incarnation.as_deref() == Some(me.incarnation.as_str())
            && matches!(from.as_str(), "lead" | "user")
            && !me.name.is_lead();
        let Some(request_id) = message.request_id.as_ref().filter(|_| is_bound) else {
            let why = format!(
                "a shutdown_request from {from} that does not bind this life was not acted on"
            );
            todo.push(Effect::Log(why).into());
            return None;
        };
        Some(StopCause::Requested {
            request_id: request_id.clone(),
            by: from.clone(),
            reason: reason.clone().unwrap_or_else(|| message.content.clone()),
        })
    })
}

/// Registers the request as open, so that it is answered when the member ends.
pub(super) fn open(cause: &StopCause, todo: &mut Vec<Action>) {
    if let StopCause::Requested { request_id, by, .. } = cause {
        let (request_id, by) = (request_id.clone(), by.clone());
        todo.push(Action::OpenShutdown { request_id, by });
    }
}

/// What the model is told.
pub(super) fn note(cause: &StopCause) -> String {
    match cause {
        StopCause::Requested { request_id, by, reason } => format!(
            "{by} asks you to shut down ({reason}). Finish now: answer with a short report of where \
             things stand. To refuse, call shutdown_response with request_id {request_id:?}, \
             approve false and a reason: you may finish the most necessary then, but the program \
             ends you at the deadline all the same."
        ),
        StopCause::LeadLost | StopCause::Budget(_) | StopCause::AtOnce => {
            "you are being stopped; finish now".into()
        }
    }
}

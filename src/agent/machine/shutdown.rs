//! Shutdown requests: the check whether one binds this incarnation, and the note for the model.

use crate::agent::event::{Action, StopCause};
use crate::agent::identity::Identity;
use crate::wire::message::{Body, Message};

/// A shutdown request that binds this incarnation.
pub(super) struct ShutdownRequest {
    /// The reason for which the member ends.
    pub(super) cause: StopCause,
    /// The action that registers the request as open, so that it is answered when the member ends.
    pub(super) open: Action,
    pub(super) note: String,
}

impl ShutdownRequest {
    /// Finds the first request in the mail that binds this incarnation. `log` gets a line for each request before
    /// it.
    pub(super) fn find(
        me: &Identity,
        mail: &[Message],
        mut log: impl FnMut(String),
    ) -> Option<Self> {
        mail.iter().find_map(|message| {
            let Body::ShutdownRequest { reason, .. } = &message.body else { return None };
            let by = message.from.clone();
            let is_bound = message.is_verified()
                && message.incarnation.as_deref() == Some(me.incarnation.as_str())
                && matches!(by.as_str(), "lead" | "user")
                && !me.name.is_lead();
            let Some(request_id) = message.request_id.clone().filter(|_| is_bound) else {
                log(format!(
                    "a shutdown_request from {by} that is not verified or does not bind this incarnation was not \
                     acted on"
                ));
                return None;
            };
            let reason = reason.clone().unwrap_or_else(|| message.content.clone());
            let note = format!(
                "{by} asks you to shut down ({reason}). Finish now: answer with a short report of \
                 where things stand. To refuse, call shutdown_response with request_id \
                 {request_id:?}, approve false and a reason: you may then finish what is most \
                 urgent, but the program still ends you at the deadline."
            );
            let open = Action::OpenShutdown { request_id: request_id.clone(), by: by.clone() };
            Some(Self { cause: StopCause::Requested { request_id, by, reason }, open, note })
        })
    }
}

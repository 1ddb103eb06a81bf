//! Mail as the editor shows it.

use crate::ui::messages::in_words;
use crate::wire::message::{Body, Message};

/// Returns the text of a message in Markdown; `None` for one that is told otherwise (a question, the end of a member),
/// or that only the program is to read.
pub(super) fn mail_text(message: &Message) -> Option<String> {
    let is_shown = match &message.body {
        Body::Message { .. }
        | Body::Broadcast {}
        | Body::Result { .. }
        | Body::Unknown { .. }
        | Body::ShutdownResponse { approve: false, .. }
        | Body::PlanApprovalRequest { .. }
        | Body::PlanApprovalResponse { .. }
        | Body::TaskAssignment { .. }
        | Body::SpawnResponse { .. } => true,
        Body::IdleNotification { .. }
        | Body::ShutdownRequest { .. }
        | Body::ShutdownResponse { .. }
        | Body::InterruptRequest { .. }
        | Body::PermissionRequest { .. }
        | Body::PermissionResponse { .. }
        | Body::PermissionUpdate { .. }
        | Body::ModeSetRequest { .. }
        | Body::SandboxPermissionRequest { .. }
        | Body::SandboxPermissionResponse { .. }
        | Body::SpawnRequest { .. }
        | Body::TeammateTerminated { .. } => false,
    };
    let text = in_words(message);
    if !is_shown || text.trim().is_empty() {
        return None;
    }
    let to = message.to.as_deref().unwrap_or("lead");
    Some(format!("\n\n**{} → {to}:** {}\n\n", message.from, text.trim()))
}

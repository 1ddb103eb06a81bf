//! Mail tools: the model's side of the team's mail.

mod broadcast;
mod read_inbox;
mod send_message;

use super::registry::Registration;

/// The tools of this folder.
pub(super) const TOOLS: &[Registration] = &[send_message::TOOL, broadcast::TOOL, read_inbox::TOOL];

//! The role of a member. A lead that gives an idle member a new prompt may also give it a new role.

use super::identity::MemberContext;
use crate::os::spawn::spawn_blocking;
use crate::store::roster;
use crate::tools::{can_use_skills, find_by_alias};
use crate::wire::message::Message;
use crate::wire::role::Role;
use std::fmt::Write as _;
use std::rc::Rc;

/// A member's role, as far as this incarnation knows it.
pub(super) struct MemberRole {
    pub(super) context: Rc<MemberContext>,
    pub(super) name: String,
}

pub(super) struct RoleChange {
    pub(super) limits: Role,
    /// The note for the model, because the system prompt of an incarnation does not change.
    pub(super) note: String,
}

impl MemberRole {
    /// Reads the role from the roster if the mail holds a message from the lead. Returns the change, if any.
    pub(super) async fn update(&mut self, mail: &[Message]) -> Option<RoleChange> {
        let me = &self.context.me.name;
        if me.is_lead() || mail.iter().all(|message| message.from != "lead") {
            return None;
        }
        let (dir, me) = (self.context.bus.dir().clone(), me.clone());
        let look = move || {
            let roster = roster::read(&dir).ok()?;
            let member = roster.member(me.as_str())?;
            let (role, file) = (member.role.clone(), member.role_file.as_deref());
            let found = dir.find_role(&role, find_by_alias).with_known_file(&role, file);
            Some((role, found.limits()))
        };
        let (role, limits) = spawn_blocking(look).await.ok()??;
        if role == self.name {
            return None;
        }
        tracing::info!(before = self.name, role, "a new role");
        let mut note = format!("your role is {role} from now on, not {}", self.name);
        if !limits.instructions.is_empty() {
            note.push_str("; instructions for your role:\n");
            note.push_str(&limits.instructions);
        }
        if let Some(skills) = limits.skills.as_ref().filter(|_| can_use_skills(&limits)) {
            let _infallible = write!(note, "; the skills of your role: {}", skills.join(", "));
        }
        self.name = role;
        Some(RoleChange { limits, note })
    }
}

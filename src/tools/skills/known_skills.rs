//! The skills that an agent can use.

use crate::store::skills::SkillFile;
use crate::tools::call::ToolError;
use crate::tools::files::ReadLimits;
use crate::wire::nearest::nearest;
use crate::wire::role::Role;
use std::cell::RefCell;

/// The maximum number of skills that an error lists.
const MOST_NAMED: usize = 40;

/// The skills of one agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Skills {
    list: Vec<SkillFile>,
    /// The names of the role's skills; `None` if the role has all of them.
    only: RefCell<Option<Vec<String>>>,
    limits: Option<ReadLimits>,
}

impl Skills {
    /// Creates the skills of an agent with these limits.
    pub(crate) fn new(list: Vec<SkillFile>, limits: ReadLimits) -> Self {
        Self { list, only: RefCell::default(), limits: Some(limits) }
    }

    /// Limits the skills to those of a role.
    pub(crate) fn limit(&self, role: &Role) {
        self.only.borrow_mut().clone_from(&role.skills);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.usable().next().is_none()
    }

    /// Returns the skills that the role has.
    pub(super) fn usable(&self) -> impl Iterator<Item = &SkillFile> {
        self.list.iter().filter(|skill| self.has(skill))
    }

    fn has(&self, skill: &SkillFile) -> bool {
        self.only.borrow().as_ref().is_none_or(|only| only.contains(&skill.name))
    }

    pub(super) fn limits(&self) -> Option<&ReadLimits> {
        self.limits.as_ref()
    }

    /// Returns the skill of this name. If there is none, the error names the nearest one and all others.
    pub(super) fn find(&self, name: &str) -> Result<&SkillFile, ToolError> {
        let skills: Vec<_> = self.usable().collect();
        if let Some(skill) = skills.iter().find(|skill| skill.name == name) {
            return Ok(skill);
        }
        let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        let given: String = name.chars().take(64).collect();
        let meant = nearest(&given, names.iter().copied());
        let meant = meant.map(|meant| format!("; the nearest is {meant:?}")).unwrap_or_default();
        let more = names.len().saturating_sub(MOST_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let shown: Vec<&str> = names.into_iter().take(MOST_NAMED).collect();
        Err(ToolError::Reply(format!(
            "there is no skill {given:?}{meant}; the skills are: {}{more}",
            shown.join(", ")
        )))
    }
}

//! The skills of an agent: found at its start, listed in its prompt, and for a role that names skills, part of its
//! instructions.

use crate::agent::prompt::Profile;
use crate::settings::environment::Environment;
use crate::store::skills::{self, SkillFiles};
use crate::tools::skills::{Skills, SkillsInPrompt};
use crate::tools::{ReadLimits, can_use_skills};
use crate::wire::role::Role;
use std::path::Path;

/// The skills of one agent.
#[derive(Default)]
pub(super) struct AgentSkills {
    /// The skills that it can use, also in another role.
    pub(super) usable: Skills,
    /// The list for the prompt; empty if there is nothing to list.
    pub(super) list: String,
    /// The texts of the skills that the role names, for the instructions of the role.
    pub(super) of_role: String,
}

/// Finds the skills of an agent that works in this folder, and logs their problems. A compact prompt has no room for the
/// list, and without the tool it is of no use. At most `most` bytes of the skills that the role names become part of its
/// instructions; the others are listed.
pub(super) fn skills_of(
    folder: &Path,
    environment: &Environment,
    role: &Role,
    limits: &ReadLimits,
    (profile, most): (Profile, usize),
) -> AgentSkills {
    let has_tool = profile == Profile::Full && can_use_skills(role);
    if !has_tool && role.skills.is_none() {
        return AgentSkills::default();
    }
    let refuses = |path: &Path| limits.refuses(path);
    let found = skills::find(folder, &environment.skill_folders(), &refuses);
    let SkillFiles { skills: usable, hidden, problems } = found;
    for problem in &problems {
        tracing::warn!(problem, "a folder is not a skill");
    }
    for hidden in &hidden {
        tracing::info!(hidden, "two skills have one name");
    }
    let skills = Skills::new(usable, limits.clone());
    skills.limit(role);
    let SkillsInPrompt { list, of_role } = skills.in_prompt(role, has_tool, most);
    let usable = if has_tool { skills } else { Skills::default() };
    AgentSkills { usable, list, of_role }
}

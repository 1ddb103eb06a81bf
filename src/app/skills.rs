//! The skills of an agent: found at its start, listed in its prompt.

use crate::agent::prompt::Profile;
use crate::settings::environment::Environment;
use crate::store::skills::{self, SkillFile, SkillFiles};
use crate::tools::{ReadLimits, can_use_skills};
use crate::wire::role::Role;
use crate::wire::skill;
use std::path::Path;

/// The maximum size of the list of skills in a prompt, in bytes.
const LIST_BYTES: usize = 8 * 1024;

/// Finds the skills of an agent that works in this folder, and logs their problems. A compact prompt has no room for
/// them, and without the tool they are of no use.
pub(super) fn skills_of(
    folder: &Path,
    environment: &Environment,
    role: &Role,
    limits: &ReadLimits,
    profile: Profile,
) -> Vec<SkillFile> {
    if profile == Profile::Compact || !can_use_skills(role) {
        return Vec::new();
    }
    let refuses = |path: &Path| limits.refuses(path);
    let found = skills::find(folder, &environment.skill_folders(), &refuses);
    let SkillFiles { skills, hidden, problems } = found;
    for problem in &problems {
        tracing::warn!(problem, "a folder is not a skill");
    }
    for hidden in &hidden {
        tracing::info!(hidden, "two skills have one name");
    }
    skills
}

/// Lists skills for the prompt; empty if there are none.
pub(super) fn list(skills: &[SkillFile]) -> String {
    let shown = skills.iter().map(|skill| (skill.name.as_str(), skill.description.as_str()));
    skill::list(shown, LIST_BYTES)
}

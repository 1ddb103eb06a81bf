//! The skills of an agent: found at its start, listed in its prompt, and for a role that names skills, part of its
//! instructions.

use crate::agent::prompt::Profile;
use crate::settings::environment::Environment;
use crate::store::skills::{self, SkillFile, SkillFiles};
use crate::tools::skills::text;
use crate::tools::{ReadLimits, can_use_skills};
use crate::wire::role::Role;
use crate::wire::skill;
use std::path::Path;

/// The maximum size of the list of skills in a prompt, in bytes.
const LIST_BYTES: usize = 8 * 1024;

/// The skills of one agent.
#[derive(Default)]
pub(super) struct AgentSkills {
    /// The skills that it can use, also in another role.
    pub(super) usable: Vec<SkillFile>,
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
    let SkillFiles { skills: mut usable, hidden, problems } = found;
    for problem in &problems {
        tracing::warn!(problem, "a folder is not a skill");
    }
    for hidden in &hidden {
        tracing::info!(hidden, "two skills have one name");
    }
    let mut of_role = String::new();
    let mut listed: Vec<&SkillFile> = usable.iter().collect();
    if let Some(names) = &role.skills {
        listed.retain(|skill| names.contains(&skill.name));
        for name in names {
            let found = listed.iter().position(|skill| skill.name == *name);
            let text = found.and_then(|at| Some((at, text(listed.get(at)?, Some(limits)).ok()?)));
            match text {
                None => {
                    let (role, problem) = (&role.name, format!("there is no skill {name:?}"));
                    tracing::warn!(role, problem, "a role names a skill that it does not get");
                }
                Some((_, text)) if of_role.len() + text.len() + 2 > most => {
                    let problem = format!("the skill {name} does not fit into {most} bytes");
                    tracing::warn!(problem, "a skill is not part of the role's instructions");
                }
                Some((at, text)) => {
                    listed.remove(at);
                    of_role.push_str("\n\n");
                    of_role.push_str(&text);
                }
            }
        }
    }
    let shown = listed.iter().map(|skill| (skill.name.as_str(), skill.description.as_str()));
    let list = if has_tool { skill::list(shown, LIST_BYTES) } else { String::new() };
    if !has_tool {
        usable.clear();
    }
    AgentSkills { usable, list, of_role }
}

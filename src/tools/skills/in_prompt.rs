//! The skills of an agent in its prompt: listed, and for a role that names skills, part of its instructions.

use super::known_skills::Skills;
use super::text;
use crate::store::skills::SkillFile;
use crate::wire::role::Role;
use crate::wire::skill;

/// The maximum size of the list of skills in a prompt, in bytes.
const LIST_BYTES: usize = 8 * 1024;

#[derive(Debug, Default)]
pub(crate) struct SkillsInPrompt {
    /// The list; empty if there is nothing to list.
    pub(crate) list: String,
    /// The texts of the skills that the role names, for the instructions of the role.
    pub(crate) of_role: String,
}

impl Skills {
    /// Returns the skills for the prompt of an agent in this role. At most `most` bytes of those that the role names become
    /// part of its instructions; the others are listed if the agent has the tool for them. Reads the disk.
    pub(crate) fn in_prompt(&self, role: &Role, has_tool: bool, most: usize) -> SkillsInPrompt {
        let mut of_role = String::new();
        let mut listed: Vec<&SkillFile> = self.usable().collect();
        for name in role.skills.iter().flatten() {
            let found = listed.iter().position(|skill| skill.name == *name);
            let text = found.and_then(|at| Some((at, text(listed.get(at)?, self.limits()).ok()?)));
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
        let shown = listed.iter().map(|skill| (skill.name.as_str(), skill.description.as_str()));
        let list = if has_tool { skill::list(shown, LIST_BYTES) } else { String::new() };
        SkillsInPrompt { list, of_role }
    }
}

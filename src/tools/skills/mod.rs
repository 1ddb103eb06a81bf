//! The tool that returns the instructions of a skill, and the files beside them.
//!
//! Skills are text: nothing in them grants a permission. Their scripts run through the tool for commands.

mod in_prompt;
mod known_skills;

pub(crate) use in_prompt::SkillsInPrompt;
pub(crate) use known_skills::Skills;

use super::call::{Call, ToolError};
use super::command::output::CappedOutput;
use super::files::ReadLimits;
use super::registry::{Tool, ToolParts, parameters};
use crate::store::asynchronous::offload;
use crate::store::skills::{FilesBeside, SkillFile};
use crate::wire::tool::ParameterType::Text;
use crate::wire::tool::{AfterCrash, Effect, ToolSpec};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

/// The maximum size of a file beside a skill that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

parameters!(UseSkill {
    name: String = required(Text, "The name of the skill."),
    file: Option<String> = optional(Text, "A file beside its instructions, to be read instead."),
});

impl Tool for UseSkill {
    const SPEC: ToolSpec = ToolSpec {
        name: "use_skill",
        aliases: &["Skill"],
        description: "Returns the instructions of a skill, which are meant to be followed, and the names \
                      of the files beside them. Give `file` to read one of these files. Scripts are run \
                      with bash.",
        effect: Effect::Reads,
        after_crash: AfterCrash::Repeat,
        of_subagents: true,
        ..ToolSpec::STRICT
    };

    fn is_available(parts: &ToolParts) -> bool {
        !parts.skills.is_empty()
    }

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let skill = parts.skills.find(&self.name)?.clone();
        let limits = parts.skills.limits().cloned();
        offload(move || match &self.file {
            Some(file) => read_beside(&skill, file, limits.as_ref()),
            None => text(&skill, limits.as_ref()).map_err(|why| {
                ToolError::Reply(format!("the skill {} cannot be used: {why}", skill.name))
            }),
        })
        .await
    }
}

/// Returns the instructions of a skill as a model gets them, with its folder and the files in it.
fn text(skill: &SkillFile, limits: Option<&ReadLimits>) -> Result<String, String> {
    let SkillFile { name, folder, .. } = skill;
    let real = folder.real_file();
    if real.is_some_and(|real| limits.is_some_and(|limits| limits.refuses(&real))) {
        return Err("it may not be read by you".into());
    }
    let read = folder.skill(name)?.ok_or("it is gone")?;
    let mut text = format!("[skill {name}, in the folder {}]\n\n", folder.path().display());
    text.push_str(&CappedOutput::cap([read.body.as_str()]));
    let FilesBeside { paths, has_more } = folder.files();
    if !paths.is_empty() {
        let more = if has_more { ", and more" } else { "" };
        let _infallible = write!(text, "\n\n[files in the folder: {}{more}]", paths.join(", "));
    }
    Ok(text)
}

/// Returns the text of a file in the folder of a skill.
fn read_beside(
    skill: &SkillFile,
    file: &str,
    limits: Option<&ReadLimits>,
) -> Result<String, ToolError> {
    let SkillFile { name, folder, .. } = skill;
    let shown: String = file.chars().take(256).collect();
    let failed = |why: &str| ToolError::Reply(format!("{shown} of the skill {name}: {why}"));
    if file.contains('\0') {
        return Err(failed("a path has no NUL character"));
    }
    let opened = folder.open(Path::new(file)).map_err(|why| failed(&why))?;
    let Some((real, opened)) = opened else {
        let FilesBeside { paths, has_more } = folder.files();
        let more = if has_more { ", and more" } else { "" };
        return Err(failed(&format!(
            "there is no such file; the folder has {}{more}",
            paths.join(", ")
        )));
    };
    if limits.is_some_and(|limits| limits.refuses(&real)) {
        return Err(failed("it may not be read by you"));
    }
    let mut bytes = Vec::new();
    let read = opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|why| failed(&why.to_string()))?;
    let real = real.display();
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(&format!("it is too large; look at parts of {real} with bash")));
    }
    match str::from_utf8(&bytes) {
        Ok(text) if !text.contains('\0') => Ok(CappedOutput::cap([text])),
        Ok(_) | Err(_) => {
            Err(failed(&format!("it is not text; use {real} with bash, as the skill says")))
        }
    }
}

//! The permission rules of the settings, under the tools' own names. A rule that would have no effect is an error in
//! `deny` and `ask`, and a warning in `allow`.

use super::context::Context;
use crate::error::{Exit, Failure, OrFail};
use crate::protocol::permission::{NETWORK, OUTSIDE, Policy, UNSANDBOXED};
use crate::settings::{Settings, granted::GrantedFile};
use crate::store::TeamDir;
use crate::tools::rules::{RuleProblem, parts, under_own_names};
use crate::tools::specs;
use crate::wire::nearest::nearest;
use crate::wire::permission::{Permissions, RuleLists};
use std::path::PathBuf;

/// Returns the permissions of the settings, and a warning for each rule without effect. Fails if a rule is not
/// understood, or one that restricts names no tool.
pub(crate) fn permissions(
    context: &Context,
    settings: &Settings,
) -> Result<(Permissions, Vec<String>), Failure> {
    let mut permissions = settings.permissions();
    Policy::new(permissions.mode, &permissions.rules).or_exit(
        Exit::Usage,
        "a permission rule is invalid",
        "correct it under [permissions] in your settings, or in those of the folder",
    )?;
    let RuleLists { allow, ask, deny } = permissions.rules;
    let restricting = |(list, rules): (&str, Vec<String>)| -> Result<Vec<String>, Failure> {
        let own = rules.into_iter().map(|rule| {
            under_own_names(&rule).map_err(|problem| {
                let (why, hint) = explained(&rule, &problem);
                let what = format!("the rule {rule:?} under `{list}` would have no effect");
                Failure::new(Exit::Usage, what, format!("{}{why}", place(context, &rule)), hint)
            })
        });
        Ok(own.collect::<Result<Vec<_>, _>>()?.concat())
    };
    let (ask, deny) = (restricting(("ask", ask))?, restricting(("deny", deny))?);
    let mut warnings = Vec::new();
    let mut allowed = Vec::new();
    for rule in allow {
        match under_own_names(&rule) {
            Ok(own) => allowed.extend(own),
            Err(problem) => {
                let (why, hint) = explained(&rule, &problem);
                warnings.push(format!(
                    "warning: {}the rule {rule:?} under `allow` allows nothing: {why}; {hint}",
                    place(context, &rule),
                ));
            }
        }
    }
    permissions.rules = RuleLists { allow: allowed, ask, deny };
    permissions.granted =
        GrantedFile::of(&context.environment, &context.team_path).for_good().allows();
    Ok((permissions, warnings))
}

/// Returns the reason in words, and advice.
fn explained(rule: &str, problem: &RuleProblem) -> (&'static str, String) {
    match problem {
        RuleProblem::NoTool => ("there is no tool of that name", advice(rule)),
        RuleProblem::NoMatch(why) => (why, "correct it, or remove it".into()),
    }
}

fn advice(rule: &str) -> String {
    let (name, pattern) = parts(rule);
    let names = || specs().map(|spec| spec.name).chain([NETWORK, OUTSIDE, UNSANDBOXED]);
    match nearest(name, names()) {
        Some(near) => format!("did you mean \"{near}{pattern}\"?"),
        None => format!("the tools are {}", names().collect::<Vec<_>>().join(", ")),
    }
}

/// Returns the file and the line that contain a rule, followed by a colon.
fn place(context: &Context, rule: &str) -> String {
    file_and_line(context, rule).map(|place| format!("{place}: ")).unwrap_or_default()
}

/// Returns the file and the line that contain a rule.
pub(super) fn file_and_line(context: &Context, rule: &str) -> Option<String> {
    let folder = TeamDir::settings_in(&context.team_path);
    let files = [Some(folder), Settings::user_file(&context.environment)];
    let line_of = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).ok()?;
        let line = text.lines().position(|line| line.contains(rule))? + 1;
        Some(format!("{} line {line}", file.display()))
    };
    files.into_iter().flatten().find_map(line_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_tool_is_corrected() {
        assert_eq!(advice("bsh(ls)"), "did you mean \"bash(ls)\"?");
        assert!(advice("Teleport").starts_with("the tools are bash"), "{}", advice("Teleport"));
    }
}

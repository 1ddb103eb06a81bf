//! The permission rules of the settings, under the tools' own names. A rule that names no tool would have no effect:
//! in `deny` and `ask` it is an error, in `allow` a warning.

use super::context::Context;
use crate::error::{Exit, Failure, OrFail};
use crate::protocol::permission::{OUTSIDE, Policy};
use crate::settings::Settings;
use crate::store::TeamDir;
use crate::tools::{find_by_alias, specs};
use crate::wire::nearest::nearest;
use crate::wire::permission::{Permissions, RuleLists};
use crate::wire::tool::{Effect, SubjectArgument, ToolSpec};
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
        "a permission rule is not understood",
        "correct it under [permissions]; `team config` shows where the rules come from",
    )?;
    let RuleLists { allow, ask, deny } = permissions.rules;
    let restricting = |(list, rules): (&str, Vec<String>)| -> Result<Vec<String>, Failure> {
        let own = rules.into_iter().map(|rule| {
            under_own_names(&rule).ok_or_else(|| {
                let what = format!("the rule {rule:?} under `{list}` would have no effect");
                let why = format!("{}there is no tool of that name", place(context, &rule));
                Failure::new(Exit::Usage, what, why, advice(&rule))
            })
        });
        Ok(own.collect::<Result<Vec<_>, _>>()?.concat())
    };
    let (ask, deny) = (restricting(("ask", ask))?, restricting(("deny", deny))?);
    let mut warnings = Vec::new();
    let mut allowed = Vec::new();
    for rule in allow {
        match under_own_names(&rule) {
            Some(own) => allowed.extend(own),
            None => warnings.push(format!(
                "warning: {}the rule {rule:?} under `allow` allows nothing, since there is no tool of \
                 that name; {}",
                place(context, &rule),
                advice(&rule)
            )),
        }
    }
    permissions.rules = RuleLists { allow: allowed, ask, deny };
    Ok((permissions, warnings))
}

/// Splits a rule into the name of the tool, and the pattern with its parentheses.
fn parts(rule: &str) -> (&str, &str) {
    let rule = rule.trim();
    rule.split_at(rule.find('(').unwrap_or(rule.len()))
}

/// Returns a rule under the tools' own names; `None` if it names no tool. Names and patterns are also accepted as
/// Claude Code writes them: there, a rule for one tool that changes files holds for all of them, and a pattern without
/// a slash matches in every folder.
fn under_own_names(rule: &str) -> Option<Vec<String>> {
    let (name, pattern) = parts(rule);
    if name == OUTSIDE {
        return Some(vec![rule.to_owned()]);
    }
    let spec = find_by_alias(name)?;
    let is_file = matches!(spec.subject, SubjectArgument::File(_));
    let pattern = if is_file { pattern.replacen("(./", "(", 1) } else { pattern.to_owned() };
    if name == spec.name {
        return Some(vec![format!("{name}{pattern}")]);
    }
    let is_everywhere = is_file && !pattern.is_empty() && !pattern.contains('/');
    let pattern = if is_everywhere { pattern.replacen('(', "(**/", 1) } else { pattern };
    let is_same = |it: &&ToolSpec| {
        let changes_files = |it: &ToolSpec| {
            it.effect == Effect::Changes && matches!(it.subject, SubjectArgument::File(_))
        };
        it.name == spec.name || changes_files(it) && changes_files(spec)
    };
    Some(specs().filter(is_same).map(|it| format!("{}{pattern}", it.name)).collect())
}

fn advice(rule: &str) -> String {
    let (name, pattern) = parts(rule);
    let names = || specs().map(|spec| spec.name).chain([OUTSIDE]);
    match nearest(name, names()) {
        Some(near) => format!("did you mean \"{near}{pattern}\"?"),
        None => format!("the tools are {}", names().collect::<Vec<_>>().join(", ")),
    }
}

/// Returns the file and the line that contain a rule, followed by a colon.
fn place(context: &Context, rule: &str) -> String {
    let folder = TeamDir::settings_in(&context.team_path);
    let files = [Some(folder), Settings::user_file(&context.environment)];
    let line_of = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).ok()?;
        let line = text.lines().position(|line| line.contains(rule))? + 1;
        Some(format!("{} line {line}: ", file.display()))
    };
    files.into_iter().flatten().find_map(line_of).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_understood_as_claude_code_writes_them() {
        for (rule, own) in [
            ("bash(rm:*)", &["bash(rm:*)"][..]),
            ("Bash(rm:*)", &["bash(rm:*)"]),
            ("Bash", &["bash"]),
            ("Read(./secrets/**)", &["read_file(secrets/**)"]),
            ("read_file(./a)", &["read_file(a)"]),
            ("Write(*.sql)", &["write_file(**/*.sql)", "edit_file(**/*.sql)"]),
            ("Edit(src/**)", &["write_file(src/**)", "edit_file(src/**)"]),
            ("write_file(*.sql)", &["write_file(*.sql)"]),
            ("outside(/usr/**)", &["outside(/usr/**)"]),
        ] {
            let mut found = under_own_names(rule).unwrap();
            let mut own: Vec<String> = own.iter().map(|it| (*it).to_owned()).collect();
            found.sort();
            own.sort();
            assert_eq!(found, own, "{rule}");
        }
        assert_eq!(under_own_names("bsh(ls)"), None);
        assert_eq!(advice("bsh(ls)"), "did you mean \"bash(ls)\"?");
        assert!(advice("Teleport").starts_with("the tools are bash"), "{}", advice("Teleport"));
    }
}

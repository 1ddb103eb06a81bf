//! Permission rules under the tools' own names. Names and patterns are also accepted as Claude Code writes them: there,
//! a rule for one tool that changes files holds for all of them, a pattern without a slash matches in every folder,
//! and a path that begins with a slash begins at the workspace.

use super::{find_by_alias, specs};
use crate::protocol::permission::{NETWORK, OUTSIDE, UNSANDBOXED};
use crate::wire::host::HostPattern;
use crate::wire::mcp::is_tool_pattern;
use crate::wire::role::Role;
use crate::wire::tool::{Effect, SubjectArgument, ToolSpec};

/// The reason for which a rule would have no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleProblem {
    NoTool,
    /// The pattern matches nothing, for this reason.
    NoMatch(&'static str),
}

impl RuleProblem {
    fn words(&self) -> &'static str {
        match self {
            Self::NoTool => "there is no tool of that name",
            Self::NoMatch(why) => why,
        }
    }
}

const NO_HOST: &str = "it names no host; write network(packages.example.com), \
                       network(*.example.com) or network(db.internal:5432)";

const NO_SUBJECT: &str = "calls of this tool have nothing that a pattern could match; leave the parentheses out. A search \
                          shows no file of which a rule denies `read_file`";

/// Splits a rule into the name of the tool, and the pattern with its parentheses.
pub(crate) fn parts(rule: &str) -> (&str, &str) {
    let rule = rule.trim();
    rule.split_at(rule.find('(').unwrap_or(rule.len()))
}

/// Returns a rule under the tools' own names.
///
/// # Errors
/// The rule names no tool, or its pattern can match nothing.
pub(crate) fn under_own_names(rule: &str) -> Result<Vec<String>, RuleProblem> {
    let (name, pattern) = parts(rule);
    if name == OUTSIDE {
        return Ok(vec![rule.to_owned()]);
    }
    if name == NETWORK {
        let host = pattern.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let is_host = pattern.is_empty() || host.is_some_and(|it| HostPattern::parse(it).is_ok());
        return if is_host {
            Ok(vec![rule.to_owned()])
        } else {
            Err(RuleProblem::NoMatch(NO_HOST))
        };
    }
    if is_tool_pattern(name) {
        return if pattern.is_empty() {
            Ok(vec![rule.to_owned()])
        } else {
            Err(RuleProblem::NoMatch(
                "a rule about an MCP tool has no pattern; leave the parentheses out",
            ))
        };
    }
    if name == UNSANDBOXED {
        return Ok(vec![format!("{name}{}", command_pattern(pattern, false)?)]);
    }
    let spec = find_by_alias(name).ok_or(RuleProblem::NoTool)?;
    let is_own = name == spec.name;
    let pattern = match spec.subject {
        SubjectArgument::File(_) | SubjectArgument::Patch(_) => file_pattern(pattern, is_own)?,
        SubjectArgument::Command(_) => command_pattern(pattern, is_own)?,
        SubjectArgument::Url(_) => host_pattern(pattern, is_own)?,
        SubjectArgument::None if ["", "()", "(*)", "(**)"].contains(&pattern) => String::new(),
        SubjectArgument::None => return Err(RuleProblem::NoMatch(NO_SUBJECT)),
    };
    if is_own {
        return Ok(vec![format!("{name}{pattern}")]);
    }
    let is_same = |it: &&ToolSpec| {
        let changes_files = |it: &ToolSpec| {
            it.effect == Effect::Changes && matches!(it.subject, SubjectArgument::File(_))
        };
        it.name == spec.name || changes_files(it) && changes_files(spec)
    };
    Ok(specs().filter(is_same).map(|it| format!("{}{pattern}", it.name)).collect())
}

/// Returns the rules for the calls that a role denies. Of a rule that would have no effect, the whole tool is denied.
pub(crate) fn denied_by(role: &Role) -> Vec<String> {
    let own = role.denied_calls.iter().map(|rule| {
        under_own_names(rule).unwrap_or_else(|why| {
            let (name, _) = parts(rule);
            tracing::warn!(
                rule,
                why = why.words(),
                "a rule of a role is not understood: the whole tool is denied"
            );
            find_by_alias(name).map(|spec| spec.name.to_owned()).into_iter().collect()
        })
    });
    own.flatten().collect()
}

/// Returns a pattern, with its parentheses, for paths relative to the workspace.
fn file_pattern(pattern: &str, is_own: bool) -> Result<String, RuleProblem> {
    const ELSEWHERE: &str = "its path leads out of the workspace, whose files are named by relative paths; \
                             `outside(/PATH)` is the rule for files elsewhere";
    let Some(path) = pattern.strip_prefix('(') else { return Ok(String::new()) };
    let inside = path.strip_prefix("./").unwrap_or(path);
    let inside = if is_own { inside } else { inside.strip_prefix('/').unwrap_or(inside) };
    if inside.starts_with(['/', '~']) || inside.starts_with("../") {
        return Err(RuleProblem::NoMatch(ELSEWHERE));
    }
    let is_everywhere = !is_own && !path.contains('/');
    Ok(if is_everywhere { format!("(**/{inside}") } else { format!("({inside}") })
}

/// Returns a pattern, with its parentheses, for the hosts of pages.
fn host_pattern(pattern: &str, is_own: bool) -> Result<String, RuleProblem> {
    const NO_PUBLIC_HOST: &str = "it names no public host; write the name without a port and an address, such as \
                                  docs.example.com or *.example.com";
    let Some(host) = pattern.strip_prefix('(') else { return Ok(String::new()) };
    let host = if is_own { host } else { host.strip_prefix("domain:").unwrap_or(host) };
    let parsed = host.strip_suffix(')').and_then(|host| HostPattern::parse(host).ok());
    let is_public = parsed.is_some_and(|host| !host.has_port());
    if is_public { Ok(format!("({host}")) } else { Err(RuleProblem::NoMatch(NO_PUBLIC_HOST)) }
}

/// Returns a pattern, with its parentheses, for the first words of a command.
fn command_pattern(pattern: &str, is_own: bool) -> Result<String, RuleProblem> {
    if let Some(words) = pattern.strip_suffix(" *)") {
        return command_pattern(&format!("{words}:*)"), is_own);
    }
    let words = pattern.strip_suffix(":*)").unwrap_or(pattern);
    if !is_own && words != "(*)" && words.contains('*') {
        return Err(RuleProblem::NoMatch(
            "a `*` in a command stands only at its end: `bash(rm:*)`",
        ));
    }
    Ok(pattern.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_understood_as_claude_code_writes_them() {
        for (rule, own) in [
            ("bash(rm:*)", &["bash(rm:*)"][..]),
            ("Bash(rm:*)", &["bash(rm:*)"]),
            ("Bash(rm *)", &["bash(rm:*)"]),
            ("bash(git push *)", &["bash(git push:*)"]),
            ("Bash(*)", &["bash(*)"]),
            ("bash(ls *.txt)", &["bash(ls *.txt)"]),
            ("Bash", &["bash"]),
            ("Read(./secrets/**)", &["read_file(secrets/**)"]),
            ("Read(/secrets/**)", &["read_file(secrets/**)"]),
            ("Read(secrets/**)", &["read_file(secrets/**)"]),
            ("read_file(./a)", &["read_file(a)"]),
            ("Write(*.sql)", &["write_file(**/*.sql)", "edit_file(**/*.sql)"]),
            ("Edit(src/**)", &["write_file(src/**)", "edit_file(src/**)"]),
            ("write_file(*.sql)", &["write_file(*.sql)"]),
            ("outside(/usr/**)", &["outside(/usr/**)"]),
            ("network(*.example.com)", &["network(*.example.com)"]),
            ("network", &["network"]),
            ("Grep(*)", &["grep"]),
            ("list_teammates", &["list_teammates"]),
            ("fetch_url(*.example.com)", &["fetch_url(*.example.com)"]),
            ("WebFetch(domain:docs.example.com)", &["fetch_url(docs.example.com)"]),
            ("WebFetch", &["fetch_url"]),
            ("mcp__git__git_log", &["mcp__git__git_log"]),
            ("mcp__git__*", &["mcp__git__*"]),
            ("unsandboxed(docker ps)", &["unsandboxed(docker ps)"]),
            ("unsandboxed(git push *)", &["unsandboxed(git push:*)"]),
        ] {
            let mut found = under_own_names(rule).unwrap();
            let mut own: Vec<String> = own.iter().map(|it| (*it).to_owned()).collect();
            found.sort();
            own.sort();
            assert_eq!(found, own, "{rule}");
        }
        assert_eq!(under_own_names("bsh(ls)"), Err(RuleProblem::NoTool));
        for nothing in [
            "Read(~/.ssh/**)",
            "Read(//etc/**)",
            "Read(../x)",
            "read_file(/etc/passwd)",
            "Bash(git * main)",
            "unsandboxed(git * main)",
            "network(*)",
            "grep(secrets/**)",
            "Glob(secrets/**)",
            "list_teammates(a)",
            "network(https://packages.example.com)",
            "fetch_url(https://docs.example.com)",
            "fetch_url(docs.example.com:8443)",
            "fetch_url(127.0.0.1:80)",
            "fetch_url(domain:docs.example.com)",
            "fetch_url(*)",
            "mcp__git__git_log(x)",
        ] {
            let found = under_own_names(nothing);
            assert!(matches!(found, Err(RuleProblem::NoMatch(_))), "{nothing}: {found:?}");
        }
    }

    #[test]
    fn a_role_denies_a_whole_tool_if_its_pattern_matches_nothing() {
        let text =
            "---\ndisallowedTools: Read(./secrets/**), Write(*.sql), Bash(git * main)\n---\n";
        let (role, problems) = Role::parse("auditor", text, find_by_alias);
        assert_eq!(problems, []);
        let own = ["read_file(secrets/**)", "write_file(**/*.sql)", "edit_file(**/*.sql)", "bash"];
        assert_eq!(denied_by(&role), own);
    }
}

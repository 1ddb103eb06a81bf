//! Whether a tool call may run: modes and rules (SPEC 7).
//!
//! Order: `deny` wins, then the gate of mode `plan`, then whether the workspace may be left, then `ask`,
//! then `allow`, then what the mode says. Paths come in as the real ones, workspace-relative if inside. Rules that forbid commands guard against
//! accidents: what a shell does in the end cannot be told from its line. A rule that allows one is
//! exact: see [`shell`].

mod glob;
mod shell;

use crate::wire::permission::{PermissionMode, QuestionKind, RuleLists};
use crate::wire::tool::{Effect, ToolSpec};

/// What a rule about places outside the workspace names instead of a tool.
const OUTSIDE: &str = "outside";

/// What a call is about, as far as rules look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PermissionSubject {
    /// Nothing that a pattern could name.
    Nothing,
    /// A line for the shell.
    Command(String),
    /// A file: its real path in the workspace.
    Path(String),
    /// A file elsewhere: its real, absolute path.
    Outside(String),
}

/// What is to be done with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PermissionVerdict {
    /// Run it.
    Run,
    /// Ask.
    Ask,
    /// Ask whether it may leave the workspace.
    AskToLeave,
    /// Refuse it; says why and what to do instead.
    Refuse(String),
}

/// Why a rule is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?} is no rule: {why}")]
pub(crate) struct BadRule {
    rule: String,
    why: &'static str,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    text: String,
    tool: String,
    pattern: Option<String>,
}

impl Rule {
    fn parse(text: &str) -> Result<Self, BadRule> {
        let bad = |why| BadRule { rule: text.into(), why };
        let trimmed = text.trim();
        let (tool, pattern) = match trimmed.split_once('(') {
            None => (trimmed, None),
            Some((tool, rest)) => {
                let pattern = rest.strip_suffix(')').ok_or_else(|| bad("its `)` is missing"))?;
                (tool, Some(pattern))
            }
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if tool.is_empty() || !tool.chars().all(is_word) {
            return Err(bad("write it as tool or tool(pattern), such as bash(cargo test:*)"));
        }
        if pattern.is_some_and(|pattern| pattern.trim().is_empty()) {
            return Err(bad("its pattern is empty; leave the parentheses out to mean every call"));
        }
        let pattern = pattern.map(ToOwned::to_owned);
        Ok(Self { text: trimmed.into(), tool: tool.into(), pattern })
    }

    /// Whether it covers the whole of a call.
    fn covers(&self, tool: &str, subject: &PermissionSubject) -> bool {
        self.tool == tool
            && match (&self.pattern, subject) {
                (None, _) => true,
                (Some(_), PermissionSubject::Nothing) => false,
                (
                    Some(pattern),
                    PermissionSubject::Path(path) | PermissionSubject::Outside(path),
                ) => glob::matches(pattern, path),
                (Some(pattern), PermissionSubject::Command(line)) => line.trim() == pattern.trim(),
            }
    }

    /// Whether it touches any part of a call.
    fn touches(&self, tool: &str, subject: &PermissionSubject) -> bool {
        let part = |line: &String| {
            let parts = shell::guessed(line);
            parts.iter().any(|words| self.covers_command(words))
        };
        self.covers(tool, subject)
            || self.tool == tool
                && matches!(subject, PermissionSubject::Command(line) if part(line))
    }

    /// Whether it covers one simple command: `cargo test:*` whatever begins so, `cargo test` itself.
    fn covers_command(&self, words: &[String]) -> bool {
        let Some(pattern) = self.pattern.as_deref() else { return true };
        if pattern.trim() == "*" {
            return true;
        }
        let (head, open_end) = match pattern.strip_suffix(":*") {
            Some(head) => (head, true),
            None => (pattern, false),
        };
        let wanted: Vec<&str> = head.split_whitespace().collect();
        let begins =
            words.iter().map(String::as_str).zip(&wanted).all(|(word, want)| word == *want);
        let length =
            if open_end { words.len() >= wanted.len() } else { words.len() == wanted.len() };
        begins && length && !wanted.is_empty()
    }
}

/// What an agent may do.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    mode: PermissionMode,
    allow: Vec<Rule>,
    ask: Vec<Rule>,
    deny: Vec<Rule>,
}

impl Policy {
    /// Understands the rules.
    pub(crate) fn new(mode: PermissionMode, lists: &RuleLists) -> Result<Self, BadRule> {
        let parse = |list: &[String]| {
            list.iter().map(|rule| Rule::parse(rule)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            mode,
            allow: parse(&lists.allow)?,
            ask: parse(&lists.ask)?,
            deny: parse(&lists.deny)?,
        })
    }

    /// The mode.
    pub(crate) fn mode(&self) -> PermissionMode {
        self.mode
    }

    /// Goes on in another mode.
    pub(crate) fn set_mode(&mut self, mode: PermissionMode) {
        self.mode = mode;
    }

    /// Takes further rules in.
    pub(crate) fn add(&mut self, lists: &RuleLists) -> Result<(), BadRule> {
        let more = Self::new(self.mode, lists)?;
        self.allow.extend(more.allow);
        self.ask.extend(more.ask);
        self.deny.extend(more.deny);
        Ok(())
    }

    /// What is to be done with a call.
    pub(crate) fn judge(&self, spec: &ToolSpec, subject: &PermissionSubject) -> PermissionVerdict {
        let tool = spec.name;
        let outside = matches!(subject, PermissionSubject::Outside(_));
        let denies =
            |rule: &&Rule| rule.touches(tool, subject) || outside && rule.touches(OUTSIDE, subject);
        if let Some(rule) = self.deny.iter().find(denies) {
            return PermissionVerdict::Refuse(format!(
                "denied by the rule {:?} of this team's settings; find another way, or say in your \
                 report what you could not do",
                rule.text
            ));
        }
        let changes = spec.effect == Effect::Changes;
        if self.mode == PermissionMode::Plan && changes {
            return PermissionVerdict::Refuse(format!(
                "not run: in mode plan nothing is changed, and {tool} might; look with read_file, \
                 then send your plan with submit_plan and go on when it is approved"
            ));
        }
        if outside && !self.opens(subject) {
            return match self.mode {
                PermissionMode::Bypass => PermissionVerdict::Refuse(format!(
                    "not done: this leads out of the workspace, and in mode bypass nobody is asked; give a \
                     path inside it (a rule such as {:?} under `allow` would open it)",
                    rule(OUTSIDE, subject)
                )),
                PermissionMode::Plan | PermissionMode::Default | PermissionMode::AcceptEdits => {
                    PermissionVerdict::AskToLeave
                }
            };
        }
        if self.mode == PermissionMode::Bypass {
            return PermissionVerdict::Run;
        }
        if self.ask.iter().any(|rule| rule.touches(tool, subject)) {
            return PermissionVerdict::Ask;
        }
        let edits = matches!(subject, PermissionSubject::Path(_));
        let free = self.mode == PermissionMode::AcceptEdits && edits;
        if !changes || free || self.allows(tool, subject) {
            return PermissionVerdict::Run;
        }
        PermissionVerdict::Ask
    }

    /// Whether the rules let a call leave the workspace for this place.
    fn opens(&self, subject: &PermissionSubject) -> bool {
        let any = |rules: &[Rule]| rules.iter().any(|rule| rule.covers(OUTSIDE, subject));
        any(&self.allow) && (self.mode == PermissionMode::Bypass || !any(&self.ask))
    }

    /// Every part of a command line must be allowed, by whichever rule.
    fn allows(&self, tool: &str, subject: &PermissionSubject) -> bool {
        if self.allow.iter().any(|rule| rule.covers(tool, subject)) {
            return true;
        }
        let PermissionSubject::Command(line) = subject else { return false };
        let mine = || self.allow.iter().filter(|rule| rule.tool == tool);
        shell::plain(line).is_some_and(|commands| {
            commands.iter().all(|words| mine().any(|rule| rule.covers_command(words)))
        })
    }
}

/// The rules that an "always" makes: this very command, this very file, or the tool.
pub(crate) fn rules_for(
    about: QuestionKind,
    tool: &str,
    subject: &PermissionSubject,
) -> Vec<String> {
    let leave = (about == QuestionKind::Sandbox).then(|| rule(OUTSIDE, subject));
    leave.into_iter().chain([rule(tool, subject)]).collect()
}

fn rule(tool: &str, subject: &PermissionSubject) -> String {
    match subject {
        PermissionSubject::Nothing => tool.into(),
        PermissionSubject::Command(line) => format!("{tool}({})", line.trim()),
        PermissionSubject::Path(path) | PermissionSubject::Outside(path) => {
            format!("{tool}({})", glob::literal(path))
        }
    }
}

#[cfg(test)]
mod tests;

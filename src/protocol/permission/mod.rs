//! Decides whether a tool call may run: modes and rules (SPEC 7).
//!
//! The order is: `deny`, then the refusals of mode `plan`, then the check for paths outside the workspace and for
//! commands outside the walls, then `ask`, then `allow`, then the mode. Paths are real ones, relative to the
//! workspace if inside. Rules that forbid commands guard against accidents only, because a command line does not show
//! everything that a shell will do. A rule that allows a command is exact: see [`shell`].

mod glob;
mod shell;

use crate::wire::host::HostPattern;
use crate::wire::mcp::{covers_tool, is_tool_pattern};
use crate::wire::permission::{PermissionMode, QuestionKind, RuleLists};
use crate::wire::tool::{Effect, ToolSpec};

/// The word that replaces the tool in rules about paths outside the workspace.
pub(crate) const OUTSIDE: &str = "outside";

/// The word that replaces the tool in rules about commands outside the walls.
pub(crate) const UNSANDBOXED: &str = "unsandboxed";

/// The word that replaces the tool in rules about hosts that a command may reach.
pub(crate) const NETWORK: &str = "network";

/// The subject of a call, to which rules apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PermissionSubject {
    /// No subject that a pattern could match.
    Nothing,
    /// A command, behind walls if there are any.
    Command(String),
    /// A command that is to run outside the walls.
    Unsandboxed(String),
    /// A command that is to reach hosts besides those of the settings.
    Hosts { command: String, hosts: Vec<HostPattern> },
    /// A file in the workspace: its real path.
    Path(String),
    /// A file outside the workspace: its real, absolute path.
    Outside(String),
    /// Files in the workspace that one call changes. Each is judged also as a call of the tool that changes such a file
    /// alone, and the strictest verdict counts.
    Files(Vec<ChangedFile>),
    /// A page of the web: its address, its host without a port, and its port. `is_walled_off` if the walls keep commands
    /// from that host.
    Page { url: String, host: HostPattern, port: u16, is_walled_off: bool },
    /// A tool of a server, which is not as a person has accepted it: what a person must know of the call.
    ChangedTool(String),
}

/// One of several files that a call changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangedFile {
    /// The name of the tool that does the same with one file.
    pub(crate) tool: &'static str,
    /// The effect of that tool: a call that changes a part of a file also reads it.
    pub(crate) effect: Effect,
    /// The real path in the workspace.
    pub(crate) path: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PermissionVerdict {
    Run,
    Ask,
    /// Ask for permission to leave the workspace or the walls, or to reach a host.
    AskToLeave,
    /// Refuse it, with the reason and advice.
    Refuse(String),
    /// The call must wait for the approval of a plan, for this reason.
    NeedsPlan,
}

impl PermissionVerdict {
    /// Returns the place of a verdict among those on the parts of one call: the strictest counts.
    pub(crate) fn strictness(&self) -> u8 {
        match self {
            Self::Run => 0,
            Self::Ask => 1,
            Self::AskToLeave => 2,
            Self::NeedsPlan => 3,
            Self::Refuse(_) => 4,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?} is not a valid rule: {why}")]
pub(crate) struct BadRule {
    rule: String,
    why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    text: String,
    tool: String,
    pattern: Option<String>,
}

impl PermissionSubject {
    /// Returns the word for the tool in rules that let the call leave the workspace or the walls, or reach a host; `None`
    /// if it stays.
    fn way_out(&self) -> Option<&'static str> {
        match self {
            Self::Outside(_) => Some(OUTSIDE),
            Self::Unsandboxed(_) => Some(UNSANDBOXED),
            Self::Hosts { .. } => Some(NETWORK),
            Self::Nothing
            | Self::Command(_)
            | Self::Path(_)
            | Self::Files(_)
            | Self::Page { .. }
            | Self::ChangedTool(_) => None,
        }
    }

    fn command(&self) -> Option<&str> {
        match self {
            Self::Command(line) | Self::Unsandboxed(line) => Some(line),
            Self::Hosts { command, .. } => Some(command),
            Self::Nothing
            | Self::Path(_)
            | Self::Outside(_)
            | Self::Files(_)
            | Self::Page { .. }
            | Self::ChangedTool(_) => None,
        }
    }

    /// Returns the hosts about which the rules of the network are.
    fn hosts(&self) -> &[HostPattern] {
        match self {
            Self::Hosts { hosts, .. } => hosts,
            Self::Page { host, .. } => std::slice::from_ref(host),
            Self::Nothing
            | Self::Command(_)
            | Self::Unsandboxed(_)
            | Self::Path(_)
            | Self::Outside(_)
            | Self::Files(_)
            | Self::ChangedTool(_) => &[],
        }
    }

    /// Returns the host of a page with its port, which a rule of the network may name.
    fn port_of_page(&self) -> Option<HostPattern> {
        match self {
            Self::Page { host, port, .. } => Some(host.with_port(*port)),
            Self::Nothing
            | Self::Command(_)
            | Self::Unsandboxed(_)
            | Self::Hosts { .. }
            | Self::Path(_)
            | Self::Outside(_)
            | Self::Files(_)
            | Self::ChangedTool(_) => None,
        }
    }
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
        if pattern.is_some() && is_tool_pattern(tool) {
            return Err(bad("a rule about an MCP tool has no pattern; leave the parentheses out"));
        }
        if !is_tool_pattern(tool) && (tool.is_empty() || !tool.chars().all(is_word)) {
            return Err(bad("write it as tool or tool(pattern), such as bash(cargo test:*)"));
        }
        if pattern.is_some_and(|pattern| pattern.trim().is_empty()) {
            return Err(bad("its pattern is empty; leave the parentheses out to mean every call"));
        }
        if tool == NETWORK && pattern.is_some_and(|host| HostPattern::parse(host).is_err()) {
            let why = "it names no host; write network(packages.example.com), \
                       network(*.example.com) or network(db.internal:5432)";
            return Err(bad(why));
        }
        let pattern = pattern.map(ToOwned::to_owned);
        Ok(Self { text: trimmed.into(), tool: tool.into(), pattern })
    }

    fn covers(&self, tool: &str, subject: &PermissionSubject) -> bool {
        use PermissionSubject::{
            ChangedTool, Command, Files, Hosts, Nothing, Outside, Page, Path, Unsandboxed,
        };
        let Some(pattern) = &self.pattern else { return covers_tool(&self.tool, tool) };
        self.tool == tool
            && match subject {
                // Each of several files is judged alone.
                Nothing | ChangedTool(_) | Files(_) => false,
                Path(path) | Outside(path) => glob::matches(pattern, path),
                Page { host, .. } => self.host().is_some_and(|own| own.covers(host)),
                Hosts { hosts, .. } if tool == NETWORK => {
                    hosts.iter().all(|host| self.covers_host(host))
                }
                Command(line) | Unsandboxed(line) | Hosts { command: line, .. } => {
                    line.trim() == pattern.trim()
                }
            }
    }

    /// Whether the rule is one about the network, and covers a host.
    fn covers_host(&self, host: &HostPattern) -> bool {
        self.tool == NETWORK && self.host().is_none_or(|own| own.covers(host))
    }

    /// Whether the rule is one about the network, and is about a part of what a pattern means.
    fn touches_host(&self, host: &HostPattern) -> bool {
        self.covers_host(host)
            || self.tool == NETWORK && self.host().is_some_and(|own| host.covers(&own))
    }

    /// Returns the host of a rule; `None` for all.
    fn host(&self) -> Option<HostPattern> {
        HostPattern::parse(self.pattern.as_deref()?).ok()
    }

    /// Whether the rule covers any part of the call.
    fn touches(&self, tool: &str, subject: &PermissionSubject) -> bool {
        if tool == NETWORK {
            let exact = subject.port_of_page();
            return subject.hosts().iter().chain(&exact).any(|host| self.touches_host(host));
        }
        let part = |line: &str| shell::guessed(line).iter().any(|words| self.covers_command(words));
        self.covers(tool, subject) || self.tool == tool && subject.command().is_some_and(part)
    }

    /// Whether the rule covers a simple command. `cargo test:*` covers every command that begins with these
    /// words, `cargo test` only itself.
    fn covers_command(&self, words: &[String]) -> bool {
        let Some(pattern) = self.pattern.as_deref() else { return true };
        let head = pattern.strip_suffix(":*");
        let wanted: Vec<&str> = head.unwrap_or(pattern).split_whitespace().collect();
        let begin = if head.is_some() { words.get(..wanted.len()) } else { Some(words) };
        pattern.trim() == "*" || !wanted.is_empty() && begin.is_some_and(|begin| begin == wanted)
    }
}

/// The files that rules keep from a tool.
#[derive(Debug, Clone)]
pub(crate) struct DeniedFiles {
    tool: &'static str,
    rules: Vec<Rule>,
}

impl DeniedFiles {
    pub(crate) fn contains(&self, subject: &PermissionSubject) -> bool {
        let way_out = subject.way_out();
        let covers = |rule: &Rule| {
            rule.covers(self.tool, subject) || way_out.is_some_and(|way| rule.covers(way, subject))
        };
        self.rules.iter().any(covers)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Policy {
    mode: PermissionMode,
    allow: Vec<Rule>,
    ask: Vec<Rule>,
    deny: Vec<Rule>,
    /// Rules of answers, which allow calls and can be taken back.
    granted: Vec<Rule>,
    /// Whether commands inside the walls run without a question, except in mode `plan`.
    frees_walled_commands: bool,
}

impl Policy {
    pub(crate) fn new(mode: PermissionMode, lists: &RuleLists) -> Result<Self, BadRule> {
        let parse = |list: &Vec<String>| -> Result<Vec<Rule>, BadRule> {
            list.iter().map(|rule| Rule::parse(rule)).collect()
        };
        let [allow, ask, deny] = [&lists.allow, &lists.ask, &lists.deny].map(parse);
        let (granted, frees_walled_commands) = (Vec::new(), false);
        Ok(Self { mode, allow: allow?, ask: ask?, deny: deny?, granted, frees_walled_commands })
    }

    /// Sets whether commands inside the walls run without a question, unless a rule asks. The walls must be whole.
    pub(crate) fn free_walled_commands(&mut self, are_free: bool) {
        self.frees_walled_commands = are_free;
    }

    pub(crate) fn mode(&self) -> PermissionMode {
        self.mode
    }

    pub(crate) fn set_mode(&mut self, mode: PermissionMode) {
        self.mode = mode;
    }

    /// Adds rules while the agent runs. Those that allow calls are rules of answers.
    pub(crate) fn add(&mut self, lists: &RuleLists) -> Result<(), BadRule> {
        let more = Self::new(self.mode, lists)?;
        for rule in more.allow {
            if !self.granted.contains(&rule) {
                self.granted.push(rule);
            }
        }
        self.ask.extend(more.ask);
        self.deny.extend(more.deny);
        Ok(())
    }

    /// Removes rules of answers. The rules of the settings stay.
    pub(crate) fn revoke(&mut self, rules: &[String]) {
        self.granted.retain(|rule| !rules.iter().any(|gone| gone.trim() == rule.text));
    }

    fn allowing(&self) -> impl Iterator<Item = &Rule> {
        self.allow.iter().chain(&self.granted)
    }

    /// Returns the files that the rules keep from a tool, in every mode. A rule without a pattern takes the tool away, and
    /// is about no file.
    pub(crate) fn denied_files(&self, spec: &ToolSpec) -> DeniedFiles {
        let tool = spec.name;
        let is_about_files =
            |rule: &&Rule| rule.pattern.is_some() && (rule.tool == tool || rule.tool == OUTSIDE);
        DeniedFiles { tool, rules: self.deny.iter().filter(is_about_files).cloned().collect() }
    }

    /// Returns the files that the rules keep from a tool, and those about which it asks.
    pub(crate) fn guarded_files(&self, spec: &ToolSpec) -> DeniedFiles {
        let mut files = self.denied_files(spec);
        let asking = self.ask.iter().filter(|_| self.mode != PermissionMode::Bypass);
        let asking = asking.filter(|rule| rule.pattern.is_some() && rule.tool == spec.name);
        files.rules.extend(asking.cloned());
        files
    }

    pub(crate) fn judge(&self, spec: &ToolSpec, subject: &PermissionSubject) -> PermissionVerdict {
        self.judge_named(spec.name, spec.effect, subject)
    }

    /// Judges a call of a tool that may be one of another program.
    pub(crate) fn judge_named(
        &self,
        tool: &str,
        effect: Effect,
        subject: &PermissionSubject,
    ) -> PermissionVerdict {
        if let PermissionSubject::Files(files) = subject {
            return self.judge_files(tool, effect, files);
        }
        let way_out = subject.way_out();
        // A rule that keeps commands from a host keeps pages of it away, too.
        let is_page = matches!(subject, PermissionSubject::Page { .. });
        let way = way_out.or_else(|| is_page.then_some(NETWORK));
        let touches = |rule: &Rule| {
            rule.touches(tool, subject) || way.is_some_and(|way| rule.touches(way, subject))
        };
        let denies = |rule: &&Rule| touches(rule);
        if let Some(rule) = self.deny.iter().find(denies) {
            return PermissionVerdict::Refuse(format!(
                "denied by the rule {:?} of this team's settings; find another way, or say in your \
                 report what you could not do",
                rule.text
            ));
        }
        let changes = effect == Effect::Changes;
        if self.mode == PermissionMode::Plan && changes {
            return PermissionVerdict::NeedsPlan;
        }
        if let Some(way) = way_out {
            let is_open = self.opens(way, subject);
            if !is_open && self.mode == PermissionMode::Bypass {
                return PermissionVerdict::Refuse(stays(way, tool, subject));
            }
            if !is_open || way == UNSANDBOXED && self.asks(touches) {
                return PermissionVerdict::AskToLeave;
            }
            if way == UNSANDBOXED {
                return PermissionVerdict::Run;
            }
        }
        if let PermissionSubject::ChangedTool(_) = subject {
            return match self.mode {
                PermissionMode::Bypass => PermissionVerdict::Refuse(CHANGED_TOOL.into()),
                PermissionMode::Plan | PermissionMode::Default | PermissionMode::AcceptEdits => {
                    PermissionVerdict::Ask
                }
            };
        }
        if self.is_beyond_the_walls(tool, subject) {
            return PermissionVerdict::Refuse(stays(NETWORK, tool, subject));
        }
        let free = match subject {
            PermissionSubject::Path(_) => self.mode == PermissionMode::AcceptEdits,
            PermissionSubject::Command(_) | PermissionSubject::Hosts { .. } => {
                self.frees_walled_commands
            }
            PermissionSubject::Nothing
            | PermissionSubject::ChangedTool(_)
            | PermissionSubject::Outside(_)
            | PermissionSubject::Files(_)
            | PermissionSubject::Page { .. }
            | PermissionSubject::Unsandboxed(_) => false,
        };
        let asks = || self.ask.iter().any(touches);
        let is_harmless = matches!(effect, Effect::Reads | Effect::Talks);
        let runs = || is_harmless || free || self.allows(tool, subject);
        if self.mode == PermissionMode::Bypass || !asks() && runs() {
            PermissionVerdict::Run
        } else {
            PermissionVerdict::Ask
        }
    }

    /// Judges a call that changes several files: the strictest verdict on one of them counts.
    fn judge_files(&self, tool: &str, effect: Effect, files: &[ChangedFile]) -> PermissionVerdict {
        let verdicts = files.iter().map(|file| self.judge_file(tool, file));
        let strictest = verdicts.max_by_key(PermissionVerdict::strictness);
        strictest.unwrap_or_else(|| self.judge_named(tool, effect, &PermissionSubject::Nothing))
    }

    /// Judges one of several files by the rules of the call's own tool and by those of the tool that changes one file: what
    /// forbids or asks in either counts, and so does what allows.
    fn judge_file(&self, tool: &str, file: &ChangedFile) -> PermissionVerdict {
        let effect = file.effect;
        let subject = PermissionSubject::Path(file.path.clone());
        let names = [tool, file.tool];
        let [own, alone] = names.map(|name| self.judge_named(name, effect, &subject));
        let asks = self.asks(|rule| names.iter().any(|name| rule.touches(name, &subject)));
        let (stricter, milder) =
            if own.strictness() > alone.strictness() { (own, alone) } else { (alone, own) };
        let is_decided = stricter.strictness() > PermissionVerdict::Ask.strictness();
        if is_decided || asks { stricter } else { milder }
    }

    /// Whether the rules let a call leave the workspace for this path, or the walls for this command, or reach these
    /// hosts.
    fn opens(&self, way: &str, subject: &PermissionSubject) -> bool {
        if way == NETWORK {
            let is_open = |host| self.allowing().any(|rule| rule.covers_host(host));
            let asks = |rule: &Rule| rule.touches(way, subject);
            return subject.hosts().iter().all(is_open) && !self.asks(asks);
        }
        let asks = |rule: &Rule| rule.covers(way, subject);
        self.allows(way, subject) && !self.asks(asks)
    }

    /// Whether a page is one that no command could fetch, and nobody is asked about it.
    fn is_beyond_the_walls(&self, tool: &str, subject: &PermissionSubject) -> bool {
        let is_walled_off = matches!(subject, PermissionSubject::Page { is_walled_off: true, .. });
        is_walled_off
            && self.mode == PermissionMode::Bypass
            && !self.allows(tool, subject)
            && !self.opens(NETWORK, subject)
    }

    /// Whether a rule asks; in mode `bypass` none does.
    fn asks(&self, touches: impl Fn(&Rule) -> bool) -> bool {
        self.mode != PermissionMode::Bypass && self.ask.iter().any(touches)
    }

    /// Whether the rules allow the whole subject of the call, or every part of its command line.
    fn allows(&self, tool: &str, subject: &PermissionSubject) -> bool {
        if self.allowing().any(|rule| rule.covers(tool, subject)) {
            return true;
        }
        let Some(line) = subject.command() else { return false };
        let mine = || self.allowing().filter(|rule| rule.tool == tool);
        shell::plain(line).is_some_and(|commands| {
            commands.iter().all(|words| mine().any(|rule| rule.covers_command(words)))
        })
    }
}

/// The refusal of a call of a changed tool in mode `bypass`.
const CHANGED_TOOL: &str = "not done: the MCP server has changed this tool since the user accepted it, and in mode bypass \
                            nobody is asked; do without it, and say in your report that `team mcp-servers --accept \
                            SERVER` accepts it";

/// Returns the refusal of a call that leaves the workspace or the walls in mode `bypass`.
fn stays(way: &str, tool: &str, subject: &PermissionSubject) -> String {
    let is_page = matches!(subject, PermissionSubject::Page { .. });
    let (place, advice) = match way {
        NETWORK if is_page => ("hosts of the settings", "do without this page"),
        UNSANDBOXED => ("walls", "do without `outside`"),
        NETWORK => ("hosts of the settings", "do without `hosts`"),
        _ => ("workspace", "give a path inside it"),
    };
    let rules = if is_page { vec![rule(tool, subject)] } else { way_rules(way, subject) };
    let rule = rules.first().map_or("", String::as_str);
    format!(
        "not done: this leads out of the {place}, and in mode bypass nobody is asked; {advice} (a rule such \
         as {rule:?} under `allow` would open it)"
    )
}

/// Returns the rules that let a call go this way out.
fn way_rules(way: &str, subject: &PermissionSubject) -> Vec<String> {
    if way == NETWORK {
        return subject.hosts().iter().map(|host| format!("{NETWORK}({host})")).collect();
    }
    vec![rule(way, subject)]
}

/// Returns the rules that the answer "always" adds: for exactly this command, this file, this host, or the tool.
pub(crate) fn rules_for(
    about: QuestionKind,
    tool: &str,
    subject: &PermissionSubject,
) -> Vec<String> {
    let leave = subject.way_out().filter(|_| about == QuestionKind::Sandbox);
    let leave = leave.into_iter().flat_map(|way| way_rules(way, subject));
    if let PermissionSubject::Files(files) = subject {
        let mut rules: Vec<String> = Vec::new();
        let changes = files.iter().filter(|file| file.effect == Effect::Changes);
        for ChangedFile { tool, path, .. } in changes {
            let one = rule(tool, &PermissionSubject::Path(path.clone()));
            if !rules.contains(&one) {
                rules.push(one);
            }
        }
        return rules;
    }
    // A command that may leave the walls needs no further rule.
    let stay = (!matches!(subject, PermissionSubject::Unsandboxed(_))).then(|| rule(tool, subject));
    leave.chain(stay).collect()
}

/// Returns the advice for a call that nobody could approve.
pub(crate) fn advice(about: QuestionKind, tool: &str, subject: &PermissionSubject) -> String {
    if matches!(subject, PermissionSubject::ChangedTool(_)) {
        return "no rule allows a tool that has changed: `team mcp-servers --accept SERVER` accepts it"
            .into();
    }
    would_allow(&rules_for(about, tool, subject))
}

/// Returns the advice for a call that one of these rules would allow: the first of them.
pub(crate) fn would_allow(rules: &[String]) -> String {
    let rule = rules.first().map_or("", String::as_str);
    format!(
        "a rule such as {rule:?} under `allow` in the [permissions] of the settings would allow it"
    )
}

fn rule(tool: &str, subject: &PermissionSubject) -> String {
    match subject {
        PermissionSubject::Nothing
        | PermissionSubject::Files(_)
        | PermissionSubject::ChangedTool(_) => tool.into(),
        PermissionSubject::Command(line)
        | PermissionSubject::Unsandboxed(line)
        | PermissionSubject::Hosts { command: line, .. } => {
            format!("{tool}({})", line.trim())
        }
        PermissionSubject::Path(path) | PermissionSubject::Outside(path) => {
            format!("{tool}({})", glob::literal(path))
        }
        PermissionSubject::Page { host, .. } => format!("{tool}({host})"),
    }
}

#[cfg(test)]
mod tests;

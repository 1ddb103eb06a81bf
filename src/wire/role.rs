//! Roles as role files define them: tools, model, permission mode and instructions of an agent.
//!
//! A role only restricts. Its allow-list names every tool that the role has besides mail, so a tool that is added
//! later is not part of an existing role. Keys, tools and modes are also accepted as other programs write them.

use super::front_matter::{self, Field, Problem};
use super::isolation::Isolation;
use super::mcp::{covers_tool, is_tool_pattern};
use super::permission::PermissionMode;
use super::skill;
use super::tool::{RoleAccess, ToolLookup, ToolSpec};

/// The words for a model that role files of other programs use. The settings `model_aliases` define their meaning.
pub const MODEL_ALIASES: [&str; 3] = ["sonnet", "opus", "haiku"];

/// The content of a role file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Role {
    /// The name.
    pub name: String,
    /// The purpose, in one line.
    pub description: String,
    /// The allow-list: all tools of the role besides mail; `None` allows every tool.
    pub tools: Option<Vec<String>>,
    /// Disallowed tools, and `tool(pattern)` rules for disallowed calls.
    pub disallowed: Vec<String>,
    /// The model, as `provider/name` or as one of [`MODEL_ALIASES`].
    pub model: Option<String>,
    /// The models that go on if its model fails, in their order and in the same forms; `None` gives it those of the team.
    pub fallback_models: Option<Vec<String>>,
    /// The permission mode.
    pub mode: Option<PermissionMode>,
    /// The folder that teammates in this role work in.
    pub isolation: Option<Isolation>,
    /// The maximum number of model calls in one turn.
    pub max_turns: Option<u32>,
    /// The skills of the role; `None` gives it every skill.
    pub skills: Option<Vec<String>>,
    /// The names of the MCP servers of the role; `None` gives it every server.
    pub mcp_servers: Option<Vec<String>>,
    /// The `tool(pattern)` rules for disallowed calls, as they are written in the file.
    pub denied_calls: Vec<String>,
    /// The role's part of the system prompt.
    pub instructions: String,
    /// The role of the agent in whose name a subagent works: its limits hold as well.
    pub outer: Option<Box<Role>>,
}

impl Role {
    /// Parses a role file. `stem` is its file name without the ending; `find` looks tools up by name.
    pub fn parse(stem: &str, text: &str, find: ToolLookup) -> (Self, Vec<Problem>) {
        let document = front_matter::parse(text);
        let mut problems = document.problems;
        let mut role = Self { name: stem.into(), instructions: document.body, ..Self::default() };
        for (at, field) in document.fields.iter().enumerate() {
            let before = document.fields.iter().take(at);
            let is_new = before.into_iter().all(|before| before.key != field.key);
            let taken = if is_new { role.take(field, find) } else { role.take_again(field, find) };
            if let Err(what) = taken {
                problems.push(Problem { line: field.line, what });
            }
        }
        // The text behind an open parenthesis is not certain, so no part of the list is.
        let denials = document.fields.iter().filter(|field| field.key == "disallowedTools");
        if denials.flat_map(|field| field.value.items()).any(|rule| is_open(&rule)) {
            role.tools = Some(Vec::new());
        }
        // A line that was not understood may have been the list of tools. Then only mail is allowed.
        let lines: Vec<&str> = text.lines().collect();
        let is_list = |problem: &&Problem| {
            let line = lines.get(problem.line.saturating_sub(1)).copied().unwrap_or_default();
            problem.line == 1 || (names_tools(line) && !line.starts_with("disallowedTools"))
        };
        if role.tools.is_none()
            && let Some(line) = problems.iter().find(is_list).map(|problem| problem.line)
        {
            role.tools = Some(Vec::new());
            let what = "this may be the list of tools, so the role has mail only: write `tools: …`";
            problems.push(Problem { line, what: what.into() });
        }
        problems.sort_by_key(|problem| problem.line);
        (role, problems)
    }

    /// Applies a key that stands in the file a second time: a list of tools never becomes longer by it.
    ///
    /// # Errors
    /// Always: it is a problem.
    fn take_again(&mut self, field: &Field, find: ToolLookup) -> Result<(), String> {
        let key = &field.key;
        let consequence = match key.as_str() {
            "tools" => {
                self.tools = Some(Vec::new());
                "so the role has mail only"
            }
            "disallowedTools" => {
                self.take(field, find)?;
                "and both lists count"
            }
            _ => "so this line is ignored",
        };
        Err(format!("the key {key:?} is in the file twice, {consequence}"))
    }

    /// Applies one key.
    ///
    /// # Errors
    /// The problem with the value of the key; parts that are understood take effect.
    fn take(&mut self, field: &Field, find: ToolLookup) -> Result<(), String> {
        let text = field.value.text();
        match field.key.as_str() {
            "name" if is_name(&text) => self.name = text,
            "name" => {
                let rule = "letters, digits, spaces, `-`, `_` and `.`";
                let name = &self.name;
                return Err(format!("{text:?} is not a role name ({rule}); it is called {name:?}"));
            }
            "description" => self.description = text,
            "tools" => {
                let (tools, unknown) = known(field.value.items(), find);
                self.tools = Some(tools.iter().map(|tool| bare(tool).to_owned()).collect());
                report_unknown(&unknown)?;
                if let Some(rule) = tools.iter().find(|tool| tool.contains('(')) {
                    let but = "use disallowedTools for what a role may not do";
                    return Err(format!("{rule} gives all of {}: {but}", bare(rule)));
                }
            }
            "disallowedTools" => {
                let given = field.value.items();
                if let Some(rule) = given.iter().find(|rule| is_open(rule)) {
                    return Err(format!("{rule} lacks its `)`, so the role has mail only"));
                }
                let is_call = |rule: &&String| rule.contains('(') && find(bare(rule)).is_some();
                self.denied_calls.extend(given.iter().filter(is_call).cloned());
                let (mut tools, mut unknown) = known(given, find);
                let always = |it: &ToolSpec| it.role_access == RoleAccess::Always;
                unknown.extend(tools.extract_if(.., |tool| find(tool).is_some_and(always)));
                self.disallowed.extend(tools);
                report_unknown(&unknown)?;
            }
            "model" => {
                let why = "so the lead's model is used";
                self.model = model(&text).map_err(|what| format!("{what}, {why}"))?;
            }
            "fallbackModels" => {
                let (models, problem) = fallback_models(field.value.items());
                self.fallback_models = Some(models);
                problem.map_or(Ok(()), Err)?;
            }
            "permissionMode" => {
                let mode = match text.as_str() {
                    // The names that other programs use.
                    "acceptEdits" => Some(PermissionMode::AcceptEdits),
                    "bypassPermissions" => Some(PermissionMode::Bypass),
                    word => PermissionMode::parse(word),
                };
                let why = "is not a permission mode, so the lead's is in force";
                self.mode = Some(mode.ok_or_else(|| format!("{text:?} {why}"))?);
            }
            "isolation" => {
                let isolation = match text.as_str() {
                    // The name that other programs use.
                    "worktree" => Some(Isolation::Clone),
                    word => Isolation::parse(word),
                };
                // A teammate never works in the workspace when another folder was asked for.
                self.isolation = Some(isolation.unwrap_or(Isolation::Clone));
                let why = "is neither shared nor clone, so teammates work in a clone";
                isolation.ok_or_else(|| format!("{text:?} {why}"))?;
            }
            "maxTurns" => {
                let most = text.parse().ok().filter(|most| *most > 0);
                let why = "is not a positive number, so max_rounds is in force";
                self.max_turns = Some(most.ok_or_else(|| format!("{text:?} {why}"))?);
            }
            "skills" => {
                let (names, others) = divided(field.value.items(), skill::is_name);
                self.skills = Some(names);
                let why = "is not the name of a skill, so the role does not have it";
                others.first().map_or(Ok(()), |other| Err(format!("{other:?} {why}")))?;
            }
            "mcpServers" => {
                let (names, others) = divided(field.value.items(), is_server_name);
                self.mcp_servers = Some(names);
                others.first().map_or(Ok(()), |other| Err(server_problem(other)))?;
            }
            other => return Err(format!("the key {other:?} is not known, so it is ignored")),
        }
        Ok(())
    }

    /// Whether an agent in this role has a tool.
    pub fn has(&self, tool: &ToolSpec) -> bool {
        let name = tool.part_of.unwrap_or(tool.name);
        let is_on = |list: &Vec<String>| list.iter().any(|word| covers_tool(word, name));
        let is_given = match tool.role_access {
            RoleAccess::Always => return true,
            RoleAccess::Granted => true,
            RoleAccess::Named => self.tools.as_ref().is_none_or(is_on),
        };
        is_given && !is_on(&self.disallowed) && self.outer.as_ref().is_none_or(|it| it.has(tool))
    }

    /// Returns this role for a subagent of an agent in the role `outer`.
    #[must_use]
    pub(crate) fn within(mut self, outer: &Self) -> Self {
        let both = |own: Vec<String>, theirs: &Vec<String>| {
            own.into_iter().filter(|skill| theirs.contains(skill)).collect()
        };
        self.skills = match (self.skills, &outer.skills) {
            (Some(own), Some(theirs)) => Some(both(own, theirs)),
            (own, theirs) => own.or_else(|| theirs.clone()),
        };
        self.outer = Some(Box::new(outer.clone()));
        self
    }
}

/// Whether the part of a line before its colon contains `tool`, in upper or lower case.
fn names_tools(line: &str) -> bool {
    line.split(':').next().is_some_and(|key| key.to_lowercase().contains("tool"))
}

/// Whether a text can name a role: it is no path, and it is legible in a list.
pub fn is_name(text: &str) -> bool {
    let is_fine = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    !text.is_empty()
        && text.len() <= 64
        && text.chars().all(is_fine)
        && text.starts_with(char::is_alphanumeric)
        && !text.ends_with(' ')
}

/// Returns the form in which names of roles are compared: without case, and with `_`, `-` and spaces alike.
pub fn folded(name: &str) -> String {
    let is_between = |c: char| c.is_whitespace() || matches!(c, '_' | '-');
    let words: Vec<&str> = name.split(is_between).filter(|word| !word.is_empty()).collect();
    words.join(" ").to_lowercase()
}

/// Whether a text may mean the role of this name: it differs by a few letters, or contains the name, perhaps as a
/// plural.
pub fn resembles(text: &str, name: &str) -> bool {
    let words_of = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let (text, name) = (words_of(text), words_of(name));
    let joined = name.join(" ");
    let is_name = |words: &[String]| {
        let words = words.join(" ");
        words == joined || words.strip_suffix('s') == Some(&joined)
    };
    is_near(&text.join(" "), &joined) || (!name.is_empty() && text.windows(name.len()).any(is_name))
}

/// Whether two texts differ by at most one letter, or two letters of long texts.
fn is_near(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|text| text.chars().collect::<Vec<char>>());
    let most = match one.len().min(other.len()) {
        0..=2 => 0,
        3..=7 => 1,
        _ => 2,
    };
    one.len().abs_diff(other.len()) <= most && differ_by(&one, &other, most)
}

/// Whether at most this many letters are added, left out, replaced, or swapped with the next one.
fn differ_by(one: &[char], other: &[char], most: usize) -> bool {
    match (one, other) {
        ([a, one @ ..], [b, other @ ..]) if a == b => differ_by(one, other, most),
        ([], rest) | (rest, []) => rest.len() <= most,
        ([a, next, one_after @ ..], [b, follower, other_after @ ..])
            if most > 0
                && (a, next) == (follower, b)
                && differ_by(one_after, other_after, most - 1) =>
        {
            true
        }
        ([_, one_rest @ ..], [_, other_rest @ ..]) => {
            let left = most.checked_sub(1);
            let pairs = [(one_rest, other), (one, other_rest), (one_rest, other_rest)];
            left.is_some_and(|left| pairs.iter().any(|(one, other)| differ_by(one, other, left)))
        }
    }
}

/// Divides a list into the names and the rest.
fn divided(items: Vec<String>, is_name: impl Fn(&str) -> bool) -> (Vec<String>, Vec<String>) {
    items.into_iter().partition(|item| is_name(item))
}

fn is_server_name(text: &str) -> bool {
    let is_fine = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 64 && text.chars().all(is_fine)
}

/// Describes an entry of `mcpServers` that is no name. Other programs also accept the definition of a server there.
fn server_problem(entry: &str) -> String {
    let consequence = "so the role does not have it";
    match entry.trim_start_matches('{').split_once(':') {
        Some((name, _)) => format!(
            "{name:?} is defined here, which is not supported, {consequence}: define the server in the settings, and \
             name it here"
        ),
        None => format!("{entry:?} is not the name of an MCP server, {consequence}"),
    }
}

fn is_open(rule: &str) -> bool {
    rule.contains('(') && !rule.ends_with(')')
}

fn bare(rule: &str) -> &str {
    rule.split_once('(').map_or(rule, |(tool, _)| tool)
}

/// Splits rules into those for known tools, under the tools' own names, and the others.
fn known(given: Vec<String>, find: ToolLookup) -> (Vec<String>, Vec<String>) {
    let (mut tools, mut unknown) = (Vec::new(), Vec::new());
    for rule in given {
        let (tool, pattern) = rule.split_at(bare(&rule).len());
        match find(tool) {
            Some(spec) => tools.push(format!("{}{pattern}", spec.name)),
            // The tools of MCP servers are known only while a team runs.
            None if is_tool_pattern(&rule) => tools.push(rule),
            None => unknown.push(rule),
        }
    }
    (tools, unknown)
}

fn report_unknown(unknown: &[String]) -> Result<(), String> {
    let error = || format!("no such tool for a role: {}; that is ignored", unknown.join(", "));
    if unknown.is_empty() { Ok(()) } else { Err(error()) }
}

/// Parses a model as `provider/name` or an alias; `None` means the lead's model.
fn model(text: &str) -> Result<Option<String>, String> {
    match text {
        "" | "inherit" => Ok(None),
        alias if MODEL_ALIASES.contains(&alias) => Ok(Some(alias.into())),
        claude if claude.starts_with("claude-") => Ok(Some(format!("anthropic/{claude}"))),
        "rehearsal" => Ok(Some(text.into())),
        named if named.contains('/') => Ok(Some(named.into())),
        other => {
            let aliases = MODEL_ALIASES.join(", ");
            Err(format!("{other:?} is neither PROVIDER/NAME nor one of {aliases}"))
        }
    }
}

/// Returns the models of a list, and the first problem with one that is left out.
fn fallback_models(items: Vec<String>) -> (Vec<String>, Option<String>) {
    let (mut models, mut problem) = (Vec::new(), None);
    for item in items {
        let what = match model(&item) {
            Ok(Some(model)) => {
                models.push(model);
                continue;
            }
            Ok(None) => format!("{item:?} names no model"),
            Err(what) => what,
        };
        problem.get_or_insert(format!("{what}, so it does not go on"));
    }
    (models, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn tool(name: &'static str, role_access: RoleAccess) -> ToolSpec {
        ToolSpec { name, role_access, ..ToolSpec::STRICT }
    }

    static TOOLS: [ToolSpec; 7] = [
        ToolSpec { aliases: &["Bash"], ..tool("run", RoleAccess::Named) },
        ToolSpec { aliases: &["Read"], ..tool("read", RoleAccess::Named) },
        ToolSpec { aliases: &["Write"], ..tool("write", RoleAccess::Named) },
        tool("claim", RoleAccess::Named),
        tool("send", RoleAccess::Granted),
        tool("shout", RoleAccess::Granted),
        tool("rest", RoleAccess::Always),
    ];

    fn find(name: &str) -> Option<&'static ToolSpec> {
        TOOLS.iter().find(|tool| tool.is_called(name))
    }

    fn parse(stem: &str, text: &str) -> (Role, Vec<Problem>) {
        Role::parse(stem, text, find)
    }

    fn tools_of(role: &Role) -> Vec<&'static str> {
        TOOLS.iter().filter(|tool| role.has(tool)).map(|tool| tool.name).collect()
    }

    #[test]
    fn a_file_of_another_program_and_one_without_front_matter_are_understood() {
        let (role, problems) = parse(
            "reviewer",
            "---\nname: code-reviewer\ndescription: Reads: everything\ntools: Read, Grep, Bash(git diff:*)\n\
             disallowedTools: Write, Bash(rm:*), rest\nmodel: sonnet\npermissionMode: acceptEdits\n\
             maxTurns: 7\ncolor: blue\n---\nRead it.\n",
        );
        assert_eq!((&*role.name, &*role.description), ("code-reviewer", "Reads: everything"));
        assert_eq!(role.tools.as_deref().unwrap(), ["read", "run"]);
        assert_eq!(role.disallowed, ["write", "run(rm:*)"]);
        assert_eq!((role.mode, role.max_turns), (Some(PermissionMode::AcceptEdits), Some(7)));
        assert_eq!((role.model.as_deref(), &*role.instructions), (Some("sonnet"), "Read it."));
        let lines: Vec<usize> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [4, 5, 9], "{problems:?}");
        assert_eq!(tools_of(&role), ["run", "read", "send", "shout", "rest"]);
        assert_eq!(role.denied_calls, ["Bash(rm:*)"]);
        // Text that cannot be understood never gives more.
        for (text, has) in [
            ("tools: run, read\ntools: write", &["send", "shout", "rest"][..]),
            (
                "disallowedTools: run\ndisallowedTools: read",
                &["write", "claim", "send", "shout", "rest"],
            ),
            ("disallowedTools: run(rm:*, read", &["send", "shout", "rest"]),
            ("disallowedTools: run(rm:*\ntools: run, read", &["send", "shout", "rest"]),
            ("name: a\nname: b\ntools: run", &["run", "send", "shout", "rest"]),
        ] {
            let (role, problems) = parse("it", &format!("---\n{text}\n---\n"));
            assert_eq!(
                (tools_of(&role), problems.len()),
                (has.to_vec(), 1),
                "{text}: {problems:?}"
            );
            assert_ne!(role.name, "b");
        }
        let (plain, problems) = parse("coder", "Code.\n");
        assert_eq!((&*plain.name, &*plain.instructions, problems), ("coder", "Code.", vec![]));
        assert_eq!(tools_of(&plain).len(), TOOLS.len());
    }

    #[test]
    fn skills_and_servers_are_named_and_what_is_no_name_is_left_out() {
        let of = |text: &str| parse("x", &format!("---\n{text}\n---\n"));
        let (role, problems) =
            of("skills: pdf-forms, letters\nmcpServers:\n  - github\n  - My_db.2");
        assert_eq!(role.skills.unwrap(), ["pdf-forms", "letters"]);
        assert_eq!(role.mcp_servers.unwrap(), ["github", "My_db.2"]);
        assert_eq!((problems, tools_of(&of("skills: a").0).len()), (vec![], TOOLS.len()));
        assert_eq!((of("name: y").0.skills, of("name: y").0.mcp_servers), (None, None));
        // An empty list gives none.
        let (role, problems) = of("skills:\nmcpServers: []");
        assert_eq!((role.skills, role.mcp_servers, problems), (Some(vec![]), Some(vec![]), vec![]));
        let (role, problems) = of("skills: [a, ../b, plugin:c]\nskills: d");
        assert_eq!((role.skills.unwrap(), problems.len()), (vec!["a".to_owned()], 2));
        // A definition in place of a name is a problem, and the names beside it count.
        let inline =
            "mcpServers:\n  - github\n  - playwright:\n      type: stdio\n      command: npx";
        let (role, problems) = of(inline);
        assert_eq!((role.mcp_servers.unwrap(), problems.len()), (vec!["github".to_owned()], 1));
        let told =
            "\"playwright\" is defined here, which is not supported, so the role does not have it";
        assert!(problems[0].what.starts_with(told) && problems[0].line == 2, "{problems:?}");
        for text in ["mcpServers:\n  db:\n    command: npx", "mcpServers: {db: {command: npx}}"] {
            let (role, problems) = of(text);
            assert_eq!((role.mcp_servers, problems.len()), (Some(vec![]), 1), "{text}");
            assert!(problems[0].what.starts_with("\"db\" is defined here"), "{problems:?}");
        }
        assert!(of("mcpServers: a b").1[0].what.contains("is not the name of an MCP server"));
    }

    #[test]
    fn an_allow_list_names_every_tool_besides_mail() {
        // No list, an empty one, one without the tool, one with it.
        let lists = [None, Some(vec![]), Some(vec!["read"]), Some(vec!["later"])];
        let own = |list: Vec<&str>| list.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>();
        for (access, allowed) in [
            (RoleAccess::Named, [true, false, false, true]),
            (RoleAccess::Granted, [true; 4]),
            (RoleAccess::Always, [true; 4]),
        ] {
            let later = tool("later", access);
            for (tools, is_allowed) in lists.clone().into_iter().zip(allowed) {
                let mut role = Role { tools: tools.map(own), ..Role::default() };
                assert_eq!(role.has(&later), is_allowed, "{access:?} {role:?}");
                role.disallowed = own(vec!["later"]);
                assert_eq!(role.has(&later), access == RoleAccess::Always, "{access:?} {role:?}");
            }
        }
    }

    #[test]
    fn a_misspelled_list_of_tools_allows_only_mail() {
        for (text, has_all) in [
            ("---\ntools: read\n", false),
            ("---\ntool: read\n---\n", false),
            ("---\nallowed-Tools: read\n---\n", false),
            ("---\ntools read\n---\n", false),
            ("---\ncolor: blue\nmore words\n---\n", true),
            ("---\ndisallowedTools: unknown\n---\n", true),
        ] {
            let (role, problems) = parse("x", text);
            assert_eq!(tools_of(&role).len() == TOOLS.len(), has_all, "{text}");
            assert!(has_all || tools_of(&role) == ["send", "shout", "rest"], "{text}");
            assert!(!problems.is_empty(), "{text}");
        }
    }

    #[test]
    fn an_invalid_value_is_reported_and_changes_nothing() {
        let (role, problems) = parse("x", "---\ntools: Grep\n---\n");
        assert_eq!((tools_of(&role), problems.len()), (vec!["send", "shout", "rest"], 1));
        for wrong in
            ["name: ../x", "model: gpt", "maxTurns: 0", "maxTurns: many", "permissionMode: yolo"]
        {
            let (role, problems) = parse("x", &format!("---\n{wrong}\n---\n"));
            assert_eq!(role, Role { name: "x".into(), ..Role::default() }, "{wrong}");
            assert_eq!(problems.len(), 1, "{wrong}");
        }
        for (word, model) in
            [("inherit", None), ("claude-x", Some("anthropic/claude-x")), ("opus", Some("opus"))]
        {
            let (role, _) = parse("x", &format!("---\nmodel: {word}\n---\n"));
            assert_eq!(role.model.as_deref(), model);
        }
    }

    #[test]
    fn fallback_models_are_forms_of_models_and_an_empty_list_gives_none() {
        let of = |text: &str| parse("x", &format!("---\n{text}\n---\n"));
        assert_eq!(of("model: opus").0.fallback_models, None);
        for (text, models) in [
            ("fallbackModels: []", &[][..]),
            ("fallbackModels:", &[]),
            ("fallbackModels: claude-x, haiku", &["anthropic/claude-x", "haiku"]),
            ("fallbackModels:\n  - openai/a\n  - gemini/b", &["openai/a", "gemini/b"]),
        ] {
            let (role, problems) = of(text);
            assert_eq!(role.fallback_models.unwrap(), models, "{text}");
            assert_eq!(problems, [], "{text}");
        }
        // Those beside one that is no model count.
        for wrong in ["gpt", "inherit"] {
            let (role, problems) = of(&format!("fallbackModels: [{wrong}, openai/a]"));
            assert_eq!(
                (role.fallback_models.unwrap(), problems.len()),
                (vec!["openai/a".into()], 1)
            );
            let told = &problems[0].what;
            assert!(told.contains(wrong) && told.ends_with("so it does not go on"), "{told}");
        }
    }

    #[test]
    fn names_are_compared_without_case_and_separators() {
        for name in ["code-auditor", "Code_Auditor", " CODE  auditor "] {
            assert_eq!(folded(name), "code auditor");
        }
        assert_eq!(folded("É-t"), "é t");
        assert_ne!(folded("code.auditor"), folded("codeauditor"));
    }

    #[test]
    fn a_text_resembles_a_name_that_it_contains_or_misspells() {
        let similar = [
            ("code auditor", "auditor"),
            ("auditors", "auditor"),
            ("Senior Auditors", "auditor"),
            ("audiotr", "auditor"),
            ("qas", "qa"),
            ("auditor/security", "auditor"),
            ("devs", "dev"),
            ("qa engineer", "qa"),
            ("codereviewer", "code-reviewer"),
            ("strict code reviewer", "code_reviewer"),
            ("code reveiwers", "code reviewer"),
        ];
        for (text, name) in similar {
            assert!(resembles(text, name), "{text} {name}");
        }
        let different = [
            ("editor", "auditor"),
            ("loader", "coder"),
            ("code monkey", "coder"),
            ("scanner", "planner"),
            ("backend developer", "coder"),
            ("reviewer", "code reviewer"),
            ("qb", "qa"),
            ("", "qa"),
            ("coder", ""),
        ];
        for (text, name) in different {
            assert!(!resembles(text, name), "{text} {name}");
        }
    }
}

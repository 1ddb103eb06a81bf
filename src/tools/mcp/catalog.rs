//! The tools of all servers of an agent, under the names by which models call them. Pure.

use crate::mcp::RemoteTool;
use crate::wire::chat::ToolDefinition;
use crate::wire::mcp::{McpOrigin, NamedMcpServer, tool_name};
use crate::wire::tool::{Effect, ToolSpec};
use serde_json::json;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The maximum number of tools of all servers of an agent.
const MAX_TOOLS: usize = 128;

/// The maximum number of tools that one search shows.
const MAX_FOUND: usize = 8;

/// The maximum number of characters of a description. A model's context is not the place for a manual.
const MAX_DESCRIPTION_CHARS: usize = 4000;

/// The first line of a search's result, by which a resumed agent knows it.
pub(in crate::tools) const FOUND: &str = "You have these tools from now on:";

/// A tool of a server, as a list has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListedTool {
    pub(super) remote: RemoteTool,
    pub(super) digest: String,
    /// Whether the user has accepted it with this digest.
    pub(super) is_accepted: bool,
}

/// A tool that an agent can have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CatalogTool {
    pub(super) spec: &'static ToolSpec,
    pub(super) server: String,
    pub(super) remote: RemoteTool,
    pub(super) digest: String,
    pub(super) is_accepted: bool,
}

impl CatalogTool {
    pub(super) fn definition(&self) -> ToolDefinition {
        let name = self.spec.name.to_owned();
        if !self.is_accepted {
            let description =
                "This tool is not as the user has accepted it. A call asks the user first.";
            let input_schema = json!({ "type": "object" });
            return ToolDefinition { name, description: description.into(), input_schema };
        }
        let mut input_schema = self.remote.input_schema.clone();
        if let Some(fields) = input_schema.as_object_mut() {
            // Endpoints refuse a schema without a type, and some one that names its own dialect.
            fields.remove("$schema");
            fields.entry("type").or_insert_with(|| "object".into());
        }
        ToolDefinition { name, description: legible(&self.remote.description), input_schema }
    }
}

/// Returns a description without control characters, at most [`MAX_DESCRIPTION_CHARS`] long.
fn legible(text: &str) -> String {
    let is_shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().filter(is_shown).take(MAX_DESCRIPTION_CHARS).collect()
}

/// Returns the spec of a server's tool. A spec lives as long as the process; each is made once.
fn spec(name: &str, effect: Effect) -> &'static ToolSpec {
    thread_local! {
        static SPECS: RefCell<BTreeMap<(String, bool), &'static ToolSpec>> = RefCell::default();
    }
    let key = (name.to_owned(), effect == Effect::Reads);
    SPECS.with_borrow_mut(|specs| {
        *specs.entry(key).or_insert_with(|| {
            let name = Box::leak(name.to_owned().into_boxed_str());
            Box::leak(Box::new(ToolSpec { name, effect, ..ToolSpec::STRICT }))
        })
    })
}

#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// In the order of their names.
    tools: Vec<CatalogTool>,
    /// The names of those that searches have found.
    found: BTreeSet<String>,
}

impl Catalog {
    /// Replaces the tools by those of these servers. Two tools of one name are both left out.
    pub(super) fn set(&mut self, lists: Vec<(NamedMcpServer, Vec<ListedTool>)>) {
        let mut by_name: BTreeMap<String, Vec<CatalogTool>> = BTreeMap::new();
        for (named, tools) in lists {
            for ListedTool { remote, digest, is_accepted } in tools {
                let name = tool_name(&named.name, &remote.name);
                // The hints of a server count only if the user has chosen the server.
                let reads = named.origin == McpOrigin::User && remote.is_read_only && is_accepted;
                let effect = if reads { Effect::Reads } else { Effect::Changes };
                let spec = spec(&name, effect);
                let server = named.name.clone();
                let tool = CatalogTool { spec, server, remote, digest, is_accepted };
                by_name.entry(name).or_default().push(tool);
            }
        }
        let (mut tools, mut clashes) = (Vec::new(), Vec::new());
        for (name, mut same) in by_name {
            match (same.pop(), same.is_empty()) {
                (Some(tool), true) => tools.push(tool),
                _ => clashes.push(name),
            }
        }
        if !clashes.is_empty() {
            tracing::warn!(clashes = clashes.join(", "), "MCP tools of the same name are left out");
        }
        if tools.len() > MAX_TOOLS {
            let left_out = tools.len() - MAX_TOOLS;
            tracing::warn!(left_out, "MCP servers have more tools than an agent can have");
            tools.truncate(MAX_TOOLS);
        }
        self.tools = tools;
    }

    pub(super) fn tools(&self) -> &[CatalogTool] {
        &self.tools
    }

    pub(super) fn find(&self, name: &str) -> Option<&CatalogTool> {
        self.tools.iter().find(|tool| tool.spec.name == name)
    }

    /// Whether a search has found the tool of this name.
    pub(super) fn is_found(&self, name: &str) -> bool {
        self.found.contains(name)
    }

    /// Finds tools by words of a query: in names first, then in descriptions. Returns the text for the model.
    pub(super) fn search(&mut self, query: &str, has: impl Fn(&ToolSpec) -> bool) -> String {
        let words: Vec<String> = query
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let tools = self.tools.iter().filter(|tool| has(tool.spec));
        let mut scored: Vec<(usize, &CatalogTool)> =
            tools.map(|tool| (score(tool, &words), tool)).filter(|(score, _)| *score > 0).collect();
        scored.sort_by_key(|(score, tool)| (std::cmp::Reverse(*score), tool.spec.name));
        if scored.is_empty() {
            let mut servers: Vec<&str> = self.tools.iter().map(|tool| &*tool.server).collect();
            servers.dedup();
            let servers = servers.join(", ");
            return format!(
                "No tool matches {query:?}. There are tools of these MCP servers: {servers}; give one of these names, or \
                 words for what the tool does."
            );
        }
        let (found, more) = scored.split_at(scored.len().min(MAX_FOUND));
        let mut text = FOUND.to_owned();
        for (_, tool) in found {
            let ToolDefinition { name, description, input_schema } = tool.definition();
            let line = description.split('\n').next().unwrap_or_default();
            let _infallible = write!(text, "\n- {name}: {line} Arguments: {input_schema}");
            self.found.insert(name);
        }
        if !more.is_empty() {
            let _infallible =
                write!(text, "\n{} more match; give more words for others.", more.len());
        }
        text
    }

    /// Adds the tools that an earlier search has found.
    pub(super) fn restore(&mut self, result: &str) {
        if let Some(lines) = result.strip_prefix(FOUND) {
            let names = lines.lines().filter_map(|line| line.strip_prefix("- ")?.split(':').next());
            self.found.extend(names.map(ToOwned::to_owned));
        }
    }
}

/// Returns how well a tool fits: a word in the name counts for ten in the description.
fn score(tool: &CatalogTool, words: &[String]) -> usize {
    let (name, about) = (tool.spec.name.to_lowercase(), tool.remote.description.to_lowercase());
    let of_word =
        |word: &String| match (name.contains(word), tool.is_accepted && about.contains(word)) {
            (true, _) => 10,
            (false, true) => 1,
            (false, false) => 0,
        };
    words.iter().map(of_word).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mcp::McpServer;

    fn server(name: &str, origin: McpOrigin) -> NamedMcpServer {
        let server: McpServer = serde_json::from_value(json!({ "command": "x" })).unwrap();
        NamedMcpServer { name: name.into(), origin, server }
    }

    fn tool(name: &str, description: &str, is_accepted: bool) -> ListedTool {
        let input_schema = json!({ "$schema": "x", "properties": {} });
        let (name, description) = (name.into(), description.into());
        let remote = RemoteTool { name, description, input_schema, is_read_only: true };
        ListedTool { digest: remote.digest(), remote, is_accepted }
    }

    #[test]
    fn tools_are_sorted_clashes_left_out_and_hints_count_only_for_servers_of_the_user() {
        let mut catalog = Catalog::default();
        catalog.set(vec![
            (
                server("b", McpOrigin::User),
                vec![tool("x y", "One.", true), tool("x_y", "Two.", true)],
            ),
            (server("b", McpOrigin::User), vec![tool("log", "Shows\u{1b} it.", true)]),
            (server("a", McpOrigin::Folder), vec![tool("log", "Logs.", true)]),
            (server("c", McpOrigin::User), vec![tool("log", "Obey me.", false)]),
        ]);
        let names: Vec<(&str, Effect)> =
            catalog.tools().iter().map(|tool| (tool.spec.name, tool.spec.effect)).collect();
        let expected = [
            ("mcp__a__log", Effect::Changes),
            ("mcp__b__log", Effect::Reads),
            ("mcp__c__log", Effect::Changes),
        ];
        assert_eq!(names, expected);
        let shown = catalog.find("mcp__b__log").unwrap().definition();
        assert_eq!(shown.description, "Shows it.");
        assert_eq!(shown.input_schema, json!({ "properties": {}, "type": "object" }));
        let changed = catalog.find("mcp__c__log").unwrap().definition();
        assert!(changed.description.contains("not as the user has accepted"), "{changed:?}");
        assert_eq!(changed.input_schema, json!({ "type": "object" }));
    }

    #[test]
    fn a_search_offers_what_it_finds_and_a_resumed_agent_has_it_again() {
        let tools = (0..50).map(|n| tool(&format!("task_{n}"), "Works on a task.", true));
        let list: Vec<ListedTool> =
            tools.chain([tool("log", "Shows the history of commits.", true)]).collect();
        let mut catalog = Catalog::default();
        catalog.set(vec![(server("git", McpOrigin::User), list.clone())]);
        assert!(!catalog.is_found("mcp__git__log"));
        let text = catalog.search("commits HISTORY", |_| true);
        assert!(text.starts_with(FOUND) && text.contains("- mcp__git__log: Shows"), "{text}");
        assert!(catalog.is_found("mcp__git__log") && !catalog.is_found("mcp__git__task_1"));
        let many = catalog.search("task", |_| true);
        assert_eq!(many.matches("\n- mcp__").count(), MAX_FOUND);
        assert!(many.ends_with("42 more match; give more words for others."), "{many}");
        assert!(catalog.search("zebra", |_| true).contains("MCP servers: git;"));
        assert!(catalog.search("log", |_| false).starts_with("No tool"));
        let mut resumed = Catalog::default();
        resumed.set(vec![(server("git", McpOrigin::User), list)]);
        resumed.restore(&text);
        assert!(resumed.is_found("mcp__git__log"));
        resumed.restore("- mcp__git__task_1: x");
        assert!(!resumed.is_found("mcp__git__task_1"));
    }

    #[test]
    fn an_agent_has_no_more_than_so_many_tools() {
        let tools = (0..300).map(|n| tool(&format!("t{n}"), "", true)).collect();
        let mut catalog = Catalog::default();
        catalog.set(vec![(server("big", McpOrigin::User), tools)]);
        assert_eq!(catalog.tools().len(), MAX_TOOLS);
    }
}

//! Tool calls as an editor shows them: kind, title, files, and changes as the texts before and after.

use crate::acp::served::updates::{CallContent, CallReport, CallStatus, Location, ToolKind};
use crate::tools::find;
use crate::view::requests::visible_line;
use crate::wire::text_change::TextChange;
use crate::wire::tool::{Effect, Purpose, Signal, SubjectArgument, ToolSpec};
use crate::wire::tool_summary::summary;
use serde_json::Value;
use std::path::Path;

/// The longest title, in characters.
const TITLE_CHARS: usize = 200;

/// The longest output of a tool that is shown, in bytes.
const OUTPUT_BYTES: usize = 50_000;

/// A tool call of an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentCall<'a> {
    /// The name of the teammate; `None` for the lead.
    pub(super) teammate: Option<&'a str>,
    pub(super) id: &'a str,
    pub(super) tool: &'a str,
    pub(super) input: &'a Value,
    /// The folder in which the agent works.
    pub(super) folder: &'a Path,
}

impl AgentCall<'_> {
    /// Returns the id of the call for the editor. Ids of different agents may be equal.
    pub(super) fn report_id(&self) -> String {
        match self.teammate {
            Some(name) => format!("{name}/{}", self.id),
            None => self.id.to_owned(),
        }
    }

    /// Describes the call before it has a result.
    pub(super) fn report(&self, status: CallStatus) -> CallReport {
        let spec = find(self.tool);
        let locations = self.location(spec).into_iter().collect();
        CallReport {
            id: self.report_id(),
            title: Some(self.title(spec)),
            name: Some(self.tool.to_owned()),
            kind: Some(kind(spec)),
            status: Some(status),
            content: Some(self.wanted_change(spec).into_iter().collect()),
            locations: Some(locations),
            raw_input: Some(self.input.clone()),
        }
    }

    /// Describes the end of the call. Without changes, the editor keeps the ones that it has.
    pub(super) fn end(&self, is_error: bool, output: &str, changes: &[TextChange]) -> CallReport {
        let status = if is_error { CallStatus::Failed } else { CallStatus::Completed };
        let is_change = self.wanted_change(find(self.tool)).is_some();
        let content = match changes {
            // The change that the editor has is of more use than the sentence of the tool.
            [] if is_change && !is_error => None,
            [] => Some(vec![CallContent::Text(fenced(output))]),
            changes => Some(changes.iter().map(|change| self.diff(change)).collect()),
        };
        CallReport { id: self.report_id(), status: Some(status), content, ..CallReport::default() }
    }

    /// Describes the end of a call; all of the call if it was refused before it started.
    pub(super) fn whole_end(&self, is_started: bool, is_error: bool, output: &str) -> CallReport {
        let end = self.end(is_error, output, &[]);
        if is_started {
            return end;
        }
        let whole = self.report(CallStatus::Pending);
        CallReport { status: end.status, content: end.content.or(whole.content), ..whole }
    }

    pub(super) fn diff(&self, change: &TextChange) -> CallContent {
        CallContent::Diff {
            path: absolute(self.folder, &change.path),
            old: change.before.clone(),
            new: change.after.clone(),
        }
    }

    fn title(&self, spec: Option<&ToolSpec>) -> String {
        let subject = summary(spec, self.input);
        let mut lines = subject.trim().lines();
        let mut first = lines.next().unwrap_or_default().to_owned();
        if lines.next().is_some() {
            first.push_str(" …");
        }
        let separator = if first.is_empty() { "" } else { ": " };
        let teammate = self.teammate.map(|name| format!("{name}: ")).unwrap_or_default();
        let title = visible_line(&format!("{teammate}{}{separator}{first}", self.tool));
        if title.chars().count() <= TITLE_CHARS {
            return title;
        }
        title.chars().take(TITLE_CHARS).chain(['…']).collect()
    }

    fn path(&self, spec: Option<&ToolSpec>) -> Option<String> {
        let SubjectArgument::File(argument) = spec?.subject else { return None };
        Some(absolute(self.folder, self.input.get(argument)?.as_str()?))
    }

    fn location(&self, spec: Option<&ToolSpec>) -> Option<Location> {
        let line = self.input.get("offset").and_then(Value::as_u64).filter(|line| *line > 0);
        Some(Location { path: self.path(spec)?, line })
    }

    /// Returns the change that the call would make, as far as its arguments tell it.
    fn wanted_change(&self, spec: Option<&ToolSpec>) -> Option<CallContent> {
        let text = |name: &str| self.input.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let path = self.path(spec).filter(|_| kind(spec) == ToolKind::Edit)?;
        let (old, new) = match text("content") {
            Some(content) => (None, content),
            None => (Some(text("old_text")?), text("new_text")?),
        };
        Some(CallContent::Diff { path, old, new })
    }
}

/// Returns the path of a file in the folder of an agent.
pub(super) fn absolute(folder: &Path, path: &str) -> String {
    folder.join(path.strip_prefix("./").unwrap_or(path)).display().to_string()
}

fn kind(spec: Option<&ToolSpec>) -> ToolKind {
    let Some(spec) = spec else { return ToolKind::Other };
    match (spec.subject, spec.effect) {
        (SubjectArgument::Command(_), _) => ToolKind::Execute,
        (SubjectArgument::File(_) | SubjectArgument::Patch(_), Effect::Changes) => ToolKind::Edit,
        (SubjectArgument::File(_) | SubjectArgument::Patch(_), _) => ToolKind::Read,
        (SubjectArgument::Url(_), _) => ToolKind::Fetch,
        (SubjectArgument::None, _) if spec.signal == Signal::SubmitsPlan => ToolKind::Think,
        (SubjectArgument::None, Effect::Reads) if spec.purpose == Purpose::Work => ToolKind::Search,
        (SubjectArgument::None, _) => ToolKind::Other,
    }
}

/// Returns a text in a fence that it cannot close, since it is no Markdown. A long one is cut at its end.
pub(super) fn fenced(text: &str) -> String {
    let text = text.trim_end();
    if text.is_empty() {
        return String::new();
    }
    let end = text.floor_char_boundary(OUTPUT_BYTES.min(text.len()));
    let shown = text.get(..end).unwrap_or_default();
    let rest = if end < text.len() { "\n… (the rest is not shown here)" } else { "" };
    let longest = shown.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{shown}{rest}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call<'a>(tool: &'a str, input: &'a Value, teammate: Option<&'a str>) -> AgentCall<'a> {
        AgentCall { teammate, id: "t", tool, input, folder: Path::new("/w") }
    }

    /// Returns the name of the first tool whose kind is this one.
    fn tool_of(wanted: ToolKind, argument: &str) -> &'static str {
        let mut specs = crate::tools::specs();
        let found = specs.find(|spec| {
            kind(Some(spec)) == wanted && spec.parameters.iter().any(|it| it.name == argument)
        });
        found.unwrap().name
    }

    #[test]
    fn an_edit_has_its_file_and_its_change() {
        let input = json!({ "path": "./src/a.rs", "old_text": "x", "new_text": "y" });
        let tool = tool_of(ToolKind::Edit, "old_text");
        let report = call(tool, &input, Some("alice")).report(CallStatus::Pending);
        let path = "/w/src/a.rs".to_owned();
        assert_eq!(report.locations, Some(vec![Location { path: path.clone(), line: None }]));
        let diff = CallContent::Diff { path, old: Some("x".into()), new: "y".into() };
        assert_eq!(report.content, Some(vec![diff]));
        assert_eq!((report.id.as_str(), report.kind), ("alice/t", Some(ToolKind::Edit)));
        let title = report.title.unwrap();
        assert!(title.starts_with("alice: ") && title.contains("src/a.rs"), "{title}");
        let made = call(tool, &input, None).end(false, "done", &[]);
        assert_eq!((made.content, made.status), (None, Some(CallStatus::Completed)));
        let failed = call(tool, &input, None).end(true, "no", &[]);
        assert_eq!(failed.content, Some(vec![CallContent::Text("```\nno\n```".into())]));
    }

    #[test]
    fn a_title_hides_nothing_and_is_one_short_line() {
        let input = json!({ "command": format!("echo \u{202e}a\nrm {}", "x".repeat(500)) });
        let report = call(tool_of(ToolKind::Execute, "command"), &input, None);
        let title = report.report(CallStatus::Pending).title.unwrap();
        assert!(title.contains("<U+202E>") && title.ends_with('…') && !title.contains('\n'));
        let input = json!({ "command": "x".repeat(500) });
        let report = call(tool_of(ToolKind::Execute, "command"), &input, None);
        let title = report.report(CallStatus::Pending).title.unwrap();
        assert_eq!(title.chars().count(), TITLE_CHARS + 1);
    }

    #[test]
    fn a_page_is_told_by_its_address() {
        let input = json!({ "url": "https://docs.example.com/", "offset": 7 });
        let report = call(tool_of(ToolKind::Fetch, "url"), &input, None);
        let report = report.report(CallStatus::Pending);
        assert_eq!((report.kind, report.locations), (Some(ToolKind::Fetch), Some(Vec::new())));
        assert!(report.title.unwrap().ends_with(": https://docs.example.com/"));
    }

    #[test]
    fn an_unknown_tool_is_of_another_kind() {
        let input = json!({ "query": "x" });
        let report = call("mcp__s__find", &input, None).report(CallStatus::InProgress);
        assert_eq!(report.kind, Some(ToolKind::Other));
        assert_eq!(report.title.as_deref(), Some("mcp__s__find: query=x"));
    }

    #[test]
    fn a_long_output_is_cut_and_closes_no_fence() {
        assert_eq!(fenced("a\n```\nb\n"), "````\na\n```\nb\n````");
        assert_eq!(fenced(" \n"), "");
        let long = fenced(&"ü".repeat(OUTPUT_BYTES));
        assert!(long.len() < OUTPUT_BYTES + 100 && long.contains("the rest is not shown"));
    }
}

//! The questions of all members as requests to the editor.
//!
//! *Invariant:* an answer counts for the question under whose request it comes, once, and only if it selects an option that
//! was offered. A question that is answered elsewhere is taken back.

use super::calls::AgentCall;
use super::client::Client;
use super::members::folder_of;
use crate::acp::served::incoming::RpcError;
use crate::acp::served::updates::{
    CallContent, CallReport, CallStatus, OptionKind, ToolKind, question,
};
use crate::app::question_file::file_of;
use crate::app::requests::rules_of_always;
use crate::protocol::request::RequestVerdict;
use crate::store::{TeamDir, roster, transcript};
use crate::tools::approval_decision::ApprovalDecision;
use crate::tools::approval_queue::QueuedRequest;
use crate::view::requests::{FileChange, FileNow, content, visible_line};
use crate::wire::AgentName;
use crate::wire::permission::{Question, QuestionKind, RuleScope};
use crate::wire::text_change::TextChange;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The longest text of a rule in an option, in characters.
const RULE_CHARS: usize = 100;

/// The requests to the editor that are not answered.
#[derive(Debug, Default)]
pub(super) struct AskedQuestions {
    /// By the id of the request to the editor.
    asked: BTreeMap<u64, AskedQuestion>,
}

#[derive(Debug)]
struct AskedQuestion {
    /// The id of the member's request.
    request_id: String,
    offered: Vec<OptionKind>,
}

/// The editor's answer to a question.
#[derive(Debug, PartialEq)]
pub(super) enum EditorAnswer {
    /// The decision on the member's request with this id.
    Decided(String, Box<ApprovalDecision>),
    /// The editor has not decided the request with this id.
    Undecided(String),
    /// No request of this process, or one that was answered before.
    Unknown,
}

impl AskedQuestions {
    /// Whether the editor is asked this question now.
    pub(super) fn contains(&self, request_id: &str) -> bool {
        self.asked.values().any(|asked| asked.request_id == request_id)
    }

    /// Asks the editor. `is_new` tells of the call with an id whether the editor does not know it yet.
    pub(super) fn ask(
        &mut self,
        client: &Client,
        session: &str,
        team: &TeamDir,
        request: &QueuedRequest,
        is_new: impl FnOnce(&str) -> bool,
    ) {
        let call = call_of(team, request);
        let options = options(&request.question);
        client.update(session, &call.update(is_new(&call.id)));
        let id = client.ask("session/request_permission", &question(session, &call, &options));
        let request_id = request.question.request_id.clone();
        let offered = options.into_iter().map(|(kind, _)| kind).collect();
        self.asked.insert(id, AskedQuestion { request_id, offered });
    }

    /// Takes the answer to the request with this id.
    pub(super) fn answer(&mut self, id: u64, result: &Result<Value, RpcError>) -> EditorAnswer {
        let Some(AskedQuestion { request_id, offered }) = self.asked.remove(&id) else {
            return EditorAnswer::Unknown;
        };
        let selected = match result {
            Ok(answer) => OptionKind::of_answer(answer, &offered),
            Err(why) => {
                tracing::warn!(%why, "the editor has not answered a question");
                None
            }
        };
        let decision = match selected {
            Some(OptionKind::AllowOnce) => ApprovalDecision::once(RequestVerdict::Approve, None),
            Some(OptionKind::AllowAlways) => ApprovalDecision::with_rule(RuleScope::Team),
            Some(OptionKind::RejectOnce) => ApprovalDecision::once(RequestVerdict::Reject, None),
            None => return EditorAnswer::Undecided(request_id),
        };
        EditorAnswer::Decided(request_id, Box::new(decision))
    }

    /// Takes the questions back that are no longer open.
    pub(super) fn take_back(&mut self, client: &Client, is_open: impl Fn(&str) -> bool) {
        self.asked.retain(|id, asked| {
            let is_open = is_open(&asked.request_id);
            if !is_open {
                client.take_back(*id);
            }
            is_open
        });
    }
}

fn options(question: &Question) -> Vec<(OptionKind, String)> {
    if question.is_plan() {
        return vec![
            (OptionKind::AllowOnce, "Approve the plan".into()),
            (OptionKind::RejectOnce, "Do not approve it".into()),
        ];
    }
    let rules = visible_line(&rules_of_always(question).join(", "));
    let mut short: String = rules.chars().take(RULE_CHARS).collect();
    if short.len() < rules.len() {
        short.push('…');
    }
    vec![
        (OptionKind::AllowOnce, "Allow once".into()),
        (OptionKind::AllowAlways, format!("Always allow in this team: {short}")),
        (OptionKind::RejectOnce, "Reject".into()),
    ]
}

/// Describes the call that waits: with all that an approval would cover.
fn call_of(team: &TeamDir, request: &QueuedRequest) -> CallReport {
    let QueuedRequest { question, owner, .. } = request;
    let call_id = call_id(team, owner, question);
    let call = AgentCall {
        teammate: (!owner.is_lead()).then(|| owner.as_str()),
        id: &call_id,
        tool: &question.tool,
        input: &question.input,
        folder: &folder(team, owner),
    };
    let mut report = call.report(CallStatus::Pending);
    let asks = match question.about {
        QuestionKind::Permission => "",
        QuestionKind::Plan => "asks to approve a plan",
        QuestionKind::Sandbox => "asks to leave the workspace or its walls",
    };
    let file = file_of(team, owner, question);
    let change = file.as_ref().and_then(|file| change(&call, question, file));
    let mut parts: Vec<CallContent> = change.into_iter().collect();
    let is_shown = parts.is_empty() && report.content.as_ref().is_none_or(Vec::is_empty);
    if is_shown || question.about != QuestionKind::Permission {
        let text = if question.is_plan() {
            question.description.clone()
        } else {
            super::calls::fenced(&content(question).join("\n"))
        };
        parts.push(CallContent::Text(text));
    }
    if !asks.is_empty() {
        report.title = report.title.map(|title| format!("{title} ({asks})"));
    }
    if question.is_plan() {
        report.kind = Some(ToolKind::Think);
    }
    if !parts.is_empty() {
        report.content = Some(parts);
    }
    report
}

/// Returns the id of the call that waits. A question that came by mail does not tell it, but the transcript does.
fn call_id(team: &TeamDir, owner: &AgentName, question: &Question) -> String {
    if !question.tool_use_id.is_empty() {
        return question.tool_use_id.clone();
    }
    let open = transcript::open_questions(team, owner).unwrap_or_default();
    let found = open.into_iter().find(|open| open.question.request_id == question.request_id);
    found.map_or_else(|| question.request_id.clone(), |found| found.question.tool_use_id)
}

fn folder(team: &TeamDir, owner: &AgentName) -> PathBuf {
    let roster = roster::read(team).ok();
    let member = roster.as_ref().and_then(|roster| roster.member(owner.as_str()));
    member.map_or_else(|| team.workspace().to_owned(), |member| folder_of(team, member))
}

/// Returns the whole file before and after the call.
fn change(call: &AgentCall<'_>, question: &Question, file: &FileNow) -> Option<CallContent> {
    let FileChange::Versions { before, after } = FileChange::of(question, file)? else {
        return None;
    };
    let path = call.report(CallStatus::Pending).locations?.into_iter().next()?.path;
    let (before, after) = (before.map(ToOwned::to_owned), after.into_owned());
    Some(call.diff(&TextChange { path, before, after }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(offered: &[OptionKind]) -> AskedQuestions {
        let one = AskedQuestion { request_id: "alice:t".into(), offered: offered.to_vec() };
        AskedQuestions { asked: BTreeMap::from([(7, one)]) }
    }

    fn selected(id: &str) -> Value {
        json!({ "outcome": { "outcome": "selected", "optionId": id } })
    }

    #[test]
    fn an_answer_counts_once_and_only_under_its_own_request() {
        let all = [OptionKind::AllowOnce, OptionKind::AllowAlways, OptionKind::RejectOnce];
        for (option, verdict, scope) in [
            ("allow_once", RequestVerdict::Approve, None),
            ("allow_always", RequestVerdict::Approve, Some(RuleScope::Team)),
            ("reject_once", RequestVerdict::Reject, None),
        ] {
            let mut questions = asked(&all);
            assert_eq!(questions.answer(8, &Ok(selected(option))), EditorAnswer::Unknown);
            let EditorAnswer::Decided(id, decision) = questions.answer(7, &Ok(selected(option)))
            else {
                panic!("{option} was not taken");
            };
            assert_eq!((id.as_str(), decision.verdict), ("alice:t", verdict));
            assert_eq!(decision.makes_rule(), scope);
            assert_eq!(questions.answer(7, &Ok(selected(option))), EditorAnswer::Unknown);
        }
    }

    #[test]
    fn an_answer_that_selects_nothing_decides_nothing() {
        let two = [OptionKind::AllowOnce, OptionKind::RejectOnce];
        for result in [
            Ok(selected("allow_always")),
            Ok(selected("yes")),
            Ok(json!({ "outcome": { "outcome": "cancelled" } })),
            Ok(json!(null)),
            Err(RpcError::new(-32_601, "no such method")),
        ] {
            let undecided = EditorAnswer::Undecided("alice:t".into());
            assert_eq!(asked(&two).answer(7, &result), undecided, "{result:?}");
        }
    }
}

//! Open requests, read from the files alone, and the person's answers to them.
//!
//! An answer from outside the lead is sent to the lead as `user`, and the lead's program passes it on: a member
//! acts only on the decisions of its lead.

use super::{names::member_names, question_file::file_of, stop_members::is_alive};
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock};
use crate::protocol::permission::{PermissionSubject, rules_for};
use crate::protocol::request::RequestVerdict;
use crate::store::asynchronous::offload;
use crate::store::relay::copies;
use crate::store::transcript::{OpenQuestion, archived_questions, decision, open_questions};
use crate::store::{Liveness, TeamDir, liveness, roster};
use crate::tools::approval_decision::{ApprovalDecision, Decider};
use crate::tools::{changed_files, find as find_tool, page_subject};
use crate::ui::console::EditableText;
use crate::ui::question::{TypedAnswer, excerpt_rows};
use crate::ui::{sanitize::one_line, view::View};
use crate::view::requests::{content, editable};
use crate::wire::AgentName;
use crate::wire::message::Correlation;
use crate::wire::permission::{Decision, DecisionOutcome, Question, QuestionKind};
use crate::wire::tool::{SubjectArgument, ToolSpec};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The time that the lead has to pass an answer on.
const RELAY_LIMIT: Duration = Duration::from_secs(15);

const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The width to which a command is cut in a line about a decision, in columns.
const COMMAND_COLUMNS: usize = 200;

/// The number of rows of a request in the list of all.
const LISTED_ROWS: usize = 12;

pub(crate) struct OpenRequest {
    owner: AgentName,
    /// The folder with the files of the owner: that of the team, or a copy.
    folder: TeamDir,
    is_alive: bool,
    open: OpenQuestion,
    /// Whether the person who is asked is attached: then the question does not expire.
    is_attended: bool,
    /// The short id, such as `alice-3`: the owner and the number of the request among all of its requests.
    short_id: String,
}

impl OpenRequest {
    pub(crate) fn id(&self) -> &str {
        &self.open.question.request_id
    }

    pub(crate) fn is_plan(&self) -> bool {
        self.open.question.is_plan()
    }

    /// Returns the short id with the beginning of the content, on one line.
    pub(crate) fn summary(&self) -> String {
        let Question { tool, description, .. } = &self.open.question;
        format!("{} ({}: {})", self.short_id, one_line(tool, 40), one_line(description, 60))
    }
}

pub(crate) fn find(team: &TeamDir) -> Result<Vec<OpenRequest>, Failure> {
    let roster = roster::read(team)?;
    let members = member_names(&roster);
    let has_person = roster::is_attended(team);
    let mut found = Vec::new();
    for owner in std::iter::once(AgentName::lead()).chain(members) {
        let is_alive = is_alive(team, &owner);
        let folder = copies::folder_of(team, &roster, &owner);
        let open = open_questions(&folder, &owner)?;
        // Requests of earlier conversations count: a short id that was shown for one of them never means another.
        let earlier = if open.is_empty() { 0 } else { archived_questions(&folder, &owner)? };
        found.extend(open.into_iter().map(|open| {
            let short_id = format!("{owner}-{}", earlier + open.number);
            let is_attended = has_person || is_own_terminal(&owner, &open);
            let (owner, folder) = (owner.clone(), folder.clone());
            OpenRequest { owner, folder, is_alive, open, is_attended, short_id }
        }));
    }
    Ok(found)
}

/// Returns the open requests that `given` means: the one with that id or short id, or all of the agent with that name.
/// Fails if there is none.
pub(crate) fn meant(team: &TeamDir, given: &str) -> Result<Vec<OpenRequest>, Failure> {
    let found = find(team)?;
    let is_id = found.iter().any(|it| it.id() == given);
    // The name of an agent may look like a short id.
    let is_meant = |it: &OpenRequest| {
        it.id() == given || !is_id && (it.short_id == given || it.owner.as_str() == given)
    };
    let meant: Vec<OpenRequest> = found.into_iter().filter(is_meant).collect();
    if meant.is_empty() {
        let what = format!("{given:?} has no open request");
        let why = "no request of that id is open, and no agent of that name has one";
        return Err(Failure::new(Exit::Failure, what, why, "`team requests` lists what waits"));
    }
    Ok(meant)
}

/// Returns the one request that `given` means, for an answer. Fails if there is none, or more than one.
pub(crate) fn one_meant(team: &TeamDir, given: &str) -> Result<OpenRequest, Failure> {
    let mut meant = meant(team, given)?;
    if meant.len() == 1 {
        return Ok(meant.remove(0));
    }
    let what = format!("{given} means {} open requests", meant.len());
    let all: Vec<String> = meant.iter().map(OpenRequest::summary).collect();
    let hint = "give the id of one; `team requests ID` shows all of it";
    Err(Failure::new(Exit::Failure, what, all.join(", "), hint))
}

pub(crate) fn json(request: &OpenRequest) -> Value {
    let question = &request.open.question;
    json!({
        "request_id": question.request_id,
        "short_id": request.short_id,
        "from": request.owner.as_str(),
        "kind": question.about.word(),
        "tool": question.tool,
        "input": question.input,
        "description": question.description,
        "content": content(question),
        "decider": request.open.decider,
        "deadline": (!request.is_attended).then_some(request.open.deadline),
        "attended": request.is_attended,
        "waiting": request.is_alive,
        "always_allows": rules_of_always(question),
    })
}

/// Whether the person at the owner's own terminal decides.
fn is_at_own_terminal(request: &OpenRequest) -> bool {
    is_own_terminal(&request.owner, &request.open)
}

fn is_own_terminal(owner: &AgentName, open: &OpenQuestion) -> bool {
    open.decider == "user" && !owner.is_lead()
}

/// Renders a request: its owner, and what it would run or write, cut unless `is_whole`.
pub(crate) fn render(team: &TeamDir, request: &OpenRequest, is_whole: bool, view: &View) -> String {
    let question = &request.open.question;
    let state = if !request.is_alive {
        "not running; asks again when it is".to_owned()
    } else if is_at_own_terminal(request) {
        "on its own terminal".to_owned()
    } else if request.is_attended {
        "no deadline: the lead is attended".to_owned()
    } else {
        format!("{} s left", request.open.deadline.since(SystemClock.now()).as_secs())
    };
    let (owner, id, tool) = (&request.owner, &request.short_id, one_line(&question.tool, 40));
    let kind = question.about.word();
    let mut rows =
        vec![format!("{}  {owner} asks ({kind}) {tool}:  ({state})", view.palette.bold(id))];
    let most = if is_whole { usize::MAX } else { LISTED_ROWS };
    let file = file_of(team, owner, question);
    let (subject, omitted) = excerpt_rows(question, file.as_ref(), most, view);
    rows.extend(subject);
    let always = rules_of_always(question);
    if is_whole && !always.is_empty() {
        let rules = one_line(&always.join(", "), 200);
        rows.push(view.palette.dim(&format!("    `--always` makes the rule: {rules}")));
    }
    let last = if is_whole {
        format!("    its full id: {}", one_line(&question.request_id, 200))
    } else if omitted > 0 {
        format!("    `team requests {id}` shows all of it")
    } else {
        return rows.join("\n");
    };
    rows.push(view.palette.dim(&last));
    rows.join("\n")
}

/// Turns a person's answer into a decision; `None` if it decides nothing, or changes a call without a command.
pub(super) fn decision_of(question: &Question, said: TypedAnswer) -> Option<ApprovalDecision> {
    let yes = ApprovalDecision::once(RequestVerdict::Approve, None);
    Some(match said {
        TypedAnswer::Yes => yes,
        TypedAnswer::Always(scope) => {
            ApprovalDecision { scope: scope.answer(), rule_scope: Some(scope), ..yes }
        }
        TypedAnswer::No(why) => ApprovalDecision::once(RequestVerdict::Reject, why),
        TypedAnswer::Instead(command) => {
            let input = question.with_command(find_tool(&question.tool), command)?;
            ApprovalDecision { updated_input: Some(input), ..yes }
        }
        TypedAnswer::Edit | TypedAnswer::ShowWhole => return None,
    })
}

/// Returns the question with another text in the argument that a person may change.
pub(super) fn with_text(question: &Question, text: &str) -> Option<Question> {
    let (argument, _) = editable(question)?;
    let mut changed = question.clone();
    changed.input.as_object_mut()?.insert(argument.into(), text.into());
    if let Some(SubjectArgument::Command(_)) = find_tool(&question.tool).map(|it| it.subject) {
        text.clone_into(&mut changed.description);
    }
    Some(changed)
}

/// Returns the text of a question that a person may change in an editor.
pub(super) fn editable_text(question: &Question) -> Option<EditableText> {
    let (_, text) = editable(question)?;
    let name = match find_tool(&question.tool)?.subject {
        SubjectArgument::Command(_) => "command.sh",
        SubjectArgument::Patch(_) => "change.patch",
        SubjectArgument::File(_) | SubjectArgument::Url(_) | SubjectArgument::None => {
            &question.description
        }
    };
    let id = question.request_id.clone();
    Some(EditableText { id, name: name.into(), text: text.into() })
}

/// Returns the rules that always allow the call of a question with this subject.
pub(crate) fn always_rules(question: &Question, subject: &str) -> Vec<String> {
    let what = subject.to_owned();
    let argument = find_tool(&question.tool).map(|tool| tool.subject);
    let subject = match (question.about, argument) {
        (QuestionKind::Sandbox, Some(SubjectArgument::Command(_))) => match question.hosts() {
            hosts if hosts.is_empty() => PermissionSubject::Unsandboxed(what),
            hosts => PermissionSubject::Hosts { command: what, hosts },
        },
        (QuestionKind::Sandbox, _) => PermissionSubject::Outside(what),
        (_, Some(SubjectArgument::Command(_))) => PermissionSubject::Command(what),
        (_, Some(SubjectArgument::File(_))) => PermissionSubject::Path(what),
        (_, Some(SubjectArgument::Patch(_))) => PermissionSubject::Files(changed_files(&what)),
        // Without a host there is no rule: one for the whole tool would be for every host.
        (_, Some(SubjectArgument::Url(_))) => match page_subject(&what) {
            Some(page) => page,
            None => return Vec::new(),
        },
        (_, Some(SubjectArgument::None) | None) => PermissionSubject::Nothing,
    };
    rules_for(question.about, &question.tool, &subject)
}

/// Returns the text of the rules that an answer makes which allows the call of a question from now on.
pub(crate) fn rules_of_always(question: &Question) -> Vec<String> {
    if question.about == QuestionKind::Plan {
        return Vec::new();
    }
    always_rules(question, &question.description)
}

/// Describes the call of a question as it was decided: the tool, or the command that runs instead of the one that was
/// asked for.
pub(super) fn decided_call(question: &Question, updated_input: Option<&Value>) -> String {
    let Some(input) = updated_input.filter(|input| **input != question.input) else {
        return question.tool.clone();
    };
    let argument = find_tool(&question.tool).and_then(ToolSpec::command_argument);
    let asked = one_line(&question.description, COMMAND_COLUMNS);
    match argument.and_then(|name| input.get(name)?.as_str()) {
        Some(command) => {
            format!("{} (edited, was: {asked})", one_line(command, COMMAND_COLUMNS))
        }
        None => format!("{} {asked} (edited)", question.tool),
    }
}

/// Makes the record of a decision on a call of this process's own agent.
pub(super) fn own_decision(id: &str, decider: Decider, decision: ApprovalDecision) -> Decision {
    let ApprovalDecision { verdict, scope, reason, updated_input, .. } = decision;
    let (request_id, outcome, by) = (id.into(), outcome_of(verdict), decider.word().into());
    Decision { request_id, outcome, by, scope, reason, updated_input, mode: None }
}

fn outcome_of(verdict: RequestVerdict) -> DecisionOutcome {
    match verdict {
        RequestVerdict::Approve => DecisionOutcome::Approved,
        RequestVerdict::Reject => DecisionOutcome::Rejected,
    }
}

/// Answers an open request in the user's name, waits until its owner has recorded the decision, and returns its word.
pub(crate) async fn decide(
    bus: &Arc<Bus>,
    id: &str,
    answer: ApprovalDecision,
) -> Result<&'static str, Failure> {
    let team = bus.dir();
    let request = answerable(team, id)?;
    let unanswered = |why: String, hint: String| {
        Failure::new(Exit::Failure, format!("{id} was not answered"), why, hint)
    };
    let lead = AgentName::lead();
    let Ok(Liveness::Alive(Some(record))) = liveness::probe(team, &lead) else {
        let hint = "start one with `team lead`, then answer there or from here";
        let why = "the lead passes answers on, and no lead is running";
        return Err(unanswered(why.into(), hint.into()));
    };
    let verdict = answer.verdict;
    let body = answer.into_body(request.open.question.about, None);
    let correlation = Correlation { request_id: id.into(), incarnation: record.incarnation };
    let sender = Arc::clone(bus);
    let relay = move || sender.control(&AgentName::user(), &lead, body, correlation);
    offload(relay).await.map_err(|why| unanswered(why.to_string(), why.hint()))?;
    result(id, outcome_of(verdict), recorded_decision(&request).await)
}

/// Finds the request with that id. Fails if it is not open, or cannot be answered from outside its owner.
fn answerable(team: &TeamDir, id: &str) -> Result<OpenRequest, Failure> {
    let hint = "`team requests` lists what waits";
    let refuse =
        |why: String| Failure::new(Exit::Failure, format!("{id:?} cannot be answered"), why, hint);
    let found = find(team)?.into_iter().find(|it| it.open.question.request_id == id);
    let request = found.ok_or_else(|| refuse("no request of that id is open".into()))?;
    let owner = &request.owner;
    if !request.is_alive {
        return Err(refuse(format!("{owner} is not running; it asks again when it is")));
    }
    if is_at_own_terminal(&request) {
        return Err(refuse(format!("{owner} asks on its own terminal; answer there")));
    }
    Ok(request)
}

async fn recorded_decision(request: &OpenRequest) -> Option<Decision> {
    let id = &request.open.question.request_id;
    let give_up = tokio::time::Instant::now() + RELAY_LIMIT;
    while tokio::time::Instant::now() < give_up {
        let open = open_questions(&request.folder, &request.owner).unwrap_or_default();
        if !open.iter().any(|open| open.question.request_id == *id) {
            return decision(&request.folder, &request.owner, id).ok().flatten();
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    None
}

fn result(
    id: &str,
    wanted: DecisionOutcome,
    decided: Option<Decision>,
) -> Result<&'static str, Failure> {
    let failure = |what: String, why: &str, hint| Failure::new(Exit::Failure, what, why, hint);
    let Some(decided) = decided else {
        let why = "the answer was sent, but the lead has not passed it on yet";
        let hint = "`team requests` shows whether it is still open";
        return Err(failure(format!("{id} is still open"), why, hint));
    };
    let word = decided.outcome.word();
    if decided.outcome != wanted {
        let why = decided.reason.as_deref().unwrap_or("it had already been decided");
        let what = format!("{id} is already {word}");
        return Err(failure(what, why, "`team requests` lists what waits"));
    }
    Ok(word)
}

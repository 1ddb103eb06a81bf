//! Intents and the conversation so far -> the next tool call, or the closing text.
//!
//! The plan of a turn is made anew for each reply: its steps follow from what was said, and the calls
//! made since stand for the first of them. So it survives a crash without being written down.

use super::compose;
use super::conversation::{Done, Said, Turn};
use super::grammar;
use super::intent::{Intent, TaskChange, Text};
use super::report::{self, Aim, brief};
use super::scope::Scope;
use crate::wire::message::Body;
use serde_json::{Value, json};

/// What the reply is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// This call.
    Call {
        /// The tool.
        tool: &'static str,
        /// Its arguments.
        input: Value,
    },
    /// This text; the turn is over.
    Close(String),
}

/// Who the agent is and what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agent<'a> {
    /// Its name.
    pub(super) name: String,
    /// The tools it is offered.
    pub(super) tools: Vec<&'a str>,
}

impl Agent<'_> {
    fn can(&self, tool: &str) -> bool {
        self.tools.contains(&tool)
    }

    fn is_lead(&self) -> bool {
        self.can("spawn_teammate")
    }
}

/// One thing to do in a turn.
enum Step {
    /// A call whose arguments are known.
    Call { tool: &'static str, input: Value, aim: Aim },
    /// A message with what came out so far.
    Outcome { to: String },
    /// The task just made gets an owner.
    Assign { owner: String },
    /// A sentence of the closing text.
    Remark(String),
    /// Words that were not understood.
    Unclear(String),
    /// A closing text is asked for.
    Closing,
}

/// How much of what was said in earlier turns explains the words of this one.
const REMEMBERED: usize = 200;

/// Decides what comes next.
pub(super) fn next(turn: &Turn, agent: &Agent<'_>) -> Next {
    let mut scope = Scope { me: agent.name.clone(), ..Scope::default() };
    let forgotten = turn.earlier.len().saturating_sub(REMEMBERED);
    for said in turn.earlier.iter().skip(forgotten) {
        steps_of(said, agent, &mut scope);
    }
    let steps: Vec<Step> =
        turn.current.iter().flat_map(|said| steps_of(said, agent, &mut scope)).collect();
    let mut done = turn.done.iter();
    let mut last: Option<&Done> = None;
    let mut told = Vec::new();
    let mut unclear = Vec::new();
    let mut closing = false;
    let outline = outline(&steps);
    for step in steps {
        let (tool, input, aim) = match step {
            Step::Remark(text) => {
                told.push(text);
                continue;
            }
            Step::Unclear(words) => {
                unclear.push(words);
                continue;
            }
            Step::Closing => {
                closing = true;
                continue;
            }
            Step::Call { tool, input, aim } => (tool, input, aim),
            Step::Outcome { to } => {
                let content = if told.is_empty() {
                    format!("This is {}: there is nothing to report yet.", agent.name)
                } else {
                    told.join("\n")
                };
                ("send_message", json!({ "to": to, "content": content }), Aim::Plain)
            }
            Step::Assign { owner } => {
                let id = last.and_then(|call| created_task(&call.result)).unwrap_or_default();
                ("update_task", json!({ "task_id": id, "owner": owner }), Aim::Plain)
            }
        };
        if !agent.can(tool) {
            told.push(format!("I cannot do that: the tool {tool} is not mine to use."));
            continue;
        }
        let call = loop {
            let Some(call) = done.next() else { return Next::Call { tool, input } };
            if !needs_plan(call) {
                break call;
            }
            match done.next() {
                None => {
                    let plan = json!({ "plan": outline });
                    return Next::Call { tool: "submit_plan", input: plan };
                }
                Some(review) if review.failed => {
                    let why = brief(&review.result);
                    told.push(format!("Nothing was changed, the plan was not carried out. {why}"));
                    return Next::Close(teammate_text(told, &unclear));
                }
                // Approved: the same call once more.
                Some(_) => {}
            }
        };
        last = Some(call);
        told.push(report::call(call, &aim));
    }
    told.extend(done.map(|call| report::call(call, &Aim::Plain)));
    told.retain(|line| !line.is_empty());
    if agent.is_lead() {
        told.extend(report::unseen_mail(&turn.current, &turn.done));
        return Next::Close(lead_text(told, &unclear));
    }
    if told.is_empty() && unclear.is_empty() && !closing {
        let spoken = !turn.current.is_empty() && agent.can("idle");
        return if spoken {
            Next::Call { tool: "idle", input: json!({}) }
        } else {
            Next::Close("Waiting for instructions.".into())
        };
    }
    Next::Close(teammate_text(told, &unclear))
}

/// Whether a call was refused because there is no approved plan yet.
fn needs_plan(call: &Done) -> bool {
    call.failed && call.result.starts_with("not run: in mode plan")
}

/// The steps of a turn, numbered.
fn outline(steps: &[Step]) -> String {
    let line = |step: &Step| match step {
        Step::Call { tool, input, .. } => {
            let objects = ["command", "path", "to", "name", "subject", "task_id"];
            let object = objects.iter().find_map(|key| input.get(*key)?.as_str());
            Some(format!("{tool} {}", object.unwrap_or_default()).trim_end().to_owned())
        }
        Step::Outcome { to } => Some(format!("tell {to} what came out")),
        Step::Assign { owner } => Some(format!("give the task to {owner}")),
        Step::Remark(_) | Step::Unclear(_) | Step::Closing => None,
    };
    let lines = steps.iter().filter_map(line).enumerate();
    lines.map(|(at, line)| format!("{}. {line}", at + 1)).collect::<Vec<_>>().join("\n")
}

fn lead_text(mut told: Vec<String>, unclear: &[String]) -> String {
    told.extend(unclear.iter().map(|words| format!("Not understood: \"{}\"", brief(words))));
    match (told.is_empty(), unclear.is_empty()) {
        (true, true) => "Ready. Say \"help\" for what I understand.".into(),
        (false, true) => told.join("\n"),
        (_, false) => {
            told.push(help());
            told.join("\n")
        }
    }
}

fn teammate_text(mut told: Vec<String>, unclear: &[String]) -> String {
    let named = |words: &String| format!("I found no command in: \"{}\"", brief(words));
    told.extend(unclear.iter().map(named));
    if !unclear.is_empty() {
        told.push(format!("({NATURE} {CONFIGURE})"));
    }
    if told.is_empty() { "There is nothing to report.".into() } else { told.join("\n") }
}

const NATURE: &str =
    "I am the rehearsal model, not a language model: I follow short commands only.";
const CONFIGURE: &str =
    "For anything else set ANTHROPIC_API_KEY, or start with `--model anthropic/NAME`.";

fn help() -> String {
    format!(
        "{NATURE} For example:\n\
         - start dana as a reviewer, and ask her to run `cargo test`\n\
         - tell dana that …; send dana a note saying \"…\"; broadcast \"…\"\n\
         - create a file called notes.txt containing \"…\"; show it; replace \"a\" with \"b\" in it\n\
         - check whether notes.txt exists; run `ls`; what files are there?\n\
         - start dana in plan mode; approve the plan of dana; reject dana's plan: …\n\
         - any mail from dana? who is on the team? add a task \"…\" for dana; dismiss dana\n\
         {CONFIGURE}"
    )
}

fn steps_of(said: &Said, agent: &Agent<'_>, scope: &mut Scope) -> Vec<Step> {
    let message = match said {
        Said::Typed(text) => {
            scope.giver = "user".into();
            return steps_of_text(text, agent, scope);
        }
        Said::Mail(message) => message,
    };
    let is_handed = matches!(message.body, Body::TaskAssignment { .. }) && message.from == "system";
    let is_ordered = is_handed || matches!(message.from.as_str(), "lead" | "user");
    if let (true, Body::PlanApprovalRequest { .. }, Some(id)) =
        (agent.is_lead(), &message.body, &message.request_id)
    {
        scope.plans.retain(|(owner, _)| *owner != message.from);
        scope.plans.push((message.from.clone(), id.clone()));
    }
    if agent.is_lead() || !is_ordered {
        return Vec::new();
    }
    scope.giver.clone_from(&message.from);
    match &message.body {
        Body::Message { .. } => steps_of_text(&message.content, agent, scope),
        // What is told to everybody need not be an order: where there is none, nothing is said.
        Body::Broadcast {} => {
            let mut steps = steps_of_text(&message.content, agent, scope);
            steps.retain(|step| !matches!(step, Step::Unclear(_)));
            steps
        }
        // What waits for other tasks is assigned again when it can begin.
        Body::TaskAssignment { blocked_by, .. } if !blocked_by.is_empty() => Vec::new(),
        Body::TaskAssignment { task_id, subject, description, .. } => {
            let order = if description.trim().is_empty() { subject } else { description };
            steps_of_task(order, task_id, agent, scope)
        }
        Body::Result { .. }
        | Body::IdleNotification { .. }
        | Body::ShutdownRequest { .. }
        | Body::ShutdownResponse { .. }
        | Body::PlanApprovalRequest { .. }
        | Body::PlanApprovalResponse { .. }
        | Body::PermissionRequest { .. }
        | Body::PermissionResponse { .. }
        | Body::PermissionUpdate { .. }
        | Body::ModeSetRequest { .. }
        | Body::SandboxPermissionRequest { .. }
        | Body::SandboxPermissionResponse { .. }
        | Body::TeammateTerminated { .. }
        | Body::Unknown { .. } => Vec::new(),
    }
}

fn steps_of_text(text: &str, agent: &Agent<'_>, scope: &mut Scope) -> Vec<Step> {
    let intents = grammar::intents(text, scope);
    intents.into_iter().flat_map(|intent| steps_of_intent(intent, agent)).collect()
}

/// A task is carried out like an order, and completed when all of it was understood.
fn steps_of_task(order: &str, id: &str, agent: &Agent<'_>, scope: &mut Scope) -> Vec<Step> {
    let mut steps = steps_of_text(order, agent, scope);
    if !steps.is_empty() && !steps.iter().any(|step| matches!(step, Step::Unclear(_))) {
        steps.push(Step::plain("complete_task", json!({ "task_id": id })));
    }
    steps
}

fn steps_of_intent(intent: Intent, agent: &Agent<'_>) -> Vec<Step> {
    let step = match intent {
        Intent::Spawn { .. } if !agent.is_lead() => {
            Step::Remark("A teammate cannot spawn teammates: ask the lead.".into())
        }
        Intent::Spawn { name, role, task, mode } => {
            let who = if role == "teammate" { "a member" } else { &format!("the {role}") };
            let task = if task.is_empty() { "Wait for instructions." } else { &task };
            let prompt = format!("You are {name}, {who} of this team. {task}");
            let mut order = json!({ "name": name, "role": role, "prompt": prompt });
            if let (Some(mode), Some(fields)) = (mode, order.as_object_mut()) {
                fields.insert("mode".into(), json!(mode));
            }
            Step::plain("spawn_teammate", order)
        }
        Intent::Send { to, text: Text::Outcome } => Step::Outcome { to },
        Intent::Send { to, text } => {
            let content = match text {
                Text::Words(words) => words,
                Text::Greeting | Text::Outcome => format!("Hello {to}, this is {}.", agent.name),
            };
            Step::plain("send_message", json!({ "to": to, "content": content }))
        }
        Intent::Broadcast { text } => Step::plain("broadcast", json!({ "content": text })),
        Intent::ReadInbox { about } => {
            Step::Call { tool: "read_inbox", input: json!({}), aim: Aim::Mail(about) }
        }
        Intent::ListTeam => Step::plain("list_teammates", json!({})),
        Intent::Review { request_id, approve, feedback } => {
            let mut review = json!({ "request_id": request_id, "approve": approve });
            if let (Some(feedback), Some(fields)) = (feedback, review.as_object_mut()) {
                fields.insert("feedback".into(), json!(feedback));
            }
            Step::plain("review_plan", review)
        }
        Intent::ShutDown { name, reason: Some(reason) } => {
            Step::plain("shutdown_teammate", json!({ "name": name, "reason": reason }))
        }
        Intent::ShutDown { name, reason: None } => {
            Step::plain("shutdown_teammate", json!({ "name": name }))
        }
        Intent::WriteFile { path, content } => {
            let text = compose::content(&path, &content);
            Step::plain("write_file", json!({ "path": path, "content": text }))
        }
        Intent::Append { path, line } => {
            Step::bash(&format!("printf '%s\\n' {} >> {}", shell(&line), shell(&path)))
        }
        Intent::EditFile { path, old, new } => {
            let read = Step::Call {
                tool: "read_file",
                input: json!({ "path": path }),
                aim: Aim::Preparation,
            };
            let input = json!({ "path": path, "old_text": old, "new_text": new });
            return vec![read, Step::plain("edit_file", input)];
        }
        Intent::ReadFile { path } => Step::plain("read_file", json!({ "path": path })),
        Intent::CheckFile { path } => {
            let command = format!("ls -ld -- {}", shell(&path));
            let aim = Aim::Existence(path);
            Step::Call { tool: "bash", input: json!({ "command": command }), aim }
        }
        Intent::ListFiles { folder: None } => Step::bash("ls -la"),
        Intent::ListFiles { folder: Some(folder) } => {
            Step::bash(&format!("ls -la -- {}", shell(&folder)))
        }
        Intent::RemoveFile { path } => Step::bash(&format!("rm -- {}", shell(&path))),
        Intent::MakeFolder { path } => Step::bash(&format!("mkdir -p -- {}", shell(&path))),
        Intent::Copy { from, to } => Step::bash(&format!("cp -- {} {}", shell(&from), shell(&to))),
        Intent::Move { from, to } => Step::bash(&format!("mv -- {} {}", shell(&from), shell(&to))),
        Intent::Run { command } => Step::bash(&command),
        Intent::CreateTask { subject, after, owner } => {
            let mut input = json!({ "subject": subject });
            if let (false, Some(fields)) = (after.is_empty(), input.as_object_mut()) {
                fields.insert("blocked_by".into(), json!(after));
            }
            let create = Step::plain("create_task", input);
            return std::iter::once(create)
                .chain(owner.map(|owner| Step::Assign { owner }))
                .collect();
        }
        Intent::Task { id, change } => task_step(&id, change),
        Intent::ListTasks => Step::plain("list_tasks", json!({})),
        Intent::Report => Step::Closing,
        Intent::Rest => return Vec::new(),
        Intent::Help => Step::Remark(help()),
        Intent::Refrain(words) => {
            Step::Remark(format!("Left undone, as asked: \"{}\"", brief(&words)))
        }
        Intent::Unable(why) => Step::Remark(format!("Not done: {why}.")),
        Intent::Unclear(words) => Step::Unclear(words),
    };
    vec![step]
}

fn task_step(id: &str, change: TaskChange) -> Step {
    let (tool, input) = match change {
        TaskChange::Show => ("get_task", json!({ "task_id": id })),
        TaskChange::Claim => ("claim_task", json!({ "task_id": id })),
        TaskChange::Complete => ("complete_task", json!({ "task_id": id })),
        TaskChange::Status(status) => ("update_task", json!({ "task_id": id, "status": status })),
        TaskChange::Assign(owner) => ("update_task", json!({ "task_id": id, "owner": owner })),
    };
    Step::plain(tool, input)
}

impl Step {
    fn plain(tool: &'static str, input: Value) -> Self {
        Self::Call { tool, input, aim: Aim::Plain }
    }

    fn bash(command: &str) -> Self {
        Self::plain("bash", json!({ "command": command }))
    }
}

/// The id of a task in the answer to its creation: its JSON field, else the first number.
fn created_task(result: &str) -> Option<String> {
    let json: Option<Value> = serde_json::from_str(result).ok();
    let field = json.as_ref().and_then(|task| task.get("id")).map(|id| match id {
        Value::String(id) => id.clone(),
        id @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Array(_)
        | Value::Object(_)) => id.to_string(),
    });
    let mut numbers = result.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    field.or_else(|| numbers.next().map(str::to_owned))
}

/// A word as the shell takes it literally.
fn shell(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if !word.is_empty() && word.chars().all(safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

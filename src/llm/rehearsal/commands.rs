//! The table of commands: the templates of their texts, and their tool calls.
//!
//! *Invariant:* a command is carried out only when a template matches all of its words.

use super::template::{GUARDS, Match, Scope, Token, TokenKind, source, tokens};
use crate::wire::shell_word::quoted_if_needed;
use serde_json::{Value, json};

/// The size of the longest text, and of the longest clause, that may contain commands.
const MAX_TEXT_BYTES: usize = 16 * 1024;
const MAX_SENTENCE_TOKENS: usize = 100;

/// Words and marks between two commands of a sentence.
const TIES: [&str; 5] = [",", "and", "then", "but", "also"];

/// Words that have no meaning before a command, and after one.
const PREFIXES: [&str; 12] =
    ["please", "now", "then", "and", "also", "ok", ",", ":", "could", "can", "would", "you"];
const SUFFIXES: [&str; 3] = ["please", ",", "now"];

/// The shell command that checks whether a file exists, without the path at its end.
pub(super) const LIST_FILE: &str = "ls -ld -- ";

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Call(&'static str, Value),
    /// Assigns an owner to the task of the previous call, whose result contains the task's id as its first number.
    AssignCreated(String),
    /// Completes a task, or marks it as failed if one of its calls failed.
    EndTask(String),
    /// A sentence of the closing text.
    Remark(String),
    /// Words that no template matches.
    Unclear(String),
}

/// A row of the table: an example, the templates separated by `; `, and the function that returns the steps.
pub(super) type Command = (&'static str, &'static str, fn(&Match<'_>) -> Vec<Step>);

/// Commands to a lead: one of them in a sentence ends an order to a teammate.
pub(super) const OWN: &[Command] = &[
    (
        "Spawn dana (reviewer) and ed as a test engineer in plan mode.",
        "spawn|start|hire {members}; spawn|start|hire {members} in {mode} mode; \
         spawn|start|hire {members} on {host}; spawn|start|hire {members} on {host} in {mode} mode",
        |it| it.members().into_iter().flat_map(|(name, role)| spawn(it, &name, &role)).collect(),
    ),
    (
        "Have dana send ed a message, then ask her to run \"make\" and list the files.",
        "ask|tell|get {names} to {order}; have {names} {order}",
        |it| send(it, |_| handed_over(it)),
    ),
    (
        "Shut down dana gracefully.",
        "gracefully? shut down {leaving} gracefully?; shut {leaving} down; dismiss|stop {leaving}",
        |it| each(it, "shutdown_teammate", |name| json!({ "name": name })),
    ),
    (
        "Approve the plan of dana.",
        "approve|accept the? plan of {name}; approve|accept {name} 's plan",
        |it| review(it, true),
    ),
    (
        "Reject ed's plan: name the author",
        "reject the? plan of {name} :|because {text}; reject {name} 's plan :|because {text}",
        |it| review(it, false),
    ),
    ("Take the work of dana.", "take the? work of {name}; take {name} 's work", |it| {
        each(it, "take_work", |name| json!({ "name": name }))
    }),
    (
        "Check your inbox for dana's result.",
        "check|read|show|open me? the|my|your? lead? 's? inbox|mail for? any? new? messages|mail?; \
         check|read|open the|my|your? inbox|mail for {name} 's result|answer|message|mail; \
         check for any|new? messages|mail; any new? messages|mail; any mail from {name}",
        |_| one("read_inbox", json!({})),
    ),
    (
        "Show the team.",
        "show|list|print me? the|all? team|roster|teammates|members; show? me? who is left",
        |it| call(it, "list_teammates"),
    ),
];

/// Commands to any agent.
pub(super) const ALL: &[Command] = &[
    (
        "Wait for instructions.",
        "wait; wait for|until|here {text}; stand by; are {text}; this is {text}; hello|hi|thanks; \
         hello|hi|thanks {text}; thanks a lot; report back; let me know {text}",
        |_| Vec::new(),
    ),
    ("What can you do?", "help; what can you do", |_| vec![Step::Remark(help())]),
    (
        "Broadcast \"phase 1 is complete\" to all teammates.",
        "broadcast :? {text} to all|everyone|everybody teammates?; broadcast :? {text}; \
         tell|announce to? everyone|everybody|all that|:? {text}",
        |it| one("broadcast", json!({ "content": it.text("text") })),
    ),
    ("Send dana the file notes.txt.", "send|give the? {names} the|a|your file {path}", |it| {
        let path = it.path();
        each(it, "send_message", |to| json!({ "to": to, "content": path, "attach": [path] }))
    }),
    ("Send dana a message.", "send|write the? {names} a message; say hi|hello to {names}", |it| {
        send(it, |to| format!("Hello {to}, this is {}.", it.scope.me))
    }),
    (
        "Tell dana that lunch is at noon. Send ed \"it is late\".",
        "send the? {names} a|the message|note :|saying that? {text}; \
         send|tell|message|ask the? {names} :? {quoted}; send|say {quoted} to the? {names}; \
         tell|message the? {names} :|that {text}; let the? {names} know that? {text}",
        |it| send(it, |_| it.text("text") + &it.text("quoted")),
    ),
    (
        "Create a task \"Run make\" for dana after task 3.",
        "create|add a? task called|:? {text} for {name} after task? {task_id}; \
         create|add a? task called|:? {text} for {name}; \
         create|add a? task called|:? {text} after task? {task_id}; create|add a? task called|:? {text}",
        |it| {
            let (subject, after) = (it.text("text"), it.optional("task_id").map(|id| [id]));
            let mut steps = one("create_task", json!({ "subject": subject, "blocked_by": after }));
            steps.extend(it.names().pop().map(Step::AssignCreated));
            steps
        },
    ),
    ("Claim task 4.", "claim|take task {task_id}", |it| call(it, "claim_task")),
    ("Complete task 4.", "complete|finish task {task_id}", |it| call(it, "complete_task")),
    ("List the tasks.", "show|list me? the|all? tasks", |it| call(it, "list_tasks")),
    (
        "Create a file called notes.txt containing \"remember the milk\".",
        "create|make|write a|the? new? file? called|named? {path} with|containing|that {content}; \
         create|make|write a|the? new? file? called|named? {path}; \
         write|put|save {quoted} to|into|in|as the? file? {path}",
        |it| {
            let path = it.path();
            let content = match it.tokens("content") {
                [text] if text.kind == TokenKind::Quoted => text.text.into(),
                _ if it.has("quoted") => it.text("quoted"),
                _ => described(&path, &it.text("content")),
            };
            one("write_file", json!({ "path": path, "content": content }))
        },
    ),
    (
        "Check if notes.txt exists and list its contents.",
        "check|see|verify if|whether|that the? file? {path} exists; does {path} exist",
        |it| {
            one(
                "bash",
                json!({ "command": format!("{LIST_FILE}{}", quoted_if_needed(&it.path())) }),
            )
        },
    ),
    (
        "Read notes.txt.",
        "show|list|read|print me? the? contents|content? of? the? file? {path} contents|content?; \
         what is in {path}",
        |it| call(it, "read_file"),
    ),
    ("List the files.", "show|list me? the|all? files", |_| {
        one("bash", json!({"command": "ls -la"}))
    }),
    (
        "Offer your work: the tests pass.",
        "offer your|the work :? {text}; offer your|the work",
        |it| {
            let summary = it.optional("text").unwrap_or_else(|| "it is done".into());
            one("offer_work", json!({ "summary": summary }))
        },
    ),
    ("Run \"make test\".", "run|execute the? shell? command? :? {command}", |it| call(it, "bash")),
];

pub(super) const NATURE: &str =
    "I am the rehearsal model, not a language model: I follow short commands only.";
pub(super) const CONFIGURE: &str =
    "For anything else set ANTHROPIC_API_KEY, or start with `--model anthropic/NAME`.";

/// Returns the help text: the nature of the rehearsal model, and an example of every command.
pub(super) fn help() -> String {
    let examples = OWN.iter().chain(ALL).map(|(example, ..)| format!("- {example}\n"));
    format!("{NATURE} For example:\n{}{CONFIGURE}", examples.collect::<String>())
}

fn call(it: &Match<'_>, tool: &'static str) -> Vec<Step> {
    let text = |slot| if slot == "path" { it.path() } else { it.text(slot) };
    let slots = it.slots.iter().map(|(slot, _)| ((*slot).to_owned(), text(slot).into()));
    one(tool, Value::Object(slots.collect()))
}

/// Returns a call with those arguments that are not null.
fn one(tool: &'static str, mut input: Value) -> Vec<Step> {
    input.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, it| !it.is_null()));
    vec![Step::Call(tool, input)]
}

/// Returns one call for each agent that the clause names.
fn each(it: &Match<'_>, tool: &'static str, input: impl Fn(&str) -> Value) -> Vec<Step> {
    it.names().iter().map(|name| Step::Call(tool, input(name))).collect()
}

fn send(it: &Match<'_>, text: impl Fn(&str) -> String) -> Vec<Step> {
    each(it, "send_message", |to| json!({ "to": to, "content": text(to) }))
}

/// Returns an order as a sentence for its recipient. If the order names no file, the file named last replaces "it".
fn handed_over(it: &Match<'_>) -> String {
    let is_file = |it: &Token<'_>| it.is_path() || it.kind == TokenKind::Quoted;
    let file = it.scope.file.as_deref().filter(|_| !it.tokens("order").iter().any(is_file));
    let named = |word| file.filter(|_| word == "it").unwrap_or(word);
    let order = it.text("order").split(' ').map(named).collect::<Vec<_>>().join(" ");
    let (first, rest) = order.split_at(order.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}.", first.to_uppercase())
}

fn spawn(it: &Match<'_>, name: &str, role: &str) -> Vec<Step> {
    let role = if role.is_empty() { "teammate" } else { role };
    let prompt = format!("You are {name}, the {role} of this team. Wait for instructions.");
    let mode = it.optional("mode").map(|mode| mode.to_lowercase());
    let input = match it.optional("host") {
        None => json!({ "name": name, "role": role, "prompt": prompt, "mode": mode }),
        Some(host) => {
            json!({ "name": name, "role": role, "prompt": prompt, "mode": mode, "host": host })
        }
    };
    one("spawn_teammate", input)
}

fn review(it: &Match<'_>, approve: bool) -> Vec<Step> {
    let names = it.names();
    let Some((_, id)) = it.scope.plans.iter().find(|(owner, _)| names.contains(owner)) else {
        return vec![Step::Remark(format!("Not done: no plan of {} is waiting.", names.concat()))];
    };
    let feedback = it.optional("text");
    one("review_plan", json!({ "request_id": id, "approve": approve, "feedback": feedback }))
}

/// Returns content for a file of which only a description is known. The content says that this model wrote it.
fn described(path: &str, words: &str) -> String {
    let (stem, end) = path.rsplit_once('.').unwrap_or((path, ""));
    let words = if words.is_empty() { stem } else { words };
    let mark = match end {
        "sql" => "-- ",
        "py" | "sh" | "rb" | "toml" | "yaml" | "yml" => "# ",
        _ => "",
    };
    let comment = format!("{mark}{words} (written by the rehearsal model)\n");
    let Some((before, _)) = words.split_once(" table").filter(|_| end == "sql") else {
        return comment;
    };
    let table = before.split(' ').next_back().unwrap_or(before);
    let mail = if table == "users" { "    email TEXT NOT NULL UNIQUE,\n" } else { "" };
    format!(
        "{comment}\nCREATE TABLE {table} (\n    id INTEGER PRIMARY KEY,\n    name TEXT NOT NULL,\n\
         {mail}    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP\n);\n"
    )
}

pub(super) fn steps(text: &str, scope: &mut Scope) -> Vec<Step> {
    if text.len() > MAX_TEXT_BYTES {
        return vec![Step::Unclear(text.into())];
    }
    let mut found = Vec::new();
    for sentence in tokens(text).split(|token| token.kind == TokenKind::SentenceEnd) {
        let mut rest = sentence;
        while !rest.is_empty() {
            let (clause, ahead) = rest.split_at(first_command(text, rest, scope));
            let clause = trimmed(clause);
            if let Some(((.., steps), it)) = recognized(false, text, clause, scope) {
                found.extend(steps(&it));
                *scope = it.remembered();
            } else if !clause.is_empty() {
                found.push(Step::Unclear(source(text, clause).into()));
            }
            rest = ahead;
        }
    }
    found
}

/// Returns the first row with a template that matches the whole clause.
fn recognized<'a>(
    own_only: bool,
    text: &'a str,
    clause: &'a [Token<'a>],
    scope: &'a Scope,
) -> Option<(&'static Command, Match<'a>)> {
    let all = ALL.iter().filter(|_| !own_only);
    let rows = OWN.iter().chain(all).filter(|_| clause.len() <= MAX_SENTENCE_TOKENS);
    let mut templates = rows.flat_map(|row| row.1.split("; ").map(move |it| (row, it)));
    templates.find_map(|(row, template)| Some((row, Match::find(template, text, clause, scope)?)))
}

/// Returns the number of tokens of the first command of a sentence. An order to another agent ends before a
/// command of [`OWN`]. A text ends there too, or before "then" and any command. After a condition or a "not" the
/// sentence is not divided; "check if" is not a condition.
fn first_command(text: &str, sentence: &[Token<'_>], scope: &Scope) -> usize {
    let whole = recognized(false, text, trimmed(sentence), scope);
    let has = |slot| whole.as_ref().is_some_and(|(_, it)| it.has(slot));
    let scope = scope.with_pronouns();
    for at in 1..sentence.len().min(MAX_SENTENCE_TOKENS) {
        let (clause, rest) = sentence.split_at(at);
        let mut last = clause.iter().rev();
        if last.next().is_some_and(|it| it.is(&GUARDS))
            && !last.next().is_some_and(|before| before.is(&["check", "see", "verify"]))
        {
            break;
        }
        let (tie, ahead) = rest.split_at(rest.iter().take_while(|it| it.is(&TIES)).count());
        let is_then = tie.iter().any(|token| token.is(&["then"]));
        let own_only = has("order") || has("text") && !is_then;
        // A command begins here if the words up to the next tie, or up to the end of the sentence, form one.
        let next = ahead.iter().position(|token| token.is(&TIES)).unwrap_or(ahead.len());
        let begins = |words| recognized(own_only, text, trimmed(words), &scope).is_some();
        if !tie.is_empty() && (begins(ahead.split_at(next).0) || begins(ahead)) {
            return at;
        }
    }
    sentence.len()
}

/// Strips [`PREFIXES`] and [`SUFFIXES`] from a clause.
fn trimmed<'a>(clause: &'a [Token<'a>]) -> &'a [Token<'a>] {
    let first = clause.iter().take_while(|token| token.is(&PREFIXES)).count();
    let (_, rest) = clause.split_at(first);
    let last = rest.iter().rev().take_while(|token| token.is(&SUFFIXES)).count();
    rest.split_at(rest.len() - last).0
}

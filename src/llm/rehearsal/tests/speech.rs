//! Sentences at random: verbs, orders of words, quotes and courtesies, with what they must lead to.

use super::super::lexicon::{AND, CONDITION, COURTESY, FILLER, FORBID, NO_NAME, THEN, is_verb};
use super::call;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A sentence (without its full stop) and the calls it must lead to.
pub(super) type Case = (String, Vec<(String, Value)>);

pub(super) fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{2,9}",
        "[a-z][a-z0-9]{0,5}[_-][a-z0-9]{1,5}",
        Just("alice".into()),
        Just("bob".into()),
    ]
    .prop_filter("a name that steers nothing", |name: &String| {
        let reserved =
            ["lead", "user", "team", "all", "system", "self", "broadcast", "agent", "yourself"];
        !steers(name) && !reserved.contains(&name.as_str())
    })
}

/// A word that says nothing to the grammar: also not as the last one of a statement, where "… is long
/// but, then …" would lose it.
pub(super) fn word() -> impl Strategy<Value = String> {
    "[a-z]{3,8}".prop_filter("a word that steers nothing", |word: &String| !steers(word))
}

/// Whether a word is more to the grammar than itself. As a name it is ambiguous: "ok should be told …".
pub(super) fn steers(word: &str) -> bool {
    let lists = [AND, CONDITION, COURTESY, FILLER, FORBID, NO_NAME, THEN];
    is_verb(word) || lists.iter().any(|list| list.contains(&word))
}

pub(super) fn role() -> impl Strategy<Value = String> {
    let kind =
        ["coder", "tester", "reviewer", "developer", "analyst", "technical writer", "db-expert"];
    (prop_oneof!["", "backend ", "senior ", "[a-z]{4,8}ing "], prop::sample::select(kind.to_vec()))
        .prop_map(|(first, kind)| format!("{first}{kind}"))
}

pub(super) fn path() -> impl Strategy<Value = String> {
    "([a-z]{2,7}/)?[a-z]{2,8}([_-][0-9]{1,3})?\\.(txt|md|sql|rs|json|toml)"
}

/// A text and the same in quotation marks.
pub(super) fn quoted() -> impl Strategy<Value = (String, String)> {
    let text = "[A-Za-z0-9](([A-Za-z0-9 ,:;()./!?-]|[a-z]'[a-z]){0,30}[a-z0-9])?";
    let marks =
        [("\"", "\""), ("“", "”"), ("«", "»"), ("'", "'"), ("‘", "’"), ("`", "`"), ("„", "“")];
    (text, prop::sample::select(marks.to_vec()))
        .prop_map(|(text, (open, close))| (text.clone(), format!("{open}{text}{close}")))
}

pub(super) fn one_of(words: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    prop::sample::select(words.to_vec())
}

pub(super) fn spawn() -> impl Strategy<Value = (String, String, Case)> {
    let verb = one_of(&["spawn", "start", "hire", "bring in", "launch"]);
    (verb, name(), role(), 0..9).prop_map(|(verb, name, role, form)| {
        let sentence = match form {
            0 => format!("{verb} {name} ({role})"),
            1 => format!("{verb} {name} as a {role}"),
            2 => format!("{verb} {name} as our {role}"),
            3 => format!("{verb} a {role} named {name}"),
            4 => format!("{verb} a new {role} called {name}"),
            5 => format!("create a teammate called {name} as a {role}"),
            6 => format!("{verb} {name} with the role {role}"),
            7 => format!("{verb} {name}, the {role}"),
            _ => format!("{verb} {name} to be a {role}"),
        };
        let prompt = format!("You are {name}, the {role} of this team. Wait for instructions.");
        let input = json!({"name": name, "role": role, "prompt": prompt});
        (name, role, (sentence, vec![call("spawn_teammate", input)]))
    })
}

/// Commands that an agent carries out itself, lead or teammate.
pub(super) fn work() -> impl Strategy<Value = Case> {
    prop_oneof![send(), write(), look_at_file(), run(), edit(), task()]
}

pub(super) fn send() -> BoxedStrategy<Case> {
    (name(), quoted(), 0..12)
        .prop_map(|(to, (text, quote), form)| {
            let sentence = match form {
                0 => format!("send {to} a message saying {quote}"),
                1 => format!("send a message to {to} saying {quote}"),
                2 => format!("send {quote} to {to}"),
                3 => format!("tell {to} {quote}"),
                4 => format!("tell {to}: {quote}"),
                5 => format!("let {to} know: {quote}"),
                6 => format!("send {to} a short note that says {quote}"),
                7 => format!("message {to} {quote}"),
                8 => format!("say {quote} to {to}"),
                9 => format!("write {to} a message: {quote}"),
                10 => format!("send a message saying {quote} to {to}"),
                _ => format!("{to} should be told {quote}"),
            };
            (sentence, vec![call("send_message", json!({"to": to, "content": text}))])
        })
        .boxed()
}

fn write() -> BoxedStrategy<Case> {
    (path(), quoted(), one_of(&["create", "make", "write", "generate"]), 0..8)
        .prop_map(|(path, (text, quote), verb, form)| {
            let sentence = match form {
                0 => format!("{verb} a file called {path} with {quote}"),
                1 => format!("{verb} {path} containing {quote}"),
                2 => format!("{verb} a new file {path} that says {quote}"),
                3 => format!("write {quote} to {path}"),
                4 => format!("put {quote} into the file {path}"),
                5 => format!("save {quote} as {path}"),
                6 => format!("{verb} a document named {path} with the text {quote}"),
                _ => format!("{verb} {path} with the following content: {quote}"),
            };
            (sentence, vec![call("write_file", json!({"path": path, "content": text}))])
        })
        .boxed()
}

fn look_at_file() -> BoxedStrategy<Case> {
    (path(), 0..11)
        .prop_map(|(path, form)| {
            let check = call("bash", json!({"command": format!("ls -ld -- {path}")}));
            let read = call("read_file", json!({"path": path}));
            match form {
                0 => (format!("check if {path} exists"), vec![check]),
                1 => (
                    format!("check whether {path} is there and show its contents"),
                    vec![check, read],
                ),
                2 => (format!("verify that {path} exists, then print it"), vec![check, read]),
                3 => (format!("show me the contents of {path}"), vec![read]),
                4 => (format!("read {path}"), vec![read]),
                5 => (format!("what is in {path}"), vec![read]),
                6 => (format!("does {path} exist"), vec![check]),
                7 => (format!("is there a file called {path}"), vec![check]),
                8 => (format!("list the contents of the file {path}"), vec![read]),
                9 => (format!("make sure {path} exists and read it"), vec![check, read]),
                _ => (format!("see if {path} exists and list its contents"), vec![check, read]),
            }
        })
        .boxed()
}

fn run() -> BoxedStrategy<Case> {
    let command = "[a-z]{2,6}( -[a-z]{1,3})?( [a-z.*/]{1,6})?( \\| [a-z]{2,5})?";
    (command, one_of(&["run", "execute"]), 0..5)
        .prop_map(|(command, verb, form)| {
            let sentence = match form {
                0 => format!("{verb} `{command}`"),
                1 => format!("{verb} the command `{command}`"),
                2 => format!("{verb} \"{command}\""),
                3 => format!("{verb} the shell command '{command}' for me"),
                _ => format!("{verb}: `{command}`"),
            };
            (sentence, vec![call("bash", json!({"command": command}))])
        })
        .boxed()
}

fn edit() -> BoxedStrategy<Case> {
    (path(), quoted(), quoted(), 0..4)
        .prop_map(|(path, (old, a), (new, b), form)| {
            let sentence = match form {
                0 => format!("replace {a} with {b} in {path}"),
                1 => format!("in {path}, replace {a} by {b}"),
                2 => format!("change {a} to {b} in the file {path}"),
                _ => format!("edit {path} and replace {a} with {b}"),
            };
            let input = json!({"path": path, "old_text": old, "new_text": new});
            (sentence, vec![call("read_file", json!({"path": path})), call("edit_file", input)])
        })
        .boxed()
}

fn task() -> BoxedStrategy<Case> {
    (quoted(), name(), 1_u32..1000, 0..9)
        .prop_map(|((subject, quote), owner, id, form)| {
            let id = id.to_string();
            let create = call("create_task", json!({"subject": subject}));
            let give = call("update_task", json!({"task_id": "7", "owner": owner}));
            match form {
                0 => (format!("create a task {quote}"), vec![create]),
                1 => (format!("add a task called {quote} for {owner}"), vec![create, give]),
                2 => (format!("add {quote} to the task list"), vec![create]),
                3 => (format!("claim task {id}"), vec![call("claim_task", json!({"task_id": id}))]),
                4 => (
                    format!("complete task {id}"),
                    vec![call("complete_task", json!({"task_id": id}))],
                ),
                5 => {
                    let input = json!({"task_id": id, "status": "failed"});
                    (format!("mark task #{id} as failed"), vec![call("update_task", input)])
                }
                6 => {
                    let input = json!({"task_id": id, "owner": owner});
                    (format!("assign task {id} to {owner}"), vec![call("update_task", input)])
                }
                7 => (format!("show task {id}"), vec![call("get_task", json!({"task_id": id}))]),
                _ => ("list the tasks".into(), vec![call("list_tasks", json!({}))]),
            }
        })
        .boxed()
}

/// What only a lead is asked for.
pub(super) fn leading() -> impl Strategy<Value = Case> {
    let spawned = spawn().prop_map(|(_, _, case)| case);
    let stop = (
        name(),
        one_of(&["shut down", "dismiss", "stop", "terminate"]),
        one_of(&["", " gracefully", " now", " please"]),
    )
        .prop_map(|(name, verb, how)| {
            (format!("{verb} {name}{how}"), vec![call("shutdown_teammate", json!({"name": name}))])
        });
    let look = one_of(&[
        "show the team",
        "list all teammates",
        "who is on the team",
        "display the roster",
        "show me the team",
        "print the roster",
    ])
    .prop_map(|text| (text.to_owned(), vec![call("list_teammates", json!({}))]));
    let inbox = one_of(&[
        "check the lead inbox for any messages",
        "read your inbox",
        "look at the inbox",
        "check my inbox",
        "check for new messages",
        "show me the lead's inbox",
        "open the mailbox",
    ])
    .prop_map(|text| (text.to_owned(), vec![call("read_inbox", json!({}))]));
    let broadcast = (quoted(), 0..5).prop_map(|((text, quote), form)| {
        let sentence = match form {
            0 => format!("broadcast {quote} to all teammates"),
            1 => format!("broadcast {quote}"),
            2 => format!("tell everyone {quote}"),
            3 => format!("announce to everybody: {quote}"),
            _ => format!("send everyone a message saying {quote}"),
        };
        (sentence, vec![call("broadcast", json!({"content": text}))])
    });
    prop_oneof![spawned, stop, look, inbox, broadcast]
}

/// A sentence as different people would begin it.
pub(super) fn politely(sentence: &str, manner: u8) -> String {
    match manner % 8 {
        0 => format!("Please {sentence}"),
        1 => format!("could you please {sentence}"),
        2 => format!("I'd like you to {sentence}"),
        3 => format!("{sentence}, please"),
        4 => format!("Now {sentence}"),
        5 => format!("OK, {sentence}"),
        _ => {
            let mut chars = sentence.chars();
            chars.next().map(|c| c.to_uppercase().collect::<String>() + chars.as_str()).unwrap()
        }
    }
}

//! Conversations far longer than the model's context: they are summarized in time, after a refusal, and across a
//! `kill -9`. The fake endpoint refuses requests beyond its context, as the real APIs do.

use crate::support::child_process::append;
use crate::support::fake::{Api, Fake, Reply, RequestView};
use crate::support::fake_models::{
    GEMINI, KEY, agent_of, call, connect, connect_gemini, connect_responses, conversation,
};
use crate::support::harness::Team;
use serde_json::{Value, json};
use std::fs;
use std::sync::{Arc, Mutex};

/// The context of the fake model in tokens.
const CONTEXT: u64 = 12_000;

/// The number of rounds in the long turn. Each has an output of `PIECE` bytes.
const ROUNDS: usize = 75;
const PIECE: usize = 8_000;

fn tokens(view: &RequestView) -> u64 {
    view.body.to_string().len() as u64 / 4
}

fn is_summary(view: &RequestView) -> bool {
    view.body["tools"].is_null()
}

/// The number of commands that have run, according to their effects and not to the conversation.
fn done(team_effects: &std::path::Path) -> usize {
    fs::read_to_string(team_effects).unwrap_or_default().lines().count()
}

/// The mail that arrives during the turn, and the open task.
const MAIL: &str = "the colour is teal";
const TASK: &str = "polish the brass";

/// Replies to an agent in one long turn that is many times longer than its context.
fn worker(effects: std::path::PathBuf) -> impl Fn(&RequestView) -> Reply + Send + Sync {
    move |view| {
        let used = tokens(view);
        if used > CONTEXT && view.api == Api::Gemini {
            let message = format!(
                "The input token count ({used}) exceeds the maximum number of tokens allowed ({CONTEXT})."
            );
            return Reply::error(400, "INVALID_ARGUMENT", &message);
        }
        if used > CONTEXT {
            let message = format!("prompt is too long: {used} tokens > {CONTEXT} maximum");
            return Reply::error(400, "invalid_request_error", &message);
        }
        if is_summary(view) {
            let notes = format!("NOTES: {} pieces are done.", done(&effects));
            return Reply::text(&notes).usage(used, 20);
        }
        if done(&effects) >= ROUNDS {
            return Reply::text("All pieces are done.").usage(used, 20);
        }
        // Each command is another one: of the same one, only the last output would stay in the conversation.
        let piece = done(&effects);
        let command =
            format!("echo x >> effects; head -c {PIECE} /dev/zero | tr '\\0' x; echo {piece}");
        call(view, "bash", &json!({"command": command})).usage(used, 20)
    }
}

fn lead(team: &Team, model: &str) -> crate::support::harness::CommandResult {
    let prompt = "Do the pieces, all of them; the word is marmalade.";
    team.team(&["lead", "-p", prompt, "--model", model, "--mode", "bypass", "--timeout", "600"])
}

fn compacted(team: &Team) -> Vec<Value> {
    let lines = team.lines("transcript/lead.jsonl");
    lines.into_iter().filter(|line| line["kind"] == "compacted").collect()
}

/// Asserts that a conversation longer than ten contexts kept its prompt, and that every command ran once.
fn assert_endured(team: &Team, fake: &Fake) {
    assert_eq!(done(&team.workspace().join("effects")), ROUNDS, "every command ran once");
    assert!((ROUNDS * PIECE / 4) as u64 > 10 * CONTEXT);
    let seen = fake.requests();
    for (at, view) in seen.iter().enumerate() {
        let said = conversation(view);
        if is_summary(view) {
            let next = &seen[at + 1..];
            let after = next.iter().find(|view| !is_summary(view) && tokens(view) <= CONTEXT);
            let after = after.unwrap();
            let told = conversation(after);
            assert!(told.contains("NOTES: ") || said.len() as u64 / 4 > CONTEXT, "{told}");
            assert!(after.system().starts_with("Your name is lead."), "{}", after.system());
            assert!(!told.contains("tool_result") && !told.contains("\"tool\""), "{told}");
            assert!(!told.contains("functionResponse"), "{told}");
        } else {
            assert!(said.contains("marmalade"), "what was asked is forgotten: {said}");
        }
    }
    for entry in compacted(team) {
        assert!(entry["situation"].as_str().unwrap().contains("You are lead"), "{entry}");
    }
}

/// Mail arrives early in a turn that is longer than ten contexts, and a task is open all the time. After each
/// summary, the model still gets both, the agent's name, and the members of the team.
#[test]
fn a_conversation_of_ten_contexts_is_summarized_in_time() {
    let team = Team::new();
    let effects = team.workspace().join("effects");
    let (play, inbox) = (worker(effects.clone()), team.path("inbox/lead.jsonl"));
    let mailed = Mutex::new(false);
    let fake = Fake::start(move |view| {
        if done(&effects) == 5 && !std::mem::replace(&mut *mailed.lock().unwrap(), true) {
            append(&inbox, format!("{}\n", json!({"from": "user", "content": MAIL})));
        }
        play(view)
    });
    team.team(&["init"]).expect(0);
    team.team(&["task", "add", TASK, "--owner", "user"]).expect(0);
    connect(&team, &fake);
    team.variable("TEAM_CONTEXT_TOKENS", &CONTEXT.to_string());
    team.variable("TEAM_MAX_ROUNDS", "200");
    let ran = lead(&team, "anthropic/fake").expect(0);
    assert_eq!(ran.out.trim(), "All pieces are done.", "{}", team.describe());
    let longest = fake.requests().iter().map(tokens).max().unwrap();
    assert!(longest <= CONTEXT, "a request of {longest} tokens was sent");
    assert!(compacted(&team).len() >= 10, "{} times", compacted(&team).len());
    for entry in compacted(&team) {
        let told = entry["situation"].as_str().unwrap();
        assert!(told.contains(TASK) && told.contains("The team now: lead"), "{told}");
    }
    let seen = fake.requests();
    let work: Vec<String> =
        seen.iter().filter(|view| !is_summary(view)).map(conversation).collect();
    let first = work.iter().position(|said| said.contains(MAIL)).unwrap();
    assert!(first < 10, "the mail was taken in late");
    assert!(work[first..].iter().all(|said| said.contains(MAIL)), "the mail is forgotten");
    assert_endured(&team, &fake);
}

/// The same command runs over and over in one turn that is longer than six contexts. Its earlier output is left out in time,
/// so that no summary is needed, and a resumed agent sends the same conversation.
#[test]
fn results_that_later_calls_have_replaced_are_left_out_before_a_summary() {
    let team = Team::new();
    let effects = team.workspace().join("effects");
    let rounds = 40;
    assert!((rounds * PIECE / 4) as u64 > 6 * CONTEXT);
    let fake = Fake::start(move |view| {
        let used = tokens(view);
        assert!(!is_summary(view), "a summary is asked for");
        if view.body.to_string().contains("Once more") {
            return Reply::text("Nothing to do.").usage(used, 20);
        }
        if done(&effects) >= rounds {
            return Reply::text("All is done.").usage(used, 20);
        }
        let command =
            format!("echo x >> effects; wc -l effects; head -c {PIECE} /dev/zero | tr '\\0' x");
        call(view, "bash", &json!({"command": command})).usage(used, 20)
    });
    connect(&team, &fake);
    team.variable("TEAM_CONTEXT_TOKENS", &CONTEXT.to_string());
    team.variable("TEAM_MAX_ROUNDS", "200");
    let ran = lead(&team, "anthropic/fake").expect(0);
    assert_eq!(ran.out.trim(), "All is done.", "{}", team.describe());
    assert_eq!(compacted(&team).len(), 0);
    let lines = team.lines("transcript/lead.jsonl");
    let left_out = lines.iter().filter(|line| line["kind"] == "results_left_out");
    assert!(left_out.count() > 10);
    let seen = fake.requests();
    let longest = seen.iter().map(tokens).max().unwrap();
    assert!(longest <= CONTEXT, "a request of {longest} tokens was sent");
    let last = seen.last().unwrap().body["messages"].clone();
    team.team(&["lead", "--resume", "-p", "Once more.", "--model", "anthropic/fake"]).expect(0);
    let resumed = fake.requests().last().unwrap().body["messages"].clone();
    let texts = |messages: &Value| {
        let messages = messages.as_array().unwrap().iter().take(last.as_array().unwrap().len());
        let mut messages: Vec<Value> = messages.cloned().collect();
        for message in &mut messages {
            for block in message["content"].as_array_mut().unwrap() {
                block.as_object_mut().unwrap().remove("cache_control");
            }
        }
        messages
    };
    assert_eq!(texts(&resumed), texts(&last));
}

/// The context of a local model is unknown. Its first refusal shows the limit, and from then on the
/// conversation is summarized in time.
#[test]
fn an_unknown_context_is_learned_from_its_first_refusal() {
    let team = Team::new();
    let fake = Fake::start(worker(team.workspace().join("effects")));
    team.variable("OPENAI_API_KEY", KEY);
    team.variable("OPENAI_BASE_URL", &fake.base_url());
    team.variable("TEAM_MAX_ROUNDS", "200");
    lead(&team, "openai/fake").expect(0);
    let seen = fake.requests();
    assert!(seen.iter().all(|view| view.api == Api::Completions));
    let refused = seen.iter().filter(|view| !is_summary(view) && tokens(view) > CONTEXT).count();
    assert_eq!(refused, 1, "it was refused more than once");
    assert_endured(&team, &fake);
}

/// Over the Responses API, a refusal comes as an event after the beginning of the response, and a model that reasons
/// uses all tokens of its first summary for that. It gets more of them; an empty summary is never taken.
#[test]
fn a_model_that_reasons_instead_of_writing_a_summary_gets_more_tokens() {
    let team = Team::new();
    let effects = team.workspace().join("effects");
    let play = worker(effects);
    let fake = Fake::start(move |view| {
        if tokens(view) > CONTEXT {
            return Reply::text("I begin").failed("context_length_exceeded");
        }
        let limit = view.body["max_output_tokens"].as_u64().unwrap();
        if is_summary(view) && limit < 10_000 {
            return Reply::message().thinking("hm", "c2ln").stop("max_tokens").usage(9, limit);
        }
        play(view)
    });
    connect_responses(&team, &fake);
    team.variable("TEAM_MAX_ROUNDS", "200");
    lead(&team, "openai/fake").expect(0);
    let seen = fake.requests();
    assert!(seen.iter().all(|view| view.api == Api::Responses));
    let refused = seen.iter().filter(|view| !is_summary(view) && tokens(view) > CONTEXT).count();
    assert_eq!(refused, 1, "it was refused more than once");
    assert!(compacted(&team).len() >= 10, "{} times", compacted(&team).len());
    for entry in compacted(&team) {
        assert!(entry["summary"].as_str().unwrap().starts_with("NOTES: "), "{entry}");
        let counted = entry["usage"]["output_tokens"].as_u64().unwrap();
        assert_eq!(counted, 2_048 + 20, "both calls count");
    }
    assert_endured(&team, &fake);
}

/// The context of a model of the Gemini API is smaller than the known one, as that of a proxy may be.
#[test]
fn a_refusal_of_the_gemini_api_leads_to_a_summary() {
    let team = Team::new();
    let fake = Fake::start(worker(team.workspace().join("effects")));
    connect_gemini(&team, &fake);
    team.variable("TEAM_MAX_ROUNDS", "200");
    lead(&team, GEMINI).expect(0);
    let seen = fake.requests();
    assert!(seen.iter().all(|view| view.api == Api::Gemini));
    let refused = seen.iter().filter(|view| !is_summary(view) && tokens(view) > CONTEXT).count();
    assert_eq!(refused, 1, "it was refused more than once");
    assert_endured(&team, &fake);
}

/// An agent whose model writes no summary keeps its conversation.
#[test]
fn an_empty_summary_replaces_no_conversation() {
    let team = Team::new();
    let play = worker(team.workspace().join("effects"));
    let fake = Fake::start(move |view| if is_summary(view) { Reply::text("") } else { play(view) });
    connect_gemini(&team, &fake);
    team.variable("TEAM_MAX_ROUNDS", "200");
    let ran = lead(&team, GEMINI).expect(6);
    assert!(ran.err.contains("a summary without any text"), "{}", ran.err);
    assert_eq!(compacted(&team), [Value::Null; 0]);
}

/// A conversation that still fits goes on without its summary, which is not asked for again at every call.
#[test]
fn a_nearly_full_conversation_goes_on_if_its_summary_is_empty() {
    let team = Team::new();
    let effects = team.workspace().join("effects");
    let used = CONTEXT * 9 / 10;
    let fake = Fake::start(move |view| {
        if is_summary(view) {
            return Reply::text("").usage(100, 0);
        }
        let done = done(&effects);
        if done >= 6 {
            return Reply::text("All pieces are done.").usage(used, 20);
        }
        let more = done as u64;
        call(view, "bash", &json!({"command": "echo x >> effects"})).usage(used + more, 20)
    });
    connect(&team, &fake);
    team.variable("TEAM_CONTEXT_TOKENS", &CONTEXT.to_string());
    let ran = lead(&team, "anthropic/fake").expect(0);
    assert_eq!(ran.out.trim(), "All pieces are done.", "{}", team.describe());
    assert_eq!(compacted(&team), [Value::Null; 0]);
    let seen = fake.requests();
    assert_eq!(seen.iter().filter(|view| is_summary(view)).count(), 1);
    let last = conversation(seen.last().unwrap());
    assert!(last.contains("marmalade") && last.matches("echo x").count() == 6, "{last}");
}

/// A process is killed while the model writes a summary. The transcript has no part of it, the resumed agent
/// requests it again, and no command runs twice.
#[test]
fn a_kill_during_the_summary_loses_nothing() {
    let team = Team::new();
    let effects = team.workspace().join("effects");
    let play = worker(effects.clone());
    let stalls = Arc::new(Mutex::new(1));
    let left = Arc::clone(&stalls);
    let fake = Fake::start(move |view| {
        let mut left = left.lock().unwrap();
        if is_summary(view) && *left > 0 {
            *left -= 1;
            return Reply::text("NOTES: never heard").stall_after(60);
        }
        play(view)
    });
    connect(&team, &fake);
    team.variable("TEAM_CONTEXT_TOKENS", &CONTEXT.to_string());
    team.variable("TEAM_MAX_ROUNDS", "200");
    let args =
        ["teammate", "alice", "--role", "worker", "--model", "anthropic/fake", "--mode", "bypass"];
    let prompted = [&args[..], &["--prompt", "Do the pieces; the word is marmalade."]].concat();
    let mut alice = team.start(&prompted);
    team.eventually("the summary is asked for", || *stalls.lock().unwrap() == 0);
    let before = done(&effects);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(alice.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    alice.wait().unwrap();
    let kinds = |kind: &str| {
        let lines = team.lines("transcript/alice.jsonl");
        lines.iter().filter(|line| line["kind"] == kind).count()
    };
    assert_eq!((kinds("compacted"), kinds("tool_start")), (0, before));
    let mut alice = team.start(&args);
    team.eventually("all is done", || kinds("turn_end") == 1);
    assert_eq!(done(&effects), ROUNDS, "{}", team.describe());
    assert!(kinds("compacted") > 5);
    let seen = fake.requests();
    let work = seen.iter().filter(|view| !is_summary(view));
    assert!(work.clone().all(|view| conversation(view).contains("marmalade")));
    assert!(work.clone().all(|view| agent_of(view) == "alice"));
    team.team(&["stop", "alice"]).expect(0);
    alice.wait().unwrap();
    team.wait_no_process();
}

/// A subagent works for longer than two contexts, and meets a key. Its own conversation is summarized, its caller gets the
/// last text alone, and no file has the key.
#[test]
fn a_subagent_summarizes_its_own_conversation_and_keeps_no_secret() {
    let team = Team::new();
    let effects = team.workspace().join("effects");
    let pieces = 12;
    let fake = Fake::start(move |view| {
        if is_summary(view) {
            return Reply::text("NOTES: some pieces are done.").usage(tokens(view), 20);
        }
        match agent_of(view).as_str() {
            "lead" if view.results().is_empty() => {
                let task = json!({"task": "Do the pieces; the word is marmalade."});
                call(view, "run_subagent", &task)
            }
            "lead" => Reply::text("All came back."),
            _ if done(&effects) < pieces => {
                let piece = done(&effects);
                let command = format!(
                    "echo x >> effects; echo {KEY}; head -c {PIECE} /dev/zero | tr '\\0' x; echo {piece}"
                );
                call(view, "bash", &json!({"command": command})).usage(tokens(view), 20)
            }
            _ => Reply::text(&format!("Done with {KEY}.")).usage(tokens(view), 20),
        }
    });
    connect(&team, &fake);
    team.variable("TEAM_CONTEXT_TOKENS", &CONTEXT.to_string());
    let ran = lead(&team, "anthropic/fake").expect(0);
    assert_eq!(ran.out.trim(), "All came back.", "{}", team.describe());
    let own = team.lines("transcript/sub/lead-1.jsonl");
    let summaries = own.iter().filter(|line| line["kind"] == "compacted").count();
    assert!(summaries >= 2, "{summaries} summaries");
    assert_eq!(compacted(&team).len(), 0, "the caller has its own conversation");
    let seen = fake.requests().into_iter().filter(|view| !is_summary(view));
    for view in seen.filter(|view| agent_of(view) == "lead:1") {
        assert!(tokens(&view) <= CONTEXT + 2 * PIECE as u64, "{}", tokens(&view));
        assert!(conversation(&view).contains("marmalade"), "the task is forgotten");
    }
    let result = team.lines("transcript/lead.jsonl");
    let result = result.iter().find(|line| line["kind"] == "tool_result").unwrap();
    assert!(result["content"].as_str().unwrap().starts_with("Done with "), "{result}");
    for file in ["transcript/lead.jsonl", "transcript/sub/lead-1.jsonl"] {
        let text = fs::read_to_string(team.path(file)).unwrap();
        assert!(!text.contains(KEY), "{file} has the key");
    }
}

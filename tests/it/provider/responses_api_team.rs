//! Teams over the Responses API: real processes against the fake endpoint, which fails the test if the real API would
//! refuse a request.

use crate::support::child_process::write;
use crate::support::fake::{Api, Fake, Reply, RequestView};
use crate::support::fake_models::{
    ALL, KEY, OTHER_KEY, agent_of, assert_told, connect, connect_openai, connect_responses,
    conversation, results, story,
};
use crate::support::harness::{CommandResult, Team};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Mutex;
use std::thread;

fn lead(team: &Team, model: &str, prompt: &str, further: &[&str]) -> CommandResult {
    let args = ["lead", "-p", prompt, "--model", model, "--mode", "bypass", "--timeout", "600"];
    team.team(&[&args[..], further].concat())
}

fn items(view: &RequestView) -> &[Value] {
    view.body["input"].as_array().unwrap()
}

/// Returns the items of one type.
fn of_type<'a>(view: &'a RequestView, kind: &str) -> Vec<&'a Value> {
    items(view).iter().filter(|item| item["type"] == kind).collect()
}

fn bash(command: &str) -> Value {
    json!({"command": command})
}

#[test]
fn the_nine_prompts_over_the_responses_api() {
    let (team, fake) = (Team::new(), Fake::start(story));
    connect_responses(&team, &fake);
    let ran = lead(&team, "openai/fake", ALL, &[]).expect(0);
    assert_eq!(ran.out.trim(), "schema.sql is written and checked.", "{}", team.describe());
    assert_told(&team);
    assert_eq!(team.member("alice")["model"], "openai/fake");
    let seen = fake.requests();
    assert!(seen.iter().all(|view| view.api == Api::Responses && view.model() == "fake"));
    // Each agent has a key of its own for the cache, which stays the same.
    let key = |view: &RequestView| view.body["prompt_cache_key"].as_str().unwrap().to_owned();
    let keys: BTreeSet<_> = seen.iter().map(|view| (agent_of(view), key(view))).collect();
    let distinct: BTreeSet<_> = keys.iter().map(|(_, key)| key).collect();
    assert_eq!((keys.len(), distinct.len()), (3, 3), "{keys:?}");
}

/// Two calls at once after reasoning, a call after further reasoning, and an answer.
fn thinks(view: &RequestView) -> Reply {
    let id = |name: &str| format!("{name}-{}", view.number);
    if view.last_text().contains("Go on") {
        return Reply::message()
            .thinking("", "dGhpcmQ")
            .block(json!({"type": "text", "text": "I went on."}));
    }
    match results(view).as_str() {
        "" => Reply::message()
            .thinking("two at once", "Zmlyc3Q")
            .block(json!({"type": "text", "text": "I look.", "phase": "commentary"}))
            .tool(&id("one"), "bash", &bash("echo first | tee -a effects"))
            .tool(&id("two"), "bash", &bash("echo second | tee -a effects")),
        said if said.contains("second") => Reply::message().thinking("", "c2Vjb25k").tool(
            &id("three"),
            "bash",
            &bash("echo third | tee -a effects"),
        ),
        _ => Reply::text("All three ran."),
    }
}

#[test]
fn reasoning_is_kept_between_calls_and_across_a_resume() {
    let (team, fake) = (Team::new(), Fake::start(thinks));
    connect_responses(&team, &fake);
    team.variable("TEAM_EFFORT", "high");
    let ran = lead(&team, "openai/fake", "Run three.", &[]).expect(0);
    assert_eq!(ran.out.trim(), "All three ran.", "{}", team.describe());
    let ran = lead(&team, "openai/fake", "Go on", &["--resume"]).expect(0);
    assert_eq!(ran.out.trim(), "I went on.", "{}", team.describe());
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap();
    let mut effects: Vec<&str> = effects.lines().collect();
    effects.sort_unstable();
    assert_eq!(effects, ["first", "second", "third"], "every command ran once");

    let seen = fake.requests();
    assert_eq!(seen.len(), 4);
    for view in &seen {
        assert_eq!(view.body["reasoning"], json!({"effort": "high"}));
        assert_eq!(view.body["prompt_cache_key"], seen[0].body["prompt_cache_key"]);
        assert_eq!(view.body["store"], false);
    }
    // Every request extends the one before: the endpoint finds its cache.
    for pair in seen.windows(2) {
        assert!(items(&pair[1]).starts_with(items(&pair[0])), "{:#}", pair[1].body["input"]);
    }
    let last = items(&seen[3]);
    let kinds: Vec<&str> = last.iter().map(|item| item["type"].as_str().unwrap()).collect();
    let expected = [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ];
    assert_eq!(kinds, expected);
    let thought = json!({"id": "rs_0_0", "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "two at once"}],
        "encrypted_content": "gAAAA.rs_0_0.Zmlyc3Q"});
    assert_eq!((&last[1], &last[2]["phase"]), (&thought, &json!("commentary")));
    assert_eq!(last[7]["encrypted_content"], "gAAAA.rs_1_0.c2Vjb25k");
    assert!(last[5]["output"].as_str().unwrap().contains("first"), "{}", last[5]);
    assert!(last[6]["output"].as_str().unwrap().contains("second"), "{}", last[6]);
}

/// The faults of an answer after which the same request is sent again.
const FAULTS: [fn(Reply) -> Reply; 6] = [
    |whole| whole.cut_after(900),
    |whole| whole.error_event("server_error"),
    |whole| whole.failed("server_error"),
    |whole| whole.pieces(1).cut_after(2000).until_close(),
    |_| Reply::error(429, "rate_limit_exceeded", "slow down").header("retry-after-ms", "5"),
    |_| Reply::raw(503, "text/html", b"<h1>gone for lunch</h1>"),
];

#[test]
fn answers_that_break_are_asked_for_again_and_no_call_of_them_runs() {
    let met: Mutex<BTreeSet<String>> = Mutex::default();
    let fake = Fake::start(move |view| {
        let mut met = met.lock().unwrap();
        let count = met.len();
        let turn = view.turn();
        let reply = match turn {
            6 => Reply::text("Six commands ran."),
            _ => Reply::message().thinking("hm", "c2ln").tool(
                &format!("call-{}", view.number),
                "bash",
                &bash(&format!("echo {turn} >> effects")),
            ),
        };
        let is_first = met.insert(view.body.to_string());
        if is_first { FAULTS[count % FAULTS.len()](reply) } else { reply }
    });
    let team = Team::new();
    connect_responses(&team, &fake);
    let ran = lead(&team, "openai/fake", "Run six.", &[]).expect(0);
    assert_eq!(ran.out.trim(), "Six commands ran.", "{}", team.describe());
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap();
    assert_eq!(effects, "0\n1\n2\n3\n4\n5\n", "every command ran once");
    let seen = fake.requests();
    assert_eq!(seen.len(), 14, "each answer broke once");
    for pair in seen.chunks(2) {
        assert_eq!(pair[0].body, pair[1].body);
    }
}

#[test]
fn a_final_error_ends_the_run_with_its_code() {
    for (code, exit, word) in [
        ("insufficient_quota", 6, "insufficient_quota"),
        ("invalid_prompt", 3, "invalid_prompt"),
        ("context_length_exceeded", 3, "context window"),
    ] {
        let fake = Fake::start(move |_| Reply::text("I begin").failed(code));
        let team = Team::new();
        connect_responses(&team, &fake);
        let ran = lead(&team, "openai/fake", "hi", &[]).expect(exit);
        assert!(ran.err.contains(word), "{}", ran.err);
        assert_eq!(fake.requests().len(), 1, "{code}");
    }
}

/// Thinks and runs a command, whatever the API.
fn of_any_api(view: &RequestView) -> Reply {
    if view.results().is_empty() {
        let command = format!("echo {} >> effects", view.number);
        return Reply::message().thinking("hm", "c2ln").tool(
            &format!("call-{}", view.number),
            "bash",
            &bash(&command),
        );
    }
    Reply::message().thinking("well", "c2lo").block(json!({"type": "text", "text": "Done."}))
}

/// One conversation with models of three APIs. Each gets the opaque blocks of its own API and none of the others; the
/// fake refuses those of others, as the real APIs do.
#[test]
fn a_conversation_that_changes_its_provider_sends_no_foreign_blocks() {
    let (team, fake) = (Team::new(), Fake::start(of_any_api));
    connect(&team, &fake);
    connect_openai(&team, &fake);
    let models = ["anthropic/a", "openai/r", "openai/c", "anthropic/b", "openai/r"];
    for (round, model) in models.into_iter().enumerate() {
        let api = if model == "openai/c" { "chat_completions" } else { "responses" };
        team.variable("OPENAI_API", api);
        let resume: &[&str] = if round == 0 { &[] } else { &["--resume"] };
        let ran = lead(&team, model, &format!("Round {round}."), resume).expect(0);
        assert_eq!(ran.out.trim(), "Done.", "{model}: {}", team.describe());
    }
    assert_eq!(fake.take_violations(), [""; 0]);
    let seen = fake.requests();
    let last_of = |round: usize| &seen[2 * round + 1];
    let apis: Vec<Api> = (0..5).map(|round| last_of(round).api).collect();
    let [messages, responses, completions] = [Api::Messages, Api::Responses, Api::Completions];
    assert_eq!(apis, [messages, responses, completions, messages, responses]);
    let kinds = |round: usize| {
        let said = conversation(last_of(round));
        ["\"type\":\"thinking\"", "\"type\":\"reasoning\""].map(|kind| said.matches(kind).count())
    };
    // A round has two replies with reasoning; the last one is not yet in its own request.
    assert_eq!([0, 1, 2, 3, 4].map(kinds), [[1, 0], [0, 1], [0, 0], [3, 0], [0, 3]]);
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap();
    assert_eq!(effects, "0\n2\n4\n6\n8\n");
    for view in &seen[8..] {
        assert_eq!(of_type(view, "function_call").len(), 4 + usize::from(view.number == 9));
        assert!(!format!("{:?}", view.headers).contains(KEY));
    }
}

/// A proxy that refuses every connection shows the address to which a request would go.
struct ClosedProxy(u16);

impl ClosedProxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // The thread ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
                    line.clear();
                }
                let refusal =
                    b"HTTP/1.1 502 Closed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                drop(reader.get_mut().write_all(refusal));
            }
        });
        Self(port)
    }
}

#[test]
fn openai_itself_is_called_by_the_responses_api_unless_a_setting_says_otherwise() {
    let proxy = ClosedProxy::start();
    for (base_url, api, path) in [
        ("", "", "https://api.openai.com/v1/responses"),
        ("https://api.openai.com/v1/", "", "https://api.openai.com/v1/responses"),
        ("", "chat_completions", "https://api.openai.com/v1/chat/completions"),
        ("https://gateway.example/v1", "", "https://gateway.example/v1/chat/completions"),
        ("https://gateway.example/v1", "responses", "https://gateway.example/v1/responses"),
    ] {
        let team = Team::new();
        team.variable("HTTPS_PROXY", &format!("http://127.0.0.1:{}", proxy.0));
        team.variable("OPENAI_API_KEY", OTHER_KEY);
        for (name, value) in [("OPENAI_BASE_URL", base_url), ("OPENAI_API", api)] {
            if !value.is_empty() {
                team.variable(name, value);
            }
        }
        team.variable("TEAM_MODEL", "openai/m");
        let ran = team.team(&["doctor", "--call"]);
        let said = format!("{} {}", ran.out, ran.err);
        assert!(said.contains(&format!("{path}: ")), "{base_url} {api}: {said}");
    }
}

#[test]
fn the_setting_is_read_from_a_file_shown_and_checked() {
    let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("hello")));
    connect_openai(&team, &fake);
    team.team(&["init"]).expect(0);
    write(&team.path("settings.toml"), "[openai]\napi = \"responses\"\n");
    let shown = team.team(&["config"]).expect(0).out;
    let row = shown.lines().find(|line| line.contains("openai.api ")).unwrap();
    assert!(row.contains("responses") && row.contains("settings.toml"), "{row}");
    let doctor = team.team(&["doctor"]);
    assert!(doctor.out.contains("openai.api from "), "{}", doctor.out);
    assert_eq!(lead(&team, "openai/m", "hi", &[]).expect(0).out, "hello\n");
    team.variable("OPENAI_API", "chat_completions");
    assert_eq!(lead(&team, "openai/m", "hi", &[]).expect(0).out, "hello\n");
    let apis: Vec<Api> = fake.requests().iter().map(|view| view.api).collect();
    assert_eq!(apis, [Api::Responses, Api::Completions]);
    team.variable("OPENAI_API", "completions");
    let ran = lead(&team, "openai/m", "hi", &[]).expect(2);
    for word in ["OPENAI_API", "completions", "chat_completions"] {
        assert!(ran.err.contains(word), "{}", ran.err);
    }
}

//! Teams on the Gemini API, and conversations that change to it and away from it.

use crate::support::fake::{Api, Fake, Reply, RequestView};
use crate::support::fake_models::{
    ALL, GEMINI, GEMINI_KEY, OTHER_KEY, assert_told, call, connect, connect_gemini, story,
};
use crate::support::harness::{CommandResult, Team};
use serde_json::{Value, json};
use std::fs;

fn lead(team: &Team, model: &str, prompt: &str, further: &[&str]) -> CommandResult {
    let args = ["lead", "-p", prompt, "--model", model, "--mode", "bypass", "--timeout", "600"];
    team.team(&[&args[..], further].concat())
}

/// Returns the calls and the signed texts that models have sent in the conversation of a request.
fn signed_parts(view: &RequestView) -> Vec<Value> {
    let contents = view.conversation().as_array().into_iter().flatten();
    let parts = contents.flat_map(|content| content["parts"].as_array().into_iter().flatten());
    parts.filter(|part| !part["thoughtSignature"].is_null()).cloned().collect()
}

#[test]
fn the_nine_prompts_over_the_gemini_api() {
    let (team, fake) = (Team::new(), Fake::start(story));
    connect_gemini(&team, &fake);
    let ran = lead(&team, GEMINI, ALL, &[]).expect(0);
    assert_eq!(ran.out.trim(), "schema.sql is written and checked.", "{}", team.describe());
    assert_told(&team);
    assert_eq!(team.member("alice")["model"], GEMINI);
    let seen = fake.requests();
    assert!(seen.iter().all(|view| view.api == Api::Gemini && view.model() == "gemini-3-fake"));
    assert!(seen.iter().any(|view| signed_parts(view).len() > 1), "signatures go back");
}

#[test]
fn a_key_alone_names_the_provider_and_the_key_of_the_official_client_wins() {
    for (variables, key, model) in [
        (vec![("GEMINI_API_KEY", GEMINI_KEY)], GEMINI_KEY, "gemini-flash-latest"),
        (vec![("GOOGLE_API_KEY", OTHER_KEY)], OTHER_KEY, "gemini-flash-latest"),
        (
            vec![
                ("GEMINI_API_KEY", GEMINI_KEY),
                ("GOOGLE_API_KEY", OTHER_KEY),
                ("GEMINI_MODEL", "gemini-2.5-x"),
            ],
            OTHER_KEY,
            "gemini-2.5-x",
        ),
    ] {
        let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("hello")));
        for (name, value) in variables {
            team.variable(name, value);
        }
        team.variable("GEMINI_CUSTOM_HEADERS", "X-House: one");
        // Only the variable of the official client is set.
        team.variable("GOOGLE_GEMINI_BASE_URL", &format!("{}/v1beta", fake.base_url()));
        let args = ["lead", "-p", "hi", "--mode", "bypass", "--timeout", "600"];
        assert_eq!(team.team(&args).expect(0).out, "hello\n");
        let seen = fake.requests().remove(0);
        assert_eq!((seen.model(), seen.headers["x-goog-api-key"].as_str()), (model, key));
        assert_eq!(seen.headers["x-house"], "one");
        let shown = team.team(&["config"]).expect(0).out;
        assert!(shown.contains("environment (GOOGLE_GEMINI_BASE_URL)"), "{shown}");
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[test]
fn refused_credentials_and_used_quotas_end_with_their_codes() {
    let rpc = |kind: &str, key: &str, value: Value| {
        let name = format!("type.googleapis.com/google.rpc.{kind}");
        json!({"@type": name, key: value})
    };
    let violations = json!([{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]);
    for (reply, code, words) in
        [
            (
                Reply::error(400, "INVALID_ARGUMENT", "API key not valid.").detail(rpc(
                    "ErrorInfo",
                    "reason",
                    json!("API_KEY_INVALID"),
                )),
                4,
                "refused the credentials",
            ),
            (
                Reply::error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota")
                    .detail(rpc("QuotaFailure", "violations", violations)),
                6,
                "spend cap",
            ),
            (Reply::error(404, "NOT_FOUND", "models/x is not found"), 3, "models/x is not found"),
            (Reply::blocked("PROHIBITED_CONTENT"), 3, "PROHIBITED_CONTENT: the prompt is blocked"),
        ]
    {
        let (team, fake) = (Team::new(), Fake::start(move |_| reply.clone()));
        connect_gemini(&team, &fake);
        let ran = lead(&team, GEMINI, "hi", &[]).expect(code);
        assert!(ran.err.contains(words) && ran.err.contains("\n  now: "), "{}", ran.err);
        assert_eq!(fake.requests().len(), 1, "{words}");
    }
}

/// The endpoint is busy, then cuts a stream. The command runs once, and its signature survives the process.
#[test]
fn a_turn_survives_faults_and_its_signatures_a_resume() {
    let team = Team::new();
    let fake = Fake::start(|view| match view.number {
        0 => Reply::error(429, "RESOURCE_EXHAUSTED", "slow down").detail(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"})),
        1 => call(view, "bash", &json!({"command": "echo x >> effects"})).cut_after(60),
        2 => call(view, "bash", &json!({"command": "echo x >> effects"})),
        3 => Reply::text("It is done."),
        _ => Reply::text("I remember."),
    });
    connect_gemini(&team, &fake);
    assert_eq!(lead(&team, GEMINI, "do it", &[]).expect(0).out, "It is done.\n");
    assert_eq!(fs::read_to_string(team.workspace().join("effects")).unwrap(), "x\n");
    assert_eq!(lead(&team, GEMINI, "still there?", &["--resume"]).expect(0).out, "I remember.\n");
    let seen = fake.requests();
    assert_eq!(seen.len(), 5);
    let args = json!({"command": "echo x >> effects"});
    let first = json!({"functionCall": {"id": "call-2", "name": "bash", "args": args},
        "thoughtSignature": "c2ln0002+/01"});
    assert_eq!(signed_parts(&seen[3]), std::slice::from_ref(&first));
    let last = json!({"text": "", "thoughtSignature": "c2ln0003+/01"});
    assert_eq!(signed_parts(&seen[4]), [first, last]);
}

/// A conversation begins with thinking behind the Messages API, goes on at Gemini, and returns. Each API gets its own
/// blocks only.
#[test]
fn a_conversation_changes_to_gemini_and_back() {
    let team = Team::new();
    let play = |view: &RequestView| {
        let name = if view.api == Api::Gemini { "gemini" } else { "messages" };
        if view.results().is_empty() {
            let command = json!({"command": format!("echo {name} >> effects")});
            return call(view, "bash", &command);
        }
        Reply::text(&format!("done by {name}"))
    };
    let messages = Fake::start(move |view| {
        let thought = Reply::message().thinking("let me think", "bWVzc2FnZXM=");
        let id = format!("toolu-{}", view.number);
        if !view.results().is_empty() {
            return play(view);
        }
        thought.tool(&id, "bash", &json!({"command": "echo messages >> effects"}))
    });
    let gemini = Fake::start(play);
    connect(&team, &messages);
    connect_gemini(&team, &gemini);
    for (model, further, answer) in [
        ("anthropic/fake", &[][..], "done by messages\n"),
        (GEMINI, &["--resume"], "done by gemini\n"),
        ("anthropic/fake", &["--resume"], "done by messages\n"),
        (GEMINI, &["--resume"], "done by gemini\n"),
    ] {
        assert_eq!(lead(&team, model, "go", further).expect(0).out, answer);
    }
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap();
    assert_eq!(effects, "messages\ngemini\nmessages\ngemini\n");
    let (of_messages, of_gemini) = (messages.requests(), gemini.requests());
    assert_eq!((of_messages.len(), of_gemini.len()), (4, 4));
    for view in &of_gemini {
        let told = view.conversation().to_string();
        assert!(!told.contains("let me think") && !told.contains("bWVzc2FnZXM="), "{told}");
    }
    for view in &of_messages {
        let told = view.conversation().to_string();
        assert!(!told.contains("c2ln") && !told.contains("\"gemini\""), "{told}");
    }
    let told = of_messages[3].conversation().to_string();
    assert_eq!(told.matches("bWVzc2FnZXM=").count(), 2, "thinking goes back unchanged: {told}");
    // The calls of the other model have the documented signature, those of Gemini their own.
    let signatures: Vec<Value> = signed_parts(&of_gemini[3])
        .into_iter()
        .filter(|part| !part["functionCall"].is_null())
        .map(|part| part["thoughtSignature"].clone())
        .collect();
    let other = "skip_thought_signature_validator";
    assert_eq!(signatures, [other, "c2ln0000+/01", other, "c2ln0002+/01"]);
}

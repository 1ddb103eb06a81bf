//! Images that `read_file` shows to models that see them, over each API, and after a resume.

use crate::support::child_process::write;
use crate::support::fake::{Api, Fake, Reply, RequestView};
use crate::support::fake_models::{
    call, connect, connect_gemini, connect_openai, connect_responses,
};
use crate::support::harness::{CommandResult, Team};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use std::fs;

/// A PNG image of one red pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// Reads the image, then answers.
fn look(view: &RequestView) -> Reply {
    match view.results().first() {
        None if view.turn() == 0 => call(view, "read_file", &json!({"path": "dot.png"})),
        Some(result) if result["is_error"] == true || !has_image(view) => {
            Reply::text(&format!("I see none: {}", result["content"].as_str().unwrap()))
        }
        _ => Reply::text("A red dot."),
    }
}

fn has_image(view: &RequestView) -> bool {
    view.body.to_string().contains(PIXEL)
}

fn with_image(team: &Team) {
    write(&team.workspace().join("dot.png"), BASE64_STANDARD.decode(PIXEL).unwrap());
}

fn lead(team: &Team, prompt: &str, more: &[&str]) -> CommandResult {
    let args = [&["lead", "-p", prompt, "--mode", "bypass", "--timeout", "600"], more].concat();
    team.team(&args)
}

#[test]
fn a_model_that_sees_images_gets_the_content_of_a_file() {
    type Connect = fn(&Team, &Fake);
    for (connect, model, api) in [
        (connect as Connect, "anthropic/claude-fake", Api::Messages),
        (connect_openai, "openai/gpt-5-fake", Api::Completions),
        (connect_responses, "openai/gpt-5-fake", Api::Responses),
        (connect_gemini, "gemini/gemini-3-fake", Api::Gemini),
    ] {
        let (team, fake) = (Team::new(), Fake::start(look));
        connect(&team, &fake);
        with_image(&team);
        let ran = lead(&team, "What is in dot.png?", &["--model", model]).expect(0);
        assert_eq!(ran.out.trim(), "A red dot.", "{model}: {}", team.describe());
        let seen = fake.requests();
        assert_eq!(seen.len(), 2);
        assert!(seen[1].api == api && has_image(&seen[1]), "{model}");
        // The transcript has only its hash, and a resumed agent shows it again.
        let lines = team.lines("transcript/lead.jsonl");
        let result = lines.iter().find(|line| line["kind"] == "tool_result").unwrap();
        let image = &result["images"][0];
        assert_eq!((&image["path"], &image["width"]), (&json!("dot.png"), &json!(1)));
        assert!(!result.to_string().contains(PIXEL), "{result}");
        lead(&team, "Once more?", &["--resume", "--model", model]).expect(0);
        assert!(has_image(fake.requests().last().unwrap()), "{model}");
        // Without the content, the conversation goes on.
        fs::remove_dir_all(team.path("transcript/images")).unwrap();
        lead(&team, "And now?", &["--resume", "--model", model]).expect(0);
        let last = fake.requests().pop().unwrap();
        assert!(!has_image(&last) && last.body.to_string().contains("is not kept any more"));
    }
}

#[test]
fn a_model_that_sees_no_images_is_told_so() {
    let (team, fake) = (Team::new(), Fake::start(look));
    connect(&team, &fake);
    connect_openai(&team, &fake);
    with_image(&team);
    let ran = lead(&team, "What is in dot.png?", &["--model", "openai/blind"]).expect(0);
    let why =
        "dot.png is an image (image/png, 1 x 1 pixels), and your model is not known to see images";
    assert!(ran.out.contains(why), "{}", ran.out);
    // Another model of the same conversation sees it, and the first one is not sent what that was shown.
    lead(&team, "Look again.", &["--new", "--model", "anthropic/claude-fake"]).expect(0);
    assert!(has_image(fake.requests().last().unwrap()));
    lead(&team, "And you?", &["--resume", "--model", "openai/blind"]).expect(0);
    let last = fake.requests().pop().unwrap();
    assert!(!has_image(&last) && last.body.to_string().contains("this model sees no images"));
}

/// An endpoint that refuses each request with an image does not end the conversation.
#[test]
fn a_refused_image_is_left_out_of_the_call() {
    let (team, fake) = (
        Team::new(),
        Fake::start(|view| match view.turn() {
            0 => call(view, "read_file", &json!({"path": "dot.png"})),
            _ if has_image(view) => {
                Reply::error(400, "invalid_request_error", "Could not process image")
            }
            _ => Reply::text("I go on without it."),
        }),
    );
    connect(&team, &fake);
    with_image(&team);
    let args = ["--model", "anthropic/claude-fake"];
    let ran = lead(&team, "What is in dot.png?", &args).expect(0);
    assert_eq!(ran.out.trim(), "I go on without it.");
    let resumed = lead(&team, "And now?", &[&args[..], &["--resume"]].concat()).expect(0);
    assert_eq!(resumed.out.trim(), "I go on without it.");
    let last = fake.requests().pop().unwrap();
    assert!(last.body.to_string().contains("the endpoint refused the request with its images"));
}

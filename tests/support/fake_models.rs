//! Scripted models on the fake endpoint: the replies of the lead, alice and bob in the nine-prompt scenario, and
//! the start of a lead against the fake.

use crate::support::fake::{Fake, Reply, RequestView};
use crate::support::harness::{CommandResult, Team};
use crate::support::terminal::Terminal;
use serde_json::{Value, json};
use std::fs;

/// The arguments of a lead that runs against the fake.
pub(crate) const LEAD: [&str; 5] = ["lead", "--model", "anthropic/fake", "--mode", "bypass"];

/// The API key for the fake Messages API.
pub(crate) const KEY: &str = "sk-ant-canary-0123456789-key";

/// The API key for the fake chat completions API.
pub(crate) const OTHER_KEY: &str = "sk-other-canary-9876543210-key";

/// The API key for the fake Gemini API.
pub(crate) const GEMINI_KEY: &str = "AIza-gemini-canary-0123456789-key";

/// A model of the fake Gemini API that signs its calls.
pub(crate) const GEMINI: &str = "gemini/gemini-3-fake";

/// The prompt with which the lead runs the whole scenario in one run.
pub(crate) const ALL: &str = "Let the team write and check schema.sql.";

/// Points every program that is started from now on to this fake.
pub(crate) fn connect(team: &Team, fake: &Fake) {
    team.variable("ANTHROPIC_API_KEY", KEY);
    team.variable("ANTHROPIC_BASE_URL", &fake.base_url());
}

/// Does the same as [`connect`] over chat completions.
pub(crate) fn connect_openai(team: &Team, fake: &Fake) {
    team.variable("OPENAI_API_KEY", OTHER_KEY);
    team.variable("OPENAI_BASE_URL", &format!("{}/v1", fake.base_url()));
}

/// Does the same as [`connect`] over the Responses API.
pub(crate) fn connect_responses(team: &Team, fake: &Fake) {
    connect_openai(team, fake);
    team.variable("OPENAI_API", "responses");
}

/// Does the same as [`connect`] over the Gemini API.
pub(crate) fn connect_gemini(team: &Team, fake: &Fake) {
    team.variable("GEMINI_API_KEY", GEMINI_KEY);
    team.variable("GEMINI_BASE_URL", &fake.base_url());
}

/// Creates a team whose models give the replies of this closure.
pub(crate) fn team_with_fake(
    play: impl Fn(&RequestView) -> Reply + Send + Sync + 'static,
) -> (Team, Fake) {
    let (team, fake) = (Team::new(), Fake::start(play));
    connect(&team, &fake);
    (team, fake)
}

/// Runs a headless lead with this prompt.
pub(crate) fn headless(team: &Team, prompt: &str, further: &[&str]) -> CommandResult {
    team.team(&[&LEAD[..], &["-p", prompt, "--timeout", "600"], further].concat())
}

/// Starts a lead at a terminal.
pub(crate) fn at_terminal(team: &Team) -> Terminal {
    Terminal::start(team.command("team", &LEAD))
}

/// Returns the name of the agent that sent the request, from its system prompt.
pub(crate) fn agent_of(view: &RequestView) -> String {
    let system = view.system();
    let name = system.strip_prefix("Your name is ").and_then(|rest| rest.split('.').next());
    name.unwrap_or_else(|| panic!("no name in {system:?}")).to_owned()
}

/// Returns the parts of a request in order. A later request of the same agent must extend them; otherwise the
/// provider's cache is of no use.
pub(crate) fn pieces(view: &RequestView) -> Vec<String> {
    let said = view.conversation().as_array().into_iter().flatten().flat_map(|message| {
        let blocks = message["content"].as_array().or(message["parts"].as_array());
        let blocks = blocks.into_iter().flatten();
        blocks.map(|block| {
            let mut block = block.clone();
            block.as_object_mut().unwrap().remove("cache_control");
            format!("{}: {block}", message["role"])
        })
    });
    let fixed = ["system", "systemInstruction", "tools", "model"];
    let fixed = fixed.map(|field| view.body[field].to_string());
    fixed.into_iter().chain(said).collect()
}

/// Returns the whole conversation as one text.
pub(crate) fn conversation(view: &RequestView) -> String {
    view.conversation().to_string()
}

/// Creates a reply that calls one tool. The id is unique among all requests of the fake.
pub(crate) fn call(view: &RequestView, name: &str, input: &Value) -> Reply {
    Reply::message().tool(&format!("call-{}", view.number), name, input)
}

/// Returns the tool results since the last reply, one per line, without the result of `idle`, which precedes the
/// mail that ended the wait.
pub(crate) fn results(view: &RequestView) -> String {
    let results = view.results();
    let said = results.iter().filter_map(|result| result["content"].as_str());
    said.filter(|said| *said != "Idle.").collect::<Vec<_>>().join("\n")
}

/// Returns the reply for any agent of the nine-prompt scenario.
pub(crate) fn story(view: &RequestView) -> Reply {
    match agent_of(view).as_str() {
        "lead" if conversation(view).contains(ALL) => lead_alone(view),
        "lead" => lead(view),
        name => teammate(view, name),
    }
}

fn spawn_both(view: &RequestView) -> Reply {
    let id = |name: &str| format!("call-{}-{name}", view.number);
    // Bob is spawned first, because alice writes to him immediately.
    Reply::text("I spawn the two.")
        .tool(
            &id("bob"),
            "spawn_teammate",
            &json!({"name": "bob", "role": "tester", "prompt": "Wait for mail."}),
        )
        .tool(
            &id("alice"),
            "spawn_teammate",
            &json!({"name": "alice", "role": "coder", "prompt": "Send bob a message."}),
        )
}

const CREATE: &str = "Create schema.sql with a users table.";
const CHECK: &str = "Check if schema.sql exists and list its contents.";

/// Returns the reply of a lead that gets the prompts one by one.
fn lead(view: &RequestView) -> Reply {
    if !view.results().is_empty() {
        return Reply::text(&format!("Done. {}", results(view)));
    }
    let asked = view.last_text().to_lowercase();
    let shutdown = json!({"name": "alice", "reason": "her work is done"});
    let again = |name: &str, role: &str, prompt: &str| {
        let order = json!({"name": name, "role": role, "prompt": prompt});
        call(view, "spawn_teammate", &order)
    };
    let parts: [(&str, &dyn Fn() -> Reply); 7] = [
        ("spawn alice (coder)", &|| spawn_both(view)),
        ("broadcast \"", &|| {
            call(view, "broadcast", &json!({"content": "status update: phase 1 complete"}))
        }),
        ("check the lead inbox", &|| call(view, "read_inbox", &json!({}))),
        ("backend developer", &|| again("alice", "backend developer", CREATE)),
        ("check your inbox", &|| call(view, "read_inbox", &json!({}))),
        ("spawn bob as a tester", &|| again("bob", "tester", CHECK)),
        ("shut down alice", &|| {
            let show = format!("call-{}-show", view.number);
            call(view, "shutdown_teammate", &shutdown).tool(&show, "list_teammates", &json!({}))
        }),
    ];
    let part = parts.iter().find(|(words, _)| asked.contains(words));
    part.map_or_else(|| Reply::text("Noted."), |(_, act)| act())
}

/// Returns the reply of a lead that runs the scenario from one prompt and continues when results arrive.
fn lead_alone(view: &RequestView) -> Reply {
    let past = conversation(view);
    let write = |to: &str, content: &str| {
        call(view, "send_message", &json!({"to": to, "content": content}))
    };
    if !past.contains("\"spawn_teammate\"") {
        return spawn_both(view);
    }
    if !past.contains("\"broadcast\"") {
        return call(view, "broadcast", &json!({"content": "status update: phase 1 complete"}));
    }
    if past.contains("I greeted bob") && !past.contains(CREATE) {
        return write("alice", CREATE);
    }
    if past.contains("I wrote schema.sql") && !past.contains(CHECK) {
        return write("bob", CHECK);
    }
    if past.contains("It says: CREATE TABLE") && !past.contains("\"shutdown_teammate\"") {
        return call(view, "shutdown_teammate", &json!({"name": "alice"}));
    }
    let over = past.contains("\"shutdown_teammate\"");
    Reply::text(if over { "schema.sql is written and checked." } else { "I wait." })
}

fn teammate(view: &RequestView, name: &str) -> Reply {
    let said = results(view);
    if said.contains("Sent to bob") {
        return Reply::text("I greeted bob.");
    }
    if said.contains("CREATE TABLE") {
        return Reply::text(&format!("It says: {said}"));
    }
    if !said.is_empty() {
        return Reply::text("I wrote schema.sql.");
    }
    let asked = view.last_text();
    match name {
        "alice" if asked.contains("Send bob a message") => {
            call(view, "send_message", &json!({"to": "bob", "content": "hello from alice"}))
        }
        "alice" if asked.contains(CREATE) => {
            let command = "echo created >> effects; \
                printf 'CREATE TABLE users (\\n  id INTEGER PRIMARY KEY\\n);\\n' > schema.sql";
            call(view, "bash", &json!({"command": command}))
        }
        "bob" if asked.contains(CHECK) => {
            call(view, "bash", &json!({"command": "echo checked >> effects; cat schema.sql"}))
        }
        _ => call(view, "idle", &json!({})),
    }
}

/// Asserts the outcome of the scenario, which is the same for interactive and headless leads.
pub(crate) fn assert_told(team: &Team) {
    assert!(team.has_mail("bob", "alice", "hello from alice"), "{}", team.describe());
    for name in ["alice", "bob"] {
        assert!(team.has_mail(name, "lead", "status update: phase 1 complete"), "{name}");
        assert_eq!(team.status(name), "shutdown", "{}", team.describe());
    }
    assert_eq!(team.member("alice")["last_exit"]["cause"], "stopped", "{}", team.describe());
    let schema = fs::read_to_string(team.workspace().join("schema.sql"));
    let schema = schema.unwrap_or_else(|why| panic!("{why}: {}", team.describe()));
    assert!(schema.contains("CREATE TABLE users"));
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap();
    assert_eq!(effects, "created\nchecked\n", "every command ran once");
    for (from, text) in [("alice", "I wrote schema.sql."), ("bob", "It says: CREATE TABLE users")] {
        let mail = team.mail_of("lead");
        let results = mail.iter().filter(|mail| {
            mail["type"] == "result"
                && mail["from"] == from
                && mail["content"].as_str().is_some_and(|content| content.contains(text))
        });
        assert_eq!(results.count(), 1, "{from}: {mail:#?}");
    }
}

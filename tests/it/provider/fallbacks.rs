//! Another model goes on while that of an agent is overloaded or gone: told, counted, paid at its own price, and only for a
//! while.

use crate::support::child_process::write;
use crate::support::fake::{Api, Fake, Reply, RequestView};
use crate::support::fake_models::{
    KEY, OTHER_KEY, agent_of, call, connect, connect_openai, conversation, results,
};
use crate::support::harness::{CommandResult, Team};
use crate::support::scripts::{tool_results, wait};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// A team whose own model is behind the Messages API, and another one behind chat completions.
fn two_models(
    first: impl Fn(&RequestView) -> Reply + Send + Sync + 'static,
    second: impl Fn(&RequestView) -> Reply + Send + Sync + 'static,
) -> (Team, Fake, Fake) {
    let (team, first, second) = (Team::without_walls(), Fake::start(first), Fake::start(second));
    connect(&team, &first);
    connect_openai(&team, &second);
    team.variable("TEAM_FALLBACK_MODELS", "openai/second");
    (team, first, second)
}

fn lead(team: &Team, prompt: &str, further: &[&str]) -> CommandResult {
    let words = ["lead", "-p", prompt, "--model", "anthropic/first", "--mode", "bypass"];
    team.team(&[&words[..], &["--timeout", "600"], further].concat())
}

/// An answer of an endpoint that is overloaded, and says that another attempt is of no use.
fn overloaded() -> Reply {
    Reply::error(529, "overloaded_error", "too many").header("x-should-retry", "false")
}

/// Returns the models with which the conversation of an agent went on, in order.
fn switches(team: &Team, name: &str) -> Vec<String> {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    let models = lines.iter().filter(|line| line["kind"] == "model");
    models.map(|line| line["model"].as_str().unwrap().to_owned()).collect()
}

/// Returns the cost of a conversation if a token of the first model costs a dollar and one of the second ten, in millionths.
fn cost(team: &Team, name: &str) -> f64 {
    let (mut price, mut cost) = (1, 0);
    for line in team.lines(&format!("transcript/{name}.jsonl")) {
        match line["kind"].as_str().unwrap_or_default() {
            "session" => price = 1,
            "model" => price = if line["model"] == "openai/second" { 10 } else { 1 },
            "assistant" => {
                let tokens = line["usage"].as_object().unwrap().values();
                cost += price * tokens.filter_map(Value::as_u64).sum::<u64>();
            }
            _ => {}
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "the number is small")]
    let cost = cost as f64;
    cost / 1e6
}

#[test]
fn an_overloaded_model_is_replaced_for_a_while() {
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy = Arc::clone(&is_busy);
    let first = move |_: &RequestView| {
        if busy.load(Ordering::Relaxed) {
            Reply::error(529, "overloaded_error", "too many")
        } else {
            Reply::text("the first one is back")
        }
    };
    let second = move |view: &RequestView| {
        is_busy.store(false, Ordering::Relaxed);
        // The rest of the first model is over when this command has ended.
        call(view, "bash", &json!({"command": "sleep 2"}))
    };
    let (team, first, second) = two_models(first, second);
    team.team(&["init"]).expect(0);
    let price = |model: &str, price: u32| {
        format!("[models.\"{model}\"]\ninput = {price}\noutput = {price}\n")
    };
    let prices = price("anthropic/first", 1) + &price("openai/second", 10);
    write(&team.path("settings.toml"), &prices);
    team.variable("TEAM_FALLBACK_PAUSE", "1");
    let ran = lead(&team, "hi", &["--output", "stream-json"]).expect(0);
    // A few attempts, then the other model; the first one is not tried for the usual time.
    let asked = (first.requests().len(), second.requests().len());
    assert_eq!(asked, (4, 1), "{}", team.describe());
    assert_eq!(switches(&team, "lead"), ["openai/second", "anthropic/first"]);
    for words in [
        "anthropic/first fails, openai/second goes on",
        "anthropic/first is tried again",
        "anthropic/first answers again",
        "the first one is back",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    let used = team.roster()["lead"]["usage"].clone();
    assert_eq!(used["model_switches"], 1);
    assert!(
        (used["cost"].as_f64().unwrap() - cost(&team, "lead")).abs() < 1e-9,
        "{used} {}",
        cost(&team, "lead")
    );
    // The list of sessions counts the prices of the models that replied, too.
    let sessions = team.team(&["sessions", "--json"]).expect(0).json();
    let listed = sessions["sessions"][0]["cost"].as_f64().unwrap();
    assert!((listed - cost(&team, "lead")).abs() < 1e-9, "{sessions}");
    let shown = team.team(&["transcript", "lead"]).expect(0).out;
    assert!(shown.contains("goes on with openai/second"), "{shown}");
}

#[test]
fn a_model_that_is_gone_or_used_up_is_replaced_at_once_but_refused_credentials_are_not() {
    for (status, kind, message) in [
        (404, "not_found_error", "model: first"),
        (402, "billing_error", "pay"),
        (503, "api_error", "down"),
    ] {
        let gone = move |_: &RequestView| {
            Reply::error(status, kind, message).header("x-should-retry", "false")
        };
        let (team, first, second) = two_models(gone, |_| Reply::text("second"));
        assert_eq!(lead(&team, "hi", &[]).expect(0).out, "second\n", "{kind}");
        assert_eq!((first.requests().len(), second.requests().len()), (1, 1), "{kind}");
        // The next turn goes on with the second model.
        assert_eq!(lead(&team, "hi", &["--resume"]).expect(0).out, "second\n");
        assert_eq!(first.requests().len(), 2, "a new process begins with its own model");
    }
    for (status, kind, code) in
        [(401, "authentication_error", 4), (400, "invalid_request_error", 3)]
    {
        let refused = move |_: &RequestView| Reply::error(status, kind, "no");
        let (team, _first, second) = two_models(refused, |_| Reply::text("second"));
        let ran = lead(&team, "hi", &[]).expect(code);
        assert!(ran.err.contains(kind), "{}", ran.err);
        assert_eq!(second.requests().len(), 0, "{kind}");
    }
}

#[test]
fn the_error_names_all_models_if_all_are_down() {
    let down = |_: &RequestView| overloaded();
    let gone = |_: &RequestView| Reply::error(404, "model_not_found", "no model second");
    let (team, first, second) = two_models(down, gone);
    let ran = lead(&team, "hi", &[]).expect(3);
    for words in ["openai/second", "no model second", "anthropic/first", "too many"] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
}

#[test]
fn a_conversation_resumes_with_its_own_model_after_another_has_gone_on() {
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy = Arc::clone(&is_busy);
    let first = move |view: &RequestView| {
        if busy.load(Ordering::Relaxed) {
            return overloaded();
        }
        assert!(conversation(view).contains("made by the second"));
        Reply::text("first")
    };
    let second = |view: &RequestView| {
        if results(view).is_empty() {
            call(view, "bash", &json!({"command": "echo made by the second"}))
        } else {
            Reply::text("second")
        }
    };
    let (team, first, second) = two_models(first, second);
    assert_eq!(lead(&team, "hi", &[]).expect(0).out, "second\n");
    assert_eq!((first.requests().len(), second.requests().len()), (1, 2));
    is_busy.store(false, Ordering::Relaxed);
    assert_eq!(lead(&team, "again", &["--resume"]).expect(0).out, "first\n");
    assert_eq!((first.requests().len(), second.requests().len()), (2, 2));
    assert_eq!(switches(&team, "lead"), ["openai/second"]);
}

/// The lead runs on one provider. Its teammate, on the other one, which is overloaded, goes on with the first.
fn with_alice(view: &RequestView) -> Reply {
    match (agent_of(view).as_str(), conversation(view)) {
        ("lead", past) if past.contains("alice is done") => Reply::text("All is done."),
        ("lead", past) if past.contains("spawn_teammate") => Reply::text("I wait."),
        ("lead", _) => call(
            view,
            "spawn_teammate",
            &json!({"name": "alice", "role": "coder", "prompt": "Look.", "model": "openai/hers"}),
        ),
        _ => Reply::text("alice is done"),
    }
}

#[test]
fn a_teammate_goes_on_with_another_model_and_has_only_the_keys_for_its_models() {
    let (team, messages) = (Team::without_walls(), Fake::start(with_alice));
    let completions = Fake::start(|_| overloaded());
    connect(&team, &messages);
    connect_openai(&team, &completions);
    team.variable("GEMINI_API_KEY", "canary-gemini-key-of-nobody");
    team.variable("TEAM_FALLBACK_MODELS", "anthropic/second");
    let ran = lead(&team, "Let alice look.", &[]).expect(0);
    assert_eq!(ran.out.trim(), "All is done.", "{}", team.describe());
    assert_eq!(switches(&team, "alice"), ["anthropic/second"]);
    let alice = team.member("alice");
    assert_eq!(
        (&alice["model"], &alice["usage"]["model_switches"]),
        (&json!("openai/hers"), &json!(1))
    );
    let hers: Vec<_> =
        messages.requests().into_iter().filter(|view| agent_of(view) == "alice").collect();
    assert!(!hers.is_empty());
    assert!(hers.iter().all(|view| view.model() == "second" && view.api == Api::Messages));
    assert_eq!(completions.requests().len(), 1);
    for folder in ["log", "log/.err", "transcript", "inbox", "run", "."] {
        for entry in fs::read_dir(team.path(folder)).unwrap().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            for key in [KEY, OTHER_KEY, "canary"] {
                assert!(!text.contains(key), "a key is in {}", entry.path().display());
            }
        }
    }
}

/// A lead that runs headless, with its output in files.
struct RunningLead {
    process: Child,
    out: PathBuf,
    err: PathBuf,
}

impl RunningLead {
    fn start(team: &Team, prompt: &str) -> Self {
        let words = ["lead", "-p", prompt, "--model", "anthropic/first", "--mode", "bypass"];
        let further = ["--timeout", "600", "--output", "stream-json"];
        let mut lead = team.command("team", &[&words[..], &further].concat());
        let [out, err] = ["out", "err"].map(|name| team.workspace().join(name));
        lead.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        Self { process: lead.spawn().unwrap(), out, err }
    }

    fn printed(&self) -> String {
        [&self.out, &self.err].map(|file| fs::read_to_string(file).unwrap()).concat()
    }
}

/// Returns a function that lets the next request wait until the test says or ends so.
fn held() -> (Sender<()>, impl Fn() + Send + Sync) {
    let (go, waiting) = channel();
    let waiting = Mutex::new(waiting);
    (go, move || {
        // It fails if the test has ended.
        let _said = waiting.lock().unwrap().recv();
    })
}

/// Alice runs on the first model, which is overloaded until the second one has answered her.
#[test]
fn a_teammate_returns_to_its_own_model_after_a_while_and_the_person_is_told() {
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy = Arc::clone(&is_busy);
    let first = move |view: &RequestView| match (agent_of(view).as_str(), conversation(view)) {
        ("lead", past) if past.contains("alice is back") => Reply::text("All is done."),
        ("lead", past) if past.contains("spawn_teammate") => Reply::text("I wait."),
        ("lead", _) => call(
            view,
            "spawn_teammate",
            &json!({"name": "alice", "role": "worker", "prompt": "Look."}),
        ),
        _ if busy.load(Ordering::Relaxed) => overloaded(),
        _ => Reply::text("alice is back"),
    };
    let (go, hold) = held();
    let second = move |view: &RequestView| {
        hold();
        is_busy.store(false, Ordering::Relaxed);
        // The rest of her own model is over when this command has ended.
        call(view, "bash", &json!({"command": "sleep 2"}))
    };
    let (team, first, second) = two_models(first, second);
    let go = go;
    team.variable("TEAM_FALLBACK_PAUSE", "1");
    let mut lead = RunningLead::start(&team, "Let alice look.");
    let fails = "anthropic/first fails, openai/second goes on: ";
    team.eventually("the person is told", || {
        let told = lead.printed();
        told.contains(&format!("alice: {fails}")) && told.contains("\"type\":\"member_retry\"")
    });
    let activity = team.member("alice")["activity"].clone();
    assert!(activity.as_str().unwrap().starts_with(&format!("retrying: {fails}")), "{activity}");
    go.send(()).unwrap();
    assert_eq!(wait(&team, &mut lead.process), Some(0), "{}", lead.printed());
    assert_eq!(switches(&team, "alice"), ["openai/second", "anthropic/first"]);
    assert_eq!(second.requests().len(), 1);
    let hers = first.requests().into_iter().filter(|view| agent_of(view) == "alice").count();
    assert_eq!(hers, 2, "it is not tried while it rests: {}", team.describe());
    let alice = team.member("alice");
    assert_eq!(
        (&alice["model"], &alice["usage"]["model_switches"]),
        (&json!("anthropic/first"), &json!(1))
    );
    assert!(team.roster()["lead"]["usage"]["model_switches"].is_null(), "{}", team.roster());
    assert!(team.has_mail("lead", "alice", "alice is back"), "{}", team.describe());
    let shown = team.team(&["transcript", "alice"]).expect(0).out;
    assert!(shown.contains("goes on with openai/second"), "{shown}");
}

/// A role has a list of its own, which counts for a spawn, for a restart and by hand. An empty list gives none.
#[test]
fn a_role_names_the_models_that_go_on_for_it() {
    let first = |view: &RequestView| match (agent_of(view).as_str(), conversation(view)) {
        ("lead", past) if past.contains("Go on.") && !past.contains("send_message") => {
            call(view, "send_message", &json!({"to": "alice", "content": "Look again."}))
        }
        ("lead", past) if past.contains("spawn_teammate") => Reply::text("I wait."),
        ("lead", _) => {
            let order =
                |name: &str, role: &str| json!({"name": name, "role": role, "prompt": "Look."});
            Reply::message()
                .tool("call-a", "spawn_teammate", &order("alice", "careful"))
                .tool("call-b", "spawn_teammate", &order("bob", "lonely"))
                .tool("call-c", "spawn_teammate", &order("carol", "worker"))
        }
        _ => overloaded(),
    };
    let second =
        |view: &RequestView| Reply::text(&format!("{} by {}", agent_of(view), view.model()));
    let (team, _first, second) = two_models(first, second);
    team.team(&["init"]).expect(0);
    let careful = "---\nfallbackModels: [gemini/none, acp/claude, opus, openai/third]\n---\n";
    write(&team.path("settings.toml"), "[model_aliases]\nopus = \"openai/by-alias\"\n");
    write(&team.path("roles/careful.md"), careful);
    write(&team.path("roles/lonely.md"), "---\nfallbackModels: []\n---\n");
    lead(&team, "Let them look.", &[]).expect(0);
    for (name, used) in
        [("alice", &["openai/by-alias"][..]), ("bob", &[]), ("carol", &["openai/second"])]
    {
        assert_eq!(switches(&team, name), used, "{name}: {}", team.describe());
    }
    assert!(team.has_mail("lead", "alice", "alice by by-alias"), "{}", team.describe());
    assert!(team.has_mail("lead", "bob", "too many"), "{}", team.describe());
    let spawned = tool_results(&team, "lead");
    for words in [
        "gemini/none is left out: there are no credentials for it",
        "acp/claude is left out: \"acp/claude\" is an agent of another vendor, which cannot go on",
    ] {
        assert!(spawned[0].1.contains(words), "{words}: {spawned:?}");
    }
    assert!(
        !spawned[1].1.contains("left out") && !spawned[2].1.contains("left out"),
        "{spawned:?}"
    );
    // A team that goes on gives the same models.
    let asked = second.requests().len();
    lead(&team, "Go on.", &["--resume"]).expect(0);
    assert_eq!(switches(&team, "alice"), ["openai/by-alias"; 2], "{}", team.describe());
    assert!(second.requests().len() > asked);
    let by_hand = |name: &str, role: &str| {
        let words = ["teammate", name, "--role", role, "--model", "anthropic/first", "--once"];
        team.team(&[&words[..], &["--prompt", "Look.", "--mode", "bypass"]].concat())
    };
    let ran = by_hand("dora", "Careful");
    assert_eq!(switches(&team, "dora"), ["openai/by-alias"], "{ran:?}");
    assert!(ran.out.contains("anthropic/first fails, openai/by-alias goes on"), "{ran:?}");
    let told = "fallbackModels of the role: gemini/none is left out: it has no credentials";
    assert!(ran.err.contains(told), "{ran:?}");
    let ran = by_hand("eve", "lonely");
    assert!(switches(&team, "eve").is_empty() && ran.out.contains("too many"), "{ran:?}");
}

#[test]
fn a_list_of_a_role_is_shown_and_its_mistakes_are_told_by_file_and_line() {
    let team = Team::without_walls();
    team.team(&["init"]).expect(0);
    let text = "---\nmodel: openai/own\nfallbackModels: [gpt, claude-x]\n---\n";
    write(&team.path("roles/careful.md"), text);
    write(&team.path("roles/lonely.md"), "---\nfallbackModels: []\n---\n");
    let shown = team.team(&["roles"]).expect(0);
    for words in ["openai/own, else anthropic/claude-x", "-, else none"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    let told = ".team/roles/careful.md:3: \"gpt\" is neither PROVIDER/NAME nor one of sonnet, opus, haiku, so it \
                does not go on";
    assert_eq!(shown.err.trim(), told);
    let listed = team.team(&["roles", "--json"]).expect(0).json();
    let lists: Vec<_> =
        listed["roles"].as_array().unwrap().iter().map(|role| &role["fallback_models"]).collect();
    assert!(
        lists.contains(&&json!(["anthropic/claude-x"])) && lists.contains(&&json!([])),
        "{lists:?}"
    );
    let models = team.team(&["models", "--offline"]).expect(0).out;
    assert!(models.contains("role careful (fallbackModels)"), "{models}");
}

/// The subagents of the lead and of alice go on as their callers do. Their own model is back after its rest.
#[test]
fn a_subagent_goes_on_with_the_models_of_its_caller() {
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy = Arc::clone(&is_busy);
    let first = move |view: &RequestView| match (agent_of(view).as_str(), conversation(view)) {
        ("lead", past) if past.contains("found by the second") => Reply::text("All is done."),
        ("lead", _) => call(view, "run_subagent", &json!({"task": "look"})),
        (_, past) if busy.load(Ordering::Relaxed) => {
            assert!(!past.contains("ran by the second"), "{past}");
            overloaded()
        }
        (_, past) => {
            assert!(past.contains("ran by the second"), "{past}");
            Reply::text("found by the second, told by the first")
        }
    };
    let second = move |view: &RequestView| {
        is_busy.store(false, Ordering::Relaxed);
        // The rest of its own model is over when this command has ended.
        call(view, "bash", &json!({"command": "echo ran by the second; sleep 2"}))
    };
    let (team, first, second) = two_models(first, second);
    team.team(&["init"]).expect(0);
    let price = |model: &str, price: u32| {
        format!("[models.\"{model}\"]\ninput = {price}\noutput = {price}\n")
    };
    let prices = price("anthropic/first", 1) + &price("openai/second", 10);
    write(&team.path("settings.toml"), &prices);
    team.variable("TEAM_FALLBACK_PAUSE", "1");
    let ran = lead(&team, "hi", &["--output", "stream-json"]).expect(0);
    assert!(ran.out.contains("All is done."), "{ran:?}");
    for words in [
        "lead:1: anthropic/first fails, openai/second goes on",
        "lead:1: anthropic/first is tried again",
        "lead:1: anthropic/first answers again",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    assert_eq!(switches(&team, "sub/lead-1"), ["openai/second", "anthropic/first"]);
    assert!(switches(&team, "lead").is_empty(), "the lead has its own model");
    assert_eq!((first.requests().len(), second.requests().len()), (4, 1), "{}", team.describe());
    let used = team.roster()["lead"]["usage"].clone();
    assert_eq!(used["model_switches"], 1, "{used}");
    let paid = ["lead", "sub/lead-1"].map(|name| cost(&team, name)).iter().sum::<f64>();
    assert!((used["cost"].as_f64().unwrap() - paid).abs() < 1e-9, "{used} {paid}");
    let result = &tool_results(&team, "lead")[0].1;
    assert!(
        result
            .starts_with("found by the second, told by the first\n[subagent lead:1: 2 model calls")
    );
    let shown = team.team(&["transcript", "lead:1"]).expect(0).out;
    assert!(shown.contains("goes on with openai/second"), "{shown}");
}

#[test]
fn a_subagent_of_a_teammate_shows_the_change_and_its_role_may_name_the_models() {
    let first = |view: &RequestView| match (agent_of(view).as_str(), conversation(view)) {
        ("lead", past) if past.contains("alice is done") => Reply::text("All is done."),
        ("lead", past) if past.contains("spawn_teammate") => Reply::text("I wait."),
        ("lead", _) => call(
            view,
            "spawn_teammate",
            &json!({"name": "alice", "role": "worker", "prompt": "Look."}),
        ),
        ("alice", past) if past.contains("tool_result") => Reply::text("alice is done"),
        ("alice", _) => Reply::message()
            .tool("call-1", "run_subagent", &json!({"task": "one"}))
            .tool("call-2", "run_subagent", &json!({"task": "two", "role": "careful"}))
            .tool("call-3", "run_subagent", &json!({"task": "three", "role": "lonely"})),
        _ => overloaded(),
    };
    let (go, hold) = held();
    let second = move |view: &RequestView| {
        if agent_of(view) == "alice:1" {
            hold();
        }
        Reply::text(&format!("{} by {}", agent_of(view), view.model()))
    };
    let (team, _first, _second) = two_models(first, second);
    let go = go;
    team.team(&["init"]).expect(0);
    write(&team.path("roles/careful.md"), "---\nfallbackModels: gemini/none, openai/third\n---\n");
    write(&team.path("roles/lonely.md"), "---\nfallbackModels: []\n---\n");
    let mut lead = RunningLead::start(&team, "Let alice look.");
    let fails = "anthropic/first fails, openai/second goes on: ";
    team.eventually("the change is shown", || {
        let activity = team.member("alice")["activity"].clone();
        activity.as_str().is_some_and(|text| text.contains(&format!("1 retrying: {fails}")))
    });
    go.send(()).unwrap();
    assert_eq!(wait(&team, &mut lead.process), Some(0), "{}", lead.printed());
    let results = tool_results(&team, "alice");
    let texts: Vec<&str> = results.iter().map(|it| it.1.split('\n').next().unwrap()).collect();
    assert_eq!(texts[..2], ["alice:1 by second", "alice:2 by third"], "{results:?}");
    assert!(results[2].2 && results[2].1.contains("too many"), "{results:?}");
    assert_eq!(team.member("alice")["usage"]["model_switches"], 2);
    for (file, models) in [("1", &["openai/second"][..]), ("2", &["openai/third"]), ("3", &[])] {
        assert_eq!(switches(&team, &format!("sub/alice-{file}")), models, "{file}");
    }
}

#[test]
fn a_list_that_cannot_be_used_is_an_error_or_told() {
    let (team, _first, _second) = two_models(|_| Reply::text("first"), |_| Reply::text("second"));
    let ran = lead(&team, "hi", &["--fallback-models", "openai/second,nonsense"]).expect(2);
    assert!(ran.err.contains("nonsense") && ran.err.contains("--fallback-models"), "{}", ran.err);
    let ran = lead(&team, "hi", &["--fallback-models", "gemini/g, openai/second"]).expect(0);
    assert!(ran.err.contains("gemini/g is left out"), "{}", ran.err);
    assert_eq!(ran.out, "first\n");
}

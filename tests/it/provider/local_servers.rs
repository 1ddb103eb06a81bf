//! Model servers on this machine: discovery, names, the question to the person, and requests without a key.

use crate::support::child_process::write;
use crate::support::fake::{Fake, LOCAL_MODELS, Reply, RequestView, Unopened};
use crate::support::fake_models::{KEY, agent_of, call, conversation, results};
use crate::support::harness::{SHORTEST_DEADLINE, Team};
use crate::support::terminal::Terminal;
use serde_json::json;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};

const LEAD: [&str; 7] = ["lead", "-p", "hi", "--mode", "bypass", "--timeout", "600"];

fn on_ports(team: &Team, ports: &[u16]) {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    team.variable("TEAM_LOCAL_PORTS", &ports.join(","));
}

/// A team beside a local server, with an unreachable proxy and secret keys in its environment.
fn beside(fake: &Fake) -> Team {
    let team = Team::new();
    on_ports(&team, &[fake.port()]);
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy"] {
        team.variable(name, "http://127.0.0.1:9");
    }
    team.variable("OPENAI_API_KEY", KEY);
    team
}

#[test]
fn the_first_chat_model_is_the_default() {
    let fake = Fake::local(|_| Reply::text("hello"));
    let team = beside(&fake);
    for (named, model) in [("local", "small:1b"), ("local/small:7b", "small:7b")] {
        let ran = team.team(&[&LEAD[..], &["--model", named]].concat()).expect(0);
        assert_eq!(ran.out, "hello\n");
        assert_eq!(fake.requests().pop().unwrap().model(), model);
        assert_eq!(team.roster()["lead"]["model"], format!("local/{model}"));
    }
    team.variable("TEAM_MODEL", "local");
    team.team(&LEAD).expect(0);
    let temperatures = |fake: &Fake| {
        fake.requests().iter().map(|view| view.body["temperature"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(temperatures(&fake), [0.2, 0.2, 0.2]);
    // A model that is to think samples as its server does.
    team.variable("TEAM_EFFORT", "low");
    team.team(&LEAD).expect(0);
    assert_eq!(temperatures(&fake)[3], json!(null));
}

#[test]
fn a_missing_server_is_reported_and_headless_runs_do_not_probe() {
    let fake = Fake::local(|_| Reply::text("hello"));
    let team = beside(&fake);
    let ran = team.team(&[&LEAD[..], &["--model", "local/large"]].concat()).expect(4);
    assert!(ran.err.contains("small:1b, small:7b"), "{}", ran.err);
    // A listener that accepts no connection occupies the port, so the probe ends by its time limit.
    let nobody = Unopened::new();
    let port = nobody.base_url().rsplit(':').next().unwrap().parse().unwrap();
    let team = Team::new();
    on_ports(&team, &[port]);
    let ran = team.team(&[&LEAD[..], &["--model", "local"]].concat()).expect(4);
    assert!(ran.err.contains(&port.to_string()) && ran.err.contains("300 ms"), "{}", ran.err);
    on_ports(&team, &[fake.port()]);
    let ran = team.team(&LEAD).expect(4);
    assert!(ran.err.contains("no model is configured"), "{}", ran.err);
    assert_eq!(fake.requests().len(), 0);
}

/// It answers nothing until its first client gives up, as while it reads a long prompt.
#[test]
fn a_server_that_is_busy_at_first_is_found() {
    let fake = Fake::local(|_| Reply::text("hello"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let team = beside(&fake);
    on_ports(&team, &[listener.local_addr().unwrap().port()]);
    let behind = fake.port();
    std::thread::spawn(move || {
        let mut clients = listener.incoming().map(Result::unwrap);
        let mut first = clients.next().unwrap();
        let _has_given_up = io::copy(&mut first, &mut io::sink());
        for client in clients {
            pass_on(client, behind);
        }
    });
    let ran = team.team(&[&LEAD[..], &["--model", "local"]].concat()).expect(0);
    assert_eq!(ran.out, "hello\n");
}

/// Passes a connection on to a port of this machine.
fn pass_on(client: TcpStream, port: u16) {
    let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let both = [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
    for (mut from, mut to) in both {
        std::thread::spawn(move || {
            let _is_over = io::copy(&mut from, &mut to);
            let _is_closed = to.shutdown(Shutdown::Write);
        });
    }
}

#[test]
fn a_person_is_asked_before_a_local_server_is_used() {
    let fake = Fake::local(|_| Reply::text("hello from small"));
    let team = Team::new();
    on_ports(&team, &[fake.port()]);
    for (answer, banner) in [("y", "local/small:1b"), ("n", "REHEARSAL"), ("", "REHEARSAL")] {
        let mut lead = Terminal::start(team.command("team", &["lead", "--mode", "bypass"]));
        lead.expect(&format!("http://127.0.0.1:{}", fake.port()));
        lead.expect("Use it in this run? [y/N]");
        lead.type_line(answer);
        lead.expect(banner);
        lead.expect("team>");
        lead.type_line("/quit");
        assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
        team.wait_no_process();
    }
    // If a model is named, the lead does not ask.
    let mut lead = Terminal::start(team.command("team", &["lead", "--model", "rehearsal"]));
    lead.expect("team>");
    assert!(!lead.screen().contains("local model server"), "{}", lead.screen());
    lead.type_line("/quit");
    lead.wait();
    team.wait_no_process();
    assert_eq!(fake.requests().len(), 0);
}

fn play(view: &RequestView) -> Reply {
    match (agent_of(view).as_str(), results(view)) {
        ("lead", said) if said.contains("Spawned") => Reply::text("I wait."),
        ("lead", _) if view.turn() == 0 => {
            let order = json!({"name": "alice", "role": "coder", "prompt": "Write a.txt."});
            call(view, "spawn_teammate", &order)
        }
        ("lead", _) => Reply::text("It is written."),
        (_, said) if said.is_empty() => {
            call(view, "write_file", &json!({"path": "a.txt", "content": "a\n"}))
        }
        _ => Reply::text("Done."),
    }
}

/// The names of the tools in a request, with a check of the compact prompt: it fits in 600 tokens (at four bytes
/// each), and every argument that it shows is required.
fn compact_tools(view: &RequestView) -> Vec<String> {
    let tools = view.body["tools"].as_array().unwrap();
    for schema in tools.iter().map(|tool| &tool["input_schema"]) {
        let offered = schema["properties"].as_object().unwrap();
        let needed = schema["required"].as_array().unwrap();
        assert!(needed.iter().all(|name| offered.contains_key(name.as_str().unwrap())), "{schema}");
        let why = "a small model fills in what it sees";
        assert_eq!(offered.len(), needed.len(), "{why}: {schema}");
    }
    let told = view.system().len() + view.body["tools"].to_string().len();
    assert!(told <= 4 * 600, "{} is told {told} bytes", agent_of(view));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// A small model has a small context, and a team can work with a compact prompt.
#[test]
fn a_local_team_works_with_a_compact_prompt() {
    let fake = Fake::local(play);
    let team = beside(&fake);
    let ran = team.team(&[&LEAD[..], &["--model", "local"]].concat()).expect(0);
    assert_eq!(ran.out.trim(), "It is written.", "{}", team.describe());
    assert_eq!(std::fs::read_to_string(team.workspace().join("a.txt")).unwrap(), "a\n");
    assert_eq!(team.member("alice")["model"], format!("local/{}", LOCAL_MODELS[1]));
    // Otherwise a small model writes the file again; the result of the lead's call has no such line.
    let next_step = "Now do the next step";
    let told = |agent| {
        let views = fake.requests();
        let last = views.iter().rfind(|view| agent_of(view) == agent).unwrap();
        results(last).contains(next_step)
    };
    assert_eq!((told("alice"), told("lead")), (true, false));
    let (mut of_lead, mut of_alice) = (Vec::new(), Vec::new());
    for view in fake.requests() {
        let list = if agent_of(&view) == "lead" { &mut of_lead } else { &mut of_alice };
        list.push(compact_tools(&view).join(" "));
    }
    of_lead.dedup();
    of_alice.dedup();
    let alone = "bash list_teammates read_inbox send_message spawn_teammate";
    let with_team =
        "bash broadcast list_teammates read_inbox send_message shutdown_teammate spawn_teammate";
    assert_eq!(of_lead, [alone, with_team]);
    assert_eq!(of_alice, ["bash idle read_file send_message write_file"]);
    // A replay has no small model, which is no difference.
    team.variable(SHORTEST_DEADLINE, "30000");
    team.team(&["replay", ".", "--into", "again"]).expect(0);
    let again = std::fs::read_to_string(team.workspace().join("again/a.txt"));
    assert_eq!(again.unwrap(), "a\n");
    team.variable("TEAM_PROMPT_PROFILE", "full");
    team.team(&[&LEAD[..], &["--model", "local"]].concat()).expect(0);
    assert!(!told("alice"), "a full prompt needs no such line");
    let last = fake.requests().pop().unwrap();
    assert!(last.body["tools"].as_array().unwrap().len() > 5);
}

/// The lead of [`a_compact_prompt_offers_the_tools_that_the_state_needs`]: it calls only what it is offered.
fn lead_of_planner(view: &RequestView, tools: &[String]) -> Reply {
    let past = conversation(view);
    let may = |tool: &str| tools.iter().any(|name| name == tool);
    let has_called = |tool: &str| past.contains(&format!("\"name\":\"{tool}\""));
    // Quotes are escaped within the text of a message.
    let before_id = "request_id\\\":\\\"";
    let id_at = |at: usize| past[at..].split(['\\', '"']).next().unwrap_or_default().to_owned();
    let plan = past.find(before_id).map(|at| id_at(at + before_id.len()));
    let plan = plan.filter(|_| may("review_plan"));
    match plan {
        Some(id) => {
            let answer = json!({"request_id": id, "approve": true, "feedback": "go"});
            call(view, "review_plan", &answer)
        }
        None if !has_called("spawn_teammate") => {
            let order = json!({"name": "alice", "role": "planner", "prompt": "Write a.txt."});
            call(view, "spawn_teammate", &order)
        }
        None if past.contains("a.txt is there") && !has_called("create_task") => {
            assert!(may("create_task"), "{tools:?}");
            call(view, "create_task", &json!({"subject": "write b.txt", "description": ""}))
        }
        None if past.contains("say hello to all") && !has_called("broadcast") => {
            call(view, "broadcast", &json!({"content": "hello"}))
        }
        None => Reply::text("Fine."),
    }
}

/// Alice of [`a_compact_prompt_offers_the_tools_that_the_state_needs`]: the tools that she is offered tell her what to
/// do next.
fn planner(view: &RequestView, tools: &[String]) -> Reply {
    let may = |tool: &str| tools.iter().any(|name| name == tool);
    let said = results(view);
    let write = |path: &str| call(view, "write_file", &json!({"path": path, "content": "x\n"}));
    match (may("submit_plan"), may("complete_task")) {
        (true, _) => call(view, "submit_plan", &json!({"plan": "1. write a.txt"})),
        (_, true) if said.contains("wrote") => {
            call(view, "complete_task", &json!({"task_id": "1"}))
        }
        (_, true) => write("b.txt"),
        (_, false) if said.contains("Approved") => write("a.txt"),
        (_, false) if said.contains("wrote") => Reply::text("a.txt is there"),
        (_, false) if said.contains("completed") => Reply::text("b.txt is there"),
        (_, false) => Reply::text("Hello."),
    }
}

/// In the compact profile the tools are a function of the state: mode plan, a plan to review, a task in hand, tasks
/// to claim. They change only with the state, and a resumed team gets the same ones.
#[test]
fn a_compact_prompt_offers_the_tools_that_the_state_needs() {
    let fake = Fake::local(|view| {
        let tools = compact_tools(view);
        match agent_of(view).as_str() {
            "lead" => lead_of_planner(view, &tools),
            _ => planner(view, &tools),
        }
    });
    let team = beside(&fake);
    team.variable("TEAM_AUTO_CLAIM", "true");
    std::fs::create_dir_all(team.path("roles")).unwrap();
    write(&team.path("roles/planner.md"), "---\npermissionMode: plan\n---\n");
    team.team(&[&LEAD[..], &["--model", "local"]].concat()).expect(0);
    for file in ["a.txt", "b.txt"] {
        assert!(team.workspace().join(file).exists(), "{file}: {}", team.describe());
    }
    let board = team.team(&["task", "ls", "--json"]).expect(0).json();
    assert_eq!(board["tasks"][0]["status"], "completed", "{board}");
    let tools_of = |name: &str, from: usize| {
        let asked = fake.requests().split_off(from);
        let own = asked.iter().filter(|view| agent_of(view) == name);
        let mut tools: Vec<String> = own.map(|view| compact_tools(view).join(" ")).collect();
        tools.dedup();
        tools
    };
    let list = "claim_task idle list_tasks read_file send_message";
    let free = format!("bash {list} write_file");
    let states = [
        format!("{list} submit_plan"),
        free.clone(),
        "bash complete_task idle read_file send_message update_task write_file".into(),
        free.clone(),
    ];
    assert_eq!(tools_of("alice", 0), states, "{}", team.describe());
    let of_lead = tools_of("lead", 0);
    let has_review = |tools: &&String| tools.contains("review_plan");
    assert_eq!(of_lead.iter().filter(has_review).count(), 1, "{of_lead:#?}");
    let before = fake.requests().len();
    let resume =
        ["lead", "--resume", "-p", "say hello to all", "--model", "local", "--mode", "bypass"];
    team.team(&resume).expect(0);
    assert!(team.has_mail("alice", "lead", "hello"), "{}", team.describe());
    assert_eq!(tools_of("alice", before), [free], "{}", team.describe());
}

/// A small model writes its calls as text, and quotes one in its last answer.
#[test]
fn a_call_that_a_small_model_writes_as_text_is_carried_out() {
    let written = "I write it.\n```json\n{\"name\": \"bash\", \"arguments\": {\"command\": \"echo a >> a.txt\"}}\n```";
    let quoted = format!("{written}\nThat was my call.");
    let last = quoted.clone();
    let fake =
        Fake::local(
            move |view| {
                if view.turn() == 0 { Reply::text(written) } else { Reply::text(&quoted) }
            },
        );
    let team = beside(&fake);
    let ran = team.team(&[&LEAD[..], &["--model", "local"]].concat()).expect(0);
    assert_eq!(ran.out.trim(), last, "{}", team.describe());
    assert_eq!(std::fs::read_to_string(team.workspace().join("a.txt")).unwrap(), "a\n");
    let [_, second] = fake.requests().try_into().unwrap();
    let said = &second.conversation()[1]["content"];
    assert_eq!((&said[0]["text"], &said[1]["name"]), (&json!("I write it."), &json!("bash")));
}

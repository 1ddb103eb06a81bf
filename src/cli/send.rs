//! `team send`.

use super::args::Json;
use crate::app::context::Context;
use crate::app::names::mailbox_name;
use crate::app::output::{print, print_result};
use crate::app::send::send_failure;
use crate::bus::{Bus, Outgoing};
use crate::error::{Exit, Failure, OrFail};
use crate::store::TeamDir;
use crate::wire::AgentName;
use crate::wire::message::{Body, Message, Outcome};
use serde_json::{Map, Value, json};
use std::io::{BufRead, Read};

/// Types that are data; control messages have commands of their own.
const DATA_TYPES: &str = "message, broadcast, result, task_assignment, or a type of your own";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Who gets it: a member, lead or user (not with --jsonl when each line has its own `to`)
    #[arg(value_name = "TO", allow_hyphen_values = true)]
    to: Option<String>,
    /// The text; `-` reads it from standard input
    #[arg(value_name = "TEXT", conflicts_with = "jsonl", allow_hyphen_values = true)]
    text: Option<String>,
    /// Who sends it
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// The type: `message`, `broadcast`, `result`, `task_assignment` or one of your own
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// A further field
    #[arg(long = "field", value_name = "KEY=VALUE")]
    fields: Vec<String>,
    /// One JSON object per line of standard input, one id printed per line
    #[arg(long)]
    jsonl: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let bus = context.team_bus()?;
    let from = sender(context, bus.dir(), args.from.as_deref())?;
    let fields = parse_fields(&args.fields)?;
    let kind = args.kind.as_deref();
    if args.jsonl {
        return send_lines(&bus, &from, args.to.as_deref(), kind, &fields);
    }
    let (Some(to), Some(text)) = (args.to, args.text) else {
        let hint = "team send alice \"start with the schema\", or - to read the text from stdin";
        return Err(Failure::new(Exit::Usage, "send needs TO and TEXT", "one is missing", hint));
    };
    let content = if text == "-" { read_stdin()? } else { text };
    let body = body(kind, &fields)?;
    let outgoing = Outgoing { extra: fields, ..Outgoing::of(body, content) };
    let id = bus.send(&from, &to, outgoing).map_err(|why| send_failure(&to, &why))?;
    let as_json = || json!({ "schema": 1, "id": id, "to": to, "from": from.as_str() });
    Ok(print_result(args.json.json, as_json, || id.clone()))
}

/// The sender of a message. Inside an agent's command it is that agent, whatever `--from` says.
pub(super) fn sender(
    context: &Context,
    team: &TeamDir,
    from: Option<&str>,
) -> Result<AgentName, Failure> {
    if let Some(agent) = context.calling_agent(team) {
        return Ok(agent);
    }
    from.map_or_else(|| Ok(AgentName::user()), mailbox_name)
}

/// Reads the text of a message.
pub(super) fn read_stdin() -> Result<String, Failure> {
    let hint = "pipe UTF-8 text into the command";
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).or_exit(
        Exit::Usage,
        "the text cannot be read",
        hint,
    )?;
    Ok(text)
}

fn parse_fields(fields: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut parsed = Map::new();
    for field in fields {
        let Some((key, value)) = field.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            let hint = "write --field task_id=7";
            let what = format!("--field {field:?} is not usable");
            return Err(Failure::new(Exit::Usage, what, "it is not KEY=VALUE", hint));
        };
        parsed.insert(key.into(), value.into());
    }
    Ok(parsed)
}

/// The body of a data type; control types are refused.
fn body(kind: Option<&str>, fields: &Map<String, Value>) -> Result<Body, Failure> {
    let kind = kind.unwrap_or("message");
    let mut object = fields.clone();
    object.insert("type".into(), kind.into());
    object.entry("content").or_insert_with(|| "".into());
    if kind == "result" {
        object.entry("outcome").or_insert_with(|| json!(Outcome::Done));
    }
    let refuse = |why: String, hint: &str| {
        Err(Failure::new(Exit::Usage, format!("--type {kind:?} cannot be sent"), why, hint))
    };
    match Message::read(&object).map(|message| message.body) {
        Ok(Body::Unknown { .. }) if Body::is_known_kind(kind) => {
            let hint = "give the fields of that type with --field KEY=VALUE";
            refuse("a field of that type is missing or has the wrong form".into(), hint)
        }
        Ok(body) if body.is_control() => {
            let hint = "end a member with `team stop NAME`; other control messages are the \
                        program's own";
            refuse(format!("it is a control message; data types are {DATA_TYPES}"), hint)
        }
        Ok(body) => Ok(body),
        Err(why) => refuse(why.to_string(), "leave --type out for a plain message"),
    }
}

/// `--jsonl`: one object per line, one id printed per line, in order; stops at the first bad one.
fn send_lines(
    bus: &Bus,
    from: &AgentName,
    to: Option<&str>,
    kind: Option<&str>,
    fields: &Map<String, Value>,
) -> Result<Exit, Failure> {
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read =
            input.read_until(b'\n', &mut line).or_fail("stdin cannot be read", "check the pipe")?;
        if read == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let id = send_line(bus, from, to, kind, fields, &line).map_err(|failure| {
            let what = format!("line {number} was not sent: {}", failure.what);
            let hint = format!("{}; the lines before it were sent", failure.hint);
            Failure::new(Exit::Failure, what, failure.why, hint)
        })?;
        if !print(&id) {
            return Ok(Exit::Failure);
        }
    }
    Ok(Exit::Ok)
}

fn send_line(
    bus: &Bus,
    from: &AgentName,
    to: Option<&str>,
    kind: Option<&str>,
    fields: &Map<String, Value>,
    line: &[u8],
) -> Result<String, Failure> {
    let bad = |why: String| {
        let hint = "each line is an object such as {\"to\":\"alice\",\"content\":\"hi\"}";
        Failure::new(Exit::Failure, "it is no message", why, hint)
    };
    let mut object: Map<String, Value> =
        serde_json::from_slice(line).map_err(|why| bad(why.to_string()))?;
    let mut take = |key: &str| match object.shift_remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(bad(format!("{key:?} is not a string"))),
    };
    let content = take("content")?.ok_or_else(|| bad("\"content\" is missing".into()))?;
    let line_to = take("to")?;
    let line_kind = take("type")?;
    let to = to.map(ToOwned::to_owned).or(line_to);
    let to = to.ok_or_else(|| bad("there is no \"to\", and TO was not given".into()))?;
    for (key, value) in fields {
        object.entry(key.clone()).or_insert_with(|| value.clone());
    }
    let body = body(line_kind.as_deref().or(kind), &object)?;
    let outgoing = Outgoing { extra: object, ..Outgoing::of(body, content) };
    bus.send(from, &to, outgoing).map_err(|why| send_failure(&to, &why))
}

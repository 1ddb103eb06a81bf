//! `team send` and `team broadcast`.

use super::args::{BroadcastArgs, SendArgs};
use super::context::{Context, mailbox_name};
use super::out;
use crate::bus::{Bus, BusError, Outgoing, Sent};
use crate::error::{Exit, Failure};
use crate::store::TeamDir;
use crate::wire::AgentName;
use crate::wire::message::{Body, Message, Outcome};
use serde_json::{Map, Value, json};
use std::io::{BufRead, Read};

/// Types that are data; control messages have commands of their own.
const DATA_TYPES: &str = "message, broadcast, result, task_assignment, or a type of your own";

pub(super) fn run(context: &Context, args: SendArgs) -> Result<Exit, Failure> {
    let team = context.team()?;
    let from = sender(context, &team, args.from.as_deref())?;
    let bus = context.bus(team)?;
    let fields = parse_fields(&args.fields)?;
    let kind = args.kind.as_deref();
    if args.jsonl {
        return send_lines(&bus, &from, args.to.as_deref(), kind, &fields);
    }
    let (Some(to), Some(text)) = (args.to, args.text) else {
        let hint = "team send alice \"start with the schema\", or - to read the text from stdin";
        return Err(Failure::new(Exit::Usage, "send needs TO and TEXT", "one is missing", hint));
    };
    let content = if text == "-" { read_all_stdin()? } else { text };
    let body = body(kind, &fields)?;
    let outgoing = Outgoing { extra: fields, ..Outgoing::of(body, content) };
    let id = bus.send(&from, &to, outgoing).map_err(|why| send_failure(&to, &why))?.0;
    let printed = if args.show.json {
        out::say_json(&json!({ "schema": 1, "id": id, "to": to, "from": from.as_str() }))
    } else {
        out::say(&id)
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

pub(super) fn broadcast(context: &Context, args: BroadcastArgs) -> Result<Exit, Failure> {
    context.refuse_inside("broadcast")?;
    let team = context.team()?;
    let from = sender(context, &team, args.from.as_deref())?;
    let bus = context.bus(team)?;
    let content = if args.text == "-" { read_all_stdin()? } else { args.text };
    let sent = to_everybody(&bus, &from, &content)?;
    let failed = not_reached(&sent);
    let ids = sent.iter().filter_map(|(name, outcome)| Some((name, outcome.as_ref().ok()?)));
    let printed = if args.show.json {
        let sent: Vec<Value> =
            ids.map(|(name, id)| json!({ "to": name.as_str(), "id": id.0 })).collect();
        out::say_json(&json!({ "schema": 1, "sent": sent, "failed": failed }))
    } else {
        let lines: Vec<String> = ids.map(|(name, id)| format!("{name} {id}")).collect();
        out::say(&lines.join("\n"))
    };
    all_reached(&failed)?;
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

/// A message of the person to one receiver; gives its id.
pub(super) fn to_one(bus: &Bus, to: &str, text: String) -> Result<String, Failure> {
    let sent = bus.send(&AgentName::user(), to, Outgoing::text(text));
    sent.map(|id| id.0).map_err(|why| send_failure(to, &why))
}

/// A message of the person to everybody; gives the ids.
pub(super) fn to_all(bus: &Bus, text: &str) -> Result<String, Failure> {
    let sent = to_everybody(bus, &AgentName::user(), text)?;
    all_reached(&not_reached(&sent))?;
    let ids = sent.into_iter().filter_map(|(_, outcome)| outcome.ok().map(|id| id.0));
    Ok(ids.collect::<Vec<_>>().join("\n"))
}

fn to_everybody(bus: &Bus, from: &AgentName, text: &str) -> Result<Vec<Sent>, Failure> {
    let sent = bus.broadcast(from, text, None).map_err(|why| send_failure("all", &why))?;
    if sent.is_empty() {
        let hint = "start a team with `team lead` first";
        return Err(Failure::new(Exit::Failure, "nothing was sent", "nobody can be reached", hint));
    }
    Ok(sent)
}

fn not_reached(sent: &[Sent]) -> Vec<String> {
    sent.iter()
        .filter_map(|(name, outcome)| outcome.as_ref().err().map(|why| format!("{name}: {why}")))
        .collect()
}

fn all_reached(failed: &[String]) -> Result<(), Failure> {
    if failed.is_empty() {
        return Ok(());
    }
    let hint = "send to those one by one once the cause is gone";
    let what = "not everybody got the message";
    Err(Failure::new(Exit::Failure, what, failed.join("; "), hint))
}

/// Inside an agent's command, messages are that agent's, whatever `--from` says.
fn sender(context: &Context, team: &TeamDir, from: Option<&str>) -> Result<AgentName, Failure> {
    if let Some(agent) = context.inside(team) {
        return Ok(agent);
    }
    from.map_or_else(|| Ok(AgentName::user()), mailbox_name)
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

fn read_all_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|why| {
        let hint = "pipe UTF-8 text into the command";
        Failure::new(Exit::Usage, "the text cannot be read", why.to_string(), hint)
    })?;
    Ok(text)
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
        let read = input.read_until(b'\n', &mut line).map_err(|why| {
            let hint = "check the pipe";
            Failure::new(Exit::Failure, "stdin cannot be read", why.to_string(), hint)
        })?;
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
        if !out::say(&id) {
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
    let sent = bus.send(from, &to, outgoing).map_err(|why| send_failure(&to, &why))?;
    Ok(sent.0)
}

fn send_failure(to: &str, why: &BusError) -> Failure {
    let to: String = to.chars().take(64).collect();
    let exit = if why.is_lock_timeout() { Exit::InUse } else { Exit::Failure };
    Failure::new(exit, format!("nothing was sent to {to:?}"), why.to_string(), why.hint())
}

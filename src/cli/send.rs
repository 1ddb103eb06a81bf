//! `team send`.

use super::args::{Json, read_stdin};
use crate::app::calling_agent::CallingAgent;
use crate::app::output::{print, print_result, warn};
use crate::app::send::{attached, put_into_outbox, send_failure};
use crate::app::{context::Context, names::mailbox_name};
use crate::bus::Outgoing;
use crate::error::{Exit, Failure, OrFail};
use crate::store::TeamDir;
use crate::wire::AgentName;
use crate::wire::message::{Body, KINDS, Message, Outcome};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// Types that are data; control messages have commands of their own.
const DATA_TYPES: &str = "message, broadcast, result, task_assignment, or a type of your own";

/// The fields that the program writes into every message, each with the way to set it.
const OWN_FIELDS: [(&str, &str); 8] = [
    ("type", "give the type with --type"),
    ("from", "give the sender with --from"),
    ("to", "give the recipient as TO"),
    ("content", "give the text as TEXT"),
    ("attachments", "attach files with --attach"),
    ("id", "leave it out: every message gets an id of its own"),
    ("timestamp", "leave it out: the time of the send is written"),
    ("ts", "leave it out: the time of the send is written"),
];

/// The fields of [`OWN_FIELDS`] that a line of `--jsonl` may have.
const LINE_FIELDS: [&str; 3] = ["type", "to", "content"];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The recipient: a member, lead or user (not with --jsonl when each line has its own `to`)
    #[arg(value_name = "TO", allow_hyphen_values = true)]
    to: Option<String>,
    /// The text; `-` reads it from standard input. With --attach it may be left out
    #[arg(value_name = "TEXT", conflicts_with = "jsonl", allow_hyphen_values = true)]
    text: Option<String>,
    /// The sender
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// The type: `message`, `broadcast`, `result`, `task_assignment` or a type of your own
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// An additional field
    #[arg(long = "field", value_name = "KEY=VALUE")]
    fields: Vec<String>,
    /// A file to send with the text; repeatable. The recipient gets a copy, on its own host
    #[arg(long = "attach", value_name = "PATH", conflicts_with = "jsonl")]
    attach: Vec<PathBuf>,
    /// Send one message per line of standard input, a JSON object each; print an id per line
    #[arg(long)]
    jsonl: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    if let Some(outbox) = context.outbox() {
        return run_behind_walls(outbox, args);
    }
    let bus = context.team_bus()?;
    let from = sender(context, bus.dir(), args.from.as_deref())?;
    let (kind, attach) = (args.kind.clone(), args.attach.clone());
    let send = |to: &str, own: Option<&str>, fields: Map<String, Value>, content: String| {
        let body = body(own.or(kind.as_deref()), &fields)?;
        let outgoing = Outgoing { extra: fields, ..Outgoing::of(body, content) };
        let outgoing = outgoing.with_attachments(&attached(&bus, &from, to, &attach)?);
        let id = bus.send(&from, to, outgoing).map_err(|why| send_failure(to, &why))?;
        if let Some(why) = bus.delay_of(to) {
            warn(&format!("sent; {why}"));
        }
        Ok(id)
    };
    let as_json =
        |id: &str, to: &str| json!({ "schema": 1, "id": id, "to": to, "from": from.as_str() });
    send_given(args, send, as_json)
}

/// Puts the messages into the outbox of the command that runs this. Its agent sends plain messages only, as itself.
fn run_behind_walls(outbox: &Path, args: Args) -> Result<Exit, Failure> {
    let refusal = |what: &str, hint: &str| {
        let why =
            "this command runs behind walls: its agent sends plain messages for it, as itself";
        Failure::new(Exit::Failure, format!("nothing was sent: {what}"), why, hint)
    };
    if args.from.is_some() {
        return Err(refusal("--from does not work here", "leave --from out"));
    }
    if !args.attach.is_empty() {
        let hint = "the agent attaches files with its tool send_message";
        return Err(refusal("--attach does not work here", hint));
    }
    let own = args.kind.clone();
    let send = |to: &str, kind: Option<&str>, fields: Map<String, Value>, content: String| {
        if let Some(kind) = kind.or(own.as_deref()).filter(|kind| *kind != "message") {
            let what = format!("a message of type {kind:?} does not work here");
            return Err(refusal(&what, "leave the type out"));
        }
        if let Some((name, _)) = fields.iter().next() {
            return Err(refusal(&format!("the field {name:?} does not work here"), "leave it out"));
        }
        put_into_outbox(outbox, to, &content)?;
        Ok(format!("in the outbox; sent to {to} after this command, unless it is interrupted"))
    };
    let as_json = |_: &str, to: &str| json!({ "schema": 1, "outbox": true, "to": to });
    send_given(args, send, as_json)
}

/// Sends the messages of the arguments or of stdin, and prints what `send` returns for each.
fn send_given(
    args: Args,
    send: impl Fn(&str, Option<&str>, Map<String, Value>, String) -> Result<String, Failure>,
    as_json: impl Fn(&str, &str) -> Value,
) -> Result<Exit, Failure> {
    let given = parse_fields(&args.fields)?;
    if args.jsonl {
        return each_line(|line| {
            let Line { to, kind, content, mut fields } = Line::parse(line)?;
            let to = match (&args.to, to) {
                (Some(given), Some(to)) if *given != to => {
                    return Err(bad_line(format!("its \"to\" is {to:?}, and TO is {given:?}")));
                }
                (given, to) => to.or_else(|| given.clone()),
            };
            let to = to.ok_or_else(|| bad_line("there is no \"to\", and TO was not given"))?;
            for (key, value) in &given {
                fields.entry(key.clone()).or_insert_with(|| value.clone());
            }
            send(&to, kind.as_deref(), fields, content)
        });
    }
    let (Some(to), Some(text)) = (&args.to, text_or_names(args.text, &args.attach)) else {
        let hint = "team send alice \"start with the schema\", or - to read the text from stdin";
        return Err(Failure::new(Exit::Usage, "send needs TO and TEXT", "one is missing", hint));
    };
    let content = if text == "-" { read_stdin("the text")? } else { text };
    let id = send(to, None, given, content)?;
    Ok(print_result(args.json.json, || as_json(&id, to), || id.clone()))
}

/// Returns the text of a message; without one, the names of its files.
pub(super) fn text_or_names(text: Option<String>, attach: &[PathBuf]) -> Option<String> {
    let names = || attach.iter().filter_map(|path| path.file_name()).map(OsStr::to_string_lossy);
    let text = text.filter(|text| !text.is_empty() || attach.is_empty());
    text.or_else(|| (!attach.is_empty()).then(|| names().collect::<Vec<_>>().join(", ")))
}

/// The sender of a message. Inside an agent's command it is that agent; another one in `--from` is refused.
pub(super) fn sender(
    context: &Context,
    team: &TeamDir,
    from: Option<&str>,
) -> Result<AgentName, Failure> {
    let from = from.map(mailbox_name).transpose()?;
    let Some(caller) = CallingAgent::find(&context.environment) else {
        return Ok(from.unwrap_or_else(AgentName::user));
    };
    let refuse = |what: &str, why: String, hint: &str| {
        Err(Failure::new(Exit::Failure, format!("nothing was sent: {what}"), why, hint))
    };
    let Some(agent) = caller.name(team) else {
        let why = format!("{caller}, and this is not the team of that agent");
        return refuse(
            "an agent's command cannot write to this team",
            why,
            "write to its own team",
        );
    };
    match from {
        Some(from) if from != agent => {
            let what = format!("an agent's command cannot write as {from}");
            let why = format!("{caller}: the agent is {agent}");
            refuse(&what, why, "leave --from out")
        }
        _ => Ok(agent),
    }
}

fn parse_fields(fields: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut parsed = Map::new();
    for field in fields {
        let Some((key, value)) = field.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            let hint = "write --field task_id=7";
            let what = format!("--field {field:?} is invalid");
            return Err(Failure::new(Exit::Usage, what, "it is not KEY=VALUE", hint));
        };
        if let Some((_, instead)) = OWN_FIELDS.iter().find(|(own, _)| *own == key) {
            let what = format!("--field {key}= is not allowed");
            return Err(Failure::new(Exit::Usage, what, "the program writes this field", *instead));
        }
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
        Ok(Body::Unknown { .. }) if KINDS.contains(&kind) => {
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

/// Sends one object per line and prints one id per line, in order; stops at the first bad one.
fn each_line(send: impl Fn(&[u8]) -> Result<String, Failure>) -> Result<Exit, Failure> {
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.or_fail("stdin cannot be read", "check the pipe")? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let id = send(&line).map_err(|failure| {
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

/// A line of `--jsonl`.
struct Line {
    to: Option<String>,
    kind: Option<String>,
    content: String,
    fields: Map<String, Value>,
}

impl Line {
    fn parse(line: &[u8]) -> Result<Self, Failure> {
        let mut fields: Map<String, Value> =
            serde_json::from_slice(line).map_err(|why| bad_line(why.to_string()))?;
        let mut take = |key: &str| match fields.shift_remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(bad_line(format!("{key:?} is not a string"))),
        };
        let content = take("content")?.ok_or_else(|| bad_line("\"content\" is missing"))?;
        let (to, kind) = (take("to")?, take("type")?);
        for (own, instead) in OWN_FIELDS.iter().filter(|(own, _)| !LINE_FIELDS.contains(own)) {
            if fields.shift_remove(*own).is_some() {
                warn(&format!("warning: {own:?} of a line was left out; {instead}"));
            }
        }
        Ok(Self { to, kind, content, fields })
    }
}

fn bad_line(why: impl Into<String>) -> Failure {
    let hint = "each line is an object such as {\"to\":\"alice\",\"content\":\"hi\"}";
    Failure::new(Exit::Failure, "it is not a message", why, hint)
}

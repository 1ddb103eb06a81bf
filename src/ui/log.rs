//! One line of a structured log for people: time, level, agent, message, details.
//!
//! Reads the JSON of `tracing-subscriber`, with the event's fields beside the common ones or under `fields`.

use super::messages::NAME_WIDTH;
use super::sanitize::one_line;
use super::text_width::pad;
use super::view::View;
use serde_json::{Map, Value};

/// The fields that are not listed among the details.
const PLACED: [&str; 7] = ["timestamp", "level", "message", "target", "fields", "span", "spans"];

/// The line of a log object of the agent `name`.
pub(crate) fn line(name: &str, object: &Map<String, Value>, view: &View) -> String {
    let palette = view.palette;
    let inner = object.get("fields").and_then(Value::as_object);
    let message = inner.and_then(|fields| fields.get("message")).or_else(|| object.get("message"));
    let level = object.get("level").map_or_else(String::new, plain);
    let head = pad(&one_line(&level, 5), 5);
    let head = match level.as_str() {
        "ERROR" => palette.bad(&head),
        "WARN" => palette.warn(&head),
        _ => palette.dim(&head),
    };
    let mut words = vec![message.map_or_else(String::new, plain)];
    let details = object.iter().chain(inner.into_iter().flatten());
    let details = details.filter(|(key, _)| !PLACED.contains(&key.as_str()));
    words.extend(details.map(|(key, value)| format!("{key}={}", plain(value))));
    let name = one_line(name, NAME_WIDTH);
    let used = "00:00:00 LEVEL ".len() + name.len() + 1;
    let room = view.width.map_or(2000, |width| width.saturating_sub(used).max(20));
    let time = palette.dim(&time(object, view));
    format!("{time} {head} {} {}\n", palette.bold(&name), one_line(&words.join(" "), room))
}

fn time(object: &Map<String, Value>, view: &View) -> String {
    let seconds =
        |text: &str| Some(text.parse::<jiff::Timestamp>().ok()?.as_duration().as_secs_f64());
    let at = object.get("timestamp").and_then(|at| at.as_f64().or_else(|| seconds(at.as_str()?)));
    view.clock(at.unwrap_or(f64::NAN).into())
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(value: &Value) -> String {
        line("alice", value.as_object().unwrap(), &View::fixed(Some(80)))
    }

    #[test]
    fn both_layouts_of_tracing_are_read() {
        let nested = json!({"timestamp":"2025-11-21T01:53:20.125Z","level":"WARN",
            "fields":{"message":"retrying","wait":2},"target":"agent_team::llm"});
        let flat = json!({"timestamp":1_763_690_000.1,"level":"INFO","message":"started","pid":7});
        assert_eq!(shown(&nested), "01:53:20 WARN  alice retrying wait=2\n");
        assert_eq!(shown(&flat), "01:53:20 INFO  alice started pid=7\n");
    }

    #[test]
    fn lines_with_unknown_fields_are_shown() {
        assert_eq!(shown(&json!({"a":"\u{1b}[2Jb\n"})), "--:--:--       alice a=b\n");
    }
}

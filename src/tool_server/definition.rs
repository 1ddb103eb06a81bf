//! The tools as they are announced to a client, and the ids of its calls.

use crate::wire::tool::{AfterCrash, Effect, Served, ToolSpec};
use serde_json::{Map, Value, json};

/// The longest id of a call that becomes part of the ids of its messages, in bytes.
const MAX_CALL_ID: usize = 128;

/// The fields of a request's metadata by which clients name the call of their model: Claude Code, then Codex.
const CALL_IDS: [&str; 2] = ["claudecode/toolUseId", "callId"];

/// The mark of a tool whose definition Claude Code shows its model at once.
const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

/// Returns a tool as it is announced to a client.
pub(super) fn definition(spec: &'static ToolSpec) -> Value {
    let definition = spec.definition();
    let is_read = spec.effect == Effect::Reads;
    let mut hints = Map::new();
    let mut hint = |name: &str, value: bool| drop(hints.insert(name.to_owned(), value.into()));
    hint("readOnlyHint", is_read);
    if !is_read {
        hint("destructiveHint", spec.effect == Effect::Changes);
        // A repeated call with the same id sends nothing again.
        if spec.after_crash == AfterCrash::Repeat {
            hint("idempotentHint", true);
        }
    }
    hint("openWorldHint", false);
    let mut tool = json!({
        "name": definition.name,
        "description": definition.description,
        "inputSchema": definition.input_schema,
        "annotations": hints,
    });
    if spec.served == Served::Loaded {
        add(&mut tool, json!({ "_meta": { ALWAYS_LOAD: true } }));
    }
    tool
}

/// Adds the fields of an object to another one.
pub(super) fn add(object: &mut Value, fields: Value) {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
}

/// Returns the id of a call. The id of the client's model is part of it, so that a repeated call has the same one. The
/// arguments are part of it, too: some clients use the same ids in each session.
pub(super) fn call_id(meta: &Value, name: &str, input: &Value) -> String {
    let is_id = |id: &&str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        !id.is_empty() && id.len() <= MAX_CALL_ID && id.chars().all(is_plain)
    };
    let given = CALL_IDS.iter().find_map(|field| meta.get(*field)?.as_str().filter(is_id));
    let Some(given) = given else { return uuid::Uuid::now_v7().simple().to_string() };
    let words = format!("{name} {input}");
    let digest = ring::digest::digest(&ring::digest::SHA256, words.as_bytes());
    let short = digest.as_ref().iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
    format!("{given}.{short:08x}")
}

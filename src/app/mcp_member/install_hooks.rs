//! The hooks by which Claude Code gets mail, in its settings.

use serde_json::{Map, Value, json};

/// The end of a hook's command, by which it is known again.
const VERB: &str = " mcp mail-hook";

/// The time after which Claude Code ends a hook, in seconds: one that gives mail to a tool's result, and one that waits.
const TOOL_SECONDS: u32 = 5;
const WAIT_SECONDS: u32 = 24 * 60 * 60;

/// Returns the settings of Claude Code with nothing but the hooks.
pub(super) fn hooks(command: &str) -> Value {
    let tool = json!({ "type": "command", "command": command, "timeout": TOOL_SECONDS });
    // It runs in the background, and wakes the model if it ends with mail.
    let stop = json!({ "type": "command", "command": command, "timeout": WAIT_SECONDS, "asyncRewake": true });
    json!({ "hooks": { "PostToolUse": [{ "hooks": [tool] }], "Stop": [{ "hooks": [stop] }] } })
}

/// Returns the settings of Claude Code with the hooks; `None` if they are there. Fails if the settings are not understood,
/// or have other hooks with this command.
pub(super) fn with_hooks(
    mut whole: Map<String, Value>,
    command: &str,
) -> Result<Option<Value>, String> {
    let there = whole.entry("hooks").or_insert_with(|| json!({}));
    let there = there.as_object_mut().ok_or("hooks is not an object")?;
    let mut is_changed = false;
    let wanted = hooks(command);
    for (event, groups) in wanted.get("hooks").and_then(Value::as_object).into_iter().flatten() {
        let list = there.entry(event).or_insert_with(|| json!([]));
        let list = list.as_array_mut().ok_or_else(|| format!("hooks.{event} is not a list"))?;
        for group in groups.as_array().into_iter().flatten() {
            if list.contains(group) {
                continue;
            }
            if list.iter().any(has_verb) {
                return Err(format!("it has another hook with{VERB} in {event}"));
            }
            list.push(group.clone());
            is_changed = true;
        }
    }
    Ok(is_changed.then_some(Value::Object(whole)))
}

/// Whether a hook of a group hands out mail of a team.
fn has_verb(group: &Value) -> bool {
    let hooks = group.get("hooks").and_then(Value::as_array);
    let command = |hook: &Value| Some(hook.get("command")?.as_str()?.ends_with(VERB));
    hooks.into_iter().flatten().any(|hook| command(hook) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn hooks_are_added_once_and_what_is_there_stays() {
        let command = "exec team mcp mail-hook";
        let wanted = hooks(command);
        assert_eq!(with_hooks(Map::new(), command), Ok(Some(wanted.clone())));
        assert_eq!(with_hooks(object(&wanted), command), Ok(None));
        let mine = json!({ "matcher": "Bash", "hooks": [{ "type": "command", "command": "x" }] });
        let before = json!({ "model": "m", "hooks": { "PostToolUse": [mine], "Start": [] } });
        let after = with_hooks(object(&before), command).unwrap().unwrap();
        let list = |event: &str| wanted["hooks"][event].clone();
        let both = json!([mine, list("PostToolUse")[0]]);
        let expected = json!({ "PostToolUse": both, "Start": [], "Stop": list("Stop") });
        assert_eq!(after, json!({ "model": "m", "hooks": expected }));
        assert_eq!(with_hooks(object(&after), command), Ok(None));
        for bad in [json!({ "hooks": 1 }), json!({ "hooks": { "Stop": {} } })] {
            assert!(with_hooks(object(&bad), command).is_err(), "{bad}");
        }
        let other = with_hooks(object(&after), "exec /other/team mcp mail-hook");
        assert!(other.unwrap_err().contains("another hook"));
    }
}

//! Calls of the record that name its folder: they name the new one.

use crate::store::TeamDir;
use crate::wire::replay::ReplayPlan;
use serde_json::Value;

/// Returns the folder of the record and the new one.
pub(super) fn moved_folder(plan: &ReplayPlan, team: &TeamDir) -> Option<(String, String)> {
    let old = plan.record.parent()?.display().to_string();
    (old.len() > 1).then(|| (old, team.workspace().display().to_string()))
}

/// Replaces a text in all strings of a value.
pub(super) fn replace_in(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) if text.contains(old) => *text = text.replace(old, new),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_in(item, old, new)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|item| replace_in(item, old, new));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

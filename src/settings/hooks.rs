//! The `[[hooks]]` of the settings.

use super::{Layer, Setting, Source};
use crate::error::{Exit, Failure};
use crate::wire::hook::Hook;

/// Seconds a hook may ask for at most.
const LONGEST_TIMEOUT: u64 = 3600;

/// The hooks of all sources, the user's own before those of a folder.
pub(super) fn together(layers: &[(Source, Layer)]) -> Result<Setting<Vec<Hook>>, Failure> {
    let mut found = Setting { value: Vec::new(), source: Source::Default };
    for (source, layer) in layers.iter().rev() {
        for hook in layer.hooks.iter().flatten() {
            if let Some(why) = unfit(hook) {
                return Err(Failure::new(
                    Exit::Usage,
                    format!("a hook at {} in {source} is not usable", hook.event.word()),
                    why,
                    "correct it; docs/manual.md describes hooks",
                ));
            }
            found.source = source.clone();
            found.value.push(hook.clone());
        }
    }
    Ok(found)
}

/// Why a hook cannot be run at all.
fn unfit(hook: &Hook) -> Option<String> {
    if hook.command.trim().is_empty() || hook.command.contains('\0') {
        return Some("its command is empty, or contains a NUL character".into());
    }
    if hook.timeout == 0 || hook.timeout > LONGEST_TIMEOUT {
        return Some(format!("its timeout is in seconds, from 1 to {LONGEST_TIMEOUT}"));
    }
    None
}

/// Hooks on a line.
pub(super) fn shown(hooks: &[Hook]) -> String {
    if hooks.is_empty() {
        return "(none)".into();
    }
    let shown = hooks.iter().map(|hook| format!("{}: {}", hook.event.word(), hook.command));
    shown.collect::<Vec<_>>().join("; ")
}

//! The values of an export, without secrets.

use super::redaction::ExportRedactor;
use crate::store::export::{ExportedKind, files};
use crate::store::{StoreError, TeamDir};
use serde_json::Value;

/// One value of an export: a line of a file, or a whole one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExportedValue {
    /// The path below the team folder.
    pub(super) file: String,
    pub(super) kind: ExportedKind,
    pub(super) value: Value,
}

/// Passes all values to `meet`, in the order of their files.
pub(super) fn each_value(
    team: &TeamDir,
    has_archive: bool,
    redactor: &mut ExportRedactor,
    mut meet: impl FnMut(ExportedValue),
) -> Result<(), StoreError> {
    for file in files(team, has_archive)? {
        file.each_value(|bytes| {
            let value = serde_json::from_slice(bytes).unwrap_or_else(|_| {
                let text = String::from_utf8_lossy(bytes);
                Value::String(text.trim_end_matches('\n').to_owned())
            });
            let value = redactor.value(value);
            meet(ExportedValue { file: file.path.clone(), kind: file.kind, value });
        })?;
    }
    Ok(())
}

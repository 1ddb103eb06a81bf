//! Writes of an agent: each derives the next version of a file from the current one.
//!
//! *Invariant:* an agent never overwrites lines that it has not seen, or content that has changed since.

use super::access::FileAccess;
use super::load::{load, path_error};
use super::read_log::SeenFile;
use super::seen_lines::{Edit, SeenLines, count_lines};
use crate::os::safe_path::SafePath;
use crate::store::asynchronous::offload;
use crate::tools::call::{Call, ToolError};
use crate::wire::file_view::ContentHash;
use crate::wire::limits::OUTPUT_CHARS;

/// The next version of a file, and the lines of it that the agent has seen.
pub(super) struct NextVersion {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: SeenLines,
}

impl FileAccess {
    /// Notes the lines of a file that a call shows.
    pub(super) fn note_read(
        &self,
        call: &Call,
        spot: &SafePath,
        hash: ContentHash,
        lines: &SeenLines,
    ) {
        let path = spot.path();
        let mut log = self.log.borrow_mut();
        log.note(&path, hash, lines);
        *self.last_view.borrow_mut() = log.view(&path).map(|view| (call.id.clone(), view));
    }

    /// Writes the version that `next` returns for the current content (`None` if there is no file) and for the file as
    /// the agent has seen it.
    pub(super) async fn write(
        &self,
        call: &Call,
        path: &str,
        spot: SafePath,
        next: impl FnOnce(Option<&[u8]>, Option<&SeenFile>) -> Result<NextVersion, ToolError>
        + Send
        + 'static,
    ) -> Result<(), ToolError> {
        let (name, real) = (path.to_owned(), spot.path());
        let seen = self.log.borrow().files.get(&real).cloned();
        let written = offload(move || replace(&name, &spot, |old| next(old, seen.as_ref()))).await;
        let (hash, lines) = written?;
        let mut log = self.log.borrow_mut();
        log.note(&real, hash, &lines);
        *self.last_view.borrow_mut() = log.view(&real).map(|view| (call.id.clone(), view));
        Ok(())
    }
}

fn replace(
    path: &str,
    spot: &SafePath,
    next: impl FnOnce(Option<&[u8]>) -> Result<NextVersion, ToolError>,
) -> Result<(ContentHash, SeenLines), ToolError> {
    let old = load(path, spot)?;
    let NextVersion { bytes, lines } = next(old.as_deref())?;
    spot.replace(&bytes).map_err(|why| path_error(path, &why))?;
    Ok((ContentHash::of(&bytes), lines))
}

/// Returns the reply to a call whose file was changed by another program or member.
fn changed(path: &str) -> ToolError {
    ToolError::Reply(format!(
        "{path} has changed since you read it; read it again, then repeat what still applies"
    ))
}

/// Checks that an agent may replace a whole file. Fails if it has not seen every line of the current content.
pub(super) fn check_whole(
    path: &str,
    old: Option<&[u8]>,
    seen: Option<&SeenFile>,
) -> Result<(), ToolError> {
    let Some(old) = old.filter(|old| !old.is_empty()) else { return Ok(()) };
    let Some(seen) = seen else {
        let way_out = if old.contains(&0) {
            "it is binary: remove it with bash first, if it is to be replaced"
        } else {
            "read it whole with read_file first, then repeat this call"
        };
        return Err(ToolError::Reply(format!(
            "nothing was written: {path} exists, and you have not read it; {way_out}"
        )));
    };
    check_hash(path, old, seen)?;
    let Some((from, to)) = seen.lines.gap(1, count_lines(old)) else { return Ok(()) };
    let line = old.split(|byte| *byte == b'\n').nth(from - 1).unwrap_or_default();
    let way_out = if from == to && String::from_utf8_lossy(line).chars().count() > OUTPUT_CHARS {
        "it is too long to be shown: remove the file with bash first, if it is to be replaced"
            .into()
    } else {
        read_advice(from, to)
    };
    let part = line_range(from, to);
    Err(ToolError::Reply(format!(
        "nothing was written: you have not read {part} of {path}; {way_out}"
    )))
}

/// Checks that an agent may edit a piece of a file. Fails if it has not seen the lines of the piece.
pub(super) fn check_piece(path: &str, edit: &Edit<'_>, seen: &SeenFile) -> Result<(), ToolError> {
    let (first, last) = edit.lines();
    let Some((from, to)) = seen.lines.gap(first, last) else { return Ok(()) };
    Err(ToolError::Reply(format!(
        "nothing was changed: old_text is at {} of {path}, and you have not read {}; {}",
        line_range(first, last),
        line_range(from, to),
        read_advice(from, to)
    )))
}

/// Fails if a file has changed since the agent saw it.
pub(super) fn check_hash(path: &str, old: &[u8], seen: &SeenFile) -> Result<(), ToolError> {
    if seen.hash == ContentHash::of(old) { Ok(()) } else { Err(changed(path)) }
}

fn line_range(from: usize, to: usize) -> String {
    if from == to { format!("line {from}") } else { format!("lines {from} to {to}") }
}

fn read_advice(from: usize, to: usize) -> String {
    let limit = to - from + 1;
    format!("call read_file with offset {from} and limit {limit}, then repeat this call")
}

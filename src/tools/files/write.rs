//! Writes of an agent: each derives the next version of a file from the current one, under the lock of the file.
//!
//! *Invariant:* an agent never overwrites lines that it has not seen, or content that has changed since.

use super::access::FileAccess;
use super::locked_file::{LockedFile, Writer, changed};
use super::own_versions::OwnVersion;
use super::read_log::{FileStamp, SeenFile};
use super::seen_lines::{Edit, SeenLines, count_lines};
use crate::os::safe_path::SafePath;
use crate::store::asynchronous::offload;
use crate::tools::call::{Call, ToolError};
use crate::wire::file_view::ContentHash;
use crate::wire::limits::OUTPUT_CHARS;
use crate::wire::text_change::TextChange;

/// The next version of a file, and the lines of it that the agent has seen.
pub(super) struct NextVersion {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: SeenLines,
    /// A text for the model about the change; may be empty.
    pub(super) remark: String,
}

/// The end of a write: its result, and the state of the agent's versions.
struct Written {
    result: Result<Placed, ToolError>,
    own: Option<OwnVersion>,
    /// Texts about versions that were kept.
    kept: Vec<String>,
}

/// A version that is in its place.
struct Placed {
    hash: ContentHash,
    lines: SeenLines,
    remark: String,
    change: Option<TextChange>,
}

impl FileAccess {
    /// Notes the lines of a file that a call shows.
    pub(super) fn note_read(
        &self,
        call: &Call,
        spot: &SafePath,
        hash: ContentHash,
        lines: &SeenLines,
        stamp: Option<FileStamp>,
    ) {
        let path = spot.path();
        self.log.borrow_mut().note(&path, hash, lines, stamp);
        self.note_use(call, &path, None);
    }

    /// Writes the version that `next` returns for the current content (`None` if there is no file) and for the file as
    /// the agent has seen it. Returns remarks for the model, also about versions that were kept.
    pub(super) async fn write(
        &self,
        call: &Call,
        path: &str,
        spot: SafePath,
        next: impl FnOnce(Option<&[u8]>, Option<&SeenFile>) -> Result<NextVersion, ToolError>
        + Send
        + 'static,
    ) -> Result<String, ToolError> {
        let (name, real, writer) = (path.to_owned(), spot.path(), self.writer.clone());
        let (seen, own) = {
            let log = self.log.borrow();
            (log.files.get(&real).cloned(), log.own.get(&real).cloned())
        };
        let written =
            offload(move || write(&writer, &name, &spot, own, |old| next(old, seen.as_ref())))
                .await;
        let Written { result, own, kept } = written;
        self.log.borrow_mut().follow(&real, own);
        let kept = [&[String::new()], kept.as_slice()].concat().join("; ");
        match result {
            Ok(Placed { hash, lines, remark, change }) => {
                self.log.borrow_mut().note(&real, hash, &lines, None);
                self.note_use(call, &real, change);
                Ok(remark + &kept)
            }
            Err(ToolError::Reply(why)) => Err(ToolError::Reply(why + &kept)),
            Err(ToolError::Fatal(why)) => Err(ToolError::Fatal(why + &kept)),
        }
    }
}

fn write(
    writer: &Writer,
    path: &str,
    spot: &SafePath,
    own: Option<OwnVersion>,
    next: impl FnOnce(Option<&[u8]>) -> Result<NextVersion, ToolError>,
) -> Written {
    let mut file = match writer.lock(path, spot) {
        Ok(file) => file,
        Err(why) => return Written { result: Err(why), own, kept: Vec::new() },
    };
    let mut own = own;
    let result = replace(&mut file, &mut own, path, next);
    Written { result, own, kept: file.kept }
}

fn replace(
    file: &mut LockedFile<'_>,
    own: &mut Option<OwnVersion>,
    path: &str,
    next: impl FnOnce(Option<&[u8]>) -> Result<NextVersion, ToolError>,
) -> Result<Placed, ToolError> {
    file.check_leases()?;
    let old = file.load()?;
    let base = old.as_deref().unwrap_or_default();
    *own = own.take().and_then(|own| file.settle(own, base));
    let NextVersion { bytes, lines, remark } = next(old.as_deref())?;
    file.replace(old.as_deref(), &bytes, None)?;
    *own = OwnVersion::new(own.as_ref(), base, &bytes, file.record());
    let change = TextChange::of(path, old.as_deref(), &bytes);
    Ok(Placed { hash: ContentHash::of(&bytes), lines, remark, change })
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

/// Checks that an agent may edit a piece of a file. Fails with the reason if it has not seen the lines of the piece.
pub(super) fn check_piece(path: &str, edit: &Edit<'_>, seen: &SeenLines) -> Result<(), String> {
    let (first, last) = edit.lines();
    let Some((from, to)) = seen.gap(first, last) else { return Ok(()) };
    Err(format!(
        "old_text is at {} of {path}, and you have not read {}; {}",
        line_range(first, last),
        line_range(from, to),
        read_advice(from, to)
    ))
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

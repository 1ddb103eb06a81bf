//! Collects output of any length in bounded memory: its beginning, its end, and the number of characters between.
//!
//! Output that is too long to be shown is stored. This file decides when, and writes the note for the model;
//! `store::output_spill` owns the files, and the creator of the [`OutputStore`] supplies the redaction of secrets.

use crate::os::{Clock, SystemClock};
use crate::store::TeamDir;
use crate::store::output_spill::{LONGEST, MOST, OutputSpill};
use crate::wire::AgentName;
use crate::wire::limits::OUTPUT_CHARS;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The number of characters that are kept of the beginning, and of the end.
const HALF_CHARS: usize = OUTPUT_CHARS / 2;
/// The number of characters of the end that the note about the cut replaces. The result then has at most 50,000.
const NOTE_CHARS: usize = 600;
/// The least time between two lines that are shown to a person.
const LINE_INTERVAL: Duration = Duration::from_millis(100);
/// The number of characters of a line that are shown to a person.
const LINE_CHARS: usize = 400;

/// The receiver of the output of a command, in pieces of any length.
pub(in crate::tools) trait OutputSink {
    fn push(&mut self, bytes: &[u8]);

    /// Returns the time at which [`OutputSink::show_line`] is to be called.
    fn line_due(&self) -> Option<Instant> {
        None
    }

    fn show_line(&mut self) {}
}

/// Collected output. [`CappedOutput::finish`] returns the part that a model sees.
#[derive(Default)]
pub(in crate::tools) struct CappedOutput {
    head: String,
    head_chars: usize,
    tail: VecDeque<char>,
    total: usize,
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
    /// The storage of the whole output, if it is stored.
    stored: Option<StoredOutput>,
    /// The viewer of the newest line.
    viewer: Option<LineViewer>,
}

/// The function that shows a line of output to a person, and the time of the last one.
struct LineViewer {
    show: ShowLine,
    redact: RedactPiece,
    shown_at: Option<Instant>,
    /// The newest line, which came too soon after the last one.
    pending: Option<String>,
}

impl LineViewer {
    /// Shows the last line of new output, unless another was shown just now.
    fn push(&mut self, text: &str) {
        let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) else { return };
        let line: String = line.chars().take(LINE_CHARS).collect();
        self.pending = Some(line);
        if self.due().is_some_and(|due| due <= SystemClock.monotonic()) {
            self.show_pending();
        }
    }

    /// Returns the time at which the pending line is to be shown; `None` if there is none.
    fn due(&self) -> Option<Instant> {
        self.pending.as_ref()?;
        let now = || SystemClock.monotonic();
        Some(self.shown_at.map_or_else(now, |at| at + LINE_INTERVAL))
    }

    fn show_pending(&mut self) {
        let Some(line) = self.pending.take() else { return };
        self.shown_at = Some(SystemClock.monotonic());
        let (clean, _held) = (self.redact)(line + "\n");
        (self.show)(clean.trim_end());
    }
}

impl CappedOutput {
    /// Creates an output that is stored whole if it is too long.
    pub(in crate::tools) fn stored_in(output_store: &OutputStore) -> Self {
        let output_store = output_store.clone();
        let redact = Rc::clone(&output_store.redact);
        let viewer = output_store.show_line.clone();
        let viewer = viewer.map(|show| LineViewer { show, redact, shown_at: None, pending: None });
        let stored = StoredOutput { output_store, spill: None, held: String::new() };
        Self { stored: Some(stored), viewer, ..Self::default() }
    }

    /// Returns the part of a text, given in pieces, that a model sees.
    pub(in crate::tools) fn cap<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
        let mut output = Self::default();
        pieces.into_iter().for_each(|piece| output.push_text(piece));
        output.finish()
    }

    /// Returns the characters that a model does not see of a text with this number of characters.
    pub(in crate::tools) fn omitted(chars: usize) -> Range<usize> {
        let end = if chars > OUTPUT_CHARS { chars - HALF_CHARS + NOTE_CHARS } else { HALF_CHARS };
        HALF_CHARS..end
    }

    fn push_text(&mut self, text: &str) {
        let room = HALF_CHARS - self.head_chars;
        let split = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
        let (head, rest) = text.split_at(split);
        let (head_length, rest_length) = (head.chars().count(), rest.chars().count());
        let total = self.total + head_length + rest_length;
        if total > OUTPUT_CHARS
            && let Some(stored) = &mut self.stored
        {
            if self.total <= OUTPUT_CHARS {
                // Head and tail are still complete.
                stored.push(&self.head);
                stored.push(&self.tail.iter().collect::<String>());
            }
            stored.push(text);
        }
        self.head.push_str(head);
        self.head_chars += head_length;
        self.total = total;
        if rest_length >= HALF_CHARS {
            self.tail.clear();
        }
        self.tail.extend(rest.chars().skip(rest_length.saturating_sub(HALF_CHARS)));
        self.tail.drain(..self.tail.len().saturating_sub(HALF_CHARS));
    }

    /// Returns the part that a model sees: at most 50,000 characters. After a cut, there is room for one more
    /// line.
    pub(in crate::tools) fn finish(mut self) -> String {
        if !self.partial.is_empty() {
            self.partial.clear();
            self.push_text("\u{fffd}");
        }
        let mut shown = self.head;
        if self.total > OUTPUT_CHARS {
            let cut = self.total - (OUTPUT_CHARS - NOTE_CHARS);
            let place = self.stored.and_then(StoredOutput::finish);
            let advice = place.unwrap_or_else(|| "ask for less at a time".into());
            let note = format!("\n[... {cut} characters cut here; {advice} ...]\n");
            shown.push_str(&note);
            self.tail.drain(..NOTE_CHARS);
        }
        shown.extend(self.tail);
        shown
    }
}

impl OutputSink for CappedOutput {
    /// Appends bytes, which may end within a character; invalid UTF-8 is replaced.
    fn push(&mut self, bytes: &[u8]) {
        let text = decoded(&mut self.partial, bytes);
        if let Some(viewer) = &mut self.viewer {
            viewer.push(&text);
        }
        self.push_text(&text);
    }

    /// Returns the time at which the newest line is to be shown; `None` if it was shown.
    fn line_due(&self) -> Option<Instant> {
        self.viewer.as_ref()?.due()
    }

    fn show_line(&mut self) {
        self.viewer.iter_mut().for_each(LineViewer::show_pending);
    }
}

/// Returns the text of the bytes that follow `partial`, which becomes the beginning of an incomplete character at their
/// end.
pub(super) fn decoded(partial: &mut Vec<u8>, bytes: &[u8]) -> String {
    let mut bytes = [std::mem::take(partial).as_slice(), bytes].concat();
    let end = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    if str::from_utf8(end).is_err_and(|why| why.error_len().is_none()) {
        *partial = bytes.split_off(bytes.len() - end.len());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A function that redacts a piece of text, which begins with the end that was held back before. It returns the
/// redacted text, and the end to hold back, which may be the beginning of a secret.
type RedactPiece = Rc<dyn Fn(String) -> (String, String)>;

/// A function that shows a line of the output of a running command.
type ShowLine = Rc<dyn Fn(&str)>;

#[derive(Clone)]
pub(crate) struct OutputStore {
    pub(crate) dir: TeamDir,
    pub(crate) name: AgentName,
    pub(crate) redact: RedactPiece,
    /// The clone of the agent, which gets a copy that the agent can read.
    pub(crate) clone: Option<PathBuf>,
    /// Shows the newest line, a few times a second; `None` without a viewer.
    pub(crate) show_line: Option<ShowLine>,
}

impl OutputStore {
    /// Returns the path by which the agent can read a stored output: in a clone, that of a copy.
    pub(super) fn readable(&self, path: &Path) -> String {
        let copied = self.clone.as_ref().and_then(|clone| copy_into(clone, path));
        let path = copied.as_deref().unwrap_or(path);
        let workspace = self.clone.as_deref().unwrap_or_else(|| self.dir.workspace());
        path.strip_prefix(workspace).unwrap_or(path).display().to_string()
    }
}

#[cfg(test)]
impl OutputStore {
    /// Creates a store in the team folder below `folder`, without redaction.
    pub(in crate::tools) fn below(folder: &std::path::Path) -> Self {
        let dir = TeamDir::create(&folder.join(".team")).unwrap();
        let redact: RedactPiece = Rc::new(|text| (text, String::new()));
        Self { dir, name: AgentName::lead(), redact, clone: None, show_line: None }
    }
}

struct StoredOutput {
    output_store: OutputStore,
    /// The file; `None` while the output is short enough to be shown whole, an error if it could not be stored.
    spill: Option<Result<OutputSpill, String>>,
    /// The end of the text that is held back, since it may be the beginning of a secret.
    held: String,
}

impl StoredOutput {
    /// Appends to an output that is too long to be shown.
    fn push(&mut self, text: &str) {
        let OutputStore { dir, name, redact, .. } = &self.output_store;
        let begin = || OutputSpill::begin(dir, name).map_err(|why| why.to_string());
        self.spill.get_or_insert_with(begin);
        let (clean, held) = redact(std::mem::take(&mut self.held) + text);
        self.held = held;
        self.write(&clean);
    }

    fn write(&mut self, text: &str) {
        if let Some(Ok(spill)) = &mut self.spill
            && let Err(why) = spill.push(text)
            && let Some(Ok(spill)) = self.spill.replace(Err(why.to_string()))
        {
            // An incomplete file would pass for a complete one.
            spill.discard();
        }
    }

    /// Returns the advice to the model, which names the file of the output; `None` if the output was short.
    fn finish(mut self) -> Option<String> {
        let held = std::mem::take(&mut self.held);
        self.write(&held);
        Some(match &self.spill.take()? {
            Err(why) => {
                tracing::warn!(why, "a long output could not be stored");
                "the full output could not be stored; ask for less at a time".into()
            }
            Ok(spill) => {
                let path = self.output_store.readable(spill.path());
                let what = if spill.is_cut() {
                    format!("its first {} MiB are", LONGEST / 1024 / 1024)
                } else {
                    "all of it is".into()
                };
                format!(
                    "{what} in {path} (until {MOST} later ones): read_file it by offset and limit, \
                     or search it with bash"
                )
            }
        })
    }
}

/// Copies a stored output into the git folder of a clone, from which it is in no commit: the team folder is outside.
fn copy_into(clone: &Path, path: &Path) -> Option<PathBuf> {
    let folder = clone.join(".git/team-output");
    let copy = folder.join(path.file_name()?);
    // The agent may have made links of these, which must not be followed.
    let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|known| known.is_dir());
    let copied = || -> io::Result<()> {
        if !is_folder(&folder) && is_folder(&clone.join(".git")) {
            fs::create_dir(&folder)?;
        }
        if !is_folder(&clone.join(".git")) || !is_folder(&folder) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if fs::symlink_metadata(&copy).is_ok() {
            fs::remove_file(&copy)?;
        }
        let mut from = File::open(path)?;
        io::copy(&mut from, &mut File::create_new(&copy)?).map(drop)
    };
    copied().inspect_err(|why| tracing::warn!(%why, "a long output is not in the clone")).ok()?;
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn collect(mut capped: CappedOutput, pieces: &[impl AsRef<[u8]>]) -> String {
        for piece in pieces {
            capped.push(piece.as_ref());
        }
        capped.finish()
    }

    fn shown(pieces: &[&[u8]]) -> String {
        collect(CappedOutput::default(), pieces)
    }

    #[test]
    fn output_within_the_limit_is_complete_and_invalid_utf8_is_replaced() {
        let text = "ä".repeat(50_000);
        assert_eq!(shown(&[text.as_bytes()]), text);
        assert_eq!(shown(&[b"a\xffb\xc3"]), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn output_over_the_limit_loses_its_middle() {
        let text = format!("BEGIN{}END", "x".repeat(49_993));
        let shown = shown(&[text.as_bytes()]);
        assert!(shown.starts_with("BEGIN") && shown.ends_with("END"));
        assert!(shown.contains("[... 601 characters cut here"), "{}", &shown[24_990..25_100]);
        assert_eq!(
            (CappedOutput::omitted(50_001), CappedOutput::omitted(50_000).len()),
            (25_000..25_601, 0)
        );
        assert!(shown.chars().count() <= 50_000);
    }

    #[test]
    fn long_output_is_stored_without_secrets_and_its_path_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let secret = "canary";
        let redact = Rc::new(move |text: String| {
            let clean = text.replace(secret, "[redacted]");
            let begun = (1..secret.len()).rev().find(|length| clean.ends_with(&secret[..*length]));
            let held = clean.len() - begun.unwrap_or_default();
            (clean[..held].to_owned(), clean[held..].to_owned())
        });
        let store = OutputStore { redact, ..OutputStore::below(folder.path()) };
        let keep = |pieces: &[&str]| collect(CappedOutput::stored_in(&store), pieces);
        let long = "xä".repeat(24_999);
        assert_eq!(keep(&[&long, "ab"]), format!("{long}ab"));
        let path = folder.path().join(".team/log/.out/lead-1.txt");
        assert!(!path.exists(), "short output is not stored");
        let shown = keep(&[&long, "1 cana", "ry 2", &long, "3 cana"]);
        assert!(shown.chars().count() <= 50_000);
        assert!(shown.contains(" in .team/log/.out/lead-1.txt (until 16 later ones)"), "{shown}");
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept, format!("{long}1 [redacted] 2{long}3 cana"));
    }

    #[test]
    fn output_that_cannot_be_stored_is_still_shown() {
        let folder = tempfile::tempdir().unwrap();
        let store = OutputStore::below(folder.path());
        std::fs::remove_dir(folder.path().join(".team/log/.out")).unwrap();
        let shown = collect(CappedOutput::stored_in(&store), &["x".repeat(60_000)]);
        assert!(shown.contains("the full output could not be stored; ask for less"), "{shown}");
        assert!(shown.chars().count() <= 50_000);
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..200usize) {
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            let whole = String::from_utf8_lossy(&bytes).into_owned();
            prop_assert_eq!(shown(&[one, two]), whole);
        }

        #[test]
        fn cut_characters_are_counted_for_any_length(lengths in proptest::collection::vec(0..40_000usize, 0..6)) {
            let pieces = lengths.iter().zip(["a", "ö", "€"].into_iter().cycle());
            let pieces: Vec<_> = pieces.map(|(length, text)| text.repeat(*length)).collect();
            let total: usize = lengths.iter().sum();
            let shown = collect(CappedOutput::default(), &pieces);
            prop_assert!(shown.chars().count() <= 50_000);
            if total > 50_000 {
                let note = format!("[... {} characters cut here", total - 49_400);
                prop_assert!(shown.contains(&note));
            } else {
                prop_assert_eq!(shown.chars().count(), total);
            }
        }
    }
}

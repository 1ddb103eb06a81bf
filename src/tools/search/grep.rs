//! `grep`: finds lines by a regular expression, with the searcher of ripgrep.

use super::left_out::LeftOut;
use super::page::Page;
use super::tree::{Scope, Step, Tree};
use crate::store::asynchronous::offload;
use crate::tools::call::{Call, ToolError};
use crate::tools::registry::{Tool, ToolParts, parameters};
use crate::wire::limits::OUTPUT_CHARS;
use crate::wire::tool::ParameterType::{Boolean, Count, Text, Word};
use crate::wire::tool::{AfterCrash, Effect, Supersedes, ToolSpec};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of matching lines of a page.
const PAGE_LINES: usize = 200;

/// The number of files of a page.
const PAGE_FILES: usize = 500;

/// The number of lines that a search keeps.
const MAX_LINES: usize = 50_000;

/// The number of characters that are shown of a line.
const LINE_CHARS: usize = 400;

/// The memory of one thread for the lines of a file, in bytes. A file with a longer line, or a longer file if a match may span
/// lines, is not searched to its end.
const HEAP_BYTES: usize = 16 * 1024 * 1024;

/// The largest number of lines around a match.
const MAX_CONTEXT: u64 = 20;

const MATCHES: &str = "lines";
const FILES: &str = "files";
const COUNTS: &str = "counts";

parameters!(Grep {
    pattern: String = required(Text, "A regular expression (Rust syntax)."),
    path: Option<String> = optional(Text, "A file or folder; the workspace if left out."),
    glob: Option<String> = optional(Text, "Only files that match, such as *.rs or !docs/**."),
    output: Option<String> = optional(Word(&[MATCHES, FILES, COUNTS]), "lines if left out."),
    context: Option<usize> = optional(Count { most: Some(MAX_CONTEXT) }, "Lines around a match."),
    ignore_case: Option<bool> = optional(Boolean, ""),
    multiline: Option<bool> = optional(Boolean, "A match may span lines."),
    all: Option<bool> = optional(Boolean, "Also hidden and ignored files."),
    offset: Option<usize> = optional(Count { most: None }, ""),
});

impl Tool for Grep {
    const SPEC: ToolSpec = ToolSpec {
        name: "grep",
        aliases: &["Grep"],
        description: "Searches the files of the workspace by a regular expression, without hidden and ignored \
                      ones. Faster and shorter than grep in bash.",
        effect: Effect::Reads,
        after_crash: AfterCrash::Repeat,
        supersedes: Supersedes::SameCall,
        of_subagents: true,
        ..ToolSpec::STRICT
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let scope = Scope {
            path: self.path.as_deref(),
            glob: self.glob.as_deref(),
            has_all: self.all.unwrap_or_default(),
            depth: None,
        };
        let (tree, _end) = Tree::new(&parts.files.workspace, parts.files.search_limits(), scope)?;
        let matcher = self.matcher()?;
        let output = match self.output.as_deref() {
            None | Some(MATCHES) => Output::Lines,
            Some(FILES) => Output::Files,
            Some(COUNTS) => Output::Counts,
            Some(other) => {
                let why = format!("output is {other:?}; give {MATCHES}, {FILES} or {COUNTS}");
                return Err(ToolError::Reply(why));
            }
        };
        let (context, is_multiline) =
            (self.context.unwrap_or_default(), self.multiline.unwrap_or_default());
        let offset = self.offset;
        Ok(offload(move || {
            let search = Search { matcher, context, is_multiline, output };
            search.run(&tree).show(output, offset)
        })
        .await)
    }
}

impl Grep {
    fn matcher(&self) -> Result<RegexMatcher, ToolError> {
        let is_multiline = self.multiline.unwrap_or_default();
        let mut builder = RegexMatcherBuilder::new();
        builder.multi_line(true).case_insensitive(self.ignore_case.unwrap_or_default());
        if is_multiline {
            builder.dot_matches_new_line(true);
        } else {
            builder.line_terminator(Some(b'\n')).ban_byte(Some(0));
        }
        builder.build(&self.pattern).map_err(|why| {
            ToolError::Reply(format!(
                "the pattern cannot be used: {why}; a backslash before one of . * + ? ( ) [ ] {{ }} | ^ $ \\ makes it \
                 plain text; `multiline` permits a line break in it"
            ))
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Lines,
    Files,
    Counts,
}

/// The search in all files.
#[derive(Debug)]
struct Search {
    matcher: RegexMatcher,
    context: usize,
    is_multiline: bool,
    output: Output,
}

/// A line of a result.
#[derive(Debug, PartialEq, Eq)]
struct FoundLine {
    number: u64,
    text: String,
    is_match: bool,
}

/// The matches in one file.
#[derive(Debug, PartialEq, Eq)]
struct FileMatches {
    path: PathBuf,
    /// The number of matches.
    count: usize,
    /// The matching lines and those around them, in the order of the file.
    lines: Vec<FoundLine>,
}

#[derive(Debug)]
struct Found {
    files: Vec<FileMatches>,
    /// Whether the search has ended before all files were searched.
    is_cut: bool,
    /// Notes about files and folders that were not searched, or not to their end.
    left_out: Vec<String>,
}

impl Search {
    fn run(&self, tree: &Tree) -> Found {
        let files = Mutex::new(Vec::new());
        let kept = AtomicUsize::new(0);
        let unfinished = LeftOut::default();
        let is_whole = tree.walk(|| {
            let (files, kept, unfinished) = (&files, &kept, &unfinished);
            let (mut searcher, matcher) = (self.searcher(), self.matcher.clone());
            move |entry| {
                let Some(file) = entry.open() else { return Step::Next };
                let mut sink = MatchSink { output: self.output, kept, count: 0, lines: Vec::new() };
                // A file that cannot be read to its end shows the matches before that.
                let file = Interruptible { file, tree };
                if let Err(why) = searcher.search_reader(&matcher, file, &mut sink) {
                    tracing::debug!(%why, path = %entry.path.display(), "a file was not searched to its end");
                    unfinished.note(&entry.path);
                }
                let MatchSink { count, lines, .. } = sink;
                if count > 0 {
                    let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
                    files.push(FileMatches { path: entry.path, count, lines });
                }
                if kept.load(Ordering::Relaxed) > MAX_LINES { Step::End } else { Step::Next }
            }
        });
        let mut files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let left_out = self.unfinished_note(&unfinished).into_iter().chain(tree.passed_over());
        Found { files, is_cut: !is_whole, left_out: left_out.collect() }
    }

    fn unfinished_note(&self, unfinished: &LeftOut) -> Option<String> {
        let limit = if self.is_multiline {
            "a file of more than 16 MiB with `multiline`"
        } else {
            "a line of more than 16 MiB"
        };
        let files = unfinished.in_words()?;
        Some(format!("[not searched to the end: {files}: {limit}, or it could not be read]"))
    }

    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .multi_line(self.is_multiline)
            .heap_limit(Some(HEAP_BYTES))
            .build()
    }
}

/// A file whose end comes when the search must end.
struct Interruptible<'a> {
    file: File,
    tree: &'a Tree,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.tree.must_end() { Ok(0) } else { self.file.read(buffer) }
    }
}

/// Collects the matches of one file.
struct MatchSink<'a> {
    output: Output,
    /// The lines that the whole search keeps.
    kept: &'a AtomicUsize,
    count: usize,
    lines: Vec<FoundLine>,
}

impl MatchSink<'_> {
    fn keep(&mut self, first: Option<u64>, bytes: &[u8], is_match: bool) {
        for (number, line) in
            (first.unwrap_or_default()..).zip(bytes.split_inclusive(|byte| *byte == b'\n'))
        {
            if self.kept.fetch_add(1, Ordering::Relaxed) > MAX_LINES {
                break;
            }
            self.lines.push(FoundLine { number, text: shown_line(line), is_match });
        }
    }
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.count += 1;
        match self.output {
            Output::Lines => {
                self.keep(found.line_number(), found.bytes(), true);
                Ok(self.kept.load(Ordering::Relaxed) <= MAX_LINES)
            }
            Output::Files => Ok(false),
            Output::Counts => Ok(true),
        }
    }

    fn context(&mut self, _: &Searcher, around: &SinkContext<'_>) -> io::Result<bool> {
        if self.output == Output::Lines {
            self.keep(around.line_number(), around.bytes(), false);
        }
        Ok(true)
    }
}

/// Returns a line without its end, cut if it is long.
fn shown_line(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    match text.char_indices().nth(LINE_CHARS) {
        Some((at, _)) => format!("{} [… {} characters]", &text[..at], text[at..].chars().count()),
        None => text.to_owned(),
    }
}

impl Found {
    fn show(&self, output: Output, offset: Option<usize>) -> String {
        let text = match output {
            Output::Lines => self.show_lines(offset),
            Output::Files => self.show_files(offset, |file| shown_path(&file.path)),
            Output::Counts => self
                .show_files(offset, |file| format!("{}: {}", shown_path(&file.path), file.count)),
        };
        let text =
            if text.is_empty() { "nothing matches".to_owned() + self.end_note() } else { text };
        iter::once(text).chain(self.left_out.iter().cloned()).collect::<Vec<_>>().join("\n")
    }

    fn end_note(&self) -> &'static str {
        if self.is_cut {
            " in what was searched: the search took too long; give a path or a glob"
        } else {
            ""
        }
    }

    fn show_files(&self, offset: Option<usize>, line: impl Fn(&FileMatches) -> String) -> String {
        let page = Page::new(offset, PAGE_FILES, self.files.len(), self.is_cut);
        let shown = self.files.get(page.shown.clone()).unwrap_or_default();
        let lines = shown.iter().map(line).chain(page.note("files"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns the lines of a page below the names of their files.
    fn show_lines(&self, offset: Option<usize>) -> String {
        let total = self.files.iter().map(FileMatches::matching_lines).sum();
        let mut page = Page::new(offset, PAGE_LINES, total, self.is_cut);
        let mut text = String::new();
        let mut first = 0;
        for file in &self.files {
            let next = first + file.matching_lines();
            if next > page.shown.start && first < page.shown.end {
                let wanted = page.shown.start.saturating_sub(first)..page.shown.end - first;
                let room = OUTPUT_CHARS.saturating_sub(text.len());
                let (part, left_out) = file.show(wanted, room, text.is_empty());
                text.push_str(&part);
                if let Some(left_out) = left_out {
                    page.end_before(first + left_out);
                    break;
                }
            }
            first = next;
        }
        let note = page.note(MATCHES).map(|note| note + "\n");
        text.push_str(note.as_deref().unwrap_or_default());
        text.trim_end().to_owned()
    }
}

impl FileMatches {
    fn matching_lines(&self) -> usize {
        self.lines.iter().filter(|line| line.is_match).count()
    }

    /// Shows the matching lines of these numbers, counted from 0, with the lines around them. Returns also the first
    /// matching line for which there is no room; with `is_first` there is room for one in any case.
    fn show(&self, wanted: Range<usize>, room: usize, is_first: bool) -> (String, Option<usize>) {
        let mut text = format!("{}\n", shown_path(&self.path));
        let mut seen = 0;
        let mut last = None;
        // The text up to the last match that has room.
        let mut whole = 0;
        for line in &self.lines {
            let place = seen;
            seen += usize::from(line.is_match);
            // The lines after a match belong to it, those before it to the next one.
            let is_wanted = if line.is_match {
                wanted.contains(&place)
            } else {
                wanted.contains(&place) || (place > 0 && wanted.contains(&(place - 1)))
            };
            if !is_wanted {
                continue;
            }
            if last.is_some_and(|last| last + 1 < line.number) && self.has_context() {
                text.push_str("--\n");
            }
            last = Some(line.number);
            let mark = if line.is_match { ':' } else { '-' };
            let _infallible = writeln!(text, "{}{mark} {}", line.number, line.text);
            let is_needed = is_first && whole == 0 && line.is_match;
            if text.len() > room && !is_needed {
                text.truncate(whole);
                let left_out = if line.is_match { place } else { seen.max(wanted.start) };
                return (text, Some(left_out));
            }
            if line.is_match {
                whole = text.len();
            }
        }
        (text, None)
    }

    fn has_context(&self) -> bool {
        self.lines.iter().any(|line| !line.is_match)
    }
}

fn shown_path(path: &Path) -> String {
    path.display().to_string()
}

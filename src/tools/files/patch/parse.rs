//! Reads a patch.

use super::{ChangeKind, Chunk, FileChange, NewLine};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";
const END_OF_FILE: &str = "*** End of File";

/// Reads the changes of a patch, in its order. Fails with the line that is not understood, and advice.
pub(in crate::tools::files) fn parse(patch: &str) -> Result<Vec<FileChange>, String> {
    let lines: Vec<&str> = without_heredoc(patch.trim()).lines().collect();
    let [first, inner @ .., last] = lines.as_slice() else { return Err(no_frame()) };
    if first.trim() != BEGIN || last.trim() != END {
        return Err(no_frame());
    }
    // The numbers in messages count from the first line of the patch.
    let mut reader = Reader { lines: inner, at: 0 };
    let mut changes = Vec::new();
    while let Some(line) = reader.next() {
        let head = line.trim();
        let change = if let Some(path) = head.strip_prefix(ADD) {
            FileChange { path: path.to_owned(), kind: ChangeKind::Add(reader.added()) }
        } else if let Some(path) = head.strip_prefix(DELETE) {
            FileChange { path: path.to_owned(), kind: ChangeKind::Delete }
        } else if let Some(path) = head.strip_prefix(UPDATE) {
            FileChange { path: path.to_owned(), kind: reader.update(path)? }
        } else if head.is_empty() && !changes.is_empty() {
            continue;
        } else {
            return Err(reader.wrong(
                line,
                "a line begins `*** Add File: `, `*** Delete File: ` or `*** Update File: `",
            ));
        };
        changes.push(change);
    }
    if changes.is_empty() { Err("the patch changes no file".into()) } else { Ok(changes) }
}

fn no_frame() -> String {
    format!("a patch begins with the line `{BEGIN}` and ends with the line `{END}`")
}

/// Returns the text within `<<'EOF'` and `EOF`, which models write around a patch.
fn without_heredoc(patch: &str) -> &str {
    let Some((head, rest)) = patch.split_once('\n') else { return patch };
    let is_heredoc = ["<<EOF", "<<'EOF'", "<<\"EOF\""].contains(&head.trim());
    let inside = rest.trim_end().strip_suffix("EOF").filter(|_| is_heredoc);
    inside.map_or(patch, str::trim)
}

impl Chunk {
    fn keep(&mut self, line: &str) {
        self.new.push(NewLine::Kept(self.old.len()));
        self.old.push(line.to_owned());
    }
}

struct Reader<'a> {
    lines: &'a [&'a str],
    at: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    /// Describes the line that was read last.
    fn wrong(&self, line: &str, expected: &str) -> String {
        let line: String = line.chars().take(120).collect();
        format!("line {} of the patch is not understood: `{line}`; {expected}", self.at + 1)
    }

    /// Reads the content of a new file.
    fn added(&mut self) -> String {
        let mut content = String::new();
        while let Some(line) = self.peek().and_then(|line| line.strip_prefix('+')) {
            self.at += 1;
            content.push_str(line);
            content.push('\n');
        }
        content
    }

    fn update(&mut self, path: &str) -> Result<ChangeKind, String> {
        let moved_to =
            self.peek().and_then(|line| line.trim().strip_prefix(MOVE)).map(ToOwned::to_owned);
        self.at += usize::from(moved_to.is_some());
        let mut chunks = Vec::new();
        loop {
            while self.peek() == Some("") {
                self.at += 1;
            }
            match self.peek() {
                Some(line) if !line.starts_with("***") => {
                    chunks.push(self.chunk(chunks.is_empty())?);
                }
                Some(_) | None => break,
            }
        }
        if chunks.is_empty() && moved_to.is_none() {
            return Err(format!("the patch updates {path}, but has no lines for it"));
        }
        Ok(ChangeKind::Update { moved_to, chunks })
    }

    fn chunk(&mut self, is_first: bool) -> Result<Chunk, String> {
        let mut chunk = Chunk::default();
        let head = self.peek().unwrap_or_default().trim_end();
        if head == "@@" {
            self.at += 1;
        } else if let Some(anchor) = head.strip_prefix("@@ ") {
            chunk.anchor = Some(anchor.to_owned());
            self.at += 1;
        } else if !is_first {
            return Err(self.wrong(head, "a further piece of a file begins with `@@`"));
        }
        let begin = self.at;
        while let Some(line) = self.peek() {
            if line.trim_end() == END_OF_FILE {
                chunk.is_end = true;
                self.at += 1;
                break;
            }
            if let Some(kept) = line.strip_prefix(' ') {
                chunk.keep(kept);
            } else if let Some(removed) = line.strip_prefix('-') {
                chunk.old.push(removed.to_owned());
            } else if let Some(added) = line.strip_prefix('+') {
                chunk.new.push(NewLine::Added(added.to_owned()));
            } else if line.is_empty() {
                chunk.keep("");
            } else if self.at > begin {
                break;
            } else {
                return Err(self.wrong(line, "a line begins with ` `, `-` or `+`"));
            }
            self.at += 1;
        }
        if self.at == begin {
            return Err(
                self.wrong("", "a piece has at least one line that begins with ` `, `-` or `+`")
            );
        }
        Ok(chunk)
    }
}

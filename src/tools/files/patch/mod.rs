//! The patch format that models of `OpenAI` are trained on: files that are added, deleted, moved and updated in one text.
//!
//! ```text
//! *** Begin Patch
//! *** Update File: src/main.rs
//! @@ fn main() {
//!      let first = 1;
//! -    let second = 1;
//! +    let second = 2;
//! *** Add File: notes.txt
//! +one line
//! *** Delete File: old.txt
//! *** End Patch
//! ```
//!
//! [`parse()`] reads a patch; [`updated()`] applies the chunks of one file to its text. Both are pure.

mod parse;
mod update;

pub(super) use parse::parse;
pub(super) use update::{Updated, updated};

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileChange {
    pub(super) path: String,
    pub(super) kind: ChangeKind,
}

impl FileChange {
    /// Returns the paths that the change names, and whether it is a change of a file that stays.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&str, bool)> {
        let (stays, moved_to) = match &self.kind {
            ChangeKind::Update { moved_to, .. } => (moved_to.is_none(), moved_to.as_deref()),
            ChangeKind::Add(_) | ChangeKind::Delete => (false, None),
        };
        [(self.path.as_str(), stays)].into_iter().chain(moved_to.map(|path| (path, false)))
    }

    /// Returns the path of the file whose content the change derives from.
    pub(super) fn source(&self) -> Option<&str> {
        let is_update = matches!(self.kind, ChangeKind::Update { .. });
        is_update.then_some(self.path.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// The file gets this content.
    Add(String),
    Delete,
    /// The chunks are applied, and the file is moved to another path if one is given.
    Update {
        moved_to: Option<String>,
        chunks: Vec<Chunk>,
    },
}

/// A line in the place of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NewLine {
    /// The line of the old piece with this number, as it is in the file.
    Kept(usize),
    Added(String),
}

/// A piece of a file and its replacement, in whole lines without line breaks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Chunk {
    /// The line after which the piece is looked for; `None` for the place behind the chunk before.
    pub(super) anchor: Option<String>,
    pub(super) old: Vec<String>,
    pub(super) new: Vec<NewLine>,
    /// Whether the piece is the end of the file.
    pub(super) is_end: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies a patch with one update to a text.
    fn patched(text: &str, body: &str) -> Result<String, String> {
        let changes =
            parse(&format!("*** Begin Patch\n*** Update File: f\n{body}\n*** End Patch"))?;
        let [FileChange { kind: ChangeKind::Update { chunks, .. }, .. }] = changes.as_slice()
        else {
            panic!("{changes:?}")
        };
        updated(text, chunks).map(|it| it.text)
    }

    #[test]
    fn a_patch_names_files_and_their_changes() {
        let patch = "*** Begin Patch\n*** Add File: a/b\n+one\n+\n*** Delete File: c\n*** Update File: d\n*** Move to: e\n\
            @@ fn main() {\n kept\n-old\n+new\n@@\n-last\n*** End of File\n*** End Patch\n";
        let lines = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
        let chunks = vec![
            Chunk {
                anchor: Some("fn main() {".into()),
                old: lines(&["kept", "old"]),
                new: vec![NewLine::Kept(0), NewLine::Added("new".into())],
                is_end: false,
            },
            Chunk { anchor: None, old: lines(&["last"]), new: Vec::new(), is_end: true },
        ];
        let kind = ChangeKind::Update { moved_to: Some("e".into()), chunks };
        let wanted = vec![
            FileChange { path: "a/b".into(), kind: ChangeKind::Add("one\n\n".into()) },
            FileChange { path: "c".into(), kind: ChangeKind::Delete },
            FileChange { path: "d".into(), kind },
        ];
        assert_eq!(parse(patch), Ok(wanted.clone()));
        assert_eq!(parse(&format!("<<'EOF'\n{patch}EOF\n")), Ok(wanted));
    }

    #[test]
    fn a_wrong_patch_names_the_line() {
        for (patch, why) in [
            ("", "begins with the line"),
            ("*** Begin Patch\n*** Add File: a\n+x", "ends with the line"),
            ("*** Begin Patch\n*** End Patch", "changes no file"),
            (
                "*** Begin Patch\nhello\n*** End Patch",
                "line 2 of the patch is not understood: `hello`",
            ),
            ("*** Begin Patch\n*** Update File: a\n*** End Patch", "has no lines for it"),
            ("*** Begin Patch\n*** Update File: a\n@@\n*** End Patch", "has at least one line"),
            (
                "*** Begin Patch\n*** Update File: a\nwrong\n*** End Patch",
                "`wrong`; a line begins with",
            ),
        ] {
            let found = parse(patch).unwrap_err();
            assert!(found.contains(why), "{patch:?}: {found}");
        }
    }

    #[test]
    fn chunks_are_applied_in_their_order() {
        for (text, body, wanted) in [
            ("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n"),
            ("a\nb", "-b\n+B", "a\nB\n"),
            ("x\na\nx\na\n", "@@ a\n-x\n+y", "x\na\ny\na\n"),
            ("a\na\na\n", "@@\n-a\n+b\n*** End of File", "a\na\nb\n"),
            ("a\n", "@@\n+b", "a\nb\n"),
            ("", "@@\n+b", "b\n"),
            ("a  \n\tb\n", "@@\n a\n-b\n+c", "a  \nc\n"),
            ("say \u{201c}x\u{201d}\n", "@@\n-say \"x\"\n+y", "y\n"),
            ("a\n\nb\n", "@@\n-a\n\n+x\n b", "\nx\nb\n"),
            ("1\n2\n3\n4\n", "@@\n-1\n+one\n@@\n-4\n+four", "one\n2\n3\nfour\n"),
        ] {
            assert_eq!(patched(text, body).as_deref(), Ok(wanted), "{text:?} {body:?}");
        }
        for (text, body, why) in [
            ("a\n", "@@\n-b", "these lines are not in the file after line 0:\nb"),
            ("a\nb\n", "@@ c\n-b", "there is no line `c` after line 0"),
            ("b\na\n", "@@\n-a\n@@\n-b", "not in the file after line 2"),
            ("a\n", "@@\n-a\n-b\n-c", "these lines are not in the file"),
        ] {
            assert!(patched(text, body).unwrap_err().contains(why), "{text:?} {body:?}");
        }
    }
}

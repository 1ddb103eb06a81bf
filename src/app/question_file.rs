//! The file that a question would change, read for the person who answers.

use crate::os::safe_path::SafeRoot;
use crate::store::{TeamDir, roster};
use crate::tools::find;
use crate::view::requests::FileNow;
use crate::wire::AgentName;
use crate::wire::permission::Question;
use crate::wire::tool::SubjectArgument;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file whose change is shown line by line, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads the file that a question of this agent would change, in the folder in which the agent works. Returns `None`
/// for any other question, and for a file that cannot be shown: on another host, outside of the folder, too large, or not UTF-8.
pub(crate) fn file_of(team: &TeamDir, owner: &AgentName, question: &Question) -> Option<FileNow> {
    let changes_file =
        ["content", "new_text", "edits"].iter().any(|it| question.input.get(it).is_some());
    let SubjectArgument::File(argument) = find(&question.tool)?.subject else { return None };
    let path = question.input.get(argument)?.as_str().filter(|_| changes_file)?;
    let roster = roster::read(team).ok()?;
    if roster.host_of(owner.as_str()).is_some() {
        return None;
    }
    let clone = roster.member(owner.as_str()).and_then(|member| member.work.as_ref());
    let folder = clone.map_or_else(|| team.workspace().to_owned(), |it| PathBuf::from(&it.folder));
    read(&folder, path)
}

fn read(folder: &Path, path: &str) -> Option<FileNow> {
    let spot = SafeRoot::open(folder).ok()?.find(Path::new(path)).ok()?;
    let Some(file) = spot.open().ok()? else { return Some(FileNow::Missing) };
    let mut bytes = Vec::new();
    // One byte more than allowed: the reported size may be wrong or may grow.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    let is_small = bytes.len() as u64 <= MAX_BYTES;
    String::from_utf8(bytes).ok().filter(|_| is_small).map(FileNow::Text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::permission::QuestionKind;
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_of_another_host_is_not_taken_for_one_of_this_host() {
        let (_folder, team) = crate::store::test_team();
        File::create(team.workspace().join("a")).unwrap().write_all(b"here").unwrap();
        let alice = AgentName::member("alice").unwrap();
        let question = Question {
            request_id: "r".into(),
            about: QuestionKind::Permission,
            tool_use_id: "t".into(),
            tool: "write_file".into(),
            input: serde_json::json!({ "path": "a", "content": "new" }),
            description: String::new(),
            subagent: None,
        };
        let set_host = |host: Option<&str>| {
            roster::update(&team, crate::store::Fsync::Never, |roster| {
                roster.enter("alice", 1.0).host = host.map(Into::into);
            })
            .unwrap();
        };
        set_host(None);
        assert_eq!(file_of(&team, &alice, &question), Some(FileNow::Text("here".into())));
        set_host(Some("gpu1"));
        assert_eq!(file_of(&team, &alice, &question), None);
    }

    #[test]
    fn only_a_small_text_inside_the_folder_is_read() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("work");
        fs::create_dir_all(folder.join("sub")).unwrap();
        let make = |path: &str, bytes: &[u8]| {
            File::create(folder.join(path)).unwrap().write_all(bytes).unwrap();
        };
        let most = usize::try_from(MAX_BYTES).unwrap();
        make("sub/a", b"text");
        make("../secret", b"no");
        make("binary", b"\xff\xfe");
        make("full", &vec![b'x'; most]);
        make("large", &vec![b'x'; most + 1]);
        symlink("../secret", folder.join("out")).unwrap();
        symlink("sub/a", folder.join("link")).unwrap();
        for path in ["sub/a", "link", "./sub/../sub/a"] {
            assert_eq!(read(&folder, path), Some(FileNow::Text("text".into())), "{path}");
        }
        assert!(matches!(read(&folder, "full"), Some(FileNow::Text(_))));
        for path in ["sub/new", "new/file"] {
            assert_eq!(read(&folder, path), Some(FileNow::Missing), "{path}");
        }
        for path in ["../secret", "out", "sub", "binary", "large", "/etc/passwd", "a\0b"] {
            assert_eq!(read(&folder, path), None, "{path}");
        }
        assert_eq!(read(&top.path().join("missing"), "a"), None);
    }
}

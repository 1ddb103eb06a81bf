//! The file tools: `read_file`, `write_file`, `edit_file`, in the workspace; elsewhere they touch what they
//! were judged by as lying outside.
//!
//! They share a [`ReadLog`], so that an agent never overwrites what it has not seen: an edit needs a file
//! that this agent has read and nobody has changed since.

use super::output::Capped;
use super::workspace::{Workspace, refusal};
use super::{Call, Registry, Tool, ToolError, ToolFuture, arguments};
use crate::os::safe_path::Spot;
use crate::protocol::permission::PermissionSubject;
use crate::wire::chat::ToolSpec;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::PathBuf;
use std::rc::Rc;

/// Largest file these tools load.
const LARGEST_FILE: u64 = 32 * 1024 * 1024;

/// What an agent has read or written: the content of each file when it last saw it, as a hash.
type ReadLog = RefCell<BTreeMap<PathBuf, u64>>;

/// What the tools of one agent share.
#[derive(Debug)]
struct Files {
    workspace: Rc<Workspace>,
    seen: ReadLog,
    judged: RefCell<Option<Judged>>,
}

/// The file that a call was judged by. A link that was moved since then would lead elsewhere.
#[derive(Debug)]
struct Judged {
    call: String,
    path: PathBuf,
}

/// Adds the three tools.
pub(super) fn add_file_tools(registry: &mut Registry, workspace: Rc<Workspace>) {
    let (seen, judged) = (ReadLog::default(), RefCell::default());
    let files = Rc::new(Files { workspace, seen, judged });
    registry.add(ReadFile(Rc::clone(&files)));
    registry.add(WriteFile(Rc::clone(&files)));
    registry.add(EditFile(files));
}

impl Files {
    fn read(&self, call: &Call) -> Result<String, ToolError> {
        let input: ReadArguments = arguments(call)?;
        let path = &input.path;
        let spot = self.as_judged(call, self.workspace.to_read(path)?)?;
        let bytes = load(path, &spot)?.ok_or_else(|| missing(path))?;
        if bytes.contains(&0) {
            return Err(ToolError::Reply(format!(
                "{path} is binary ({} bytes); look at it with bash (file, xxd, strings)",
                bytes.len()
            )));
        }
        self.saw(&spot, &bytes);
        excerpt(&input, &String::from_utf8_lossy(&bytes))
    }

    fn write(&self, call: &Call) -> Result<String, ToolError> {
        let input: WriteArguments = arguments(call)?;
        let path = &input.path;
        let spot = self.as_judged(call, self.workspace.to_write(path)?)?;
        if let (Some(seen), Some(now)) = (self.last_seen(&spot), load(path, &spot)?)
            && seen != hash(&now)
        {
            return Err(changed(path));
        }
        self.put(path, &spot, input.content.as_bytes())?;
        Ok(format!("wrote {} bytes to {path}", input.content.len()))
    }

    fn edit(&self, call: &Call) -> Result<String, ToolError> {
        let EditArguments { path, old_text, new_text } = &arguments(call)?;
        if old_text.is_empty() {
            return Err(ToolError::Reply(
                "old_text is empty; give the text to replace, or use write_file".into(),
            ));
        }
        if old_text == new_text {
            return Err(ToolError::Reply("old_text and new_text are the same".into()));
        }
        let spot = self.as_judged(call, self.workspace.to_write(path)?)?;
        let bytes = load(path, &spot)?.ok_or_else(|| missing(path))?;
        match self.last_seen(&spot) {
            None => {
                return Err(ToolError::Reply(format!(
                    "{path} has not been read by you yet; read it first with read_file"
                )));
            }
            Some(seen) if seen != hash(&bytes) => return Err(changed(path)),
            Some(_) => {}
        }
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return Err(ToolError::Reply(format!(
                "{path} is not UTF-8 text; change it with bash (sed, python)"
            )));
        };
        let count = text.matches(old_text.as_str()).count();
        if count != 1 {
            return Err(not_once(path, text, count));
        }
        self.put(path, &spot, text.replacen(old_text.as_str(), new_text, 1).as_bytes())?;
        Ok(format!("edited {path}"))
    }

    /// The file that a rule sees: links are followed first. The call keeps to it.
    fn subject(&self, call: &Call, spot: &Spot) -> PermissionSubject {
        let path = spot.path();
        let name = path.to_string_lossy().into_owned();
        let subject = if path.is_absolute() {
            PermissionSubject::Outside(name)
        } else {
            PermissionSubject::Path(name)
        };
        *self.judged.borrow_mut() = Some(Judged { call: call.id.clone(), path });
        subject
    }

    /// The place, if it is the one that the call was judged by. It is held from here on.
    fn as_judged(&self, call: &Call, spot: Spot) -> Result<Spot, ToolError> {
        let judged = self.judged.borrow();
        if judged.as_ref().is_some_and(|at| at.call == call.id && at.path == spot.path()) {
            return Ok(spot);
        }
        Err(ToolError::Reply(format!(
            "not done: a link was changed meanwhile, and the path now leads to {}, which nobody has \
             judged; look where it leads, then repeat the call",
            spot.path().display()
        )))
    }

    fn put(&self, path: &str, spot: &Spot, bytes: &[u8]) -> Result<(), ToolError> {
        spot.replace(bytes).map_err(|why| refusal(path, &why))?;
        self.saw(spot, bytes);
        Ok(())
    }

    fn saw(&self, spot: &Spot, bytes: &[u8]) {
        self.seen.borrow_mut().insert(spot.path(), hash(bytes));
    }

    fn last_seen(&self, spot: &Spot) -> Option<u64> {
        self.seen.borrow().get(&spot.path()).copied()
    }
}

/// The content of a file; `None` if there is none.
fn load(path: &str, spot: &Spot) -> Result<Option<Vec<u8>>, ToolError> {
    let failed = |why: std::io::Error| refusal(path, &why.into());
    let Some(file) = spot.open().map_err(|why| refusal(path, &why))? else { return Ok(None) };
    let mut bytes = Vec::new();
    let size = file.metadata().map_err(failed)?.len();
    // One byte more than allowed: the size may be a lie or may grow.
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(ToolError::Reply(format!(
            "{path} has {size} bytes, file tools take up to {LARGEST_FILE}; look at parts of it with \
             bash (head, tail, sed -n, grep)"
        )));
    }
    Ok(Some(bytes))
}

/// The lines that were asked for.
fn excerpt(input: &ReadArguments, text: &str) -> Result<String, ToolError> {
    let total = text.lines().count();
    if total == 0 {
        return Ok("(the file is empty)".into());
    }
    let first = input.offset.unwrap_or(1).max(1);
    if first > total {
        return Err(ToolError::Reply(format!(
            "{} has only {total} lines; give an offset from 1 to {total}",
            input.path
        )));
    }
    let last = total.min(first.saturating_add(input.limit.unwrap_or(total).max(1)) - 1);
    let mut shown = Capped::default();
    for line in text.split_inclusive('\n').skip(first - 1).take(last - first + 1) {
        shown.push_text(line);
    }
    let mut shown = shown.finish();
    if last - first + 1 < total {
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
        let note = format!("[lines {first} to {last} of {total}]");
        shown.push_str(&note);
    }
    Ok(shown)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn missing(path: &str) -> ToolError {
    ToolError::Reply(format!("{path} does not exist; look with `ls` which files there are"))
}

fn changed(path: &str) -> ToolError {
    ToolError::Reply(format!(
        "{path} has changed since you read it; read it again, then repeat what still applies"
    ))
}

fn not_once(path: &str, text: &str, count: usize) -> ToolError {
    let advice = match count {
        0 if text.contains("\r\n") => "the file's lines end in \\r\\n: give them so",
        0 => "copy it exactly from read_file, with its spaces and line breaks",
        _ => "give more of the text around it, so that it occurs once",
    };
    ToolError::Reply(format!("old_text occurs {count} times in {path}; {advice}"))
}

struct ReadFile(Rc<Files>);
struct WriteFile(Rc<Files>);
struct EditFile(Rc<Files>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    path: String,
    content: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArguments {
    path: String,
    old_text: String,
    new_text: String,
}

fn schema(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false
    })
}

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read_file".into(),
            description:
                "Reads a text file of the workspace. Of more than 50,000 characters the middle \
                          is cut: then ask for parts by offset and limit."
                    .into(),
            input_schema: schema(
                &json!({
                    "path": {"type": "string", "description": "Path in the workspace."},
                    "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1."},
                    "limit": {"type": "integer", "minimum": 1, "description": "Number of lines."}
                }),
                &["path"],
            ),
        }
    }

    fn subject(&self, call: &Call) -> Result<PermissionSubject, ToolError> {
        let input: ReadArguments = arguments(call)?;
        Ok(self.0.subject(call, &self.0.workspace.to_read(&input.path)?))
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async { self.0.read(call) })
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_file".into(),
            description:
                "Writes a whole file of the workspace, new or instead of the old one; folders on \
                          the way are made. To change a part of a file use edit_file."
                    .into(),
            input_schema: schema(
                &json!({
                    "path": {"type": "string", "description": "Path in the workspace."},
                    "content": {"type": "string", "description": "All that the file will hold."}
                }),
                &["path", "content"],
            ),
        }
    }

    fn subject(&self, call: &Call) -> Result<PermissionSubject, ToolError> {
        let input: WriteArguments = arguments(call)?;
        Ok(self.0.subject(call, &self.0.workspace.to_write(&input.path)?))
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async { self.0.write(call) })
    }
}

impl Tool for EditFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "edit_file".into(),
            description: "Replaces one piece of text in a file that you have read with read_file. \
                          old_text must occur exactly once."
                .into(),
            input_schema: schema(
                &json!({
                    "path": {"type": "string", "description": "Path in the workspace."},
                    "old_text": {"type": "string", "description": "The text as it stands there."},
                    "new_text": {"type": "string", "description": "What replaces it."}
                }),
                &["path", "old_text", "new_text"],
            ),
        }
    }

    fn subject(&self, call: &Call) -> Result<PermissionSubject, ToolError> {
        let input: EditArguments = arguments(call)?;
        Ok(self.0.subject(call, &self.0.workspace.to_write(&input.path)?))
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async { self.0.edit(call) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    struct Scene {
        folder: tempfile::TempDir,
        tools: Registry,
    }

    fn scene() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let mut tools = Registry::default();
        let workspace = Workspace::open(folder.path(), &folder.path().join(".team")).unwrap();
        add_file_tools(&mut tools, Rc::new(workspace));
        Scene { folder, tools }
    }

    impl Scene {
        fn path(&self, name: &str) -> PathBuf {
            Path::new(self.folder.path()).join(name)
        }

        #[expect(clippy::disallowed_methods, reason = "somebody else changes a file")]
        fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
            fs::write(self.path(name), bytes).unwrap();
        }

        fn call(&self, name: &str, input: Value) -> Result<String, String> {
            let call = Call { id: "1".into(), name: name.into(), input };
            self.tools.subject(&call).map_err(|why| why.to_string())?;
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(self.tools.call(&call)).map_err(|why| why.to_string())
        }

        fn read(&self, path: &str) -> Result<String, String> {
            self.call("read_file", json!({"path": path}))
        }

        fn write(&self, path: &str, content: &str) -> Result<String, String> {
            self.call("write_file", json!({"path": path, "content": content}))
        }

        fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
            self.call("edit_file", json!({"path": path, "old_text": old, "new_text": new}))
        }
    }

    fn refused(result: Result<String, String>, says: &str) {
        let why = result.unwrap_err();
        assert!(why.contains(says), "{why}");
    }

    #[test]
    fn a_call_keeps_to_the_file_it_was_judged_by() {
        let scene = scene();
        for folder in ["mine", "theirs"] {
            fs::create_dir(scene.path(folder)).unwrap();
        }
        let point_at = |target: &str| {
            let _none_yet = fs::remove_file(scene.path("link"));
            std::os::unix::fs::symlink(target, scene.path("link")).unwrap();
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (name, input) in [
            ("write_file", json!({"path": "link/a", "content": "new"})),
            ("read_file", json!({"path": "link/a"})),
            ("edit_file", json!({"path": "link/a", "old_text": "old", "new_text": "new"})),
        ] {
            scene.put("mine/a", "old");
            scene.put("theirs/a", "old");
            point_at("mine");
            let call = Call { id: name.into(), name: name.into(), input };
            let judged = scene.tools.subject(&call).unwrap();
            assert_eq!(judged, PermissionSubject::Path("mine/a".into()));
            point_at("theirs");
            let run = || runtime.block_on(scene.tools.call(&call)).map_err(|why| why.to_string());
            refused(run(), "leads to theirs/a");
            let other = Call { id: "another".into(), ..call.clone() };
            let other = runtime.block_on(scene.tools.call(&other)).map_err(|why| why.to_string());
            refused(other, "nobody has judged");
            assert_eq!(fs::read_to_string(scene.path("theirs/a")).unwrap(), "old", "{name}");
        }
    }

    #[test]
    fn what_is_written_can_be_read_and_edited() {
        let scene = scene();
        assert_eq!(scene.write("src/a.txt", "one\ntwo\n").unwrap(), "wrote 8 bytes to src/a.txt");
        assert_eq!(scene.edit("src/a.txt", "two", "2").unwrap(), "edited src/a.txt");
        assert_eq!(scene.edit("src/../src/a.txt", "one", "1").unwrap(), "edited src/../src/a.txt");
        assert_eq!(scene.read("src/a.txt").unwrap(), "1\n2\n");
    }

    #[test]
    fn an_edit_needs_a_file_that_was_read_and_has_not_changed() {
        let scene = scene();
        scene.put("a", "old");
        refused(scene.edit("a", "old", "new"), "read it first");
        scene.read("a").unwrap();
        scene.put("a", "odd");
        refused(scene.edit("a", "odd", "new"), "read it again");
        refused(scene.write("a", "new"), "read it again");
        scene.read("a").unwrap();
        scene.edit("a", "odd", "new").unwrap();
        assert_eq!(fs::read_to_string(scene.path("a")).unwrap(), "new");
        refused(scene.edit("gone", "x", "y"), "does not exist");
    }

    #[test]
    fn old_text_must_occur_exactly_once() {
        let scene = scene();
        scene.write("a", "x y x\r\n").unwrap();
        refused(scene.edit("a", "x", "z"), "occurs 2 times");
        refused(scene.edit("a", "x\n", "z"), "give them so");
        refused(scene.edit("a", "q", "z"), "occurs 0 times");
        refused(scene.edit("a", "", "z"), "is empty");
        refused(scene.edit("a", "x", "x"), "the same");
        assert_eq!(fs::read_to_string(scene.path("a")).unwrap(), "x y x\r\n");
    }

    #[test]
    fn an_unread_file_may_be_overwritten() {
        let scene = scene();
        scene.put("a", "old");
        scene.write("a", "new").unwrap();
        scene.write("a", "newer").unwrap();
        assert_eq!(fs::read_to_string(scene.path("a")).unwrap(), "newer");
    }

    #[test]
    fn parts_are_shown_with_their_place() {
        let scene = scene();
        scene.put("a", "1\n2\n3\n4");
        let part = |offset: u64, limit: u64| {
            scene.call("read_file", json!({"path": "a", "offset": offset, "limit": limit}))
        };
        assert_eq!(part(2, 2).unwrap(), "2\n3\n[lines 2 to 3 of 4]");
        assert_eq!(part(4, 9).unwrap(), "4\n[lines 4 to 4 of 4]");
        assert_eq!(part(0, 9).unwrap(), "1\n2\n3\n4");
        refused(part(5, 1), "only 4 lines");
        scene.put("empty", "");
        assert_eq!(scene.read("empty").unwrap(), "(the file is empty)");
    }

    #[test]
    fn what_is_no_text_or_too_much_is_not_shown_whole() {
        let scene = scene();
        scene.put("binary", b"\x7fELF\0\0");
        refused(scene.read("binary"), "is binary (6 bytes)");
        scene.put("latin", b"caf\xe9");
        assert_eq!(scene.read("latin").unwrap(), "caf\u{fffd}");
        refused(scene.edit("latin", "caf", "tea"), "not UTF-8");
        scene.put("long", "line\n".repeat(20_000));
        let shown = scene.read("long").unwrap();
        assert!(shown.contains("characters cut here") && shown.chars().count() <= 50_000);
        fs::File::create(scene.path("sparse")).unwrap().set_len(1 << 40).unwrap();
        refused(scene.read("sparse"), "1099511627776 bytes");
    }

    #[test]
    fn arguments_that_do_not_fit_are_named() {
        let scene = scene();
        refused(scene.call("read_file", json!({"file": "a"})), "file");
        refused(scene.call("write_file", json!({"path": "a"})), "content");
        refused(scene.write(".team/config.json", "{}"), "send_message");
        refused(scene.read("missing"), "does not exist");
    }
}

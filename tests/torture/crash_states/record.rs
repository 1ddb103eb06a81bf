//! Records the system calls of a process that sends and drains, as operations on the mail folders.

use super::disk::{FileId, Op, Tree};
use crate::support::child_process::{self, ChildProcess, Job, team};
use agent_team::store::inbox;
use agent_team::wire::AgentName;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folders whose content matters for mail.
const FOLDERS: [&str; 7] = [
    "inbox",
    "inbox/.claim",
    "dead",
    "dead/.claim",
    "transcript",
    "transcript/archive",
    "run/.state",
];

/// The traced system calls: those that change files or folders, and those that define a descriptor.
const CALLS: &str = "openat,openat2,creat,open,close,dup,dup2,dup3,lseek,\
    write,pwrite64,writev,pwritev,pwritev2,sendfile,copy_file_range,fallocate,truncate,ftruncate,\
    link,linkat,symlink,symlinkat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,\
    fsync,fdatasync,sync,syncfs,sync_file_range";

/// The initial content of the mail folders, and the operations on them.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) before: Tree,
    pub(crate) ops: Vec<Op>,
}

/// Whether processes can be traced here.
pub(crate) fn is_possible() -> bool {
    let mut strace = Command::new("strace");
    strace.args(["-o", "/dev/null", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    strace.status().is_ok_and(|status| status.success())
}

/// Runs these steps in a new team folder.
pub(crate) fn record(steps: &str) -> Record {
    let (folder, dir) = team();
    if !steps.starts_with('m') {
        inbox::ensure(&dir, &AgentName::member("alice").unwrap()).unwrap();
    }
    let root = fs::canonicalize(dir.root()).unwrap();
    let mut writer = Writer::new(root.clone());
    let before = writer.now.clone();
    let trace = folder.path().join("trace");
    let job = child_process::command(&dir, Job::Steps { steps: steps.into() }, None);
    let mut strace = Command::new("strace");
    strace.args(["-xx", "-s", "4194304", "-e", &format!("trace={CALLS}"), "-o"]).arg(&trace);
    strace.arg(job.get_program()).args(job.get_args());
    strace.envs(job.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let mut child: ChildProcess = child_process::run(strace);
    assert!(child.wait().success(), "{steps}");
    let text = fs::read_to_string(&trace).unwrap();
    text.lines().filter_map(Call::read).for_each(|call| writer.follow(&call));
    let disk = Tree::of(&root, &mut writer.ids);
    assert_eq!(disk.shape(), writer.now.shape(), "the record and the disk agree");
    Record { before, ops: writer.ops }
}

impl Tree {
    /// The content of the mail folders of a team.
    fn of(root: &Path, ids: &mut BTreeMap<u64, FileId>) -> Self {
        let mut tree = Self::default();
        for folder in FOLDERS {
            for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_file() {
                    let next = ids.len();
                    let file = *ids.entry(entry.metadata().unwrap().ino()).or_insert(next);
                    let name = entry.file_name().to_string_lossy().into_owned();
                    tree.names.insert(format!("{folder}/{name}"), file);
                    tree.files.insert(file, fs::read(entry.path()).unwrap());
                }
            }
        }
        tree
    }

    /// The content behind each name.
    fn shape(&self) -> BTreeMap<&str, &[u8]> {
        let content = |file| self.files.get(file).map_or(&[][..], Vec::as_slice);
        self.names.iter().map(|(name, file)| (name.as_str(), content(file))).collect()
    }
}

/// One system call that succeeded.
#[derive(Debug)]
struct Call {
    name: String,
    args: Vec<String>,
    result: i64,
}

impl Call {
    fn read(line: &str) -> Option<Self> {
        let (name, rest) = line.split_once('(')?;
        let (args, result) = rest.rsplit_once(") ")?;
        let result = result.trim_start().strip_prefix("= ")?.split(' ').next()?.parse().ok()?;
        let args = args.split(", ").map(str::to_owned).collect();
        (result >= 0).then(|| Self { name: name.into(), args, result })
    }

    fn number<T: std::str::FromStr>(&self, at: usize) -> T {
        let text = &self.args[at];
        text.parse().unwrap_or_else(|_| panic!("{text} is no number: {self:?}"))
    }

    /// A string argument, which strace prints as `"\x2f\x74…"`.
    fn bytes(&self, at: usize) -> Vec<u8> {
        let text = self.args[at].trim_matches('"');
        let digits = text.split("\\x").skip(1);
        digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
    }

    fn path(&self, at: usize) -> PathBuf {
        String::from_utf8(self.bytes(at)).unwrap().into()
    }
}

/// The target of a descriptor.
#[derive(Debug, Clone)]
enum Open {
    File { file: FileId, path: String, at: usize, appends: bool },
    Folder { path: String },
}

/// Translates the calls of a process into operations on a [`Tree`].
struct Writer {
    root: PathBuf,
    now: Tree,
    open: BTreeMap<i64, Open>,
    ids: BTreeMap<u64, FileId>,
    new_files: FileId,
    ops: Vec<Op>,
}

impl Writer {
    fn new(root: PathBuf) -> Self {
        let mut ids = BTreeMap::new();
        let now = Tree::of(&root, &mut ids);
        // New files get ids above those of the existing files.
        Self { root, now, open: BTreeMap::new(), ids, new_files: 1_000, ops: Vec::new() }
    }

    /// The path inside the team folder, if it matters for mail.
    fn inside(&self, path: &Path) -> Option<String> {
        let inside = path.strip_prefix(&self.root).ok()?.to_str()?.to_owned();
        // A `.bell` file is a FIFO and has no content on disk.
        if path.extension().is_some_and(|kind| kind == "bell") {
            return None;
        }
        let parent = inside.rsplit_once('/').map_or("", |(parent, _)| parent);
        (FOLDERS.contains(&inside.as_str()) || FOLDERS.contains(&parent)).then_some(inside)
    }

    fn act(&mut self, op: Op) {
        self.now.apply(&op);
        self.ops.push(op);
    }

    fn follow(&mut self, call: &Call) {
        match call.name.as_str() {
            "openat" => self.on_open(call),
            "close" => drop(self.open.remove(&call.number(0))),
            "write" if call.args[0] == "1" => self.on_told(call),
            "write" => self.on_write(call),
            "pwrite64" => {
                let at = call.number(3);
                self.write_at(call, Some(at));
            }
            "lseek" => {
                if let Some(Open::File { at, .. }) = self.open.get_mut(&call.number(0)) {
                    *at = usize::try_from(call.result).unwrap();
                }
            }
            "ftruncate" => {
                if let Some(Open::File { file, .. }) = self.open.get(&call.number(0)) {
                    let op = Op::SetLength { file: *file, length: call.number(1) };
                    self.act(op);
                }
            }
            "link" => self.on_link(&call.path(0), &call.path(1)),
            "linkat" => self.on_link(&call.path(1), &call.path(3)),
            "rename" => self.on_rename(&call.path(0), &call.path(1)),
            "renameat" | "renameat2" => self.on_rename(&call.path(1), &call.path(3)),
            "unlink" => self.on_unlink(&call.path(0)),
            "unlinkat" => self.on_unlink(&call.path(1)),
            "fsync" | "fdatasync" => match self.open.get(&call.number(0)).cloned() {
                Some(Open::File { file, path, .. }) => self.act(Op::SyncFile { file, path }),
                Some(Open::Folder { path }) => self.act(Op::SyncFolder { path }),
                None => {}
            },
            // Other descriptors do not concern mail.
            _ => {
                let known =
                    |arg: &String| arg.parse().is_ok_and(|fd: i64| self.open.contains_key(&fd));
                let named = (0..call.args.len())
                    .filter(|at| call.args[*at].starts_with("\"\\x2f"))
                    .any(|at| self.inside(&call.path(at)).is_some());
                assert!(
                    !named && !call.args.iter().take(1).any(known),
                    "not in the model: {call:?}"
                );
            }
        }
    }

    fn on_open(&mut self, call: &Call) {
        let Some(path) = self.inside(&self.opened_path(call)) else { return };
        if FOLDERS.contains(&path.as_str()) {
            self.open.insert(call.result, Open::Folder { path });
            return;
        }
        let flags: Vec<&str> = call.args[2].split('|').collect();
        let file = self.now.names.get(&path).copied().unwrap_or_else(|| {
            assert!(flags.contains(&"O_CREAT"), "nobody made it: {call:?}");
            self.new_files += 1;
            let file = self.new_files;
            self.act(Op::Name { path: path.clone(), file });
            file
        });
        if flags.contains(&"O_TRUNC") {
            self.act(Op::SetLength { file, length: 0 });
        }
        let appends = flags.contains(&"O_APPEND");
        self.open.insert(call.result, Open::File { file, path, at: 0, appends });
    }

    /// The path of an `openat`, which may be below an open folder.
    fn opened_path(&self, call: &Call) -> PathBuf {
        let folder = call.args[0].parse().ok().and_then(|fd: i64| self.open.get(&fd));
        if let Some(Open::Folder { path }) = folder {
            return self.root.join(path).join(call.path(1));
        }
        call.path(1)
    }

    fn on_told(&mut self, call: &Call) {
        let said = String::from_utf8(call.bytes(1)).unwrap();
        if said.starts_with("> begin") {
            self.ops.push(Op::Begun);
        } else if said.starts_with("> ack") {
            self.ops.push(Op::Acknowledged);
        }
    }

    fn on_write(&mut self, call: &Call) {
        self.write_at(call, None);
    }

    fn write_at(&mut self, call: &Call, place: Option<usize>) {
        let number: i64 = call.number(0);
        let Some(Open::File { file, at, appends, .. }) = self.open.get_mut(&number) else { return };
        let written = usize::try_from(call.result).unwrap();
        let mut bytes = call.bytes(1);
        bytes.truncate(written);
        assert_eq!(bytes.len(), written, "strace cut the bytes off");
        let length = self.now.files.get(file).map_or(0, Vec::len);
        let start = place.unwrap_or(if *appends { length } else { *at });
        if place.is_none() {
            *at = start + written;
        }
        let op = Op::Write { file: *file, at: start, bytes };
        self.act(op);
    }

    fn on_link(&mut self, old: &Path, new: &Path) {
        let (Some(old), Some(path)) = (self.inside(old), self.inside(new)) else { return };
        let file = self.now.names[&old];
        self.act(Op::Name { path, file });
    }

    fn on_rename(&mut self, old: &Path, new: &Path) {
        let (Some(from), Some(to)) = (self.inside(old), self.inside(new)) else { return };
        let file = self.now.names[&from];
        self.act(Op::Move { from, to, file });
    }

    fn on_unlink(&mut self, path: &Path) {
        if let Some(path) = self.inside(path) {
            self.act(Op::Remove { path });
        }
    }
}

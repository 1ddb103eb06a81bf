//! A model of the disk after a power cut. It guarantees less than ext4, XFS and btrfs do:
//!
//! - Unsynced writes to a file survive up to any one of them. The next one may survive by half or as zeros;
//!   after the zeros, the remaining writes may survive.
//! - Names that were created, moved or removed in an unsynced folder survive independently of each other. A
//!   move is atomic; a sync of either folder makes it durable.
//! - A sync of a file makes its content durable, not its name. A sync of a folder makes its names durable.

use crate::support::child_process;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A file, independent of its names.
pub(crate) type FileId = usize;

/// An operation of a process on the disk, or an event for the checker. Paths are relative to the team folder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    Write {
        file: FileId,
        at: usize,
        bytes: Vec<u8>,
    },
    SetLength {
        file: FileId,
        length: usize,
    },
    /// A new name for a new or an existing file.
    Name {
        path: String,
        file: FileId,
    },
    Move {
        from: String,
        to: String,
        file: FileId,
    },
    Remove {
        path: String,
    },
    /// `path` is the path at the time of the open, for debugging only.
    SyncFile {
        file: FileId,
        path: String,
    },
    SyncFolder {
        path: String,
    },
    /// A send began.
    Begun,
    /// A send was acknowledged.
    Acknowledged,
}

impl Op {
    /// Whether the operation syncs this path.
    pub(crate) fn syncs(&self, place: &str) -> bool {
        matches!(self, Self::SyncFile { path, .. } | Self::SyncFolder { path } if path == place)
    }

    fn touches(&self, folder: &str) -> bool {
        let is_in = |path: &str| parent(path) == folder;
        match self {
            Self::Name { path, .. } | Self::Remove { path } => is_in(path),
            Self::Move { from, to, .. } => is_in(from) || is_in(to),
            Self::Write { .. }
            | Self::SetLength { .. }
            | Self::SyncFile { .. }
            | Self::SyncFolder { .. }
            | Self::Begun
            | Self::Acknowledged => false,
        }
    }

    fn changes(&self, wanted: FileId) -> bool {
        matches!(self, Self::Write { file, .. } | Self::SetLength { file, .. } if *file == wanted)
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The content of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tree {
    pub(crate) names: BTreeMap<String, FileId>,
    pub(crate) files: BTreeMap<FileId, Vec<u8>>,
}

impl Tree {
    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { file, at, bytes } => {
                let content = self.files.entry(*file).or_default();
                let end = at + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*at..end].copy_from_slice(bytes);
            }
            Op::SetLength { file, length } => {
                self.files.entry(*file).or_default().resize(*length, 0);
            }
            Op::Name { path, file } => drop(self.names.insert(path.clone(), *file)),
            Op::Move { from, to, file } => {
                self.names.remove(from);
                self.names.insert(to.clone(), *file);
            }
            Op::Remove { path } => drop(self.names.remove(path)),
            Op::SyncFile { .. } | Op::SyncFolder { .. } | Op::Begun | Op::Acknowledged => {}
        }
    }
}

/// A state of the disk, with the numbers of sends begun and acknowledged before.
#[derive(Debug)]
pub(crate) struct State {
    tree: Tree,
    pub(crate) begun: u64,
    pub(crate) acked: u64,
}

impl State {
    /// A value that is equal for indistinguishable states: it leaves out files without a name.
    pub(crate) fn fingerprint(&self) -> (Tree, u64, u64) {
        let named: BTreeSet<&FileId> = self.tree.names.values().collect();
        let mut tree = self.tree.clone();
        tree.files.retain(|file, _| named.contains(file));
        (tree, self.begun, self.acked)
    }

    /// Creates the files of this state in a team folder.
    pub(crate) fn lay_out(&self, root: &Path) {
        let mut made: BTreeMap<FileId, &str> = BTreeMap::new();
        for (path, file) in &self.tree.names {
            let place = root.join(path);
            match made.get(file) {
                Some(first) => fs::hard_link(root.join(first), place).unwrap(),
                None => {
                    child_process::write(
                        &place,
                        self.tree.files.get(file).map_or(&[][..], Vec::as_slice),
                    );
                    made.insert(*file, path);
                }
            }
        }
    }
}

/// All possible states of the disk after these operations and a power cut.
pub(crate) fn states_after(before: &Tree, ops: &[Op]) -> Vec<State> {
    let count = |wanted: &Op| u64::try_from(ops.iter().filter(|op| *op == wanted).count()).unwrap();
    let (begun, acked) = (count(&Op::Begun), count(&Op::Acknowledged));
    let pending = Pending::of(ops);
    let mut contents: Vec<BTreeMap<FileId, Vec<u8>>> = vec![before.files.clone()];
    for file in files_of(ops) {
        let variants = pending.contents(before, ops, file);
        contents = contents
            .iter()
            .flat_map(|known| {
                variants.iter().map(|content| {
                    let mut known = known.clone();
                    known.insert(file, content.clone());
                    known
                })
            })
            .collect();
    }
    let mut states = Vec::new();
    for names in pending.names(before, ops) {
        for files in &contents {
            let tree = Tree { names: names.clone(), files: files.clone() };
            states.push(State { tree, begun, acked });
        }
    }
    states
}

fn files_of(ops: &[Op]) -> BTreeSet<FileId> {
    let mut files = BTreeSet::new();
    for op in ops {
        if let Op::Write { file, .. } | Op::SetLength { file, .. } = op {
            files.insert(*file);
        }
    }
    files
}

/// The indices of the operations that no sync has made durable.
struct Pending(Vec<usize>);

impl Pending {
    fn of(ops: &[Op]) -> Self {
        let mut pending = Vec::new();
        for (at, op) in ops.iter().enumerate() {
            match op {
                Op::SyncFile { file, .. } => pending.retain(|at: &usize| !ops[*at].changes(*file)),
                Op::SyncFolder { path } => pending.retain(|at| !ops[*at].touches(path)),
                Op::Begun | Op::Acknowledged => {}
                Op::Write { .. }
                | Op::SetLength { .. }
                | Op::Name { .. }
                | Op::Move { .. }
                | Op::Remove { .. } => pending.push(at),
            }
        }
        Self(pending)
    }

    /// The possible contents of the file.
    fn contents(&self, before: &Tree, ops: &[Op], file: FileId) -> Vec<Vec<u8>> {
        let all: Vec<usize> = (0..ops.len()).filter(|at| ops[*at].changes(file)).collect();
        let open: Vec<usize> = all.iter().copied().filter(|at| self.0.contains(at)).collect();
        let sure = all.len() - open.len();
        let content = |chosen: &[Op]| {
            let mut tree = Tree::default();
            tree.files.insert(file, before.files.get(&file).cloned().unwrap_or_default());
            for op in chosen {
                tree.apply(op);
            }
            tree.files.remove(&file).unwrap()
        };
        let ops: Vec<Op> = all.iter().map(|at| ops[*at].clone()).collect();
        let mut found = BTreeSet::new();
        for kept in sure..=ops.len() {
            found.insert(content(&ops[..kept]));
            if let Some(Op::Write { file, at, bytes }) = ops.get(kept) {
                let (file, at) = (*file, *at);
                let half = bytes[..bytes.len() / 2].to_vec();
                let zeros = vec![0; bytes.len()];
                let torn = |bytes| [&ops[..kept], &[Op::Write { file, at, bytes }]].concat();
                found.insert(content(&torn(half)));
                found.insert(content(&[torn(zeros.clone()), ops[kept + 1..].to_vec()].concat()));
                found.insert(content(&torn(zeros)));
            }
        }
        found.into_iter().collect()
    }

    /// The possible sets of names.
    fn names(&self, before: &Tree, ops: &[Op]) -> BTreeSet<BTreeMap<String, FileId>> {
        let is_name = |op: &Op| matches!(op, Op::Name { .. } | Op::Move { .. } | Op::Remove { .. });
        let open: Vec<usize> = self.0.iter().copied().filter(|at| is_name(&ops[*at])).collect();
        assert!(open.len() <= 16, "{} names are open: too many to try all", open.len());
        let mut found = BTreeSet::new();
        for choice in 0..1_u32 << open.len() {
            let mut tree = Tree { names: before.names.clone(), files: BTreeMap::new() };
            for (at, op) in ops.iter().enumerate().filter(|(_, op)| is_name(op)) {
                let bit = open.iter().position(|open| *open == at);
                if bit.is_none_or(|bit| choice & (1 << bit) != 0) {
                    tree.apply(op);
                }
            }
            found.insert(tree.names);
        }
        found
    }
}

//! The policy of the walls around a command, and its way into the supervisor: a memory file, so that it is in no
//! argument and no environment.

use crate::wire::host::HostPattern;
use crate::wire::sandbox::SandboxNetwork;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufReader, Seek, Write};
use std::path::{Path, PathBuf};

/// The files and sockets that a command may reach. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WallPolicy {
    /// Files and folders that the command may change, without links in their paths. Paths that do not exist are left out.
    #[serde(with = "paths_of_any_bytes")]
    pub(crate) writable: Vec<PathBuf>,
    /// Files and folders that the command cannot read. A trailing `*` completes the last name.
    #[serde(with = "paths_of_any_bytes")]
    pub(crate) hidden: Vec<PathBuf>,
    /// Paths in hidden folders that stay readable.
    #[serde(with = "paths_of_any_bytes")]
    pub(crate) readable: Vec<PathBuf>,
    /// Folders that stay readable where a private folder would cover them.
    #[serde(with = "paths_of_any_bytes")]
    pub(crate) visible: Vec<PathBuf>,
    /// Folders in writable ones that the command may change but not rename or replace.
    #[serde(with = "paths_of_any_bytes")]
    pub(crate) pinned: Vec<PathBuf>,
    /// Paths in writable folders that the command may only read.
    #[serde(with = "paths_of_any_bytes")]
    pub(crate) protected: Vec<PathBuf>,
    pub(crate) network: SandboxNetwork,
    /// The hosts that the agent's proxy lets through. The supervisor does not need them.
    #[serde(skip)]
    pub(crate) hosts: Vec<HostPattern>,
    /// Whether the command has user, mount and IPC namespaces of its own.
    pub(crate) has_namespaces: bool,
    /// Whether the command does without Landlock.
    pub(crate) lacks_landlock: bool,
    /// Whether hidden paths in writable folders may stay reachable, where no namespaces hide them.
    pub(crate) allows_holes: bool,
    /// The highest version of Landlock that is used; `None` for that of the kernel. For tests.
    pub(crate) landlock_cap: Option<i32>,
}

/// Paths as lists of bytes, since a path need not be a text.
mod paths_of_any_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::{ffi::OsString, path::PathBuf};

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], out: S) -> Result<S::Ok, S::Error> {
        let paths: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
        paths.serialize(out)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(text: D) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<Vec<u8>>::deserialize(text)?;
        Ok(paths.into_iter().map(|path| OsString::from_vec(path).into()).collect())
    }
}

impl WallPolicy {
    /// Returns the hidden paths below writable folders, which Landlock alone cannot hide.
    pub(crate) fn holes(&self) -> Vec<PathBuf> {
        self.split_hidden().1
    }

    /// Returns the writable paths that exist. One that leads through a link was put there since the policy was made,
    /// perhaps by a command, and is left out.
    pub(super) fn writable_paths(&self) -> Vec<PathBuf> {
        let mut real = real_paths(&self.writable);
        real.retain(|path| self.writable.contains(path));
        real
    }

    /// Returns the paths that exist and stay readable, without those that lead through a link.
    pub(super) fn readable_paths(&self) -> Vec<PathBuf> {
        let mut real = real_paths(&self.readable);
        real.retain(|path| self.readable.contains(path));
        real
    }

    /// Returns the hidden paths outside writable folders, and those in them.
    pub(super) fn split_hidden(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let writable = self.writable_paths();
        let is_outside = |path: &PathBuf| !writable.iter().any(|folder| path.starts_with(folder));
        self.hidden_paths().into_iter().partition(is_outside)
    }

    /// Returns the real paths that exist and are hidden.
    pub(crate) fn hidden_paths(&self) -> Vec<PathBuf> {
        real_paths(self.hidden.iter().flat_map(|path| completions(path)))
    }

    /// Writes the policy into a memory file.
    pub(in crate::os) fn to_file(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create(c"walls", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        Ok(file)
    }

    pub(in crate::os) fn from_file(file: File) -> io::Result<Self> {
        Ok(serde_json::from_reader(BufReader::new(file))?)
    }
}

/// Returns the real paths of those paths that exist, each once, parents first.
pub(super) fn real_paths(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Vec<PathBuf> {
    let real = paths.into_iter().filter_map(|path| fs::canonicalize(path).ok());
    let mut real: Vec<PathBuf> = real.collect();
    real.sort();
    real.dedup();
    real
}

/// Returns the paths that a path with a trailing `*` means, or the path itself.
fn completions(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let prefix = name.as_deref().and_then(|name| name.strip_suffix('*'));
    let (Some(prefix), Some(folder)) = (prefix, path.parent()) else {
        return vec![path.to_owned()];
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    named.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_hidden_path_in_a_writable_folder_is_a_hole() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        for name in ["ws/.team", "home/credentials.toml", "home/other"] {
            fs::create_dir_all(real.join(name)).unwrap();
        }
        let policy = WallPolicy {
            writable: vec![real.join("ws")],
            hidden: vec![real.join("home/cred*"), real.join("ws/.team"), real.join("missing")],
            readable: Vec::new(),
            visible: Vec::new(),
            pinned: vec![PathBuf::from(OsStr::from_bytes(b"/odd\xff"))],
            protected: Vec::new(),
            network: SandboxNetwork::Open,
            hosts: Vec::new(),
            has_namespaces: false,
            lacks_landlock: false,
            allows_holes: false,
            landlock_cap: None,
        };
        assert_eq!(policy.holes(), [real.join("ws/.team")]);
        let hidden = [real.join("home/credentials.toml"), real.join("ws/.team")];
        assert_eq!(policy.hidden_paths(), hidden);
        let copy = WallPolicy::from_file(policy.to_file().unwrap()).unwrap();
        assert_eq!(copy, policy);
    }
}

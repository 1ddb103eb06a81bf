//! The policy of the walls around a command, and its way into the supervisor: a memory file, so that it is in no
//! argument and no environment.

use crate::wire::host::HostPattern;
use crate::wire::sandbox::SandboxNetwork;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
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

/// Paths as texts with one character for each byte, since a path need not be a text.
mod paths_of_any_bytes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::{ffi::OsString, path::PathBuf};

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], out: S) -> Result<S::Ok, S::Error> {
        let bytes = paths.iter().map(|path| path.as_os_str().as_bytes());
        let texts = bytes.map(|path| path.iter().copied().map(char::from).collect::<String>());
        texts.collect::<Vec<_>>().serialize(out)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(text: D) -> Result<Vec<PathBuf>, D::Error> {
        let texts = Vec::<String>::deserialize(text)?;
        let bytes = |text: String| text.chars().map(u8::try_from).collect::<Result<Vec<_>, _>>();
        let paths = texts.into_iter().map(|text| Ok(OsString::from_vec(bytes(text)?).into()));
        paths
            .collect::<Result<_, _>>()
            .map_err(|why: std::char::TryFromCharError| D::Error::custom(why))
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

    pub(in crate::os) fn from_file(mut file: File) -> io::Result<Self> {
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Returns the real paths of those paths that exist, each once, parents first.
pub(super) fn real_paths(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Vec<PathBuf> {
    // Many paths are in the same few folders.
    let mut folders = BTreeMap::new();
    let real = paths.into_iter().filter_map(|path| real_path(path.as_ref(), &mut folders));
    let mut real: Vec<PathBuf> = real.collect();
    real.sort();
    real.dedup();
    real
}

/// Returns the real path of a path, if it exists. `folders` has the known real paths of folders.
fn real_path(path: &Path, folders: &mut BTreeMap<PathBuf, Option<PathBuf>>) -> Option<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return fs::canonicalize(path).ok();
    };
    let folder = match folders.get(folder) {
        Some(known) => known.clone(),
        None => {
            let real = fs::canonicalize(folder).ok();
            folders.insert(folder.to_owned(), real.clone());
            real
        }
    };
    let found = folder?.join(name);
    if fs::symlink_metadata(&found).ok()?.is_symlink() {
        return fs::canonicalize(found).ok();
    }
    Some(found)
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
    fn real_paths_have_no_links_and_exist() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir_all(real.join("home/inner")).unwrap();
        for (to, from) in [("home", "way"), ("inner", "home/inner-way"), ("nothing", "home/broken")]
        {
            std::os::unix::fs::symlink(to, real.join(from)).unwrap();
        }
        let asked = [
            "way/inner",
            "home/inner-way",
            "home/broken",
            "way/missing",
            "way/..",
            "missing/x",
            "way",
        ];
        let expected = [real.clone(), real.join("home"), real.join("home/inner")];
        assert_eq!(real_paths(asked.map(|path| real.join(path))), expected);
    }

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

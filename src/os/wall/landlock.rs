//! Landlock rules: the files that a command may read and change, and signals and abstract sockets that stay inside.
//!
//! Landlock only grants. A hidden path is one that no grant covers: each folder around it is granted entry by entry.
//! The names in a hidden folder can still be listed, since listing is granted everywhere.

use super::devices::{self, DEVICES, SHARED_MEMORY};
use super::policy::WallPolicy;
use ::landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::errno::Errno;
use nix::libc;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The latest version whose rights are used.
pub(super) const LATEST: i32 = 6;

/// The version from which the rules also keep signals in.
pub(crate) const VERSION_WITH_SIGNALS: i32 = 6;

/// The rules of one command.
#[derive(Debug)]
pub(super) struct LandlockRules {
    ruleset: RulesetCreated,
    abi: ABI,
}

/// Returns the version of Landlock, at most `cap`. Fails if the kernel has none.
pub(super) fn version(cap: Option<i32>) -> io::Result<i32> {
    const VERSION: u32 = 1;
    let none = std::ptr::null::<u8>();
    // SAFETY: with this flag the kernel reads no attributes.
    #[expect(unsafe_code, reason = "nix has no landlock calls")]
    let asked = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, VERSION) };
    let found = i32::try_from(Errno::result(asked)?).map_err(io::Error::other)?;
    match cap.map_or(found, |cap| found.min(cap)) {
        usable if usable > 0 => Ok(usable),
        _ => Err(Errno::ENOSYS.into()),
    }
}

impl LandlockRules {
    /// Collects the rules and opens their files. `hidden` are real paths outside writable folders.
    pub(super) fn prepare(
        policy: &WallPolicy,
        hidden: &[PathBuf],
        version: i32,
    ) -> io::Result<Self> {
        let abi = ABI::from(version.min(LATEST));
        let mut ruleset =
            Ruleset::default().handle_access(AccessFs::from_all(abi)).map_err(io_error)?;
        if version >= VERSION_WITH_SIGNALS {
            ruleset = ruleset.scope(Scope::from_all(abi)).map_err(io_error)?;
        }
        let mut rules = Self { ruleset: ruleset.create().map_err(io_error)?, abi };
        let read = AccessFs::from_read(abi);
        rules.grant(Path::new("/"), AccessFs::ReadDir.into())?;
        for path in unhidden_paths(hidden).iter().chain(&policy.readable_paths()) {
            rules.grant(path, read)?;
        }
        for path in policy.writable_paths() {
            rules.grant(&path, AccessFs::from_all(abi))?;
        }
        for path in DEVICES {
            rules.grant(Path::new(path), AccessFs::from_file(abi) | AccessFs::ReadDir)?;
        }
        Ok(rules)
    }

    /// Binds this process to the rules; it may change `private` folders, too. Makes only system calls and small
    /// allocations.
    pub(super) fn enforce<'a>(
        &self,
        private: impl IntoIterator<Item = &'a PathBuf>,
    ) -> io::Result<()> {
        let ruleset = self.ruleset.try_clone()?;
        let mut rules = Self { ruleset, abi: self.abi };
        for path in private {
            rules.grant(path, AccessFs::from_all(self.abi))?;
        }
        match rules.ruleset.restrict_self().map_err(io_error)?.ruleset {
            RulesetStatus::NotEnforced => Err(io::Error::other("the rules are not enforced")),
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        }
    }

    /// Grants access to a path and all below it; a path that cannot be opened is left out.
    fn grant(&mut self, path: &Path, access: BitFlags<AccessFs>) -> io::Result<()> {
        let Ok(opened) = PathFd::new(path) else { return Ok(()) };
        // The crate leaves out what only a folder can have. By reference, since the owned form of the method cannot be undone after an error.
        (&mut self.ruleset).add_rule(PathBeneath::new(opened, access)).map(drop).map_err(io_error)
    }
}

/// Returns the largest trees of the machine without a hidden path or a device in them. Links are left out: their
/// targets have grants of their own.
fn unhidden_paths(hidden: &[PathBuf]) -> Vec<PathBuf> {
    let (root, devices) = (Path::new("/"), Path::new(devices::FOLDER));
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        if path == devices {
            open.push(SHARED_MEMORY.into());
        } else if path != root && !hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            found.push(path);
        } else if !hidden.contains(&path) {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            let entries =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
            open.extend(entries.map(|entry| entry.path()));
        }
    }
    found
}

fn io_error(why: RulesetError) -> io::Error {
    io::Error::other(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_granted_tree_contains_a_hidden_path_or_is_reached_by_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        for name in [".ssh", ".config/gh", ".config/git", "work"] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        symlink(home.join(".ssh"), home.join("link")).unwrap();
        let hidden = [home.join(".ssh"), home.join(".config/gh")];
        let found = unhidden_paths(&hidden);
        let mut inside: Vec<_> = found.iter().filter(|path| path.starts_with(&home)).collect();
        inside.sort();
        assert_eq!(inside, [&home.join(".config/git"), &home.join("work")]);
        assert!(found.contains(&PathBuf::from("/usr")));
        let devices = |found: Vec<PathBuf>| {
            found.into_iter().filter(|path| path.starts_with(devices::FOLDER)).collect::<Vec<_>>()
        };
        assert!(!unhidden_paths(&[]).contains(&PathBuf::from("/")));
        assert_eq!(devices(unhidden_paths(&[])), [PathBuf::from(SHARED_MEMORY)]);
        assert!(devices(unhidden_paths(&[SHARED_MEMORY.into()])).is_empty());
    }
}

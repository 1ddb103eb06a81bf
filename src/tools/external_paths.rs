//! Files outside the workspace that a person may let a file tool have, and those that nobody can give.
//!
//! A guard against accidents: the person sees the path before saying yes. What could open more than one
//! file (keys, tokens, what shells and git run, another team's mail) is not even asked about.

use crate::os::safe_path::{SafePathError, Spot, anywhere};
use std::path::{Component, Path};

/// Names that hold secrets or rights, wherever they stand.
const GUARDED: [&str; 10] = [
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "ssh",
    "credentials",
    "credentials.json",
    "secrets",
];

/// Endings of files that hold keys.
const KEYS: [&str; 7] = ["pem", "key", "p12", "pfx", "jks", "kdbx", "keystore"];

/// Folders of the top that hold no files but the system itself.
const SYSTEM: [&str; 4] = ["proc", "sys", "dev", "run"];

/// What this program keeps of its user: whom it trusts, and what runs.
const OURS: [&str; 2] = ["team/settings.toml", "team/trust.json"];

/// The place outside of `workspace` that a path means, if anybody may be asked about it.
///
/// # Errors
/// It leads through a link, back inside, or to what is never given.
pub(super) fn find(workspace: &Path, path: &Path) -> Result<Spot, SafePathError> {
    // Whatever is wrong with a place outside, nobody learns from it what is there.
    let Ok(spot) = anywhere(&workspace.join(path)) else { return Err(SafePathError::Outside) };
    let real = spot.path();
    if real.starts_with(workspace) || is_guarded(&real) {
        return Err(SafePathError::Outside);
    }
    Ok(spot)
}

/// Whether nobody can give this file. Case is folded: some file systems do.
fn is_guarded(path: &Path) -> bool {
    let names: Vec<String> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
            Component::Prefix(_)
            | Component::RootDir
            | Component::CurDir
            | Component::ParentDir => None,
        })
        .collect();
    let is_memory_disk = names.starts_with(&["dev".into(), "shm".into()]);
    let is_system =
        !is_memory_disk && names.first().is_some_and(|name| SYSTEM.contains(&name.as_str()));
    let is_named = |name: &String| name.starts_with('.') || GUARDED.contains(&name.as_str());
    let last = names.last().map(Path::new).and_then(Path::extension);
    let is_key = last.is_some_and(|ending| KEYS.iter().any(|key| ending == *key));
    let whole = names.join("/");
    let is_ours = OURS.iter().any(|ours| Path::new(&whole).ends_with(ours));
    is_system || is_key || is_ours || names.iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn is_outside(found: &Result<Spot, SafePathError>) -> bool {
        matches!(found, Err(SafePathError::Outside))
    }

    #[test]
    fn a_plain_file_elsewhere_can_be_asked_about() {
        let all = tempfile::Builder::new().prefix("plain").tempdir().unwrap();
        let real = all.path().canonicalize().unwrap();
        fs::create_dir_all(real.join("work")).unwrap();
        fs::create_dir_all(real.join("beside")).unwrap();
        let absolute = real.join("beside/notes.txt");
        for path in ["../beside/notes.txt", absolute.to_str().unwrap()] {
            let spot = find(&real.join("work"), Path::new(path)).unwrap();
            assert_eq!(spot.path(), absolute, "{path}");
        }
        symlink("../beside", real.join("work/out")).unwrap();
        symlink("beside", real.join("other")).unwrap();
        for path in
            ["out/notes.txt", "../other/notes.txt", "../work/a", "../work/.team/config.json"]
        {
            let found = find(&real.join("work"), Path::new(path));
            assert!(is_outside(&found), "{path}: {found:?}");
        }
        let above = find(&real.join("work"), Path::new("../beside"));
        assert!(is_outside(&above), "{above:?}");
    }

    #[test]
    fn what_opens_more_than_itself_is_never_given() {
        for path in [
            "/root/.ssh/id_ed25519",
            "/home/me/.bashrc",
            "/home/me/.aws/credentials",
            "/home/me/project/.team/inbox/alice.jsonl",
            "/home/me/project/.TEAM/config.json",
            "/home/me/project/.git/hooks/pre-commit",
            "/home/me/.netrc",
            "/etc/shadow",
            "/etc/sudoers.d/me",
            "/etc/ssh/ssh_host_rsa_key",
            "/srv/site/server.KEY",
            "/srv/site/server.pem",
            "/proc/self/environ",
            "/proc/1/root/etc/hosts",
            "/sys/kernel/x",
            "/dev/fd/3",
            "/run/secrets/token",
            "/srv/state/team/trust.json",
            "/srv/config/team/settings.toml",
        ] {
            assert!(is_guarded(Path::new(path)), "{path}");
        }
        for path in [
            "/etc/hosts",
            "/usr/include/stdio.h",
            "/home/me/notes.txt",
            "/srv/keys.txt",
            "/dev/shm/notes",
        ] {
            assert!(!is_guarded(Path::new(path)), "{path}");
        }
    }
}

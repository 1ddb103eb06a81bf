//! Files outside the workspace: those that a file tool may ask for, and those that are never opened.
//!
//! A guard against accidents: the person sees the path before approving it. Files that give access to more
//! than themselves (keys, tokens, startup files of shells and git, another team's mail) are never asked for.

use crate::os::safe_path::{SafePathError, Spot, anywhere};
use std::path::{Component, Path};

/// Names of files and folders with secrets or privileges, in any folder.
const GUARDED: &str =
    "shadow shadow- gshadow gshadow- sudoers sudoers.d ssh credentials credentials.json secrets";

/// Extensions of key files.
const KEYS: [&str; 7] = ["pem", "key", "p12", "pfx", "jks", "kdbx", "keystore"];

/// Top-level folders that represent the system instead of files.
const SYSTEM: [&str; 4] = ["proc", "sys", "dev", "run"];

/// The user's own files of this program: settings and trusted folders.
const OURS: [&str; 2] = ["team/settings.toml", "team/trust.json"];

/// The file outside `workspace` that a path leads to. Fails if the path leads through a link, back inside, or to
/// a file that is never opened.
pub(super) fn find(workspace: &Path, path: &Path) -> Result<Spot, SafePathError> {
    // One error for every problem: the model must not learn which files exist outside.
    let Ok(spot) = anywhere(&workspace.join(path)) else { return Err(SafePathError::Outside) };
    let real = spot.path();
    if real.starts_with(workspace) || is_guarded(&real) {
        return Err(SafePathError::Outside);
    }
    Ok(spot)
}

/// Whether this file is never opened.
fn is_guarded(path: &Path) -> bool {
    let names: Vec<String> = names(path).collect();
    let is_memory_disk = names.starts_with(&["dev".into(), "shm".into()]);
    let is_system =
        !is_memory_disk && names.first().is_some_and(|name| SYSTEM.contains(&name.as_str()));
    let is_named = |name: &String| name.starts_with('.') || GUARDED.split(' ').any(|it| it == name);
    let last = names.last().map(Path::new).and_then(Path::extension);
    let is_key = last.is_some_and(|ending| KEYS.iter().any(|key| ending == *key));
    let whole = names.join("/");
    let is_ours = OURS.iter().any(|ours| Path::new(&whole).ends_with(ours));
    is_system || is_key || is_ours || names.iter().any(is_named)
}

/// The names in a path, as a case-insensitive file system compares them.
pub(super) fn names(path: &Path) -> impl Iterator<Item = String> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_plain_external_file_can_be_asked_for() {
        let all = tempfile::Builder::new().prefix("plain").tempdir().unwrap();
        let real = all.path().canonicalize().unwrap();
        let workspace = real.join("work");
        for folder in ["work", "beside"] {
            fs::create_dir_all(real.join(folder)).unwrap();
        }
        let absolute = real.join("beside/notes.txt");
        for path in ["../beside/notes.txt", absolute.to_str().unwrap()] {
            assert_eq!(find(&workspace, Path::new(path)).unwrap().path(), absolute, "{path}");
        }
        symlink("../beside", real.join("work/out")).unwrap();
        symlink("beside", real.join("other")).unwrap();
        let refused =
            "out/notes.txt ../other/notes.txt ../work/a ../work/.team/config.json ../beside";
        for path in refused.split(' ') {
            let found = find(&workspace, Path::new(path));
            assert!(matches!(found, Err(SafePathError::Outside)), "{path}: {found:?}");
        }
    }

    #[test]
    fn secrets_and_system_files_are_never_opened() {
        let never = "/root/.ssh/id_ed25519 /home/me/.bashrc /home/me/.aws/credentials \
            /home/me/project/.team/inbox/alice.jsonl /home/me/project/.TEAM/config.json \
            /home/me/project/.git/hooks/pre-commit /home/me/.netrc /etc/shadow /etc/sudoers.d/me \
            /etc/ssh/ssh_host_rsa_key /srv/site/server.KEY /srv/site/server.pem /proc/self/environ \
            /proc/1/root/etc/hosts /sys/kernel/x /dev/fd/3 /run/secrets/token \
            /srv/state/team/trust.json /srv/config/team/settings.toml";
        let maybe =
            "/etc/hosts /usr/include/stdio.h /home/me/notes.txt /srv/keys.txt /dev/shm/notes";
        for (paths, guarded) in [(never, true), (maybe, false)] {
            for path in paths.split_whitespace() {
                assert_eq!(is_guarded(Path::new(path)), guarded, "{path}");
            }
        }
    }
}

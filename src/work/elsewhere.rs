//! The clones of teammates on other hosts, as the host with the user's repository sees them: which commits they begin with,
//! and how their saved work comes back. Commits travel as bundles of git; nothing is merged by it.

use super::bundle::{read_bundle, write_bundle};
use super::clone::{CloneOrder, CloneOrigin, begin, branch, make_folder};
use super::error::WorkError;
use super::mirror::check_ids;
use super::repository::Repository;
use crate::os::git::GitError;
use crate::wire::AgentName;
use crate::wire::host_order::{CloneStart, ProjectCommits, SavedCommits};
use crate::wire::isolation::{CloneBase, ClonePlace};
use std::path::Path;

/// The number of attempts to extend the chain of saved work, which another process may extend at the same time.
const ATTEMPTS: usize = 5;

/// The user's repository, for the clones of one teammate.
#[derive(Debug)]
pub(crate) struct Project {
    repository: Repository,
    name: AgentName,
}

impl Project {
    /// Finds the repository of a folder. Fails if none can be cloned.
    pub(crate) fn find(
        name: AgentName,
        folder: &Path,
        environment: &[(String, String)],
    ) -> Result<Self, WorkError> {
        Ok(Self { repository: Repository::find(folder, environment)?, name })
    }

    /// Returns the start of a clone on another host, and makes references keep its commits. `known` is the clone that the teammate has or had on one: its work goes
    /// on, unless the repository is another one since, such as a new checkout at the same path. `clones` is the folder for
    /// clones on this host.
    pub(crate) fn pin_start(
        &self,
        base: CloneBase,
        clones: &Path,
        known: Option<&ClonePlace>,
    ) -> Result<CloneStart, WorkError> {
        make_folder(clones)?;
        let wip = || self.repository.reference(&self.name, "wip");
        let has_base = |place: &&ClonePlace| {
            let base = [place.base.clone()];
            self.repository.present(&base).is_ok_and(|there| there == base)
        };
        let (base, wip) = match known.filter(has_base) {
            Some(place) => (place.base.clone(), wip()),
            None => {
                let order = CloneOrder {
                    name: self.name.clone(),
                    clones: clones.to_owned(),
                    origin: CloneOrigin::Workspace { folder: self.repository.top.clone(), base },
                    environment: Vec::new(),
                };
                let base = begin(&order, &self.repository)?.base;
                // The files as they are now need no further commit.
                let current = self.repository.point(&self.name, "current", &base, None);
                current.map_err(|why| WorkError::git("the workspace cannot be sent", &why))?;
                (base, None)
            }
        };
        Ok(CloneStart { base, wip, prefix: self.repository.prefix.display().to_string() })
    }

    /// Returns the place of such a clone, as this host notes it.
    pub(crate) fn place(&self, start: &CloneStart, clones: &Path, host: &str) -> ClonePlace {
        let path = clones.join(self.name.as_str());
        let text = |path: &Path| path.display().to_string();
        ClonePlace {
            path: text(&path),
            folder: text(&path.join(&self.repository.prefix)),
            branch: branch(&self.name),
            base: start.base.clone(),
            repository: text(&self.repository.top),
            host: host.into(),
            project_host: String::new(),
        }
    }

    /// Returns the commits that a host needs for a clone with that start: also the one with which a new clone would begin now.
    pub(crate) fn commits(
        &self,
        start: &CloneStart,
        base: CloneBase,
        clones: &Path,
    ) -> Result<ProjectCommits, WorkError> {
        let git_error = |why: GitError| WorkError::git("the workspace cannot be sent", &why);
        make_folder(clones)?;
        let current = match base {
            CloneBase::Head => self.repository.head().map_err(git_error)?,
            CloneBase::Snapshot => self.repository.snapshot(&self.name, clones)?,
        };
        self.repository.point(&self.name, "current", &current, None).map_err(git_error)?;
        let mut commits = vec![start.base.clone(), current.clone()];
        commits.extend(start.wip.clone());
        commits.dedup();
        Ok(ProjectCommits {
            commits,
            head: self.repository.head().map_err(git_error)?,
            current,
            object_format: self.repository.object_format.clone(),
            remote: self.remote(),
            bundle_bytes: None,
        })
    }

    /// Returns the address from which others may fetch the repository, without a password; `None` if there is none.
    fn remote(&self) -> Option<String> {
        let address = self.repository.git.run(&["remote", "get-url", "origin"]).ok()?;
        public_address(&address)
    }

    /// Writes a bundle with the commits of a clone's start. `known` are commits that the other host has. Returns its size in
    /// bytes.
    pub(crate) fn bundle(
        &self,
        file: &Path,
        wanted: &ProjectCommits,
        known: &[String],
    ) -> Result<u64, WorkError> {
        let what = "the commits of the workspace cannot be sent";
        if self.repository.common.join("shallow").exists() && !known.contains(&wanted.head) {
            let why = "its repository is shallow, and the other host cannot fetch from its server";
            let hint = "run `git fetch --unshallow`, or use isolation shared";
            return Err(WorkError::new(what, why, hint));
        }
        let is_wanted = |kind: &&str| {
            let commit = self.repository.reference(&self.name, kind);
            commit.is_some_and(|it| it == wanted.current || wanted.commits.contains(&it))
        };
        let kinds: Vec<&str> = ["base", "wip", "current"].into_iter().filter(is_wanted).collect();
        let bytes = write_bundle(&self.repository, (&self.name, &kinds), known, file);
        let hint =
            "let that host fetch from a remote `origin` that it reaches, or use isolation shared";
        bytes.map_err(|why| WorkError::new(what, why.to_string(), hint))
    }

    /// Returns the commits of a teammate that are here.
    pub(crate) fn known(&self) -> Vec<String> {
        let of = |kind| self.repository.reference(&self.name, kind);
        ["base", "wip", "offer", "there"].into_iter().filter_map(of).collect()
    }

    /// Takes the saved work of a clone on another host into the repository. What it had before stays reachable.
    pub(crate) fn import(
        &self,
        saved: &SavedCommits,
        bundle: Option<&Path>,
    ) -> Result<(), WorkError> {
        check_ids(saved.wip.iter().chain(&saved.offer).map(String::as_str))?;
        let what = format!("the work of {} cannot be taken over from its host", self.name);
        self.import_commits(saved, bundle).map_err(|why| WorkError::git(&what, &why))
    }

    fn import_commits(&self, saved: &SavedCommits, bundle: Option<&Path>) -> Result<(), GitError> {
        let (repository, name) = (&self.repository, &self.name);
        if let Some(bundle) = bundle {
            read_bundle(&repository.git, bundle)?;
        }
        let tips: Vec<String> = saved.wip.iter().chain(&saved.offer).cloned().collect();
        repository.check_whole(&tips)?;
        if let Some(new) = &saved.wip {
            self.extend(new)?;
            // The host has it, also if its work is merged here with an earlier one.
            repository.point(name, "there", new, None)?;
        }
        let before = repository.reference(name, "offer");
        if let Some(offer) = &saved.offer
            // An answer that comes late does not take a newer offer back.
            && before.map_or(Ok(true), |before| repository.reaches(&before, offer).map(|it| !it))?
        {
            repository.point(name, "offer", offer, None)?;
        }
        Ok(())
    }

    /// Makes `wip` reach a commit.
    fn extend(&self, new: &str) -> Result<(), GitError> {
        let (repository, name) = (&self.repository, &self.name);
        let text = format!("Earlier work of {name}");
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let before = repository.reference(name, "wip");
            if let Some(before) = &before
                && repository.reaches(before, new)?
            {
                return Ok(());
            }
            let next = repository.over(before.as_deref(), new, &text)?;
            match repository.point(name, "wip", &next, Some(before.as_deref().unwrap_or_default()))
            {
                Ok(()) => return Ok(()),
                Err(why) if attempts == 0 => return Err(why),
                // Another process has extended it.
                Err(_) => {}
            }
        }
    }
}

/// Whether a folder is in a repository of git that can be cloned.
///
/// # Errors
/// It is in one that cannot.
pub(crate) fn is_cloneable(
    folder: &Path,
    environment: &[(String, String)],
) -> Result<bool, WorkError> {
    let has_git = || folder.ancestors().any(|folder| folder.join(".git").exists());
    match Repository::find(folder, environment) {
        Ok(_) => Ok(true),
        Err(why) if has_git() => Err(why),
        Err(_) => Ok(false),
    }
}

/// Returns an address of a repository without secrets, if other hosts may know it.
fn public_address(address: &str) -> Option<String> {
    let Some((scheme, rest)) = address.split_once("://") else {
        // As `git@example.org:shop.git`.
        let (host, path) = address.split_once(':')?;
        // `ext::` and the like name programs.
        let is_host = !host.is_empty() && !host.contains('/') && !path.starts_with(':');
        return is_host.then(|| address.to_owned());
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let path = path.split('?').next().unwrap_or_default();
    match (scheme, user.split(':').next()) {
        ("ssh", Some(user)) if !user.is_empty() => Some(format!("ssh://{user}@{host}/{path}")),
        ("ssh" | "git" | "https" | "http", _) => Some(format!("{scheme}://{host}/{path}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_other_hosts_has_no_password_and_is_of_the_network() {
        for (address, expected) in [
            ("https://example.org/shop.git", Some("https://example.org/shop.git")),
            ("https://ann:secret@example.org/shop.git", Some("https://example.org/shop.git")),
            ("https://token@example.org:8443/a/b", Some("https://example.org:8443/a/b")),
            ("https://example.org/shop?token=secret", Some("https://example.org/shop")),
            ("ssh://git@example.org/shop", Some("ssh://git@example.org/shop")),
            ("ssh://ann:secret@example.org/shop", Some("ssh://ann@example.org/shop")),
            ("ssh://example.org:22/shop", Some("ssh://example.org:22/shop")),
            ("git://ann:secret@example.org/shop", Some("git://example.org/shop")),
            ("git@example.org:shop.git", Some("git@example.org:shop.git")),
            ("/home/ann/shop", None),
            ("./a:b", None),
            ("file:///home/ann/shop", None),
            ("ext::sh -c date", None),
        ] {
            assert_eq!(public_address(address).as_deref(), expected, "{address}");
        }
    }
}

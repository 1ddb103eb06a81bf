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

    /// Returns the start of a clone on another host. `known` is the clone that the teammate has or had on one: its work goes
    /// on. `clones` is the folder for clones on this host.
    pub(crate) fn start(
        &self,
        base: CloneBase,
        clones: &Path,
        known: Option<&ClonePlace>,
    ) -> Result<CloneStart, WorkError> {
        make_folder(clones)?;
        let wip = || self.repository.reference(&self.name, "wip");
        let (base, wip) = match known {
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

    /// Returns the commits that a host needs for a clone with that start: also those with the user's files as they are now.
    pub(crate) fn commits(
        &self,
        start: &CloneStart,
        clones: &Path,
    ) -> Result<ProjectCommits, WorkError> {
        let git_error = |why: GitError| WorkError::git("the workspace cannot be sent", &why);
        make_folder(clones)?;
        let current = self.repository.snapshot(&self.name, clones)?;
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
    pub(crate) fn bundle(&self, file: &Path, known: &[String]) -> Result<u64, WorkError> {
        let what = "the commits of the workspace cannot be sent";
        let head = self.repository.head().map_err(|why| WorkError::git(what, &why))?;
        if self.repository.common.join("shallow").exists() && !known.contains(&head) {
            let why = "its repository is shallow, and the other host cannot fetch from its server";
            let hint = "run `git fetch --unshallow`, or use isolation shared";
            return Err(WorkError::new(what, why, hint));
        }
        let is_there = |kind: &&str| self.repository.reference(&self.name, kind).is_some();
        let kinds: Vec<&str> = ["base", "wip", "current"].into_iter().filter(is_there).collect();
        let bytes = write_bundle(&self.repository, (&self.name, &kinds), known, file);
        bytes.map_err(|why| WorkError::git(what, &why))
    }

    /// Returns the commits of a teammate that are here.
    pub(crate) fn known(&self) -> Vec<String> {
        let of = |kind| self.repository.reference(&self.name, kind);
        ["base", "wip", "offer"].into_iter().filter_map(of).collect()
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
        if let Some(new) = &saved.wip {
            let before = repository.reference(name, "wip");
            let new =
                repository.over(before.as_deref(), new, &format!("Earlier work of {name}"))?;
            repository.point(name, "wip", &new, Some(before.as_deref().unwrap_or_default()))?;
        }
        if let Some(offer) = &saved.offer {
            repository.point(name, "offer", offer, None)?;
        }
        Ok(())
    }
}

/// Whether a folder is in a repository that can be cloned.
pub(crate) fn is_cloneable(folder: &Path, environment: &[(String, String)]) -> bool {
    Repository::find(folder, environment).is_ok()
}

/// Returns an address of a repository without a user and password of the web, if other hosts may know it.
fn public_address(address: &str) -> Option<String> {
    let Some((scheme, rest)) = address.split_once("://") else {
        // As `git@example.org:shop.git`.
        let (host, path) = address.split_once(':')?;
        // `ext::` and the like name programs.
        let is_host = !host.is_empty() && !host.contains('/') && !path.starts_with(':');
        return is_host.then(|| address.to_owned());
    };
    match scheme {
        "ssh" | "git" => Some(address.to_owned()),
        "https" | "http" => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or(authority);
            Some(format!("{scheme}://{host}/{path}"))
        }
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
            ("ssh://git@example.org/shop", Some("ssh://git@example.org/shop")),
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

//! The rules of leases on paths: which claims exclude each other, and what a release leaves.
//!
//! *Invariant:* no path of an agent's lease is equal to, above or below a path of another agent's lease. The rules get
//! only the leases of agents that run, and paths that are relative to the workspace, without links and dots.

use crate::wire::lease::Lease;
use crate::wire::{AgentName, FORMAT_VERSION, WallTime, WithUnknownFields};
use std::path::{Component, Path};

/// The maximum number of characters of a reason.
pub(crate) const WHY_CHARS: usize = 200;

/// The maximum number of paths that an agent has leased at once: a folder stands for all that is below it.
pub(crate) const MOST_PATHS: usize = 100;

pub(crate) type LeaseRecord = WithUnknownFields<Lease>;

/// The changes of the leases. A lease that is stored replaces the one with its id.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct LeaseChange {
    pub(crate) stored: Vec<LeaseRecord>,
    /// The ids of the leases that are removed.
    pub(crate) removed: Vec<String>,
}

/// A claim of an agent.
#[derive(Debug, Clone)]
pub(crate) struct NewLease {
    /// An id that no lease has.
    pub(crate) id: String,
    pub(crate) owner: AgentName,
    pub(crate) incarnation: String,
    pub(crate) paths: Vec<String>,
    pub(crate) why: String,
    pub(crate) now: WallTime,
}

/// A path that another agent has leased, or of which it has leased a part.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LeaseConflict {
    /// The path that was asked for.
    pub(crate) path: String,
    /// The path of the lease.
    pub(crate) leased: String,
    pub(crate) owner: String,
    pub(crate) why: String,
    pub(crate) since: WallTime,
}

/// The reason for which a claim is refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LeaseRefusal {
    NoPath,
    NoReason,
    /// The reason has this number of characters.
    LongReason(usize),
    /// The agent would have leased this number of paths.
    TooMany(usize),
    /// The first conflict of each path.
    Conflicts(Vec<LeaseConflict>),
}

/// Whether a text is a path that a lease can have: relative, in the form that it has on disk, and not the workspace.
pub(crate) fn is_leasable(path: &str) -> bool {
    let names = Path::new(path).components();
    let is_name = |component: Component<'_>| matches!(component, Component::Normal(_));
    !path.is_empty() && names.clone().all(is_name) && names.as_path() == Path::new(path)
}

/// Whether one path is equal to, above or below the other one.
pub(crate) fn overlaps(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns the first lease of another agent that excludes `who` from a path.
pub(crate) fn conflict(leases: &[LeaseRecord], who: &str, path: &str) -> Option<LeaseConflict> {
    leases.iter().filter(|lease| lease.owner != who).find_map(|lease| {
        let leased = lease.paths.iter().find(|it| overlaps(Path::new(it), Path::new(path)))?;
        Some(LeaseConflict {
            path: path.into(),
            leased: leased.clone(),
            owner: lease.owner.clone(),
            why: lease.why.clone(),
            since: lease.created_at,
        })
    })
}

/// Claims all paths or none. The new lease replaces those of the same agent at and below its paths; a claim of the
/// same paths keeps id and time.
pub(crate) fn claim(leases: &[LeaseRecord], new: NewLease) -> Result<LeaseChange, LeaseRefusal> {
    let NewLease { id, owner, incarnation, paths, why, now } = new;
    let (paths, why) = (outermost(paths), one_line(&why)?);
    if paths.is_empty() {
        return Err(LeaseRefusal::NoPath);
    }
    let conflicts = paths.iter().filter_map(|path| conflict(leases, owner.as_str(), path));
    let conflicts: Vec<LeaseConflict> = conflicts.collect();
    if !conflicts.is_empty() {
        return Err(LeaseRefusal::Conflicts(conflicts));
    }
    let is_own = |lease: &&LeaseRecord| lease.owner == owner.as_str();
    let same = leases.iter().filter(is_own).find(|lease| lease.paths == paths);
    let is_replaced = |path: &str| paths.iter().any(|new| Path::new(path).starts_with(new));
    let mut change = without(leases.iter().filter(is_own), is_replaced).0;
    let lease = if let Some(same) = same {
        change.removed.retain(|id| *id != same.id);
        let mut same = same.clone();
        same.why = why;
        same
    } else {
        let (version, incarnation) = (FORMAT_VERSION, Some(incarnation));
        let owner = owner.to_string();
        Lease { version, id, owner, incarnation, paths, why, created_at: now }.into()
    };
    let is_kept = |it: &&LeaseRecord| {
        let is_changed = change.stored.iter().any(|changed| changed.id == it.id);
        is_own(it) && !is_changed && it.id != lease.id && !change.removed.contains(&it.id)
    };
    let kept = leases.iter().filter(is_kept).chain(&change.stored).chain([&lease]);
    let count = kept.map(|lease| lease.paths.len()).sum();
    if count > MOST_PATHS {
        return Err(LeaseRefusal::TooMany(count));
    }
    // The new lease is stored before old ones are changed, so that no path is free in between.
    change.stored.insert(0, lease);
    Ok(change)
}

/// Takes the paths for which `is_meant` holds out of leases. Returns the change, and those paths, each with the owner.
pub(crate) fn release(
    leases: &[LeaseRecord],
    is_meant: impl Fn(&Lease, &str) -> bool,
) -> (LeaseChange, Vec<(String, String)>) {
    let mut released = Vec::new();
    let mut change = LeaseChange::default();
    for lease in leases {
        let (part, paths) = without([lease].into_iter(), |path| is_meant(lease, path));
        change.stored.extend(part.stored);
        change.removed.extend(part.removed);
        released.extend(paths.into_iter().map(|path| (lease.owner.clone(), path)));
    }
    (change, released)
}

/// Takes paths out of leases. A lease without paths is removed. Returns the change and the paths.
fn without<'a>(
    leases: impl Iterator<Item = &'a LeaseRecord>,
    is_meant: impl Fn(&str) -> bool,
) -> (LeaseChange, Vec<String>) {
    let (mut change, mut taken) = (LeaseChange::default(), Vec::new());
    for lease in leases {
        let (out, left): (Vec<String>, Vec<String>) =
            lease.paths.iter().cloned().partition(|path| is_meant(path));
        if out.is_empty() {
            continue;
        }
        taken.extend(out);
        if left.is_empty() {
            change.removed.push(lease.id.clone());
        } else {
            let mut lease = lease.clone();
            lease.paths = left;
            change.stored.push(lease);
        }
    }
    (change, taken)
}

/// Returns the paths sorted, without those at or below another one.
fn outermost(mut paths: Vec<String>) -> Vec<String> {
    paths.sort_by(|one, other| Path::new(one).cmp(Path::new(other)));
    // A folder comes directly before all that is below it.
    paths.dedup_by(|next, kept| Path::new(next).starts_with(kept));
    paths
}

/// Folds white space, so that the reason is one line. Fails if it is empty or too long.
fn one_line(why: &str) -> Result<String, LeaseRefusal> {
    let words: Vec<&str> = why
        .split(|it: char| it.is_whitespace() || it.is_control())
        .filter(|it| !it.is_empty())
        .collect();
    let line = words.join(" ");
    match line.chars().count() {
        0 => Err(LeaseRefusal::NoReason),
        1..=WHY_CHARS => Ok(line),
        count => Err(LeaseRefusal::LongReason(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn new(id: usize, owner: &str, paths: &[&str]) -> NewLease {
        NewLease {
            id: id.to_string(),
            owner: AgentName::member(owner).unwrap(),
            incarnation: format!("{owner}-1"),
            paths: paths.iter().map(|path| (*path).into()).collect(),
            why: format!("why {id}"),
            now: WallTime::from_secs(1.0),
        }
    }

    fn apply(leases: &mut Vec<LeaseRecord>, change: LeaseChange) {
        let is_old = |it: &LeaseRecord| {
            change.removed.contains(&it.id) || change.stored.iter().any(|new| new.id == it.id)
        };
        leases.retain(|it| !is_old(it));
        leases.extend(change.stored);
    }

    fn take(leases: &mut Vec<LeaseRecord>, new: NewLease) {
        let change = claim(leases, new).unwrap();
        apply(leases, change);
    }

    fn paths(leases: &[LeaseRecord], owner: &str) -> Vec<String> {
        let own = leases.iter().filter(|lease| lease.owner == owner);
        let mut paths: Vec<String> = own.flat_map(|lease| lease.paths.clone()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn paths_overlap_by_whole_names() {
        for (one, other, is_so) in [
            ("src", "src", true),
            ("src", "src/a.rs", true),
            ("src/a/b/c", "src/a", true),
            ("src", "srcs", false),
            ("src/a.rs", "src/a", false),
            ("a/src", "src", false),
        ] {
            assert_eq!(overlaps(Path::new(one), Path::new(other)), is_so, "{one} {other}");
            assert_eq!(overlaps(Path::new(other), Path::new(one)), is_so, "{other} {one}");
        }
    }

    #[test]
    fn only_a_relative_path_below_the_workspace_can_be_leased() {
        for path in ["src", "src/a.rs", ".github/x", "a b", "..."] {
            assert!(is_leasable(path), "{path}");
        }
        for path in ["", ".", "/", "/src", "..", "../src", "src/..", "./src"] {
            assert!(!is_leasable(path), "{path}");
        }
    }

    #[test]
    fn a_claim_gets_all_paths_or_none_and_names_each_conflict() {
        let mut leases = Vec::new();
        take(&mut leases, new(1, "alice", &["src", "a", "src/x", "a"]));
        assert_eq!(leases[0].paths, ["a", "src"], "sorted, each once, the outermost");
        let refused = claim(&leases, new(2, "bob", &["b", "src/deep/file", "a"])).unwrap_err();
        let LeaseRefusal::Conflicts(conflicts) = refused else { panic!("{refused:?}") };
        let found: Vec<_> = conflicts.iter().map(|it| (&*it.path, &*it.leased)).collect();
        assert_eq!(found, [("a", "a"), ("src/deep/file", "src")]);
        assert_eq!((&*conflicts[0].owner, &*conflicts[0].why), ("alice", "why 1"));
        for (paths, why, expected) in [
            (&[][..], "x", LeaseRefusal::NoPath),
            (&["b"], " \n", LeaseRefusal::NoReason),
            (&["b"], &"x".repeat(201), LeaseRefusal::LongReason(201)),
        ] {
            let asked = NewLease { why: why.into(), ..new(2, "bob", paths) };
            assert_eq!(claim(&leases, asked).unwrap_err(), expected);
        }
        let many: Vec<String> = (0..=MOST_PATHS).map(|number| format!("b/{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(claim(&leases, new(2, "bob", &many)).unwrap_err(), LeaseRefusal::TooMany(101));
    }

    #[test]
    fn a_repeated_claim_has_the_new_reason_and_replaces_what_it_covers() {
        let mut leases = Vec::new();
        take(&mut leases, new(1, "alice", &["src/a", "docs"]));
        let again =
            NewLease { now: WallTime::from_secs(9.0), ..new(2, "alice", &["docs", "src/a"]) };
        take(&mut leases, again);
        assert_eq!((leases.len(), &*leases[0].id, &*leases[0].why), (1, "1", "why 2"));
        assert_eq!(leases[0].created_at, WallTime::from_secs(1.0));
        take(&mut leases, new(3, "alice", &["src"]));
        let found: Vec<_> = leases.iter().map(|it| (&*it.id, it.paths.clone())).collect();
        assert_eq!(found, [("3", vec!["src".into()]), ("1", vec!["docs".to_owned()])]);
        let (change, released) =
            release(&leases, |lease, path| lease.owner == "alice" && path == "src");
        assert_eq!(released, [("alice".into(), "src".into())]);
        apply(&mut leases, change);
        assert_eq!(paths(&leases, "alice"), ["docs"]);
    }

    proptest! {
        /// Whatever is claimed and released, no path of one agent overlaps one of another, and a claim fails exactly if
        /// it would.
        #[test]
        fn leases_of_two_agents_never_overlap(steps in prop::collection::vec(
            (prop::sample::select(vec!["alice", "bob", "carol"]),
             prop::collection::vec("[ab](/[ab]){0,3}", 1..4), any::<bool>()), 1..30)) {
            let mut leases: Vec<LeaseRecord> = Vec::new();
            for (id, (who, asked, claims)) in steps.into_iter().enumerate() {
                let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
                if !claims {
                    let change = release(&leases, |lease, path| lease.owner == who && asked.contains(&path)).0;
                    apply(&mut leases, change);
                    prop_assert!(paths(&leases, who).iter().all(|path| !asked.contains(&&**path)));
                    continue;
                }
                let before = leases.clone();
                let is_free = asked.iter().all(|path| conflict(&leases, who, path).is_none());
                let claimed = claim(&leases, new(id, who, &asked));
                prop_assert_eq!(claimed.is_ok(), is_free);
                if let Ok(change) = claimed {
                    apply(&mut leases, change);
                    let own = paths(&leases, who);
                    let is_held = |path: &str| own.iter().any(|own| Path::new(path).starts_with(own));
                    prop_assert!(asked.iter().all(|path| is_held(path)));
                    let held = paths(&before, who);
                    prop_assert!(held.iter().all(|path| is_held(path)), "{:?} {:?}", held, own);
                }
                for lease in &leases {
                    prop_assert!(!lease.paths.is_empty());
                    for path in &lease.paths {
                        prop_assert_eq!(conflict(&leases, &lease.owner, path), None);
                    }
                }
            }
        }
    }
}

//! Makes a clone for a teammate, with the files of the workspace as the user sees them.

use super::error::WorkError;
use super::mirror;
use super::repository::{INDEX, Repository};
use crate::os::event_loop::check_blocking;
use crate::os::failpoint::hit;
use crate::os::git::{Git, GitError, split};
use crate::store::TeamDir;
use crate::wire::AgentName;
use crate::wire::host_order::CloneStart;
use crate::wire::isolation::{CloneBase, ClonePlace};
use crate::wire::log_words;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The file of the workspace that lists ignored files for clones, in the syntax of `.gitignore`.
const INCLUDE: &str = ".worktreeinclude";

/// Settings of the repository that decide how its files are checked out.
const CHECKOUT_SETTINGS: [&str; 12] = [
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.longpaths",
    "filter.lfs.clean",
    "filter.lfs.smudge",
    "filter.lfs.process",
    "filter.lfs.required",
];

const WHAT: &str = "no clone can be made";

/// The orders for one clone.
#[derive(Debug, Clone)]
pub(crate) struct CloneOrder {
    pub(crate) name: AgentName,
    /// The folder for the clones of the team.
    pub(crate) clones: PathBuf,
    pub(crate) origin: CloneOrigin,
    /// The environment of git.
    pub(crate) environment: Vec<(String, String)>,
}

/// The repository that is cloned.
#[derive(Debug, Clone)]
pub(crate) enum CloneOrigin {
    /// That of the user's workspace.
    Workspace { folder: PathBuf, base: CloneBase },
    /// The commits of a workspace on another host.
    Mirror { host: String, start: CloneStart },
}

/// The commits with which a clone begins.
pub(super) struct CloneCommits {
    /// The one from which its changes count.
    pub(super) base: String,
    /// The one that is checked out.
    head: String,
}

/// Returns the folder for the clones of a team, below the user's folder for the state of programs.
pub(crate) fn clones_folder(state_home: &Path, team: &TeamDir, team_name: &str) -> PathBuf {
    let root = team.root().canonicalize().unwrap_or_else(|_| team.root().to_owned());
    // Teams of different folders can have the same name.
    let hash =
        root.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = team_name.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    state_home.join("team/work").join(format!("{name}-{hash:016x}"))
}

/// Returns the file that describes a clone; it exists if an agent may have worked in the clone.
pub(super) fn description(clones: &Path, name: &AgentName) -> PathBuf {
    clones.join(format!("{name}.json"))
}

/// Reads the descriptions of all clones of a team.
pub(crate) fn all(clones: &Path) -> Vec<(AgentName, ClonePlace)> {
    let entries = fs::read_dir(clones).into_iter().flatten().flatten();
    let mut found: Vec<(AgentName, ClonePlace)> = entries
        .filter_map(|entry| {
            let file = entry.file_name().to_string_lossy().into_owned();
            let name = AgentName::member(file.strip_suffix(".json")?).ok()?;
            let place = known(clones, &name)?;
            Some((name, place))
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// Returns the index with which the clone at this path began. It is beside the clone, so that no command of the agent can
/// change it.
pub(crate) fn first_index(clone: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(clone.file_name().unwrap_or_default());
    name.push(".first-index");
    clone.with_file_name(name)
}

/// Returns the clone that was made for a name; `None` if there is none.
pub(crate) fn known(clones: &Path, name: &AgentName) -> Option<ClonePlace> {
    serde_json::from_slice(&fs::read(description(clones, name)).ok()?).ok()
}

/// Returns the folders that a clone reads: the repository that was cloned, and the folders from which that one borrows
/// objects.
pub(crate) fn borrowed(place: &ClonePlace) -> Vec<PathBuf> {
    let top = PathBuf::from(&place.repository);
    let git = top.join(".git");
    // The file of a linked working tree names its folder, and that folder the one with the objects.
    let own = match fs::read_to_string(&git) {
        Ok(text) => git.with_file_name(text.strip_prefix("gitdir:").unwrap_or_default().trim()),
        Err(_) => git,
    };
    let common = fs::read_to_string(own.join("commondir")).unwrap_or_default();
    let common = own.join(common.trim());
    let mut open = vec![common.join("objects")];
    let mut found = vec![top, own, common];
    while let Some(objects) = open.pop() {
        let lenders = fs::read_to_string(objects.join("info/alternates")).unwrap_or_default();
        let lenders = lenders.lines().filter(|line| !line.starts_with('#'));
        open.extend(lenders.map(|line| objects.join(line)).filter(|path| !found.contains(path)));
        found.push(objects);
    }
    found
}

/// Fails if a clone of this host is not where it was made.
pub(crate) fn check(name: &AgentName, place: &ClonePlace) -> Result<(), WorkError> {
    if !place.is_here()
        || Path::new(&place.folder).is_dir() && Path::new(&place.path).join(".git").is_dir()
    {
        return Ok(());
    }
    let what = format!("the clone of {name} is missing");
    let why = format!("{} is not there", place.path);
    let hint = format!(
        "put it back, or give it up with `team work drop {name}`; its saved work stays in \
         refs/team/{name}/wip"
    );
    Err(WorkError::new(what, why, hint))
}

/// Makes a clone. Leaves nothing behind if it fails.
pub(crate) fn create(order: &CloneOrder) -> Result<ClonePlace, WorkError> {
    let CloneOrder { name, clones, origin, environment } = order;
    let (repository, project_host) = match origin {
        CloneOrigin::Workspace { folder, .. } => {
            (Repository::find(folder, environment)?, String::new())
        }
        CloneOrigin::Mirror { host, start } => {
            mirror::check_start(start)?;
            let repository = Repository::find(&mirror::folder(clones), environment)?;
            let prefix = PathBuf::from(&start.prefix);
            (Repository { prefix, ..repository }, host.clone())
        }
    };
    let path = clones.join(name.as_str());
    if description(clones, name).exists() {
        let why = format!("{} is there already, with work of an earlier {name}", path.display());
        let hint = format!(
            "choose another name, or ask the user to give it up with `team work drop {name}`"
        );
        return Err(WorkError::new(WHAT, why, hint));
    }
    make_folder(clones)?;
    let partial = clones.join(format!(".{name}.partial"));
    // Nothing has ever worked in a folder without a description.
    for leftover in [&partial, &path] {
        remove(leftover)?;
    }
    let made = fill(order, &repository, &partial);
    let placed = made.and_then(|base| {
        let file = |why: &io::Error| WorkError::file(&path, why);
        hit("work.filled");
        let index = partial.join(".git/index");
        fs::copy(index, first_index(&path)).map_err(|why| file(&why))?;
        fs::rename(&partial, &path).map_err(|why| file(&why))?;
        hit("work.placed");
        let text = |path: &Path| path.display().to_string();
        let place = ClonePlace {
            path: text(&path),
            folder: text(&path.join(&repository.prefix)),
            branch: branch(name),
            base,
            repository: text(&repository.top),
            host: String::new(),
            project_host,
        };
        describe(clones, name, &place).map_err(|why| file(&why))?;
        hit("work.described");
        Ok(place)
    });
    if placed.is_err() {
        for leftover in [&partial, &path] {
            remove(leftover).unwrap_or_default();
        }
        fs::remove_file(first_index(&path)).unwrap_or_default();
    }
    placed
}

/// Removes a clone in which no agent has worked.
pub(crate) fn discard(name: &AgentName, place: &ClonePlace) {
    let path = Path::new(&place.path);
    let Some(clones) = path.parent() else { return };
    let described = fs::remove_file(description(clones, name));
    let removed = remove(path);
    fs::remove_file(first_index(path)).unwrap_or_default();
    let (described, removed) = (log_words::done(&described), log_words::done(&removed));
    tracing::info!(%name, described, removed, "an unused clone is removed");
}

/// Returns the branch of a teammate in its clone.
pub(super) fn branch(name: &AgentName) -> String {
    format!("team/{name}")
}

pub(super) fn make_folder(folder: &Path) -> Result<(), WorkError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|why| WorkError::file(folder, &why))
}

/// Notes a clone on another host, whose saved work comes into the repository here.
pub(crate) fn note(clones: &Path, name: &AgentName, place: &ClonePlace) -> Result<(), WorkError> {
    make_folder(clones)?;
    describe(clones, name, place).map_err(|why| WorkError::file(&description(clones, name), &why))
}

/// Forgets a clone on another host.
pub(crate) fn forget(clones: &Path, name: &AgentName) -> Result<(), WorkError> {
    let file = description(clones, name);
    match fs::remove_file(&file) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(WorkError::file(&file, &why)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn describe(clones: &Path, name: &AgentName, place: &ClonePlace) -> io::Result<()> {
    let file = description(clones, name);
    let draft = file.with_extension("draft");
    let mut written = File::create(&draft)?;
    written.write_all(&serde_json::to_vec(place)?)?;
    check_blocking("fsync");
    written.sync_all()?;
    fs::rename(draft, file)
}

/// Removes a folder, if it exists, also with folders in it that nobody may change: caches of packages make such ones.
pub(super) fn remove(folder: &Path) -> Result<(), WorkError> {
    let removed = fs::remove_dir_all(folder).or_else(|why| {
        if why.kind() != io::ErrorKind::PermissionDenied {
            return Err(why);
        }
        make_changeable(folder)?;
        fs::remove_dir_all(folder)
    });
    match removed {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(WorkError::file(folder, &why)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Gives the user all rights on a folder and the folders in it. No link is followed.
fn make_changeable(folder: &Path) -> io::Result<()> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Makes the clone in `folder`. Returns its base.
fn fill(order: &CloneOrder, repository: &Repository, folder: &Path) -> Result<String, WorkError> {
    make_folder(folder)?;
    let git_error = |why: GitError| WorkError::git(WHAT, &why);
    let CloneCommits { base, head } = begin(order, repository)?;
    hit("work.pinned");
    let git = Git::new(folder, &order.environment);
    let branch = branch(&order.name);
    let format = format!("--object-format={}", repository.object_format);
    let init = ["init", "--quiet", "--template=", &format, "--initial-branch", &branch];
    git.run(&init).map_err(git_error)?;
    borrow_objects(repository, folder).map_err(|why| WorkError::file(folder, &why))?;
    configure(order, repository, &git).map_err(git_error)?;
    // The branch is unborn, and the files are checked out by the same call.
    git.run(&["reset", "--quiet", "--hard", &head]).map_err(git_error)?;
    let include = || -> io::Result<()> {
        for name in ["exclude", "attributes"] {
            let inside = Path::new("info").join(name);
            copy_if_there(&repository.common.join(&inside), &folder.join(".git").join(&inside))?;
        }
        fs::copy(folder.join(".git/index"), folder.join(".git").join(INDEX))?;
        Ok(())
    };
    include().map_err(|why| WorkError::file(folder, &why))?;
    for file in included(repository).map_err(git_error)? {
        let copied = copy_if_there(&repository.top.join(&file), &folder.join(&file));
        copied.map_err(|why| WorkError::file(&repository.top.join(&file), &why))?;
    }
    Ok(base)
}

/// Returns the commits with which the clone begins, and makes references keep them.
pub(super) fn begin(
    order: &CloneOrder,
    repository: &Repository,
) -> Result<CloneCommits, WorkError> {
    let CloneOrder { name, clones, origin, .. } = order;
    let git_error = |why: GitError| WorkError::git(WHAT, &why);
    let (base, head) = match origin {
        CloneOrigin::Workspace { base: CloneBase::Head, .. } => {
            let head = repository.head().map_err(git_error)?;
            (head.clone(), head)
        }
        CloneOrigin::Workspace { base: CloneBase::Snapshot, .. } => {
            let snapshot = repository.snapshot(name, clones)?;
            (snapshot.clone(), snapshot)
        }
        CloneOrigin::Mirror { start, .. } => {
            let CloneStart { base, wip, .. } = start;
            let head = wip.as_ref().unwrap_or(base);
            let before = repository.reference(name, "wip");
            let text = format!("Earlier work of {name}");
            let kept = repository.over(before.as_deref(), head, &text).map_err(git_error)?;
            if wip.is_some() || kept != *head {
                repository.point(name, "wip", &kept, None).map_err(git_error)?;
            }
            (base.clone(), head.clone())
        }
    };
    keep_old_base(repository, name).map_err(git_error)?;
    repository.point(name, "base", &base, None).map_err(git_error)?;
    Ok(CloneCommits { base, head })
}

/// Makes the saved work of an earlier clone of that name keep its base, too.
fn keep_old_base(repository: &Repository, name: &AgentName) -> Result<(), GitError> {
    let Some(old) = repository.reference(name, "base") else { return Ok(()) };
    let wip = repository.reference(name, "wip");
    let known: Vec<&str> = wip.as_deref().into_iter().collect();
    if repository.unreached(std::slice::from_ref(&old), &known)?.is_empty() {
        return Ok(());
    }
    let tree = repository.tree(wip.as_ref().unwrap_or(&old))?;
    let parents: Vec<&str> = wip.iter().chain([&old]).map(String::as_str).collect();
    let kept = repository.commit(&tree, &parents, &format!("An earlier base of {name}"))?;
    repository.point(name, "wip", &kept, Some(wip.as_deref().unwrap_or_default()))
}

/// Makes the clone find the objects of the repository.
fn borrow_objects(repository: &Repository, folder: &Path) -> io::Result<()> {
    let info = folder.join(".git/objects/info");
    fs::create_dir_all(&info)?;
    let mut file = File::create(info.join("alternates"))?;
    writeln!(file, "{}", repository.common.join("objects").display())?;
    fs::create_dir_all(folder.join(".git/info"))?;
    copy_if_there(&repository.common.join("shallow"), &folder.join(".git/shallow"))
}

fn configure(order: &CloneOrder, repository: &Repository, git: &Git) -> Result<(), GitError> {
    let of_user = |key: &str| repository.git.run(&["config", "--get", key]).ok();
    let email = of_user("user.email").unwrap_or_else(|| format!("{}@localhost", order.name));
    let set = |key: &str, value: &str| git.run(&["config", "--replace-all", key, value]).map(drop);
    set("user.name", &format!("{} (team)", order.name))?;
    set("user.email", &email)?;
    set("remote.origin.url", &repository.top.display().to_string())?;
    set("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")?;
    set("remote.origin.pushurl", "offer your work with offer_work instead of a push")?;
    for key in CHECKOUT_SETTINGS {
        if let Ok(value) = repository.git.run(&["config", "--local", "--get", key]) {
            set(key, &value)?;
        }
    }
    Ok(())
}

/// Returns the ignored files of the user that [`INCLUDE`] lists.
fn included(repository: &Repository) -> Result<Vec<String>, GitError> {
    let list = repository.top.join(INCLUDE);
    if !list.is_file() {
        return Ok(Vec::new());
    }
    let listing = |source: &str| {
        let words = ["ls-files", "-z", "--others", "--ignored", source];
        Ok::<_, GitError>(split(&repository.git.checked(&words, b"")?))
    };
    let listed = listing(&format!("--exclude-from={}", list.display()))?;
    let ignored: BTreeSet<String> = listing("--exclude-standard")?.into_iter().collect();
    Ok(listed.into_iter().filter(|file| ignored.contains(file)).collect())
}

/// Copies a file or a link with its folders, if it exists.
fn copy_if_there(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(known) = fs::symlink_metadata(from) else { return Ok(()) };
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    if known.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if known.is_file() {
        fs::copy(from, to)?;
    }
    Ok(())
}

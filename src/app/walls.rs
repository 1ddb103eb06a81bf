//! The walls around the commands of an agent: from the sandbox of the settings to a policy for this folder, and the
//! check that this machine can keep it.

use super::agent_process::fresh_id;
use super::output::warn;
use super::wall_probe::WallProbe;
use crate::error::{Exit, Failure, OrFail};
use crate::os::wall::{self, MISSING_WALLS, VERSION_WITH_SIGNALS, WallPolicy, Walls};
use crate::settings::Settings;
use crate::settings::environment::{Environment, PassedNames};
use crate::store::TeamDir;
use crate::tools::command::{command_setup, try_out};
use crate::wire::sandbox::{Sandbox, SandboxLevel, SandboxNetwork, SandboxWall};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable with the highest version of Landlock that is used. For tests; a release build ignores it.
pub(super) const LANDLOCK_CAP: &str = "TEAM_LANDLOCK_ABI";

/// The variable with the name of a wall that is left open, so that the attempts at the start get through it. For tests;
/// a release build ignores it.
const OPEN_WALL: &str = "TEAM_OPEN_WALL";

/// The folder of git in the workspace, which commands may change but not replace.
const GIT: &str = ".git";

/// Files of the workspace that run commands or instruct agents outside the walls.
const PROTECTED: [&str; 17] = [
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".vscode",
    ".idea",
    ".envrc",
    ".mcp.json",
    ".claude",
    ".agents",
    ".codex",
    ".copilot",
    ".cursor",
    ".gemini",
    ".opencode",
    ".qwen",
    "opencode.json",
    "opencode.jsonc",
];

/// The walls that this machine has.
pub(super) struct Attained {
    /// The sandbox that was asked for, as far as this machine can keep it.
    pub(super) sandbox: Sandbox,
    /// The missing walls, with the reason.
    pub(super) missing: Vec<(SandboxWall, String)>,
}

/// The origin of the level of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LevelOrigin {
    /// A person has chosen it: it is kept, or nothing starts.
    Chosen,
    /// It is the default, with paths that a person has named: it is kept as far as the machine allows, but not left out.
    DefaultWithPaths,
    /// It is the default: it is kept as far as the machine allows.
    Default,
}

impl LevelOrigin {
    pub(super) fn of(settings: &Settings) -> Self {
        if settings.is_sandbox_level_chosen() {
            Self::Chosen
        } else if settings.are_sandbox_paths_chosen() {
            Self::DefaultWithPaths
        } else {
            Self::Default
        }
    }
}

/// Returns the sandbox with the walls that this machine has, and prints the missing ones. Fails if a wall is missing
/// that a chosen level needs.
pub(super) async fn attainable(
    sandbox: Sandbox,
    origin: LevelOrigin,
    team: &TeamDir,
    environment: &Environment,
) -> Result<Sandbox, Failure> {
    let wanted = sandbox.level;
    let Attained { sandbox, missing } = attain(sandbox, origin, team, environment).await?;
    if sandbox.level != wanted || sandbox.is_partial {
        warn(&partial(&sandbox, wanted, &missing));
    } else {
        for (why, walls) in by_reason(&missing) {
            warn(&format!("sandbox: this machine lacks a wall around commands: {walls} ({why})"));
        }
    }
    Ok(sandbox)
}

/// Tries a command behind the walls of a sandbox, which makes attempts to get out. Fails if a wall is missing that a
/// chosen level needs.
pub(super) async fn attain(
    sandbox: Sandbox,
    origin: LevelOrigin,
    team: &TeamDir,
    environment: &Environment,
) -> Result<Attained, Failure> {
    if sandbox.level == SandboxLevel::Off {
        return Ok(Attained { sandbox, missing: Vec::new() });
    }
    let sandbox = with_own_folders(sandbox, environment);
    let landlock = wall::landlock_version(landlock_cap(environment));
    let version = landlock.as_ref().ok().copied();
    let mut reasons: Vec<String> = landlock.err().iter().map(ToString::to_string).collect();
    let is_chosen = origin == LevelOrigin::Chosen;
    // Without Landlock only namespaces are left, which a chosen level does not do with.
    let ways = [true, false].into_iter().filter(|way| version.is_some() || (*way && !is_chosen));
    for has_namespaces in ways {
        let (lacks_landlock, is_partial) = (version.is_none(), version.is_none());
        let mut way = Sandbox { has_namespaces, lacks_landlock, is_partial, ..sandbox.clone() };
        if sandbox.network == SandboxNetwork::Own && !has_namespaces {
            reasons.push("only namespaces give a command a loopback of its own".into());
            break;
        }
        let holes = policy(&way, team, environment).holes();
        let holes = if has_namespaces { Vec::new() } else { holes };
        if !holes.is_empty() {
            let paths: Vec<String> = holes.iter().map(|path| path.display().to_string()).collect();
            let paths = paths.join(", ");
            reasons.push(format!("{paths} is in a writable folder; only namespaces hide it"));
            if is_chosen {
                break;
            }
            way.is_partial = true;
        }
        way.walls = standing(&way, &holes, version, team);
        let broken = match try_walls(&way, team, environment).await? {
            Ok(broken) => broken,
            Err(why) => {
                let own = with_default_paths(way, environment);
                let is_by_paths = origin == LevelOrigin::DefaultWithPaths;
                if is_by_paths && try_walls(&own, team, environment).await?.is_ok() {
                    return Err(unattainable(&sandbox, &why));
                }
                reasons.push(why);
                continue;
            }
        };
        if is_chosen && !broken.is_empty() {
            let words: Vec<&str> = broken.iter().map(|wall| wall.word()).collect();
            let harms: Vec<&str> = broken.iter().map(|wall| harm(*wall)).collect();
            let (words, harms) = (words.join(", "), harms.join("; "));
            let why = format!("these walls do not hold: {words}. A command could {harms}");
            return Err(unattainable(&sandbox, &why));
        }
        way.is_partial |= !broken.is_empty();
        way.walls.retain(|wall| !broken.contains(wall));
        let reason = |wall| reason(wall, &broken, version, &reasons);
        let missing = way.missing().map(|wall| (wall, reason(wall))).collect();
        return Ok(Attained { sandbox: way, missing });
    }
    let why = reasons.join("; ");
    // A network that is not open has been chosen as well.
    if origin != LevelOrigin::Default || sandbox.network != SandboxNetwork::Open {
        return Err(unattainable(&sandbox, &why));
    }
    let missing = sandbox.walls_of_level().map(|wall| (wall, why.clone())).collect();
    Ok(Attained { sandbox: Sandbox { level: SandboxLevel::Off, ..sandbox }, missing })
}

/// Returns the sandbox without the paths that a person has named: if its walls stand, those paths are in their way.
fn with_default_paths(sandbox: Sandbox, environment: &Environment) -> Sandbox {
    let Sandbox { write, hide, .. } = Settings::defaults().sandbox();
    with_own_folders(Sandbox { write, hide, ..sandbox }, environment)
}

/// Returns the sandbox with the user's own folders of the program among the hidden ones. Teammates, which take the
/// sandbox over, do not know all variables that name them.
fn with_own_folders(mut sandbox: Sandbox, environment: &Environment) -> Sandbox {
    let own = [environment.config_home(), environment.state_home()];
    let own = own.into_iter().flatten().map(|folder| folder.join("team").display().to_string());
    for folder in own {
        if !sandbox.hide.contains(&folder) {
            sandbox.hide.push(folder);
        }
    }
    sandbox
}

/// Returns the walls that these parts of the kernel put up around a command. `holes` are hidden paths that stay
/// reachable.
fn standing(
    sandbox: &Sandbox,
    holes: &[PathBuf],
    landlock: Option<i32>,
    team: &TeamDir,
) -> Vec<SandboxWall> {
    let root = fs::canonicalize(team.root()).unwrap_or_default();
    let (of_team, others): (Vec<_>, Vec<_>) = holes.iter().partition(|hole| **hole == root);
    let stands = |wall: &SandboxWall| match wall {
        SandboxWall::Files | SandboxWall::Sockets | SandboxWall::Network => true,
        SandboxWall::TeamFolder => of_team.is_empty(),
        SandboxWall::Secrets => others.is_empty(),
        SandboxWall::Signals => landlock.is_some_and(|version| version >= VERSION_WITH_SIGNALS),
        SandboxWall::GitFiles => sandbox.has_namespaces || sandbox.level == SandboxLevel::ReadOnly,
        SandboxWall::TemporaryFolders => sandbox.has_namespaces,
    };
    sandbox.walls_of_level().filter(stands).collect()
}

/// Returns the reason for which a wall is missing.
fn reason(
    wall: SandboxWall,
    broken: &BTreeSet<SandboxWall>,
    landlock: Option<i32>,
    reasons: &[String],
) -> String {
    match landlock {
        _ if broken.contains(&wall) => "a test command got through it".into(),
        Some(version) if wall == SandboxWall::Signals => {
            format!("Landlock {version}; {VERSION_WITH_SIGNALS}, Linux 6.12, is needed")
        }
        // With the hidden paths that stay readable.
        _ if wall == SandboxWall::Secrets => reasons.join("; "),
        _ => reasons.first().cloned().unwrap_or_default(),
    }
}

/// Returns the missing walls of each reason, in words.
fn by_reason(missing: &[(SandboxWall, String)]) -> Vec<(&str, String)> {
    let mut grouped: Vec<(&str, String)> = Vec::new();
    for (wall, why) in missing {
        match grouped.iter_mut().find(|(known, _)| known == why) {
            Some((_, walls)) => *walls = format!("{walls}, {}", wall.word()),
            None => grouped.push((why, wall.word().into())),
        }
    }
    grouped
}

/// Says what commands can do since the default level is kept in part or not at all, and what to do about it.
fn partial(sandbox: &Sandbox, wanted: SandboxLevel, missing: &[(SandboxWall, String)]) -> String {
    let (level, choice) = (wanted.word(), "sandbox.level");
    let choices = format!(
        "`team doctor` shows each wall. {choice} = \"{level}\" in your settings refuses such a \
         start, and {choice} = \"off\" turns all walls off"
    );
    if sandbox.level == SandboxLevel::Off {
        let why = missing.first().map_or("", |(_, why)| why);
        return format!(
            "WARNING: no walls around commands: this machine has none ({why}). Commands and hooks \
             of agents can do all that you can: read your keys, change all your files, and steer \
             this team. Use a container, a virtual machine or a user of its own, or a machine with \
             walls. {choices}"
        );
    }
    let lacks: Vec<String> =
        by_reason(missing).into_iter().map(|(why, walls)| format!("{walls} ({why})")).collect();
    let harms: Vec<&str> = missing.iter().map(|(wall, _)| harm(*wall)).collect();
    format!(
        "WARNING: not all walls around commands are in place: this machine lacks {}. Commands and \
         hooks of agents can: {}. The other walls of the level \"{level}\" are in place. \
         {choices}",
        lacks.join("; "),
        harms.join("; ")
    )
}

/// Says what a command can do without a wall.
const fn harm(missing: SandboxWall) -> &'static str {
    match missing {
        SandboxWall::Files => "change your files outside the workspace",
        SandboxWall::TeamFolder => {
            "read and change the team folder, and so read its mail and answer questions in your name"
        }
        SandboxWall::Secrets => "read files that are to be hidden (`sandbox.hide`)",
        SandboxWall::Signals => "stop other processes of your user",
        SandboxWall::Sockets => "use the sockets of daemons",
        SandboxWall::Network => "use the network",
        SandboxWall::GitFiles => "change .git/hooks and .git/config, which run code later",
        SandboxWall::TemporaryFolders => "read the files of others in /tmp",
    }
}

/// Makes the walls of the agent with this `run_id`; `None` without a sandbox.
pub(super) fn raise(
    sandbox: &Sandbox,
    team: &TeamDir,
    run_id: &str,
    environment: &Environment,
) -> Result<Option<Arc<Walls>>, Failure> {
    if sandbox.level == SandboxLevel::Off {
        return Ok(None);
    }
    let walls = Walls::new(policy(sandbox, team, environment), run_id);
    let what = "the folder for temporary files of commands cannot be created";
    walls.map(|walls| Some(Arc::new(walls))).or_fail(what, "check TMPDIR, or the folder /tmp")
}

/// Makes attempts to get out of these walls. Returns the walls that did not hold; the inner error says why the command
/// cannot run.
async fn try_walls(
    sandbox: &Sandbox,
    team: &TeamDir,
    environment: &Environment,
) -> Result<Result<BTreeSet<SandboxWall>, String>, Failure> {
    let run_id = fresh_id();
    let policy = policy(sandbox, team, environment);
    let probe = WallProbe::plan(sandbox, &policy, team, environment, run_id.clone());
    let policy = with_open_wall(policy, team, environment);
    let walls = Some(Arc::new(Walls::without_temp_folder(policy)));
    let setup = command_setup(environment.passed_on(&PassedNames::default()), run_id, walls);
    let printed = try_out(&probe.command(), team.workspace(), &setup).await;
    let reason = |why: String| why.rsplit(MISSING_WALLS).next().unwrap_or_default().to_owned();
    Ok(printed.map(|printed| probe.broken(&printed)).map_err(reason))
}

pub(super) fn policy(sandbox: &Sandbox, team: &TeamDir, environment: &Environment) -> WallPolicy {
    let (workspace, root) = (real(team.workspace()), real(team.root()));
    let home = environment.get("HOME");
    let expanded = |path: &String| match (path.strip_prefix("~/"), home) {
        (Some(below), Some(home)) => Some(PathBuf::from(home).join(below)),
        (Some(_), None) => None,
        (None, _) => Some(PathBuf::from(path)),
    };
    let mut writable: Vec<PathBuf> = sandbox.write.iter().filter_map(expanded).collect();
    if sandbox.level == SandboxLevel::Workspace {
        writable.push(workspace.clone());
    }
    let writable = without_nested(&writable);
    // Commands start there, also where a private temporary folder is around it.
    let visible =
        if sandbox.level == SandboxLevel::ReadOnly { vec![workspace.clone()] } else { vec![] };
    let hidden = sandbox.hide.iter().filter_map(expanded);
    let readable = team.committed_paths().into_iter().chain([team.attachments()]);
    WallPolicy {
        writable,
        hidden: hidden.chain([root]).collect(),
        readable: readable.map(|path| real_parent(&path)).collect(),
        visible,
        pinned: vec![workspace.join(GIT)],
        protected: PROTECTED.map(|name| workspace.join(name)).into(),
        network: sandbox.network,
        hosts: sandbox.hosts.clone(),
        has_namespaces: sandbox.has_namespaces,
        lacks_landlock: sandbox.lacks_landlock,
        allows_holes: sandbox.is_partial,
        landlock_cap: landlock_cap(environment),
    }
}

/// Returns the real paths, without those below another one: a command could put a link to another folder in the place of
/// such a path, which is writable anyway.
fn without_nested(paths: &[PathBuf]) -> Vec<PathBuf> {
    let named: Vec<PathBuf> = paths.iter().map(|path| real_parent(path)).collect();
    let is_nested =
        |path: &Path| named.iter().any(|other| path != other && path.starts_with(real(other)));
    let outer = named.iter().filter(|path| !is_nested(path));
    outer.map(|path| real(path)).collect()
}

/// Returns a path without links, as far as it exists.
pub(super) fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| real_parent(path))
}

/// Returns a path without links in the folders around its last part, as far as they exist.
fn real_parent(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
}

/// Makes the wall that [`OPEN_WALL`] names one that looks like the others and does not hold.
fn with_open_wall(mut policy: WallPolicy, team: &TeamDir, environment: &Environment) -> WallPolicy {
    let open = environment.get(OPEN_WALL).filter(|_| cfg!(debug_assertions));
    let Some(open) = open else { return policy };
    match SandboxWall::ALL.into_iter().find(|wall| wall.word() == open) {
        Some(SandboxWall::Files) => {
            policy.writable.extend(real(team.workspace()).parent().map(Path::to_owned));
        }
        Some(SandboxWall::TeamFolder) => policy.hidden.retain(|path| *path != real(team.root())),
        Some(SandboxWall::Secrets) => policy.hidden = vec![real(team.root())],
        Some(SandboxWall::Signals) => policy.landlock_cap = Some(VERSION_WITH_SIGNALS - 1),
        Some(SandboxWall::Network) => policy.network = SandboxNetwork::Open,
        Some(SandboxWall::GitFiles) => policy.protected.clear(),
        Some(SandboxWall::TemporaryFolders) => policy.writable.push("/tmp".into()),
        Some(SandboxWall::Sockets) | None => {}
    }
    policy
}

fn landlock_cap(environment: &Environment) -> Option<i32> {
    let cap = environment.get(LANDLOCK_CAP).filter(|_| cfg!(debug_assertions));
    cap.and_then(|cap| cap.parse().ok())
}

fn unattainable(sandbox: &Sandbox, why: &str) -> Failure {
    let level = sandbox.level.word();
    let what = format!("sandbox.level = \"{level}\" cannot be kept on this machine");
    let hint = "start it where the kernel permits the wall; if sandbox.hide or sandbox.write names \
                a folder that every program needs, remove it; or set sandbox.level = \"off\": \
                commands then have all rights of the user";
    Failure::new(Exit::Usage, what, why, hint)
}

//! The walls around the commands of an agent: from the sandbox of the settings to a policy for this folder, and the
//! check that this machine can keep it.

use super::agent_process::fresh_id;
use super::output::warn;
use crate::error::{Exit, Failure, OrFail};
use crate::os::wall::{self, WallPolicy, Walls};
use crate::settings::environment::{Environment, PassedNames};
use crate::store::TeamDir;
use crate::tools::command::{command_setup, try_out};
use crate::wire::sandbox::{Sandbox, SandboxLevel};
use std::path::PathBuf;
use std::sync::Arc;

/// The variable with the highest version of Landlock that is used. For tests; a release build ignores it.
pub(super) const LANDLOCK_CAP: &str = "TEAM_LANDLOCK_ABI";

/// The folder of git in the workspace, which commands may change but not replace.
const GIT: &str = ".git";

/// Files of the workspace that run commands or instruct agents outside the walls.
const PROTECTED: [&str; 7] =
    [".git/hooks", ".git/config", ".vscode", ".idea", ".envrc", ".mcp.json", ".claude"];

/// The walls that this machine permits.
pub(super) struct Attained {
    /// The sandbox that was asked for, with namespaces if they are permitted.
    pub(super) sandbox: Sandbox,
    /// The missing walls that the level can do without, in words.
    pub(super) missing: Vec<String>,
}

/// Returns the sandbox with the namespaces that this machine permits, and prints the missing walls. Fails if a wall
/// that the level needs is missing.
pub(super) async fn attainable(
    sandbox: Sandbox,
    team: &TeamDir,
    environment: &Environment,
) -> Result<Sandbox, Failure> {
    let Attained { sandbox, missing } = attain(sandbox, team, environment).await?;
    for wall in missing {
        warn(&format!("sandbox: this machine lacks a wall around commands: {wall}"));
    }
    Ok(sandbox)
}

/// Tries commands behind the walls of a sandbox. Fails if a wall that the level needs is missing.
pub(super) async fn attain(
    sandbox: Sandbox,
    team: &TeamDir,
    environment: &Environment,
) -> Result<Attained, Failure> {
    if sandbox.level == SandboxLevel::Off {
        return Ok(Attained { sandbox, missing: Vec::new() });
    }
    let missing = wall::missing_in_landlock(landlock_cap(environment));
    let missing = missing.map_err(|why| unattainable(&sandbox, &why.to_string()))?;
    let mut missing: Vec<String> = missing.into_iter().collect();
    let with_namespaces = Sandbox { has_namespaces: true, ..sandbox.clone() };
    let Err(why) = try_policy(&with_namespaces, team, environment).await? else {
        return Ok(Attained { sandbox: with_namespaces, missing });
    };
    let hole = policy(&sandbox, team, environment).holes().into_iter().next();
    if let Some(hole) = hole {
        let lacks = format!("{} is in a writable folder; only namespaces hide it", hole.display());
        return Err(unattainable(&sandbox, &format!("{why}; {lacks}")));
    }
    if let Err(why) = try_policy(&sandbox, team, environment).await? {
        return Err(unattainable(&sandbox, &why));
    }
    missing.push(format!("private temporary folders, files of git ({why})"));
    Ok(Attained { sandbox, missing })
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
    let what = "the folder for temporary files of commands cannot be made";
    walls.map(|walls| Some(Arc::new(walls))).or_fail(what, "check TMPDIR, or the folder /tmp")
}

/// Runs a command behind these walls; the inner error says why it cannot run.
async fn try_policy(
    sandbox: &Sandbox,
    team: &TeamDir,
    environment: &Environment,
) -> Result<Result<(), String>, Failure> {
    let run_id = fresh_id();
    let walls = raise(sandbox, team, &run_id, environment)?;
    let setup = command_setup(environment.passed_on(&PassedNames::default()), run_id, walls);
    Ok(try_out(&setup, team.workspace()).await)
}

fn policy(sandbox: &Sandbox, team: &TeamDir, environment: &Environment) -> WallPolicy {
    let workspace = team.workspace();
    let home = environment.get("HOME");
    let expanded = |path: &String| match (path.strip_prefix("~/"), home) {
        (Some(below), Some(home)) => Some(PathBuf::from(home).join(below)),
        (Some(_), None) => None,
        (None, _) => Some(PathBuf::from(path)),
    };
    let mut writable: Vec<PathBuf> = sandbox.write.iter().filter_map(expanded).collect();
    if sandbox.level == SandboxLevel::Workspace {
        writable.push(workspace.to_owned());
    }
    let own = [environment.config_home(), environment.state_home()];
    let own = own.into_iter().flatten().map(|folder| folder.join("team"));
    let hidden = sandbox.hide.iter().filter_map(expanded).chain(own);
    WallPolicy {
        writable,
        hidden: hidden.chain([team.root().to_owned()]).collect(),
        readable: team.committed_paths().into(),
        pinned: vec![workspace.join(GIT)],
        protected: PROTECTED.map(|name| workspace.join(name)).into(),
        network: sandbox.network,
        has_namespaces: sandbox.has_namespaces,
        landlock_cap: landlock_cap(environment),
    }
}

fn landlock_cap(environment: &Environment) -> Option<i32> {
    let cap = environment.get(LANDLOCK_CAP).filter(|_| cfg!(debug_assertions));
    cap.and_then(|cap| cap.parse().ok())
}

fn unattainable(sandbox: &Sandbox, why: &str) -> Failure {
    let level = match sandbox.level {
        SandboxLevel::Off => "off",
        SandboxLevel::Workspace => "workspace",
        SandboxLevel::ReadOnly => "read-only",
    };
    let what = format!("sandbox.level = \"{level}\" cannot be kept on this machine");
    let hint = "start it where the kernel permits the wall, or set sandbox.level = \"off\": then commands have \
                all rights of the user";
    Failure::new(Exit::Usage, what, why, hint)
}

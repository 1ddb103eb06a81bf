//! The clone of an agent: its walls, and the setup of the commands that save its work.

use super::agent_process::fresh_id;
use super::walls::{policy, real};
use crate::error::{Failure, OrFail};
use crate::os::command::CommandSetup;
use crate::os::wall::{WallPolicy, Walls};
use crate::settings::Settings;
use crate::settings::environment::{Environment, PassedNames};
use crate::store::{TeamDir, roster};
use crate::supervise::clone_config::CloneConfig;
use crate::tools::command::command_setup;
use crate::wire::isolation::ClonePlace;
use crate::wire::sandbox::{Sandbox, SandboxLevel};
use crate::work::clone::{borrowed, clones_folder};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable by which commands in a clone find the team.
const TEAM_DIR: &str = "TEAM_DIR";

/// Makes the walls of an agent that works in a clone.
pub(super) fn raise(
    sandbox: &Sandbox,
    team: &TeamDir,
    place: &ClonePlace,
    run_id: &str,
    environment: &Environment,
) -> Result<Option<Arc<Walls>>, Failure> {
    if sandbox.level == SandboxLevel::Off {
        return Ok(None);
    }
    let what = "the folder for temporary files of commands cannot be created";
    let walls = Walls::new(policy_in(sandbox, team, place, environment), run_id);
    walls.map(|walls| Some(Arc::new(walls))).or_fail(what, "check TMPDIR, or the folder /tmp")
}

/// Returns the policy of an agent that works in a clone: in place of the workspace, the clone is writable.
fn policy_in(
    sandbox: &Sandbox,
    team: &TeamDir,
    place: &ClonePlace,
    environment: &Environment,
) -> WallPolicy {
    let mut policy = policy(sandbox, team, environment);
    let (clone, workspace) = (real(Path::new(&place.path)), real(team.workspace()));
    policy.writable.retain(|path| *path != workspace);
    // The clones of others are beside it. Its git folder is its own.
    policy.hidden.extend(clone.parent().map(Path::to_owned));
    policy.visible = borrowed(place);
    // The commits of a project whose files are on another host are beside it, too.
    let is_hidden = |path: &PathBuf| clone.parent().is_some_and(|clones| path.starts_with(clones));
    policy.readable.extend(policy.visible.iter().map(|path| real(path)).filter(is_hidden));
    // A writable path of the settings may be around the workspace.
    if !policy.writable.iter().any(|path| workspace.starts_with(path)) {
        policy.pinned.clear();
        policy.protected.clear();
    }
    match sandbox.level {
        SandboxLevel::Workspace => policy.writable.push(clone),
        SandboxLevel::ReadOnly => policy.visible.push(clone),
        SandboxLevel::Off => {}
    }
    policy
}

/// Returns the variables of commands in a clone.
pub(super) fn variables(
    environment: &Environment,
    further: &PassedNames,
    team: &TeamDir,
) -> Vec<(String, String)> {
    let mut variables = environment.passed_on(further);
    let root = team.root().canonicalize().unwrap_or_else(|_| team.root().to_owned());
    variables.push((TEAM_DIR.into(), root.display().to_string()));
    variables
}

/// Returns the setup of the commands that save a clone. They have the walls of the agent, and can always write the
/// clone. They have no folder for temporary files, which a kill would leave behind.
pub(super) fn saving_setup(
    sandbox: &Sandbox,
    team: &TeamDir,
    place: &ClonePlace,
    environment: &Environment,
    further: &PassedNames,
) -> CommandSetup {
    let level = match sandbox.level {
        SandboxLevel::ReadOnly => SandboxLevel::Workspace,
        level @ (SandboxLevel::Off | SandboxLevel::Workspace) => level,
    };
    let (sandbox, run_id) = (Sandbox { level, ..sandbox.clone() }, fresh_id());
    let walls = (level != SandboxLevel::Off).then(|| {
        Arc::new(Walls::without_temp_folder(policy_in(&sandbox, team, place, environment)))
    });
    command_setup(variables(environment, further, team), run_id, walls)
}

/// Returns the folder for the clones of a team; `None` if the user has none for the state of programs.
pub(super) fn folder(team: &TeamDir, environment: &Environment) -> Option<PathBuf> {
    let state = environment.state_home()?;
    let name = roster::read(team).map(|roster| roster.team_name.clone()).unwrap_or_default();
    Some(clones_folder(&state, team, &name))
}

pub(super) fn config(
    settings: &Settings,
    sandbox: &Sandbox,
    team: &TeamDir,
    environment: &Environment,
) -> CloneConfig {
    let (sandbox, further) = (sandbox.clone(), settings.pass_environment.value.clone());
    let (isolation, base) = (settings.isolation.value, settings.clone_base.value);
    let folder = folder(team, environment);
    let (team, environment) = (team.clone(), environment.clone());
    let setup =
        move |place: &ClonePlace| saving_setup(&sandbox, &team, place, &environment, &further);
    CloneConfig { isolation, base, folder, setup: Box::new(setup) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commits_of_a_project_on_another_host_can_be_read_though_they_are_among_the_clones() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let (clones, project) = (real.join("state/work"), real.join("state/work/.project"));
        for path in ["shop", "state/work/carol", "state/work/.project/.git/objects"] {
            std::fs::create_dir_all(real.join(path)).unwrap();
        }
        let team = TeamDir::create(&real.join("shop/.team")).unwrap();
        let text = |path: &Path| path.display().to_string();
        let policy_of = |repository: &Path| {
            let place = ClonePlace {
                path: text(&clones.join("carol")),
                repository: text(repository),
                ..ClonePlace::default()
            };
            policy_in(&Sandbox::default(), &team, &place, &Environment::of(&[]))
        };
        let there = policy_of(&project);
        assert!(there.hidden.contains(&clones) && there.readable.contains(&project));
        // The user's own repository is hidden by nothing.
        let here = policy_of(team.workspace());
        assert!(!here.readable.iter().any(|path| path.starts_with(&clones)));
    }

    #[test]
    fn a_clone_is_writable_and_the_workspace_only_as_the_settings_say() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let clone = real.join("state/clone");
        for path in ["projects/shop", "state/clone"] {
            std::fs::create_dir_all(real.join(path)).unwrap();
        }
        let team = TeamDir::create(&real.join("projects/shop/.team")).unwrap();
        let text = |path: &Path| path.display().to_string();
        let place = ClonePlace {
            path: text(&clone),
            folder: text(&clone),
            repository: text(team.workspace()),
            ..ClonePlace::default()
        };
        let around = real.join("projects");
        for (level, write, expected) in [
            (SandboxLevel::Workspace, None, vec![&clone]),
            (SandboxLevel::Workspace, Some(&around), vec![&around, &clone]),
            (SandboxLevel::ReadOnly, Some(&around), vec![&around]),
        ] {
            let write: Vec<String> = write.iter().map(|path| text(path)).collect();
            let sandbox = Sandbox { level, write, ..Sandbox::default() };
            let policy = policy_in(&sandbox, &team, &place, &Environment::of(&[]));
            assert_eq!(policy.writable.iter().collect::<Vec<_>>(), expected);
            // The files by which git runs code are protected if the workspace can be changed.
            assert_eq!(policy.protected.is_empty(), !expected.contains(&&around));
        }
    }
}

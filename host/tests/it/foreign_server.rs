//! Hosts at a server that others run, which asks for TLS and for a login.

use crate::machines::{DEADLINE, program};
use crate::rig::files::{temporary_folder, write_private};
use crate::rig::nats_install::find_or_skip;
use crate::rig::nats_server::{NatsServer, ServerOptions};
use crate::rig::process::{spawn_tied, wait_until};
use crate::skips::skipped;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs::{self, File, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PASSWORD: &str = "canary-of-the-server";

fn pem(kind: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
}

/// Starts a server that lets in a user with a password, and one with an nkey; returns it with the file of its certificate.
fn start(program: &Path, folder: &Path, nkey: &str) -> (NatsServer, PathBuf) {
    // The address is one of its own for each test.
    let address = NatsServer::address_on_loopback();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut named = rcgen::CertificateParams::default();
    named.subject_alt_names.push(rcgen::SanType::IpAddress(IpAddr::V4(*address.ip())));
    let (ca, own_key) = (folder.join("server.pem"), folder.join("server.key"));
    write_private(&ca, pem("CERTIFICATE", named.self_signed(&key).unwrap().der()));
    write_private(&own_key, pem("PRIVATE KEY", &key.serialize_der()));
    let more_config = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\" }}\n\
         authorization {{ users: [{{ user: ann, password: \"{PASSWORD}\" }}, {{ nkey: {nkey} }}] }}\n",
        ca.display(),
        own_key.display(),
    );
    let options = ServerOptions { more_config, ..ServerOptions::default() };
    (NatsServer::at_loopback(address, program, &options), ca)
}

/// A host without a network of its own.
struct Site(PathBuf);

impl Site {
    fn new(folder: &Path, name: &str) -> Self {
        let site = folder.join(name);
        fs::create_dir(&site).unwrap();
        Self(site)
    }

    fn command(&self, of: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program(of));
        command.args(args).current_dir(&self.0).env("HOME", &self.0).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", self.0.join("state"));
        command.env_remove("TEAM_DIR").env_remove("TEAM_RUN");
        command
    }

    fn team(&self, args: &[&str]) -> Output {
        self.command("team", args).output().unwrap()
    }

    fn start(&self, of: &str, args: &[&str]) -> Child {
        let mut command = self.command(of, args);
        let said = File::create(self.0.join(format!("{of}.out"))).unwrap();
        command.stdout(said.try_clone().unwrap()).stderr(said);
        spawn_tied(command).unwrap()
    }

    fn said(&self, of: &str) -> String {
        fs::read_to_string(self.0.join(format!("{of}.out"))).unwrap_or_default()
    }

    /// Returns what a command that must fail says.
    fn refusal(&self, of: &str, args: &[&str]) -> String {
        let output = self.command(of, args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn eventually(what: &str, sites: [&Site; 2], is_so: impl FnMut() -> bool) {
    let said = || sites.map(|site| site.said("team-host"));
    assert!(wait_until(DEADLINE, is_so), "not within {DEADLINE:?}: {what}\n{:?}", said());
}

/// Returns the files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(files_with(&path, text));
        } else if kind.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            found.extend(String::from_utf8_lossy(&bytes).contains(text).then_some(path));
        }
    }
    found
}

#[test]
fn hosts_log_in_at_a_server_of_others_and_keep_the_login_in_its_file_alone() {
    let Some(nats_server) = find_or_skip(skipped) else { return };
    let folder = temporary_folder();
    let root = folder.path();
    let user = nkeys::KeyPair::new_user();
    let (server, ca) = start(&nats_server, root, &user.public_key());
    let (url, ca) = (server.url(), ca.display().to_string());
    let [ann, gpu] = ["ann", "gpu1"].map(|name| Site::new(root, name));
    let (password, seed) = (root.join("ann.login"), root.join("gpu1.login"));
    write_private(&password, format!("ann:{PASSWORD}\n"));
    write_private(&seed, user.seed().unwrap());
    let path = |it: &Path| it.display().to_string();
    let (password, seed) = (path(&password), path(&seed));

    let first = ["run", "--name", "ann", "--team", "demo", "--nats", &url];
    // Nothing is made before that is said.
    let in_address = url.replace("nats://", &format!("nats://ann:{PASSWORD}@"));
    let said = ann.refusal("team-host", &["run", "--nats", &in_address, "--name", "ann"]);
    assert!(said.contains("--creds FILE") && !said.contains(PASSWORD), "{said}");
    let run = |more: &[&str]| ann.refusal("team-host", &[&first, more].concat());
    fs::set_permissions(&password, Permissions::from_mode(0o644)).unwrap();
    let said = run(&["--creds", &password]);
    assert!(said.contains("others can read it") && said.contains("chmod 600"), "{said}");
    fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    assert!(run(&["--creds", &ca]).contains("neither credentials of NATS"), "a certificate");
    assert!(run(&["--ca", &password]).contains("there is no certificate in it"));
    let in_clear =
        ["run", "--name", "ann", "--nats", "nats://198.18.0.1:4222", "--creds", &password];
    assert!(ann.refusal("team-host", &in_clear).contains("tls://"));
    assert!(run(&["--creds", "none.login"]).contains("none.login"), "there is no such file");
    let said = ann.refusal("team-host", &["run", "--name", "ann", "--creds", &password]);
    assert!(said.contains("name it: --nats"), "{said}");
    assert!(!ann.0.join(".team").exists());

    let mut relay =
        ann.start("team-host", &[&first[..], &["--creds", &password, "--ca", &ca]].concat());
    eventually("the relay serves", [&ann, &gpu], || ann.said("team-host").contains("serves"));
    let said = ann.refusal("team", &["host", "add", "gpu1"]);
    assert!(said.contains("team host invite gpu1"), "{said}");
    let invited = ann.team(&["host", "invite", "gpu1"]);
    let invited = String::from_utf8_lossy(&invited.stdout).into_owned();
    assert!(invited.contains("--creds FILE --ca FILE --code"), "{invited}");
    let code = invited.split("--code").nth(1).unwrap().split_whitespace().next().unwrap();
    let join = ["host", "join", &url, "--code", code];
    let said = gpu.refusal("team", &join);
    assert!(
        said.to_lowercase().contains("authorization violation") || said.contains("certificate"),
        "{said}"
    );
    let joined = gpu.team(&[&join[..], &["--creds", &seed, "--ca", &ca]].concat());
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    // The login is found by what the host remembers.
    let mut relays = [gpu.start("team-host", &["run"])];
    let mut carol = gpu.start("team", &["teammate", "carol", "--model", "rehearsal"]);
    let send = || ann.team(&["send", "carol", "through TLS"]).status.success();
    eventually("carol is known", [&ann, &gpu], send);
    let transcript = gpu.0.join(".team/transcript/carol.jsonl");
    let has_mail = || fs::read_to_string(&transcript).is_ok_and(|it| it.contains("through TLS"));
    eventually("carol has the mail", [&ann, &gpu], has_mail);

    relay.kill().unwrap();
    relay.wait().unwrap();
    relay = ann.start("team-host", &["run"]);
    eventually("it logs in again", [&ann, &gpu], || ann.said("team-host").contains("serves"));
    let environment = fs::read(format!("/proc/{}/environ", relay.id())).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains(PASSWORD));
    for child in relays.iter_mut().chain([&mut relay, &mut carol]) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for secret in [PASSWORD, &user.seed().unwrap()] {
        let [found, of_ann] = [&gpu.0, &ann.0].map(|site| files_with(site, secret));
        assert!(found.is_empty() && of_ann.is_empty(), "{found:?} {of_ann:?}");
    }
}

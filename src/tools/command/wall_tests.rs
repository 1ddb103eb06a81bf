//! Tests of the walls around commands: real commands below their real supervisor, with and without namespaces.
//!
//! Each attempt is first made without walls, so that a test shows that the walls stop it.

use super::{Bash, OutputStore, command_setup};
use crate::os::event_loop::event_loop;
use crate::os::skips::skipped;
use crate::os::wall::{WallPolicy, Walls};
use crate::wire::sandbox::SandboxNetwork;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

/// The variable that shows that a process can be inspected.
const CANARY: &str = "WALL_CANARY=4711";

/// A workspace with a team folder and a repository, beside a home folder and a process.
pub(super) struct Fixture {
    folder: tempfile::TempDir,
    pub(super) policy: WallPolicy,
    bystander: Child,
}

/// A way to run commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Unwalled,
    /// Landlock and seccomp. The team folder is outside the workspace.
    Rules,
    /// Rules and namespaces. The team folder is in the workspace.
    Namespaces,
}

impl Fixture {
    pub(super) fn new(way: Way) -> Self {
        let place = public_folder().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new().prefix("wall-").tempdir_in(place).unwrap();
        let real = folder.path().canonicalize().unwrap();
        let ws = real.join("ws");
        let team = if way == Way::Rules { real.join("state") } else { ws.join(".team") };
        for folder in ["letters", "roles"].map(|name| team.join(name)) {
            fs::create_dir_all(folder).unwrap();
        }
        for folder in ["home/.ssh", "home/.cargo"].map(|name| real.join(name)) {
            fs::create_dir_all(folder).unwrap();
        }
        for (path, text) in [
            (team.join("letters/bob.mail"), "secret mail\n"),
            (team.join("settings.toml"), "[sandbox]\n"),
            (team.join("roles/coder.md"), "a coder\n"),
            (real.join("home/.ssh/id"), "secret key\n"),
            (real.join("home/.cargo/credentials.toml"), "secret token\n"),
            (real.join("home/open"), "open\n"),
        ] {
            put(&path, text);
        }
        std::os::unix::fs::symlink(&team, real.join("team")).unwrap();
        let init = Command::new("git").args(["init", "-q"]).arg(&ws).status().unwrap();
        assert!(init.success());
        fs::create_dir_all(ws.join(".git/hooks")).unwrap();
        let policy = WallPolicy {
            writable: vec![ws.clone()],
            hidden: vec![real.join("home/.ssh"), real.join("home/.cargo/cred*"), team.clone()],
            visible: Vec::new(),
            readable: [".gitignore", "settings.toml", "roles"].map(|name| team.join(name)).into(),
            pinned: vec![ws.join(".git")],
            protected: [".git/hooks", ".git/config", ".idea"].map(|name| ws.join(name)).into(),
            network: SandboxNetwork::Open,
            hosts: Vec::new(),
            has_namespaces: way == Way::Namespaces,
            lacks_landlock: false,
            allows_holes: false,
            landlock_cap: None,
        };
        let (name, value) = CANARY.split_once('=').unwrap();
        let bystander = Command::new("sleep").arg("1000").env(name, value).spawn().unwrap();
        Self { folder, policy, bystander }
    }

    fn real(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// Runs a command in the workspace and returns what it prints.
    pub(super) fn run(&self, way: Way, command: &str) -> String {
        let path = std::env::vars().find(|(name, _)| name == "PATH").unwrap();
        let paths = [("HOME", "home"), ("TEAM", "team"), ("BASE", ".")];
        let text = |(name, path): (&str, &str)| {
            (name.to_owned(), self.real().join(path).display().to_string())
        };
        let bystander = ("PID".to_owned(), self.bystander.id().to_string());
        let env = paths.map(text).into_iter().chain([path, bystander]).collect();
        let run_id = uuid::Uuid::now_v7().simple().to_string();
        let walls = (way != Way::Unwalled)
            .then(|| Arc::new(Walls::new(self.policy.clone(), &run_id).unwrap()));
        let setup = command_setup(env, run_id, walls);
        let store = OutputStore::below(self.folder.path());
        let bash = Bash {
            command: command.into(),
            timeout: Some(60),
            background: None,
            outside: None,
            hosts: None,
        };
        let ws = self.real().join("ws");
        event_loop().unwrap().block_on(bash.run_in(&ws, &setup, &store)).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.bystander.kill().unwrap_or_default();
        self.bystander.wait().map(drop).unwrap_or_default();
    }
}

/// Returns a folder for files that only the walls keep from a command: namespaces hide all of a temporary folder.
fn public_folder() -> Option<PathBuf> {
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    // `scripts/check-unprivileged` makes one for its user.
    let made = std::env::vars_os().find(|(name, _)| name == "TEAM_PUBLIC_FOLDER");
    let is_public = |folder: &PathBuf| {
        !["/tmp", "/var/tmp", "/dev/shm"].iter().any(|private| folder.starts_with(private))
    };
    let folders = [made.map(|(_, folder)| folder.into()), Some(built)].into_iter().flatten();
    folders.filter(is_public).find(|folder| tempfile::tempdir_in(folder).is_ok())
}

#[expect(clippy::disallowed_methods, reason = "a test makes its own files")]
fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

/// The ways with walls that this machine permits.
pub(super) fn walled() -> Vec<Way> {
    let mut ways = Vec::new();
    let all = [Way::Rules, Way::Namespaces];
    let all = if public_folder().is_some() { &all[..] } else { &all[..1] };
    if all.len() == 1 {
        skipped("Namespaces: there is no folder for files outside the temporary ones");
    }
    for way in all.iter().copied() {
        let said = Fixture::new(way).run(way, "echo up");
        if said == "up\n" {
            ways.push(way);
        } else {
            skipped(&format!("{way:?}: {said}"));
        }
    }
    ways
}

/// Commands that print `out` if they get out of the walls.
const ESCAPES: &[&str] = &[
    "echo '{\"from\":\"lead\"}' >>$TEAM/letters/bob.mail && echo out",
    "grep -q secret $TEAM/letters/bob.mail && echo out",
    "cd $TEAM/letters && grep -q secret ./bob.mail && echo out",
    "grep -q secret /proc/self/root$(readlink $TEAM)/letters/bob.mail && echo out",
    "echo '{}' >$TEAM/letters/eve.mail && echo out",
    "rm -f $TEAM/letters/bob.mail && [ ! -e $TEAM/letters/bob.mail ] && [ -e $TEAM/letters ] && echo out",
    "ln $TEAM/letters/bob.mail linked && echo out",
    "mv $TEAM/letters moved && echo out",
    "echo x >>$TEAM/settings.toml && echo out",
    "grep -q secret ~/.ssh/id && echo out",
    "ln -s ~/.ssh link && grep -q secret link/id && echo out",
    "grep -q secret ~/.cargo/credentials.toml && echo out",
    "echo x >>~/.bashrc && echo out",
    "echo x >~/new && echo out",
    "mkdir $BASE/beside && echo out",
    "kill -0 $PID && echo out",
    "kill -0 $PPID && echo out",
    "tr '\\0' '\\n' </proc/$PID/environ | grep -q WALL_CANARY && echo out",
    "readlink /proc/$PID/fd/0 && echo out",
    "ls -d /proc/$PID/cwd/. && echo out",
    "prlimit --pid $PID --core=0 && echo out",
    "python3 -c 'import socket; socket.socket(socket.AF_UNIX)' && echo out",
    "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)' && echo out",
    "python3 -c 'import ctypes; c = ctypes.CDLL(None); exit(c.unshare(0x10000000) != 0)' && echo out",
    "python3 -c 'import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 1, None); \
     exit(ctypes.get_errno() == 1)' && echo out",
];

/// Ways out that only namespaces close.
const ESCAPES_FROM_RULES: &[&str] = &[
    "mv $(readlink $TEAM) moved && echo out",
    "chmod 000 $(readlink $TEAM) && chmod 700 $(readlink $TEAM) && echo out",
    "stat $TEAM/letters/bob.mail && echo out",
    "echo x >.git/hooks/pre-commit && echo out",
    "git config core.hooksPath /x && echo out",
    "echo x >config && mv config .git/config && echo out",
    "mv .git git && echo out",
    "touch ~/open && chmod 600 ~/open && echo out",
];

#[test]
fn no_command_gets_out_of_its_walls() {
    for way in walled() {
        let further = ESCAPES_FROM_RULES.iter().filter(|_| way == Way::Namespaces);
        for escape in ESCAPES.iter().chain(further) {
            let is_out = |way, fixture: &Fixture| fixture.run(way, escape).contains("out\n");
            assert!(!is_out(way, &Fixture::new(way)), "{way:?}: {escape}");
            let without = Fixture::new(Way::Unwalled);
            assert!(is_out(Way::Unwalled, &without), "it does not get out at all: {escape}");
        }
    }
}

#[test]
fn everyday_commands_work_behind_walls() {
    let commit = "git -c user.name=a -c user.email=a@b commit -qm one";
    let terminal = "import os, pty; a, b = pty.openpty(); print(os.ttyname(b), os.isatty(b))";
    let pool = "import multiprocessing as m; print(m.Pool(2).map(abs, [-1, 2]))";
    let server = "import socket as s; a = s.socket(); a.bind((\"127.0.0.1\", 0)); a.listen(); \
                  b = s.create_connection(a.getsockname()); print(\"connected\")";
    for way in walled() {
        let mut fixture = Fixture::new(way);
        for (command, expected) in [
            ("echo one >a && cat a", "one\n"),
            ("mkdir -p b/c && mv a b/c/a && ln b/c/a d && cat d", "one\n"),
            (&format!("git add d && {commit} && git status --porcelain d"), "(no output)"),
            ("echo two >$TMPDIR/x && cat $TMPDIR/x", "two\n"),
            ("cat $(mktemp) && cat <<<three", "three\n"),
            ("cat ~/open", "open\n"),
            ("cat <(echo four) && echo five >/dev/null && echo six >/dev/stderr", "four\nsix\n"),
            ("sleep 100 & kill $! && wait $!; echo $?", "143\n"),
            ("getent hosts localhost >/dev/null && echo found", "found\n"),
            (&format!("python3 -c '{server}'"), "connected\n"),
        ] {
            assert_eq!(fixture.run(way, command), expected, "{way:?}: {command}");
        }
        if way == Way::Rules {
            // The remedy that the documentation names.
            assert!(fixture.run(way, &format!("python3 -c '{pool}'")).contains("PermissionError"));
            // With the files of the test in it, it cannot be writable without namespaces.
            if !fixture.real().starts_with("/dev/shm") {
                fixture.policy.writable.push("/dev/shm".into());
                assert_eq!(fixture.run(way, &format!("python3 -c '{pool}'")), "[1, 2]\n");
            }
        } else {
            assert_eq!(fixture.run(way, &format!("python3 -c '{pool}'")), "[1, 2]\n");
            let said = fixture.run(way, &format!("python3 -c '{terminal}'"));
            assert_eq!(said, "/dev/pts/0 True\n", "a terminal of its own");
            let shared = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
            let look = format!("echo x >/tmp/x && cat /tmp/x; ls {}", shared.path().display());
            let said = fixture.run(way, &look);
            assert!(said.starts_with("x\n") && said.contains("No such file"), "{said}");
        }
    }
}

/// The agent is told of the walls when a command fails as one does that they have refused.
#[test]
fn a_refusal_is_explained() {
    for way in walled() {
        let mut fixture = Fixture::new(way);
        fixture.policy.network = SandboxNetwork::Off;
        let said = fixture.run(way, "echo x >>~/open");
        let workspace = fixture.real().join("ws");
        for words in ["[exit code 1]\n[sandbox: ", &workspace.display().to_string(), "no network"] {
            assert!(said.contains(words), "{way:?}: {said}");
        }
        let said = fixture.run(way, "false");
        assert_eq!(said, "[exit code 1]", "{way:?}");
    }
    let fixture = Fixture::new(Way::Unwalled);
    let said = fixture.run(Way::Unwalled, "cat ~/no-such-file; echo permission denied; false");
    assert!(!said.contains("[sandbox: "), "{said}");
}

/// A hidden team folder must not look deleted to git.
#[test]
fn files_that_git_keeps_stay_in_the_hidden_team_folder() {
    let way = Way::Namespaces;
    if !walled().contains(&way) {
        return;
    }
    let fixture = Fixture::new(way);
    put(
        &fixture.real().join("ws/.team/.gitignore"),
        "*\n!.gitignore\n!settings.toml\n!roles/\n!roles/**\n",
    );
    let commit = "git add -A && git -c user.name=a -c user.email=a@b commit -qm m --allow-empty && git ls-files";
    let kept = ".team/.gitignore\n.team/roles/coder.md\n.team/settings.toml\n";
    assert_eq!(fixture.run(Way::Unwalled, commit), kept);
    assert_eq!(fixture.run(way, commit), kept);
    assert_eq!(fixture.run(way, "git status --porcelain"), "(no output)");
    let mail = fixture.real().join("ws/.team/letters/bob.mail");
    assert_eq!(fs::read_to_string(mail).unwrap(), "secret mail\n");
}

/// A clone borrows the objects of its repository, which may be below a folder that is private to each command.
#[test]
fn a_visible_folder_is_readable_below_a_private_one() {
    let way = Way::Namespaces;
    if !walled().contains(&way) {
        return;
    }
    let shared = tempfile::tempdir_in("/tmp").unwrap();
    for name in ["objects", "objects/hidden", "other"] {
        fs::create_dir(shared.path().join(name)).unwrap();
        put(&shared.path().join(name).join("file"), "lent\n");
    }
    put(&shared.path().join("objects/key"), "key\n");
    let mut fixture = Fixture::new(way);
    fixture
        .policy
        .hidden
        .extend(["hidden", "key"].map(|name| shared.path().join("objects").join(name)));
    let read =
        format!("cd {} && cat */file */*/file; echo x >objects/file", shared.path().display());
    assert!(!fixture.run(way, &read).contains("lent"));
    fixture.policy.visible = vec![shared.path().join("objects")];
    let said = fixture.run(way, &read);
    assert!(said.starts_with("lent\n") && said.contains("Read-only file system"), "{said}");
    assert_eq!(said.matches("lent").count(), 1, "{said}");
    assert_eq!(
        fixture.run(way, &format!("cat {}/objects/key", shared.path().display())),
        "(no output)"
    );
}

/// Root reads and writes the disks of the machine by their devices, and everybody may read the log of some kernels.
#[test]
fn a_command_has_few_devices() {
    let open = "for it in $(find /dev -type b -o -name kmsg); do (exec 3<$it) 2>&- && echo out; done; echo over";
    let use_few = "for it in null zero full random urandom; do head -c 1 /dev/$it | wc -c; done; echo x >/dev/null; \
                   echo six >/dev/stderr; cat <(echo seven)";
    let terminal = "python3 -c 'import os, pty; print(os.ttyname(pty.openpty()[1]))'";
    if !Fixture::new(Way::Unwalled).run(Way::Unwalled, open).contains("out") {
        return skipped("no disk can be read without walls either");
    }
    for way in walled() {
        for lacks_landlock in [false, true] {
            if lacks_landlock && way == Way::Rules {
                continue;
            }
            let mut fixture = Fixture::new(way);
            fixture.policy.lacks_landlock = lacks_landlock;
            assert_eq!(fixture.run(way, open), "over\n", "{way:?}, no Landlock: {lacks_landlock}");
            assert_eq!(fixture.run(way, use_few), "0\n1\n1\n1\n1\nsix\nseven\n", "{way:?}");
            if way == Way::Namespaces {
                assert_eq!(fixture.run(way, terminal), "/dev/pts/0\n");
            }
            if lacks_landlock {
                let listed = fixture.run(way, "echo /dev/*");
                let few = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero";
                let few: Vec<String> = few.split(' ').map(|name| format!("/dev/{name}")).collect();
                assert_eq!(listed.trim(), few.join(" "));
            }
        }
    }
}

/// A clone of a teammate is a writable folder in the hidden team folder.
#[test]
fn without_landlock_a_hidden_folder_around_a_writable_one_is_empty_but_for_it() {
    let way = Way::Namespaces;
    if !walled().contains(&way) {
        return;
    }
    for lacks_landlock in [false, true] {
        let mut fixture = Fixture::new(way);
        let clone = fixture.real().join("ws/.team/clones/alice");
        fs::create_dir_all(&clone).unwrap();
        put(&clone.join("own"), "own\n");
        fixture.policy.writable = vec![clone.clone()];
        fixture.policy.lacks_landlock = lacks_landlock;
        let read =
            format!("cat $TEAM/letters/bob.mail; cat {}/own; echo x >{0}/new", clone.display());
        let said = fixture.run(way, &read);
        assert!(said.ends_with("own\n") && !said.contains("secret"), "{lacks_landlock}: {said}");
        assert_eq!(fs::read_to_string(clone.join("new")).unwrap(), "x\n");
        let said = fixture.run(way, "cat $TEAM/settings.toml; echo x >$TEAM/new");
        assert!(said.starts_with("[sandbox]\n") && said.contains("Read-only"), "{said}");
    }
}

#[test]
fn without_a_network_no_address_is_reached() {
    for way in walled() {
        let mut fixture = Fixture::new(way);
        let connect =
            "python3 -c 'import socket; socket.socket(); print(\"a socket\")' 2>/dev/null";
        assert_eq!(fixture.run(way, connect), "a socket\n");
        fixture.policy.network = SandboxNetwork::Off;
        assert_eq!(fixture.run(way, connect), "[exit code 1]", "{way:?}");
    }
}

/// A command finds its own servers, and no others.
#[test]
fn a_loopback_of_its_own_reaches_the_command_alone() {
    let way = Way::Namespaces;
    if !walled().contains(&way) {
        return;
    }
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let connect = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo out || echo in");
    let server = "import socket as s; a = s.socket(); a.bind((\"127.0.0.1\", 0)); a.listen(); \
                  b = s.create_connection(a.getsockname()); print(\"connected\")";
    let mut fixture = Fixture::new(way);
    assert_eq!(fixture.run(way, &connect), "out\n");
    fixture.policy.network = SandboxNetwork::Own;
    assert_eq!(fixture.run(way, &connect), "in\n");
    let said = fixture.run(way, &format!("python3 -c '{server}'"));
    assert_eq!(said, "connected\n");
    let interfaces = fixture.run(way, "ls /proc/sys/net/ipv4/conf");
    assert_eq!(interfaces, "all\ndefault\nlo\n");
    let mut fixture = Fixture::new(Way::Rules);
    fixture.policy.network = SandboxNetwork::Own;
    let said = fixture.run(Way::Rules, "touch ran");
    assert!(said.contains("network: only namespaces") && said.contains("126"), "{said}");
    assert!(!fixture.real().join("ws/ran").exists());
}

/// An early Landlock lacks rights, which filters replace; other walls stand.
#[test]
fn with_an_early_landlock_files_outside_are_neither_changed_nor_truncated() {
    for version in 1..=6 {
        let way = Way::Rules;
        let mut fixture = Fixture::new(way);
        fixture.policy.landlock_cap = Some(version);
        for command in [
            "echo x >>~/open && echo out",
            "python3 -c 'import os; os.truncate(os.environ[\"HOME\"] + \"/open\", 0)' && echo out",
            "python3 -c 'import os; os.open(os.environ[\"HOME\"] + \"/open\", os.O_TRUNC)' && echo out",
            "grep -q secret ~/.ssh/id && echo out",
            "tr '\\0' '\\n' </proc/$PID/environ | grep -q WALL_CANARY && echo out",
        ] {
            let said = fixture.run(way, command);
            assert!(!said.contains("out\n"), "Landlock {version}: {command}: {said}");
        }
        assert_eq!(fixture.run(way, "echo x >new && cat new ~/open"), "x\nopen\n");
    }
}

/// A wall that cannot be put up is named, and the command does not run.
#[test]
fn a_command_without_its_walls_does_not_run() {
    let mut fixture = Fixture::new(Way::Rules);
    fixture.policy.landlock_cap = Some(0);
    let said = fixture.run(Way::Rules, "touch ran");
    assert!(said.contains("Landlock: ") && said.contains("[exit code 126]"), "{said}");
    let mut fixture = Fixture::new(Way::Namespaces);
    fixture.policy.has_namespaces = false;
    let said = fixture.run(Way::Rules, "touch ran");
    assert!(said.contains("Landlock: ") && said.contains(".team is in a writable"), "{said}");
    let mut fixture = Fixture::new(Way::Namespaces);
    fixture.policy.writable.push("/".into());
    let said = fixture.run(Way::Namespaces, "touch ran");
    assert!(said.contains("namespaces: the root folder"), "{said}");
    assert!(!fixture.real().join("ws/ran").exists());
}

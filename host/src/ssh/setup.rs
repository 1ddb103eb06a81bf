//! Looks at a host over ssh, and copies the programs there if it has none.

use super::command::{Input, Ssh, last_line, quoted};
use crate::failure::HostFailure;
use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// The time for a look at a host.
const LOOK_WITHIN: Duration = Duration::from_secs(30);

/// The time for the copy of a program.
const COPY_WITHIN: Duration = Duration::from_secs(600);

/// The exit code of `ssh` if it has failed itself (ssh(1), EXIT STATUS).
const SSH_FAILED: i32 = 255;

/// The programs that a host needs.
const PROGRAMS: [&str; 2] = ["team-host", "team"];

/// The folder for copied programs, below the home of the person there.
const FOLDER: &str = ".local/bin";

/// The script that describes a host. It changes nothing.
const LOOK: &str = r#"
echo "system=$(uname -s) $(uname -m)"
echo "home=$HOME"
echo "cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null)"
gpus=0
for device in /dev/nvidia[0-9]*; do [ -e "$device" ] && gpus=$((gpus + 1)); done
echo "gpus=$gpus"
PATH="$PATH:$HOME/.local/bin:$HOME/.cargo/bin"
program=$(command -v team-host) && echo "program=$program" && echo "version=$("$program" --version)"
team=$(command -v team) && echo "team=$team"
exit 0
"#;

/// A host as it describes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RemoteHost {
    /// The kind of the system and the processor, as `uname` says.
    pub(crate) system: String,
    /// The home folder of the person there.
    pub(crate) home: String,
    /// Its processors and graphics processors, for people.
    pub(crate) size: String,
    /// The path of `team-host` there.
    pub(crate) program: Option<String>,
    /// Its version.
    pub(crate) version: String,
    /// The path of `team` there.
    pub(crate) team: Option<String>,
}

fn try_by_hand(destination: &str) -> String {
    format!(
        "`ssh {destination} true` must work without a question: a key in your agent, and the host among the known ones"
    )
}

/// Looks at a host.
pub(crate) async fn look(ssh: &Ssh, destination: &str) -> Result<RemoteHost, HostFailure> {
    let what = format!("{destination} cannot be reached over ssh");
    let output = ssh.run(destination, "sh -s", Input::Text(LOOK.into()), LOOK_WITHIN).await;
    let output = output.map_err(|why| HostFailure::of(&*what, &why, try_by_hand(destination)))?;
    let found = parse(&String::from_utf8_lossy(&output.stdout));
    found
        .filter(|_| output.status.success())
        .ok_or_else(|| HostFailure::usage(what, reason(&output), try_by_hand(destination)))
}

/// Whether the connection of a command broke, instead of the command.
fn is_cut_off(output: &Output) -> bool {
    output.status.code() == Some(SSH_FAILED)
}

/// Returns the reason for which a command on another host failed.
fn reason(output: &Output) -> String {
    match &*last_line(&output.stderr) {
        "" => format!("it says nothing ({})", output.status),
        line => line.to_owned(),
    }
}

/// Reads the description of a host. Other lines, as of a greeting, are skipped.
fn parse(text: &str) -> Option<RemoteHost> {
    let found: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once('=')).collect();
    let text = |key: &str| found.get(key).map(|value| (*value).trim().to_owned());
    let count = |key: &str, one: &str| {
        let count = text(key)?.parse::<u32>().ok().filter(|count| *count > 0)?;
        Some(format!("{count} {one}{}", if count == 1 { "" } else { "s" }))
    };
    let size: Vec<_> = count("cores", "core").into_iter().chain(count("gpus", "GPU")).collect();
    Some(RemoteHost {
        system: text("system")?,
        home: text("home").filter(|home| home.starts_with('/'))?,
        size: size.join(", "),
        program: text("program").filter(|program| program.starts_with('/')),
        version: text("version").unwrap_or_default(),
        team: text("team").filter(|team| team.starts_with('/')),
    })
}

/// Makes sure that a host has the programs and the folder. Returns the path of `team-host` there, and the number of bytes that
/// were copied.
pub(crate) async fn set_up(
    ssh: &Ssh,
    destination: &str,
    found: &RemoteHost,
    folder: &str,
) -> Result<(String, u64), HostFailure> {
    let mut copied = 0;
    let program = match &found.program {
        Some(program) if found.team.is_some() => program.clone(),
        Some(_) | None => {
            copied = copy_programs(ssh, destination, found).await?;
            format!("{}/{FOLDER}/{}", found.home, PROGRAMS[0])
        }
    };
    let make =
        format!("mkdir -p -- {0} && cd -- {0} && {1} --version", quoted(folder), quoted(&program));
    let command = format!("sh -c {}", quoted(&make));
    let make = || ssh.run(destination, &command, Input::Text(String::new()), LOOK_WITHIN);
    let what = format!("{destination} cannot be set up");
    let mut made = make().await;
    if made.as_ref().is_ok_and(is_cut_off) {
        made = make().await;
    }
    let made = made.map_err(|why| HostFailure::of(&*what, &why, try_by_hand(destination)))?;
    if !made.status.success() {
        let hint = if is_cut_off(&made) {
            try_by_hand(destination)
        } else {
            format!(
                "choose another folder there with --folder, or build the programs there: {}",
                how_to_build()
            )
        };
        return Err(HostFailure::usage(what, reason(&made), hint));
    }
    Ok((program, copied))
}

fn how_to_build() -> &'static str {
    "cargo install --path . && cargo install --path host"
}

async fn copy_programs(
    ssh: &Ssh,
    destination: &str,
    found: &RemoteHost,
) -> Result<u64, HostFailure> {
    let what = format!("{destination} has no `team` and `team-host`");
    let hint = format!("build them there, in a checkout: {}", how_to_build());
    let here = this_system();
    if here != found.system {
        let why = format!("it is a {}, and those of this host are for {here}", found.system);
        return Err(HostFailure::usage(what, why, hint));
    }
    let own = env::current_exe().map_err(|why| HostFailure::of(&*what, &why, &*hint))?;
    let mut copied = 0;
    for name in PROGRAMS {
        let path = own.with_file_name(name);
        let file = File::open(&path).map_err(|why| {
            HostFailure::usage(
                &*what,
                format!("{} cannot be copied: {why}", path.display()),
                &*hint,
            )
        })?;
        copied += file.metadata().map_or(0, |about| about.len());
        copy(ssh, destination, &path, file).await.map_err(|why| {
            HostFailure::usage(&*what, format!("{name} cannot be copied: {why}"), &*hint)
        })?;
    }
    Ok(copied)
}

/// Returns the kind of this system, as `uname` would say.
fn this_system() -> String {
    let system = match env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        other => other,
    };
    format!("{system} {}", env::consts::ARCH)
}

async fn copy(ssh: &Ssh, destination: &str, path: &Path, file: File) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let script = format!(
        r#"d="$HOME/{FOLDER}" && mkdir -p "$d" && cat > "$d/.{name}.new" && chmod 755 "$d/.{name}.new" && mv -f "$d/.{name}.new" "$d/{name}""#
    );
    let command = format!("sh -c {}", quoted(&script));
    let copied = ssh.run(destination, &command, Input::File(file), COPY_WITHIN).await;
    let copied = copied.map_err(|why| why.to_string())?;
    if copied.status.success() { Ok(()) } else { Err(reason(&copied)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_describes_itself_between_the_lines_of_a_greeting() {
        let text = "Welcome!\nsystem=Linux x86_64\nhome=/home/ann\ncores=16\ngpus=1\nprogram=/usr/bin/team-host\nversion=team-host 0.1.0\nteam=/usr/bin/team\n";
        let expected = RemoteHost {
            system: "Linux x86_64".into(),
            home: "/home/ann".into(),
            size: "16 cores, 1 GPU".into(),
            program: Some("/usr/bin/team-host".into()),
            version: "team-host 0.1.0".into(),
            team: Some("/usr/bin/team".into()),
        };
        assert_eq!(parse(text), Some(expected));
        let bare = parse("system=Linux aarch64\nhome=/root\ncores=\ngpus=0\n").unwrap();
        assert_eq!((&*bare.size, bare.program, bare.team), ("", None, None));
        assert_eq!(parse("This account is not available.\n"), None);
    }
}

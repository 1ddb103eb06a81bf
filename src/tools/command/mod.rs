//! The `bash` tool: runs one shell command in the workspace. No process of the command outlives it.

pub(super) mod background;
pub(super) mod call_guard;
#[cfg(test)]
mod contained_agent;
#[cfg(test)]
mod containment_tests;
mod git_guard;
pub(super) mod host_proxy;
mod lease_guard;
#[cfg(test)]
mod network_tests;
pub(crate) mod outbox;
pub(super) mod output;
pub(super) mod shell;
pub(super) mod undo_guard;
#[cfg(test)]
mod wall_start_tests;
#[cfg(test)]
mod wall_tests;

pub(crate) use background::BackgroundCommands;
pub(crate) use output::OutputStore;

use super::call::{Call, ToolError, arguments};
use super::registry::{Tool, ToolParts, parameters};
use crate::os::command::CommandSetup;
use crate::os::pidfd::ExitKind;
use crate::os::wall::Walls;
use crate::os::wall::outbox::OUTBOX_VARIABLE;
use crate::protocol::permission::PermissionSubject;
use crate::wire::host::HostPattern;
use crate::wire::limits::{CALL_SECONDS, MAX_CALL_SECONDS};
use crate::wire::tool::ParameterType::{self, Boolean, Text, TextList};
use crate::wire::tool::{
    Audience, CompactOffer, Repetition, SubjectArgument, Supersedes, ToolSpec,
};
use background::NewCommand;
use call_guard::CallGuard;
use output::CappedOutput;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Suffixes of the names of variables with credentials of model endpoints. Commands never get these variables,
/// even if the caller's allow-list names one.
const CREDENTIALS: [&str; 2] = ["_API_KEY", "_AUTH_TOKEN"];

/// The search path of commands if the caller gives none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns the setup of one agent's commands: the variables in `env` without credentials. `run_id`, which is
/// unique to the agent, marks every process of its commands. Behind walls, temporary files have a private folder.
pub(crate) fn command_setup(
    mut env: Vec<(String, String)>,
    run_id: String,
    walls: Option<Arc<Walls>>,
) -> CommandSetup {
    // The output goes to a model: no colours, no cursor movements.
    let is_credential = |name: &str| CREDENTIALS.iter().any(|end| name.ends_with(end));
    env.retain(|(name, _)| !is_credential(name) && name != "TERM");
    env.push(("TERM".into(), "dumb".into()));
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    if let Some(walls) = &walls {
        env.retain(|(name, _)| name != "TMPDIR");
        env.extend(walls.temp_folder().map(|path| ("TMPDIR".into(), path.display().to_string())));
    }
    CommandSetup { env, run_id, walls, read_only: Vec::new(), granted_hosts: Vec::new() }
}

/// The advice below the output of a command that walls refused something.
const WAY_OUT: &str =
    ". To ask the user to let this command run outside, repeat it with `outside`: the reason";

const SECONDS: ParameterType = ParameterType::Count { most: Some(MAX_CALL_SECONDS) };
/// The maximum length of an argument that Linux passes to a program, in bytes without its final NUL.
const MAX_COMMAND_BYTES: usize = 131_071;

parameters!(Bash {
    command: String = required(Text, ""),
    /// In seconds.
    timeout: Option<u64> = optional(SECONDS, ""),
    /// Whether it runs beside other calls.
    background: Option<bool> = optional(Boolean, "Returns an id at once; no time limit but a given timeout."),
    /// The reason for which it is to run outside the walls.
    outside: Option<String> = optional(
        Text,
        "Only if walls refused this command, and nothing inside them will do: the reason why it must run outside. The \
         user is asked."
    ),
    /// Besides those of the settings.
    hosts: Option<Vec<String>> = optional(
        TextList,
        "Only if the proxy refused hosts: those that this command needs, such as *.example.com or db.internal:5432. The \
         user is asked."
    ),
});

impl Tool for Bash {
    const SPEC: ToolSpec = ToolSpec {
        name: "bash",
        aliases: &["Bash"],
        description: "Runs a shell command in the workspace and returns its output (of more \
                      than 50,000 characters the middle is cut; a file that the result names has \
                      all). No terminal, no input. All that it starts is ended when it returns, \
                      after `timeout` seconds (default 120, at most 3600), or when it has more \
                      than 512 processes.",
        compact: Some(CompactOffer::always(Audience::Both, "Run a shell command.")),
        subject: SubjectArgument::Command("command"),
        repetition: Repetition::Failures,
        time_limit: Some("timeout"),
        supersedes: Supersedes::SameCall,
        of_subagents: true,
        ..ToolSpec::STRICT
    };

    fn subject(call: &Call, parts: &ToolParts) -> Result<PermissionSubject, ToolError> {
        let bash: Self = arguments(call)?;
        bash.check()?;
        if bash.is_background() {
            parts.background.check_room()?;
        }
        let leaves = bash.outside.is_some() && parts.commands.walls.is_some();
        let hosts = bash.new_hosts(&parts.commands)?;
        Ok(if leaves {
            PermissionSubject::Unsandboxed(bash.command)
        } else if hosts.is_empty() {
            PermissionSubject::Command(bash.command)
        } else {
            PermissionSubject::Hosts { command: bash.command, hosts }
        })
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let folder = parts.files.workspace.path();
        let mut setup = parts.commands.clone();
        setup.granted_hosts = self.new_hosts(&setup)?;
        if self.outside.is_some() {
            setup.walls = None;
        }
        // Dropped with this future: an interrupted command sends nothing.
        let outbox = setup.walls.as_ref().and_then(|walls| walls.new_outbox());
        if let Some(outbox) = &outbox {
            setup.env.push((OUTBOX_VARIABLE.into(), outbox.path().display().to_string()));
        }
        if self.is_background() {
            let limit = self.timeout.map(Duration::from_secs);
            let new = NewCommand { command: self.command, limit, setup, outbox };
            return background::start(new, call, parts).await;
        }
        let walls = setup.walls.as_deref();
        let guard = CallGuard::before(parts, walls, walls).await;
        setup.read_only = guard.read_only();
        let result = self.run_in(folder, &setup, &parts.output_store).await;
        let checked = guard.after().await;
        let mut result = result?;
        result += &checked.report(call, (&self.command, &result), parts).await;
        let Some(outbox) = outbox else { return Ok(result) };
        let report = outbox::send_all(outbox, &parts.team).await?;
        if report.has_sent() {
            parts.team.note_command_mail();
        }
        Ok(result + &report.below_output())
    }
}

impl Bash {
    /// Runs the command in a folder; long output is stored in `output_store`.
    async fn run_in(
        &self,
        folder: &Path,
        setup: &CommandSetup,
        output_store: &OutputStore,
    ) -> Result<String, ToolError> {
        let limit = self.check()?;
        let output = CappedOutput::stored_in(output_store);
        match shell::run(&self.command, folder, setup, None, limit, output).await {
            Ok(done) => {
                let walls = setup.walls.as_ref().filter(|_| is_refusal(&done.output, done.end));
                let note = walls.map(|it| format!("\n[sandbox: {}{WAY_OUT}]", it.in_words()));
                let report = report(done.output, done.end, done.timed_out.then_some(limit));
                Ok(report + &note.unwrap_or_default() + &refused_hosts(&done.refused_hosts))
            }
            Err(why) => Err(ToolError::Reply(format!(
                "the command could not be run in {}: {why}; try again, or tell the lead if it keeps \
                 failing",
                folder.display()
            ))),
        }
    }

    fn is_background(&self) -> bool {
        self.background == Some(true)
    }

    /// Returns the hosts that the command needs besides those of the settings. Fails if they cannot be asked for.
    fn new_hosts(&self, setup: &CommandSetup) -> Result<Vec<HostPattern>, ToolError> {
        let wanted = self.hosts.iter().flatten().map(|host| HostPattern::parse(host));
        let wanted: Vec<_> = wanted.collect::<Result<_, _>>().map_err(ToolError::Reply)?;
        let Some(walls) = &setup.walls else { return Ok(Vec::new()) };
        if wanted.is_empty() || self.outside.is_some() || walls.has_open_network() {
            return Ok(Vec::new());
        }
        let Some(known) = walls.proxied_hosts() else {
            let why = "the settings of the user give commands no network, so no host can be asked for; do without \
                       `hosts`, or ask to let this command run outside the walls with `outside`: the reason";
            return Err(ToolError::Reply(why.into()));
        };
        let is_new = |host: &HostPattern| !known.iter().any(|own| own.covers(host));
        Ok(wanted.into_iter().filter(is_new).collect())
    }

    /// Returns the time limit of the command. Fails if the call cannot run; the error says what to do instead.
    fn check(&self) -> Result<Duration, ToolError> {
        let (command, limit) = (&self.command, self.timeout.unwrap_or(CALL_SECONDS));
        Err(ToolError::Reply(if command.trim().is_empty() {
            "the command is empty; give the command to run".into()
        } else if command.contains('\0') {
            "the command contains a NUL character; remove it".into()
        } else if command.len() > MAX_COMMAND_BYTES {
            format!(
                "the command has {} bytes, {MAX_COMMAND_BYTES} are allowed; put it into a file with \
                 write_file and run that",
                command.len()
            )
        } else if self.outside.as_ref().is_some_and(|why| why.trim().is_empty()) {
            "outside is empty; give the reason for which the command must run outside the walls, or leave it out"
                .into()
        } else if limit == 0 || limit > MAX_CALL_SECONDS {
            format!("timeout is in seconds, from 1 to {MAX_CALL_SECONDS}; correct it")
        } else {
            return Ok(Duration::from_secs(limit));
        }))
    }
}

/// Runs a command of the person, without a time limit; dropping the future kills it. Returns its output, capped as for
/// a model, and its exit if that was not 0. Fails if the command cannot be started.
pub(crate) async fn run_for_person(
    command: &str,
    folder: &Path,
    setup: &CommandSetup,
    output_store: &OutputStore,
) -> std::io::Result<String> {
    let output = CappedOutput::stored_in(output_store);
    let done = shell::run(command, folder, setup, None, Duration::MAX, output).await?;
    Ok(report(done.output, done.end, None))
}

/// Runs a command of this program with this setup, and returns what it prints. The error is the reason for which it
/// cannot run.
pub(crate) async fn try_out(
    command: &str,
    folder: &Path,
    setup: &CommandSetup,
) -> Result<String, String> {
    let output = CappedOutput::default();
    let limit = Duration::from_secs(CALL_SECONDS);
    match shell::run(command, folder, setup, None, limit, output).await {
        Ok(done) if done.end == ExitKind::Code(0) => Ok(done.output),
        Ok(done) if done.output.is_empty() => Err(format!("{:?}", done.end)),
        Ok(done) => Err(done.output.trim().to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// Returns the note below the output of a command whose proxy has refused hosts.
fn refused_hosts(hosts: &[String]) -> String {
    if hosts.is_empty() {
        return String::new();
    }
    let (named, list) = (hosts.join(", "), serde_json::json!(hosts));
    format!(
        "\n[network: the proxy around commands refused {named}. To ask the user for what is needed of them, repeat \
         the command with \"hosts\": {list}]"
    )
}

/// Whether a command failed as one does that walls have refused something.
fn is_refusal(output: &str, end: ExitKind) -> bool {
    const WORDS: [&str; 6] = [
        "operation not permitted",
        "permission denied",
        "read-only file system",
        "address family not supported",
        "could not resolve host",
        "temporary failure in name resolution",
    ];
    let output = output.to_lowercase();
    end != ExitKind::Code(0) && WORDS.iter().any(|words| output.contains(words))
}

/// Returns the output and, below it, the exit status of the command unless it succeeded.
fn report(mut output: String, end: ExitKind, timed_out: Option<Duration>) -> String {
    let note = match (timed_out, end) {
        (Some(limit), _) => {
            let seconds = limit.as_secs();
            format!("[timed out after {seconds} s; everything it started was ended]")
        }
        (None, ExitKind::Code(0)) if output.is_empty() => "(no output)".to_owned(),
        (None, ExitKind::Code(0)) => return output,
        (None, ExitKind::Code(code)) => format!("[exit code {code}]"),
        (None, ExitKind::Signal(signal)) => format!("[ended by signal {signal}]"),
    };
    if !output.is_empty() && !output.ends_with('\n') {
        output.push('\n');
    }
    output + &note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::limits::COMMAND_PROCESSES;

    #[test]
    fn the_terminal_is_dumb_credentials_are_removed_and_a_path_is_there() {
        for (allowed, expected) in [
            ("PATH=/bin TERM=xterm OPENAI_API_KEY=canary X_AUTH_TOKEN=c", "PATH=/bin TERM=dumb"),
            ("HOME=/h", &*format!("HOME=/h TERM=dumb PATH={DEFAULT_PATH}")),
        ] {
            let pairs = |text: &str| -> Vec<(String, String)> {
                let pairs = text.split(' ').map(|pair| pair.split_once('=').unwrap());
                pairs.map(|(name, value)| (name.into(), value.into())).collect()
            };
            assert_eq!(command_setup(pairs(allowed), String::new(), None).env, pairs(expected));
        }
    }

    #[test]
    fn a_failure_with_the_words_of_a_refusal_is_one() {
        for (output, code, is_one) in [
            ("cat: x: Permission denied\n", 1, true),
            ("bash: /etc/x: Read-only file system", 1, true),
            ("cat: x: Permission denied\n", 0, false),
            ("error: mismatched types\n", 1, false),
        ] {
            assert_eq!(is_refusal(output, ExitKind::Code(code)), is_one, "{output}");
        }
    }

    #[test]
    fn the_description_states_the_limits() {
        let limits = [CALL_SECONDS, MAX_CALL_SECONDS, COMMAND_PROCESSES as u64];
        for limit in limits {
            assert!(Bash::SPEC.description.contains(&format!(" {limit}")), "{limit}");
        }
    }
}

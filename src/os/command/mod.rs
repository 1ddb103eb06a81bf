//! Starts one shell command below its supervisor, cancels it, and ensures that all of its processes are gone.
//!
//! Dropping a [`RunningCommand`] cancels the command and returns at once; [`settle`] waits until all
//! cancelled commands are gone, which an agent does before it exits.

pub(crate) mod command_supervisor;
mod containment;

use crate::os::Signal;
use crate::os::deadline::deadline;
use crate::os::process::cgroup::Cgroup;
use crate::os::process::child::{isolate, spawn};
use crate::os::process::pidfd::{ExitKind, Pidfd};
use crate::os::process::{process_tree, program};
use crate::os::wall::{Walls, proxy_door};
use crate::wire::host::HostPattern;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::setsid;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::{ffi::OsStrExt, process::CommandExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The time that a supervisor has to clean up before it is killed and its work is done by this process.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(4);

/// The time that a killed supervisor has to exit; one that does not exit is stuck in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time that the end of a command's processes takes: a supervisor that was killed is waited for twice.
pub(crate) const END_WITHIN: Duration =
    CLEANUP_TIMEOUT.saturating_add(KILL_TIMEOUT).saturating_add(KILL_TIMEOUT);

/// Returns the program that becomes the supervisor: this program, even after its file was replaced.
#[cfg(not(test))]
fn supervisor_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// Returns the program that `cargo test` builds beside the test binary, which cannot become a supervisor.
#[cfg(test)]
fn supervisor_program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().with_file_name("team");
    assert!(program.exists(), "build {} first: cargo build --bins", program.display());
    program
}

#[derive(Debug, Clone)]
pub(crate) struct CommandSetup {
    /// Its environment variables, without the run id.
    pub(crate) env: Vec<(String, String)>,
    /// The id that all of its processes carry in [`process_tree::RUN_ID_VARIABLE`].
    pub(crate) run_id: String,
    /// The walls around it; `None` for the rights of the user.
    pub(crate) walls: Option<Arc<Walls>>,
    /// The hosts that this command may reach besides those of the walls.
    pub(crate) granted_hosts: Vec<HostPattern>,
    /// Paths that walls with namespaces make read-only for it, besides those of their policy.
    pub(crate) read_only: Vec<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct RunningCommand {
    supervisor: Arc<Pidfd>,
    /// The end on which the socket comes at which the command looks for the agent's proxy.
    proxy: Option<OwnedFd>,
    /// Taken by the first caller that ends the command.
    cleanup: Option<Cleanup>,
}

#[derive(Debug)]
struct Cleanup {
    supervisor: Arc<Pidfd>,
    lifeline: PipeWriter,
    run_id: String,
    /// `None` while the command is left running.
    unsettled: Option<CleanupsPending>,
}

/// Starts a shell command. The returned pipe, which does not block, reads its output, stderr included. Also fails
/// for a command that is too long for the system or contains NUL.
pub(crate) fn start(
    command: &OsStr,
    folder: &Path,
    setup: &CommandSetup,
    input: Option<File>,
) -> io::Result<(RunningCommand, PipeReader)> {
    let (output, output_end) = io::pipe()?;
    program::set_nonblocking(&output)?;
    let errors_end = output_end.try_clone()?;
    let input = input.map(OwnedFd::from);
    let running = launch(command, folder, setup, input, [output_end, errors_end])?;
    Ok((running, output))
}

/// The pipes of a program that speaks on its standard input and output. No end blocks.
#[derive(Debug)]
pub(crate) struct ProgramPipes {
    pub(crate) input: PipeWriter,
    pub(crate) output: PipeReader,
    pub(crate) errors: PipeReader,
}

/// Starts a shell command that is spoken to. It ends as every command does.
pub(crate) fn start_with_pipes(
    command: &OsStr,
    folder: &Path,
    setup: &CommandSetup,
) -> io::Result<(RunningCommand, ProgramPipes)> {
    let ((input_end, input), (output, output_end)) = (io::pipe()?, io::pipe()?);
    let (errors, errors_end) = io::pipe()?;
    program::set_nonblocking(&input)?;
    program::set_nonblocking(&output)?;
    program::set_nonblocking(&errors)?;
    let input_end = Some(OwnedFd::from(input_end));
    let running = launch(command, folder, setup, input_end, [output_end, errors_end])?;
    Ok((running, ProgramPipes { input, output, errors }))
}

/// Starts a command with these ends of its standard output and error.
fn launch(
    command: &OsStr,
    folder: &Path,
    setup: &CommandSetup,
    input: Option<OwnedFd>,
    [output, errors]: [PipeWriter; 2],
) -> io::Result<RunningCommand> {
    let (lifeline_end, lifeline) = io::pipe()?;
    let walls =
        setup.walls.as_ref().map(|walls| walls.policy_file(&setup.read_only)).transpose()?;
    let has_proxy = setup.walls.as_ref().is_some_and(|walls| walls.proxied_hosts().is_some());
    let proxy = has_proxy.then(proxy_door::channel).transpose()?;
    let (proxy, agent) = proxy.unzip();
    let files = [
        input.as_ref().map(AsRawFd::as_raw_fd),
        walls.as_ref().map(AsRawFd::as_raw_fd),
        agent.as_ref().map(AsRawFd::as_raw_fd),
    ];
    let mut program = Command::new(supervisor_program());
    program.arg0(OsStr::from_bytes(program::COMMAND_SUPERVISOR_NAME.to_bytes()));
    program.arg(command_supervisor::ARGUMENT).arg(&setup.run_id);
    program.arg(command).args(files.map(descriptor_argument)).current_dir(folder);
    program.env_clear().envs(setup.env.iter().map(|(name, value)| (name, value)));
    program.env(process_tree::RUN_ID_VARIABLE, &setup.run_id);
    program.stdin(lifeline_end).stdout(output).stderr(errors);
    let inherited = files.into_iter().flatten().collect();
    isolate(&mut program, inherited, || Ok(setsid().map(drop)?));
    let supervisor = Arc::new(spawn(&mut program)?);
    drop((input, walls, agent));
    let (run_id, unsettled) = (setup.run_id.clone(), Some(CleanupsPending::count()));
    let cleanup =
        Some(Cleanup { supervisor: Arc::clone(&supervisor), lifeline, run_id, unsettled });
    Ok(RunningCommand { supervisor, proxy, cleanup })
}

/// Returns the argument that names a descriptor, or that there is none.
fn descriptor_argument(number: Option<RawFd>) -> String {
    number.map_or_else(|| command_supervisor::NO_DESCRIPTOR.into(), |number| number.to_string())
}

/// Creates input for a command; the text appears in no file and in no argument.
pub(crate) fn input(text: &str) -> io::Result<File> {
    memory_file(text.as_bytes())
}

/// Creates a file in memory, to be read from its beginning.
pub(crate) fn memory_file(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"input", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// Runs a command to its end, on a thread that may block; it is killed at the time limit. Returns its exit and its
/// output, of which at most `most` bytes.
pub(crate) fn run_to_end(
    command: &OsStr,
    folder: &Path,
    setup: &CommandSetup,
    limit: Duration,
    most: usize,
) -> io::Result<(ExitKind, Vec<u8>)> {
    let (running, mut pipe) = start(command, folder, setup, None)?;
    let until = Instant::now() + limit;
    let (mut output, mut buffer) = (Vec::new(), vec![0; 65_536]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], left) {
            Err(Errno::EINTR) => continue,
            Ok(ready) if ready > 0 => {}
            Ok(_) | Err(_) => break,
        }
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                let room = most.saturating_sub(output.len()).min(count);
                output.extend_from_slice(buffer.get(..room).unwrap_or_default());
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
    running.supervisor().ends_within(until.saturating_duration_since(Instant::now()));
    Ok((running.end()?, output))
}

impl RunningCommand {
    /// Returns the supervisor, which exits when the command and all of its processes have.
    pub(crate) fn supervisor(&self) -> &Pidfd {
        &self.supervisor
    }

    /// Takes the end on which the socket for the agent's proxy comes; `None` if the command has no proxy.
    pub(crate) fn take_proxy(&mut self) -> Option<OwnedFd> {
        self.proxy.take()
    }

    /// Lets the command run beside others: [`settle`] does not wait for it until it is to end.
    pub(crate) fn leave_running(&mut self) {
        if let Some(cleanup) = &mut self.cleanup {
            cleanup.unsettled = None;
        }
    }

    /// Ends the command and every process that escaped its supervisor; returns the exit of the shell. Blocks for
    /// a few seconds at most. Fails if the supervisor is stuck in the kernel.
    pub(crate) fn end(mut self) -> io::Result<ExitKind> {
        self.cleanup.take().map_or_else(|| Err(io::ErrorKind::NotFound.into()), Cleanup::run)
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if let Some(mut cleanup) = self.cleanup.take() {
            cleanup.unsettled.get_or_insert_with(CleanupsPending::count);
            // A thread, because the caller's event loop must not wait. If none can be started, closing the
            // lifeline suffices: the supervisor ends the command.
            let thread = thread::Builder::new().name("cleanup".into());
            thread.spawn(move || cleanup.run()).map(drop).unwrap_or_default();
        }
    }
}

impl Cleanup {
    fn run(mut self) -> io::Result<ExitKind> {
        self.unsettled.get_or_insert_with(CleanupsPending::count);
        drop(self.lifeline);
        let mut ended = self.supervisor.ends_within(CLEANUP_TIMEOUT);
        if !ended {
            self.supervisor.send_signal(Signal::SIGKILL).unwrap_or_default();
            ended = self.supervisor.ends_within(deadline(KILL_TIMEOUT));
        }
        let end = ended.then(|| self.supervisor.wait());
        // A supervisor that was killed leaves its control group and strays behind.
        let group = Cgroup::of_supervisor(&self.run_id, self.supervisor.pid());
        group.map(Cgroup::end).unwrap_or_default();
        // A supervisor that exits by itself has ended all processes below it, and those that it could not end are adopted.
        let has_exited = matches!(end, Some(Ok(ExitKind::Code(_))));
        if !has_exited || !process_tree::is_subreaper() || process_tree::has_adopted() {
            process_tree::end_strays(&self.run_id);
        }
        let end = end.unwrap_or_else(|| {
            // Strays that forked without a pause may have left it no processor to exit on.
            let ended = self.supervisor.ends_within(deadline(KILL_TIMEOUT));
            if ended { self.supervisor.wait() } else { Err(io::ErrorKind::TimedOut.into()) }
        });
        drop(self.unsettled);
        end
    }
}

static UNSETTLED: Mutex<usize> = Mutex::new(0);
static SETTLED: Condvar = Condvar::new();

/// A command that may still have processes.
#[derive(Debug)]
struct CleanupsPending;

impl CleanupsPending {
    fn count() -> Self {
        *unsettled() += 1;
        Self
    }
}

impl Drop for CleanupsPending {
    fn drop(&mut self) {
        *unsettled() -= 1;
        SETTLED.notify_all();
    }
}

fn unsettled() -> MutexGuard<'static, usize> {
    UNSETTLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits at most `limit` until every command of this process is gone; returns whether they are.
pub(crate) fn settle(limit: Duration) -> bool {
    let settled = SETTLED.wait_timeout_while(unsettled(), limit, |left| *left > 0);
    *settled.unwrap_or_else(PoisonError::into_inner).0 == 0
}

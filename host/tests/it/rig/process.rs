//! Child processes that end with the test process, also if it is killed.

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A command, and the channel for the started process.
type Order = (Command, Sender<io::Result<Child>>);

/// Starts a process that is killed when this one ends for any reason. Its own children are not.
///
/// The kernel sends the signal when the *thread* ends that started the process. Therefore all of them are started by
/// one thread, which never ends.
pub(crate) fn spawn_tied(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, incoming) = channel::<Order>();
        let start = move || {
            for (mut command, answer) in incoming {
                answer.send(tie(&mut command).spawn()).unwrap();
            }
        };
        std::thread::Builder::new().name("process starter".into()).spawn(start).unwrap();
        Mutex::new(orders)
    });
    let (answer, started) = channel();
    starter.lock().unwrap().send((command, answer)).unwrap();
    started.recv().unwrap()
}

/// Has the process killed when the thread that starts it ends.
fn tie(command: &mut Command) -> &mut Command {
    let parent = Pid::this();
    let tie = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have ended before the line above.
        if getppid() == parent { Ok(()) } else { Err(io::Error::other("the parent ended")) }
    };
    #[expect(unsafe_code, reason = "only a forked process can set its own death signal")]
    // SAFETY: prctl and getppid are async-signal-safe, and the closure allocates nothing unless it fails, in a process
    // without a parent.
    unsafe {
        command.pre_exec(tie)
    }
}

/// Sends a signal to a child that was not waited for, so that its id is still its own.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill(pid_of(child), signal).unwrap();
}

/// Stops a child (SIGSTOP), and waits until all of its threads stand still or have ended. Returns `false` if they do not.
pub(crate) fn stop(child: &Child, within: Duration) -> bool {
    signal(child, Signal::SIGSTOP);
    let threads = format!("/proc/{}/task", child.id());
    // The signal takes effect thread by thread.
    wait_until(within, || {
        fs::read_dir(&threads).unwrap().flatten().all(|thread| is_stopped(&thread.path()))
    })
}

/// Whether a thread is stopped by a signal, or has ended.
fn is_stopped(thread: &Path) -> bool {
    let Ok(status) = fs::read_to_string(thread.join("stat")) else { return true };
    status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['T', 'Z']))
}

pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

/// Waits until the condition holds. Returns `false` if it did not until the time was over.
pub(crate) fn wait_until(time: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    true
}

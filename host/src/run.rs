//! The process of the relay: its lock, its log, and its end.

use crate::failure::HostFailure;
use crate::invitation::InvitedKeys;
use crate::membership;
use crate::serve::{END_WITHIN, ServeOptions, serve};
use agent_team::relay::forbid_inspection;
use agent_team::store::relay::{RelayLock, Servers, name_host, open_log};
use agent_team::store::{StoreError, TeamDir, failpoint};
use agent_team::wire::carried::HostName;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Mutex;
use tokio::runtime::Builder;
use tracing_subscriber::fmt::writer::MakeWriterExt;

/// The settings of a run.
pub(crate) struct RunOptions {
    pub(crate) root: PathBuf,
    pub(crate) host: HostName,
    pub(crate) team: String,
    pub(crate) servers: Servers,
    /// The labels of this host; `None` for those that it has.
    pub(crate) labels: Option<Vec<String>>,
    /// The keys with which another host signs this one in, if it has invited it.
    pub(crate) invited_keys: Option<InvitedKeys>,
    pub(crate) serve: ServeOptions,
    /// The failpoints at which a test has it killed.
    pub(crate) failpoints: Option<String>,
}

/// Serves a team folder until a signal ends it.
///
/// # Errors
/// The folder cannot be served: another relay does, a file cannot be written, or the name is taken.
pub(crate) fn run(options: RunOptions) -> Result<(), HostFailure> {
    arm_failpoints(options.failpoints.as_deref())?;
    let hint = "check the folder's permissions and free space";
    let at_folder = |why: StoreError| HostFailure::of("the team folder cannot be used", &why, hint);
    let dir = TeamDir::create(&options.root).map_err(at_folder)?;
    let Some(lock) = RelayLock::take_to_serve(&dir).map_err(at_folder)? else {
        return Err(HostFailure {
            what: "a relay serves this folder already".into(),
            why: format!("another process holds the lock below {}", dir.root().display()),
            hint: "end that one first, or leave it: one is enough".into(),
        });
    };
    let identity = name_host(&dir, options.host, &options.team, options.servers, options.labels);
    let identity = identity.map_err(at_folder)?;
    start_log(open_log(&dir).map_err(at_folder)?);
    if let Err(why) = forbid_inspection() {
        tracing::warn!(%why, "other processes of this user can read this one's memory");
    }
    let own = membership::load(&dir, &identity, options.invited_keys)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|why| {
        HostFailure::of("the relay cannot start", &why, "free some memory or descriptors")
    })?;
    let ended = runtime.block_on(serve(dir, identity, own, options.serve));
    // A thread that waits for the disk must not hold up the end.
    runtime.shutdown_timeout(END_WITHIN);
    drop(lock);
    ended
}

/// Arms failpoints, in a build that has them.
fn arm_failpoints(points: Option<&str>) -> Result<(), HostFailure> {
    let Some(points) = points.filter(|_| failpoint::ENABLED) else { return Ok(()) };
    failpoint::arm(points, "relay", None).map_err(|why| HostFailure {
        what: format!("{} is invalid", failpoint::VARIABLE),
        why,
        hint: "unset it, or name points of src/os/failpoint.rs".into(),
    })
}

/// Starts the log. The libraries log each attempt to connect: only their warnings are for people.
fn start_log(file: File) {
    let is_for_people = |event: &tracing::Metadata<'_>| {
        *event.level() <= tracing::Level::WARN
            || event.target().starts_with("team_host")
            || event.target().starts_with("agent_team")
    };
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::INFO)
        .log_internal_errors(false)
        .with_writer(Mutex::new(file).with_filter(is_for_people))
        .finish();
    // A process has one log: the call fails only if there is one already.
    drop(tracing::subscriber::set_global_default(subscriber));
}

//! Failpoints: named places where a test can kill the process.
//!
//! Every step at which a crash could lose, duplicate or strand something has a name in [`POINTS`]. Tests check
//! that the list matches the calls and that each failpoint is reached.
//!
//! *Invariant:* without debug assertions or the feature `failpoints`, no failpoint kills the process. This module
//! does not read the environment.

use nix::sys::signal::{Signal, kill};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Whether this build has failpoints.
pub const ENABLED: bool = cfg!(any(debug_assertions, feature = "failpoints"));

/// The environment variable that arms failpoints.
pub const VARIABLE: &str = "TEAM_FAILPOINTS";

macro_rules! points {
    ($($topic:ident: $($step:ident)+;)+) => {
        /// Every failpoint, as `topic.step`.
        pub const POINTS: [&str; 139] =
            [$($(concat!(stringify!($topic), ".", stringify!($step)),)+)+];
    };
}

points! {
    // Mail.
    send: locked opened written unlocked notified synced;
    drain: prepared before_link linked renamed claimed reading buried delivered dead_synced
        synced marking marked before_unlink unlinked;
    recover: half_claim undone listed known counted cleared lettered quarantined gathered
        archived;
    // The roster, other replaced files, the task list, and the life lock.
    config: locked copied replaced;
    replace: written renamed;
    looked: read;
    tasks: locked counted stored;
    life: locked written;
    // A timer that is due.
    timer: due sent settled;
    // A start: the lead's side, and the teammate's.
    spawn: reserved inbox started greeted ready registered prompted failed undone;
    child: greeted named entered opened able ready;
    // A turn, and a tool call in it.
    turn: replied recorded ending ended reported idle resumed;
    tool: asked intended started ran answered;
    // A background command: its start, its end, and the notice of it.
    background: recorded started ended told;
    // A subagent: its start, its question, its end, and the mail with its result.
    sub: recorded created asked ended told;
    // The shutdown ladder: the supervisor's side, and the member's.
    stop: written ask asked terminate kill gone noted;
    leave: told answering answered drained let_go last_word;
    // The lead, and its children that have exited.
    lead: entered recovered closing alone;
    reap: ended noted restart;
    // Mail for a model that another program runs.
    served: taken written;
    // A prompt of an agent of another vendor, and its questions.
    acp: sent asked recorded answered;
    // A clone that is made, saved, taken and removed.
    work: pinned filled placed described recorded fetched saved merged applied kept moved
        removed;
    // The record of a change for undo, and an undo.
    undo: kept noted planned journaled swapped changed finished;
    // A task that is archived, a log that is rotated, and an earlier conversation that is removed or indexed.
    upkeep: archived rotated removed indexed;
    // Mail for a member of another host, and mail that has come from one.
    outbox: written rejected compacting compacted;
    arrivals: intended synced appended done resolved compacted;
}

/// The contents of a token file that make the process hang instead of being killed.
pub const HANG: &str = "hang";

static ARMED: OnceLock<Armed> = OnceLock::new();

struct Armed {
    triggers: Vec<(String, Trigger)>,
    random: AtomicU64,
}

enum Trigger {
    /// Each pass kills the process with this probability.
    Chance(f64),
    /// After `skip` passes, a pass kills the process if this process can remove the file `token`. Only one
    /// process of a team can remove it, so one is killed, once. With [`HANG`] in the file, the process hangs instead.
    Once { skip: AtomicU32, token: PathBuf },
}

/// Arms the failpoints given as `NAME:PROBABILITY,…` or `NAME+SKIP=TOKEN,…`, once per process. A name that begins
/// with `WHO/` applies only to the process of that name. Without a seed the chances are random. Fails for text of
/// another form and for an unknown failpoint; the error quotes the text.
pub fn arm(points: &str, who: &str, seed: Option<u64>) -> Result<(), String> {
    let mut triggers = Vec::new();
    for text in points.split(',') {
        let (whose, point) = text.split_once('/').filter(|_| is_addressed(text)).unzip();
        let point = parse(point.unwrap_or(text)).map_err(|why| format!("{text:?}: {why}"))?;
        if whose.is_none_or(|whose| whose == who) {
            triggers.push(point);
        }
    }
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0)).max(1);
    ARMED.get_or_init(|| Armed { triggers, random: AtomicU64::new(seed) });
    Ok(())
}

/// Whether a slash comes before the name of the point rather than in the path of the token.
fn is_addressed(text: &str) -> bool {
    text.find('/') < text.find(['.', '=', ':'])
}

fn parse(point: &str) -> Result<(String, Trigger), String> {
    let (name, trigger) = if let Some((name, token)) = point.split_once('=') {
        let (name, skip) = name.split_once('+').unwrap_or((name, "0"));
        let skip = AtomicU32::new(skip.parse().map_err(|why| format!("{why}"))?);
        (name, Trigger::Once { skip, token: token.into() })
    } else if let Some((name, chance)) = point.split_once(':') {
        (name, Trigger::Chance(chance.parse().map_err(|why| format!("{why}"))?))
    } else {
        return Err("neither a probability nor a token".into());
    };
    if POINTS.contains(&name) { Ok((name.into(), trigger)) } else { Err("no such point".into()) }
}

/// Passes a failpoint; an armed one may kill the process.
pub fn hit(name: &str) {
    if !ENABLED {
        return;
    }
    let Some(armed) = ARMED.get() else { return };
    for (_, trigger) in armed.triggers.iter().filter(|(point, _)| point == name) {
        let Some(says) = trigger.pull(armed) else { continue };
        while says.trim() == HANG {
            std::thread::park();
        }
        // No destructor runs, and nothing is flushed.
        let sent = kill(nix::unistd::getpid(), Signal::SIGKILL);
        debug_assert_eq!(sent, Ok(()), "a process may signal itself");
    }
}

impl Trigger {
    /// Returns the contents of the token, or an empty string for a chance; `None` if the process goes on.
    fn pull(&self, armed: &Armed) -> Option<String> {
        match self {
            Self::Chance(probability) => (armed.next() < *probability).then(String::new),
            Self::Once { skip, token } => {
                let left = |skip: u32| skip.checked_sub(1);
                if skip.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok() {
                    return None;
                }
                let says = fs::read_to_string(token).ok()?;
                fs::remove_file(token).ok()?;
                Some(says)
            }
        }
    }
}

impl Armed {
    /// Returns the next number between 0 and 1 (xorshift).
    fn next(&self) -> f64 {
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Ordering::Relaxed);
        f64::from(u32::try_from(x >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_failpoint_is_refused_with_its_text() {
        for (text, why) in [
            ("send.locked", "neither"),
            ("send.locked:often", "invalid float"),
            ("send.locked+x=/t", "invalid digit"),
            ("send.lokced:1", "no such point"),
        ] {
            let refused = arm(text, "lead", None).unwrap_err();
            assert!(refused.contains(why) && refused.contains(text), "{refused}");
        }
    }

    #[test]
    fn a_token_triggers_one_kill_after_its_passes() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        let armed = Armed { triggers: Vec::new(), random: AtomicU64::new(1) };
        let (_, trigger) = parse(&format!("send.locked+2={}", token.display())).unwrap();
        fs::File::create(&token).unwrap();
        let pulled = [(); 4].map(|()| trigger.pull(&armed).is_some());
        assert_eq!(pulled, [false, false, true, false]);
        assert!(!token.exists());
        assert!(is_addressed("alice/send.locked=/t") && !is_addressed("send.locked=/t/u"));
    }
}

//! Failpoints: named places where a test can kill the process.
//!
//! Every step at which a crash could lose, duplicate or strand something has a name in [`POINTS`]. Tests
//! prove that the list and the calls agree and that each place is reached.
//!
//! *Invariant:* without debug assertions or the feature `failpoints` no process dies here. Nothing here
//! reads the environment.

use crate::os::process::kill_self::kill_self;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Whether this build has failpoints.
pub const ENABLED: bool = cfg!(any(debug_assertions, feature = "failpoints"));

/// The environment variable that arms failpoints.
pub const VARIABLE: &str = "TEAM_FAILPOINTS";

/// Every failpoint, by topic.
pub const POINTS: [&str; 88] = [
    // Sending.
    "send.locked",
    "send.opened",
    "send.written",
    "send.unlocked",
    "send.notified",
    "send.synced",
    // Draining.
    "drain.prepared",
    "drain.before_link",
    "drain.linked",
    "drain.renamed",
    "drain.claimed",
    "drain.reading",
    "drain.buried",
    "drain.delivered",
    "drain.dead_synced",
    "drain.synced",
    "drain.marking",
    "drain.marked",
    "drain.before_unlink",
    "drain.unlinked",
    // Recovery after a crash.
    "recover.half_claim",
    "recover.undone",
    "recover.listed",
    "recover.known",
    "recover.counted",
    "recover.cleared",
    "recover.lettered",
    "recover.quarantined",
    "recover.gathered",
    "recover.archived",
    // The roster and other replaced files.
    "config.locked",
    "config.copied",
    "config.replaced",
    "replace.written",
    "replace.renamed",
    "looked.read",
    // The task list.
    "tasks.locked",
    "tasks.counted",
    "tasks.stored",
    // The life lock.
    "life.locked",
    "life.written",
    // Spawning, the lead's side.
    "spawn.reserved",
    "spawn.inbox",
    "spawn.started",
    "spawn.greeted",
    "spawn.ready",
    "spawn.registered",
    "spawn.prompted",
    "spawn.failed",
    "spawn.undone",
    // Spawning, the teammate's side.
    "child.greeted",
    "child.named",
    "child.entered",
    "child.opened",
    "child.able",
    "child.ready",
    // A turn.
    "turn.replied",
    "turn.recorded",
    "turn.ending",
    "turn.ended",
    "turn.reported",
    "turn.idle",
    "turn.resumed",
    // A tool call.
    "tool.asked",
    "tool.intended",
    "tool.started",
    "tool.ran",
    "tool.answered",
    // The shutdown ladder, the supervisor's side.
    "stop.written",
    "stop.ask",
    "stop.asked",
    "stop.terminate",
    "stop.kill",
    "stop.gone",
    "stop.noted",
    // The shutdown ladder, the member's side.
    "leave.told",
    "leave.answering",
    "leave.answered",
    "leave.drained",
    "leave.let_go",
    "leave.last_word",
    // The lead.
    "lead.entered",
    "lead.recovered",
    "lead.closing",
    "lead.alone",
    "reap.ended",
    "reap.noted",
    "reap.restart",
];

/// The contents of a token that makes the process hang instead of die.
pub const HANG: &str = "hang";

static ARMED: OnceLock<Armed> = OnceLock::new();

struct Armed {
    points: Vec<Point>,
    random: AtomicU64,
}

struct Point {
    name: String,
    trigger: Trigger,
}

enum Trigger {
    /// Each pass kills the process with this probability.
    Chance(f64),
    /// The pass after `skip` others kills the process if this file can be removed, so that of all processes
    /// of a team one dies, once. With [`HANG`] in the file it hangs instead.
    Once { skip: AtomicU32, token: PathBuf },
}

/// Arms the points named in `NAME:PROBABILITY,…` or `NAME+SKIP=TOKEN,…`, once per process. A name that
/// begins with `WHO/` is for the process of that name only. Without a seed the chances are random.
///
/// # Errors
/// The text has another form, or names no point; the error quotes it.
pub fn arm(points: &str, who: &str, seed: Option<u64>) -> Result<(), String> {
    let mut armed = Vec::new();
    for text in points.split(',') {
        let (whose, point) = text.split_once('/').filter(|_| is_addressed(text)).unzip();
        let point = parse(point.unwrap_or(text)).map_err(|why| format!("{text:?}: {why}"))?;
        if whose.is_none_or(|whose| whose == who) {
            armed.push(point);
        }
    }
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0)).max(1);
    ARMED.get_or_init(|| Armed { points: armed, random: AtomicU64::new(seed) });
    Ok(())
}

/// Whether a slash comes before the name of the point rather than in the path of the token.
fn is_addressed(text: &str) -> bool {
    text.find('/') < text.find(['.', '=', ':'])
}

fn parse(point: &str) -> Result<Point, String> {
    let (name, trigger) = match (point.split_once('='), point.split_once(':')) {
        (Some((name, token)), _) => {
            let (name, skip) = name.split_once('+').unwrap_or((name, "0"));
            let skip = AtomicU32::new(skip.parse().map_err(|why| format!("{why}"))?);
            (name, Trigger::Once { skip, token: token.into() })
        }
        (None, Some((name, chance))) => {
            (name, Trigger::Chance(chance.parse().map_err(|why| format!("{why}"))?))
        }
        (None, None) => return Err("neither a probability nor a token".into()),
    };
    if POINTS.contains(&name) {
        Ok(Point { name: name.into(), trigger })
    } else {
        Err("no such point".into())
    }
}

/// Passes a failpoint; an armed one may kill the process.
pub fn hit(name: &str) {
    if !ENABLED {
        return;
    }
    let Some(armed) = ARMED.get() else { return };
    for point in armed.points.iter().filter(|point| point.name == name) {
        match point.trigger.pull(armed) {
            None => {}
            Some(Fate::Death) => kill_self(),
            Some(Fate::Hanging) => loop {
                std::thread::park();
            },
        }
    }
}

/// The effect of an armed failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Death,
    Hanging,
}

impl Trigger {
    fn pull(&self, armed: &Armed) -> Option<Fate> {
        match self {
            Self::Chance(probability) => (armed.next() < *probability).then_some(Fate::Death),
            Self::Once { skip, token } => {
                let left = |skip: u32| skip.checked_sub(1);
                if skip.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok() {
                    return None;
                }
                let says = fs::read_to_string(token).ok()?;
                fs::remove_file(token).ok()?;
                Some(if says.trim() == HANG { Fate::Hanging } else { Fate::Death })
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
    fn what_is_no_order_is_refused_in_its_own_words() {
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
    fn a_token_is_good_for_one_death_after_its_passes() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        let armed = Armed { points: Vec::new(), random: AtomicU64::new(1) };
        let point = parse(&format!("send.locked+2={}", token.display())).unwrap();
        fs::File::create(&token).unwrap();
        let pulled: Vec<_> = (0..4).map(|_| point.trigger.pull(&armed)).collect();
        assert_eq!(pulled, [None, None, Some(Fate::Death), None]);
        assert!(!token.exists());
        assert!(is_addressed("alice/send.locked=/t") && !is_addressed("send.locked=/t/u"));
    }
}

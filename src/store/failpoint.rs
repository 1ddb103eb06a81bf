//! Named places where a test can have the process killed.
//!
//! Of this layer: `send.{locked,written}`, `drain.{before_link,linked,renamed,claimed,reading,delivered,
//! before_unlink}`, `config.{locked,copied,replaced}`, `tasks.{locked,counted,stored}`, `replace.{written,renamed}`.
//!
//! *Invariant:* a release build never dies here, and nothing here reads the environment.

use crate::os::end::kill_self;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static ARMED: OnceLock<Armed> = OnceLock::new();

struct Armed {
    points: Vec<(String, f64)>,
    random: AtomicU64,
}

/// Arms the points named in `NAME:PROBABILITY,…`, once per process; without a seed they fall at random.
///
/// # Errors
/// The text is not of that form. It is quoted.
pub fn arm(points: &str, seed: Option<u64>) -> Result<(), String> {
    let points = points.split(',').map(parse).collect::<Result<_, _>>()?;
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0)).max(1);
    ARMED.get_or_init(|| Armed { points, random: AtomicU64::new(seed) });
    Ok(())
}

fn parse(point: &str) -> Result<(String, f64), String> {
    let (name, probability) = point.split_once(':').ok_or_else(|| format!("{point:?}"))?;
    let probability = probability.parse().map_err(|why| format!("{point:?}: {why}"))?;
    Ok((name.to_owned(), probability))
}

/// Passes the point; if a test armed it, perhaps the process ends here.
pub fn hit(name: &str) {
    if cfg!(debug_assertions)
        && let Some(armed) = ARMED.get()
        && let Some((_, probability)) = armed.points.iter().find(|(point, _)| point == name)
        && armed.next() < *probability
    {
        kill_self();
    }
}

impl Armed {
    /// The next of a sequence of numbers from 0 to 1 (xorshift).
    fn next(&self) -> f64 {
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Ordering::Relaxed);
        f64::from(u32::try_from(x >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

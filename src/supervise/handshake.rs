//! What a lead and a teammate it spawned say to each other over the control socket.
//!
//! The lead says hello with everything the teammate must know, credentials included (they never stand
//! in arguments or environment). The teammate answers once: ready, or why not. After that nothing is
//! said; end of file means that the lead is gone.

use crate::settings::model::Credentials;
use crate::settings::{Fsync, PromptProfile};
use crate::wire::budget::{Budgets, RunBudget};
use crate::wire::hook::Hook;
use crate::wire::money::Price;
use crate::wire::permission::Permissions;
use crate::wire::roster::ExitCause;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

/// Longest line either side accepts, in bytes.
const LONGEST: u64 = 1024 * 1024;

/// The lead's words.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Which life of the teammate this is.
    pub(crate) incarnation: String,
    /// What it is for.
    pub(crate) role: String,
    /// `provider/name` of its model.
    pub(crate) model: String,
    /// What reaches the model.
    pub(crate) credentials: Credentials,
    /// What its model costs, if somebody has said so.
    pub(crate) price: Option<Price>,
    /// The lead's settings, so that the whole team keeps the same rules.
    pub(crate) rules: Rules,
    /// What runs when something happens.
    pub(crate) hooks: Vec<Hook>,
    /// How freely it may act.
    pub(crate) permissions: Permissions,
    /// Why it is started.
    pub(crate) start_reason: StartReason,
}

/// Why a teammate's process is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StartReason {
    /// The lead's model wants it.
    Spawned,
    /// Its last process ended in a way that is mended.
    Restarted(ExitCause),
    /// The whole team goes on.
    Resumed,
}

impl StartReason {
    /// What the model of a teammate with a past is told.
    pub(crate) fn words(self) -> Option<String> {
        match self {
            Self::Spawned => None,
            Self::Restarted(ExitCause::Hung) => {
                Some("your process no longer moved and was restarted".into())
            }
            Self::Restarted(_) => Some("your process crashed and was restarted".into()),
            Self::Resumed => Some("the team had ended and goes on now".into()),
        }
    }
}

/// The settings a teammate takes over from its lead.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// Model calls that one turn may take.
    pub(crate) max_rounds: u32,
    /// Bytes that the content of one message may have.
    pub(crate) max_message_bytes: usize,
    /// Bytes that one inbox may hold.
    pub(crate) inbox_bytes: u64,
    /// Durability of mail.
    pub(crate) fsync: Fsync,
    /// Turns that colleagues may give each other without anything being done.
    pub(crate) max_exchanges: u32,
    /// Messages that one model may send in a minute.
    pub(crate) max_sends: usize,
    /// How often a busy agent gives a sign of life.
    pub(crate) beat_every: Duration,
    /// Whether idle teammates take tasks by themselves.
    pub(crate) auto_claim: bool,
    /// Tokens that fit the model, where somebody has said so.
    pub(crate) context_tokens: Option<u64>,
    /// How much its model is told beforehand.
    pub(crate) prompt_profile: PromptProfile,
    /// What may be used.
    pub(crate) budgets: Budgets,
    /// What this run of the lead may use.
    pub(crate) run: Option<RunBudget>,
}

/// The teammate's words.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It can take mail.
    Ready,
    /// It cannot start; the text says why.
    Failed(String),
}

/// Writes one line.
pub(crate) fn say(mut socket: impl Write, words: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(words)?;
    line.push('\n');
    socket.write_all(line.as_bytes())
}

/// Reads one line; `None` when the other side has gone without a word.
pub(crate) fn hear<T: for<'de> Deserialize<'de>>(socket: impl Read) -> io::Result<Option<T>> {
    let mut line = String::new();
    BufReader::new(socket.take(LONGEST)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

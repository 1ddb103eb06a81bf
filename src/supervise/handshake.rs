//! What a lead and a teammate it spawned say to each other over the control socket.
//!
//! The lead says hello with everything the teammate must know, credentials included (they never stand
//! in arguments or environment). The teammate answers once: ready, or why not. After that nothing is
//! said; end of file means that the lead is gone.

use crate::settings::Rules;
use crate::settings::model::Credentials;
use crate::wire::hook::Hook;
use crate::wire::money::Price;
use crate::wire::permission::Permissions;
use crate::wire::roster::ExitCause;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};

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

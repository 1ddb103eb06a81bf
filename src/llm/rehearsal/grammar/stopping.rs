//! Ending teammates.

use super::super::cursor::Cursor;
use super::super::intent::Intent;
use super::super::lexer::Kind;
use super::super::lexicon::{FILLER, SHUT, SHUT_DOWN};
use super::super::scope::{Party, Scope};
use super::Parsed;

/// Before a reason.
const BECAUSE: &[&str] = &[
    "because",
    "since",
    "as",
    "for the reason",
    "for the reason that",
    "reason :",
    "with the reason",
    "with reason",
    "due to",
    "because of",
    "saying",
    "the reason is that",
    "the reason is",
    "for",
    "with the reason :",
];

/// Whether only somebody who ends agents could be meant.
pub(super) fn begins_stopping(at: Cursor<'_>, scope: &Scope) -> bool {
    object(at, scope).is_some_and(|(party, rest)| {
        let known = match &party {
            Party::Names(names) => names.iter().all(|name| scope.knows(name)),
            Party::Everyone => true,
        };
        let surely = at.after(&["shut", "shut down", "dismiss", "terminate"]).is_some();
        (known || surely) && (rest.past(FILLER).is_empty() || rest.after(FILLER).is_some())
    })
}

/// "End carol, please", "dismiss bob and carol because …", "shut everyone down"
pub(super) fn shut_down<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let (party, rest) = object(at, scope)?;
    let rest = rest.past(FILLER);
    let (reason, rest) = match rest.after(BECAUSE).map(|reason| reason.past(&[":"])) {
        Some(reason) => {
            let quote = reason.first().filter(|token| token.kind == Kind::Quoted);
            let words = quote.map_or(reason.text(), |quote| quote.text.as_str());
            (Some(words.to_owned()), rest.skip(rest.len()))
        }
        None => (None, rest),
    };
    let (clean, reason) = (rest.is_empty(), reason.filter(|words| !words.is_empty()));
    let conditional = rest.after(super::CONDITION).is_some();
    if !clean && !conditional {
        return None;
    }
    let names = match party {
        Party::Names(names) => names,
        Party::Everyone if scope.agents.is_empty() => {
            let why = "I know of no teammates in this conversation: name those to shut down";
            return Some(Parsed { intents: vec![Intent::Unable(why.into())], rest });
        }
        Party::Everyone => scope.agents.iter().map(|(name, _)| name.clone()).collect(),
    };
    Some(Parsed { intents: each(&names, reason.as_deref(), scope), rest })
}

/// Ends each of these, and forgets them.
pub(super) fn each(names: &[String], reason: Option<&str>, scope: &mut Scope) -> Vec<Intent> {
    scope.mention(&Party::Names(names.to_vec()));
    scope.agents.retain(|(known, _)| !names.contains(known));
    let end =
        |name: &String| Intent::ShutDown { name: name.clone(), reason: reason.map(str::to_owned) };
    names.iter().map(end).collect()
}

/// Who is to be ended.
fn object<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Cursor<'a>)> {
    let around = SHUT.iter().find_map(|(verb, particle)| {
        let object = at.after(&[*verb])?;
        let all = object.after(&["everything"]).map(|rest| (Party::Everyone, rest));
        let (party, rest) = all.or_else(|| scope.party(object))?;
        Some((party, rest.after(&[*particle])?))
    });
    around.or_else(|| {
        let named = at.after(SHUT_DOWN)?.past(&["gracefully", "politely", "down", ":"]);
        let named = named.after(&["teammate", "agent", "the agent"]).unwrap_or(named);
        scope.party(named)
    })
}

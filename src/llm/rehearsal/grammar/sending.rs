//! Messages and broadcasts: who gets which words, in either order.

use super::super::cursor::Cursor;
use super::super::intent::Text;
use super::super::lexer::Kind;
use super::super::lexicon::{
    AND, ARTICLE, ASKING, BROADCAST, EVERYONE, FILLER, MESSAGE, MESSAGE_NOUN, OUTCOME_NOUN, SAYING,
    SEND,
};
use super::super::scope::{Party, Scope, owner, path_of};
use super::handing::{mail, words_for};
use super::{Parsed, Until, extent, wording};

/// Between a message and what it asks.
const WHETHER: &[&str] = &["if", "whether", "what", "when", "where", "who", "why", "how", "which"];

/// "Broadcast "…"", "announce to everyone that …"
pub(super) fn broadcast<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let object = at.after(BROADCAST)?.past(&[":"]);
    let noun = object.past(ARTICLE).after(&["message", "announcement", "note", "notice", "news"]);
    let noun = noun.unwrap_or(object);
    let (party, text) = to_party(noun, scope).unwrap_or((Party::Everyone, noun));
    let text = text.past(&[":", ","]);
    let text = text.after(SAYING).unwrap_or(text).past(&[":"]);
    let quote = text.first().filter(|token| token.kind == Kind::Quoted);
    let (words, party, rest) = if let Some(quote) = quote {
        let rest = text.skip(1).past(FILLER);
        let (party, rest) = to_party(rest, scope).unwrap_or((party, rest));
        (quote.text.clone(), party, rest)
    } else {
        let all = text.take(extent(text, Until::Then, scope));
        let to = all.places().rev().find(|at| {
            at.after(&["to"])
                .and_then(|at| at.after(EVERYONE))
                .is_some_and(|rest| rest.past(FILLER).is_empty())
        });
        let words = to.map_or(all, |to| all.up_to(to)).text();
        (words.to_owned(), party, text.skip(all.len()))
    };
    if words.is_empty() {
        return None;
    }
    scope.mention(&party);
    Some(Parsed { intents: mail(&party, &Text::Words(words), scope), rest })
}

/// "Send bob a note saying …", "send "…" to bob and carol", "ping dave", "say hello to erin"
pub(super) fn send<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let (party, text, rest) =
        to_first(at, scope).or_else(|| to_last(at, scope)).or_else(|| messaged(at, scope))?;
    scope.mention(&party);
    let mut intents = mail(&party, &text, scope);
    let mut rest = rest;
    // "Send bob "hi" and carol "ho""
    while let Some((more, text, after)) = another(rest, scope) {
        intents.extend(mail(&more, &text, scope));
        rest = after;
    }
    Some(Parsed { intents, rest })
}

fn another<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Text, Cursor<'a>)> {
    let (party, rest) = scope.party(at.after(AND)?.past(AND))?;
    let quote = rest.first().filter(|token| token.kind == Kind::Quoted)?;
    Some((party, Text::Words(quote.text.clone()), rest.skip(1)))
}

/// The receiver stands before the text.
fn to_first<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Text, Cursor<'a>)> {
    let (party, rest) = scope.party(at.after(SEND)?)?;
    let rest = rest.past(&["each", "both", "all", ","]);
    if let Some((text, after)) = noun(rest) {
        let (text, after) = said(after, text, scope, &party);
        return Some((party, text, after));
    }
    // "Write hello to notes": what looks like a receiver is the text, or no message is meant.
    let is_text = rest.after(&["to", "in", "into", "as", "on", "onto"]).is_some();
    let vague = at.after(&["write", "give", "leave", "post", "say", "pass", "drop"]).is_some();
    let marked = rest.is(Kind::Quoted) || rest.is(Kind::Colon) || rest.after(&["that"]).is_some();
    if is_text || rest.is_empty() || (vague && !marked) || at.after(&["say"]).is_some() {
        return None;
    }
    let (text, after) = words_for(rest.past(&[":", "that"]), scope)?;
    Some((party, text, after))
}

/// The receiver stands behind "to".
fn to_last<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Text, Cursor<'a>)> {
    let object = at.after(SEND)?;
    let named = noun(object);
    if let Some((text, rest)) = &named
        && let Some((party, rest)) = to_party(*rest, scope)
    {
        let (text, rest) = said(rest, text.clone(), scope, &party);
        return Some((party, text, rest));
    }
    let words = named.as_ref().map_or(object, |(_, rest)| rest.past(&[":"]));
    let words = named.as_ref().and_then(|_| words.after(SAYING)).unwrap_or(words).past(&[":"]);
    if let Some(quote) = words.first().filter(|token| token.kind == Kind::Quoted) {
        let (party, rest) = to_party(words.skip(1).past(FILLER), scope)?;
        return Some((party, Text::Words(quote.text.clone()), rest));
    }
    let vague = at.after(&["write", "give", "leave", "post", "drop"]).is_some();
    let all = words.take(extent(words, Until::Then, scope));
    let ends_with_party = |at: &Cursor<'a>| {
        to_party(*at, scope).is_some_and(|(_, rest)| rest.past(FILLER).is_empty())
    };
    let to = all.places().rev().find(ends_with_party)?;
    let (party, _) = to_party(to, scope)?;
    let text = all.up_to(to);
    let is_file = text.tokens().iter().any(|token| path_of(token).is_some());
    let foreign = text.places().any(|at| owner(at.word()).is_some() && at.skip(1).len() == 1);
    if text.is_empty() || foreign || (named.is_none() && vague && !is_file) {
        return None;
    }
    let outcome = text.len() == 1 && matches!(text.word(), "it" | "this" | "that");
    let text = if outcome { Text::Outcome } else { Text::Words(text.text().to_owned()) };
    Some((party, text, words.skip(all.len())))
}

/// "Message bob: …", "inform carol that …", "greet dave"
fn messaged<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Text, Cursor<'a>)> {
    let (party, rest) = scope.party(at.after(MESSAGE)?)?;
    let reports = at.after(&["report to", "report back to", "update"]).is_some();
    let silent = if reports { Text::Outcome } else { Text::Greeting };
    let (text, after) = said(rest, silent.clone(), scope, &party);
    if text != silent || after.past(FILLER).is_empty() || after.after(AND).is_some() {
        return Some((party, text, after));
    }
    let (text, after) = words_for(rest.past(&[":", ","]), scope)?;
    Some((party, text, after))
}

/// "to bob", "for everyone"
fn to_party<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Cursor<'a>)> {
    scope.party(at.after(&["to", "for", "on to", "over to", "along to", "back to"])?)
}

/// "a short message", "the result": what is sent when no words are given.
fn noun(at: Cursor<'_>) -> Option<(Text, Cursor<'_>)> {
    let object = at.past(ARTICLE);
    if at.after(&["the following", "this"]).is_some() && !object.is(Kind::Word)
        || at.after(&["the following to", "this to"]).is_some()
    {
        return Some((Text::Greeting, object));
    }
    // One word may describe it: "a status report" is known, "a warm greeting" is not.
    let described = if object.len() < at.len() { object.skip(1) } else { object };
    [object, described].into_iter().find_map(|place| {
        let message = place.after(MESSAGE_NOUN).map(|rest| (Text::Greeting, rest));
        let outcome = place.after(OUTCOME_NOUN).filter(|_| object.len() < at.len());
        message.or_else(|| outcome.map(|rest| (Text::Outcome, rest)))
    })
}

/// The words behind a message noun, else what is sent without words.
fn said<'a>(at: Cursor<'a>, silent: Text, scope: &Scope, party: &Party) -> (Text, Cursor<'a>) {
    let at = at.past(&["each"]);
    if let Some(order) = at.after(ASKING) {
        if order.after(WHETHER).is_some() {
            let length = extent(order, Until::Then, scope);
            let text = wording::question(order.take(length), scope, &[]);
            return (Text::Words(text), order.skip(length));
        }
        let receiver = scope.party(order).map_or(order, |(_, rest)| rest);
        if let Some(order) = receiver.after(&["to"]) {
            let mut heard = scope.clone();
            heard.mention(party);
            let length = extent(order, Until::Handover, scope);
            let text = wording::imperative(order.take(length), &heard, &heard.last);
            return (Text::Words(text), order.skip(length));
        }
    }
    let marked =
        at.after(SAYING).or_else(|| at.after(&[":", ","]).filter(|at| at.is(Kind::Quoted)));
    let about = at.after(&["about"]).map(|_| at);
    let text = marked.map(|text| text.past(&[":", "that"])).or(about);
    let text = text.or_else(|| at.after(&[":"])).or_else(|| at.is(Kind::Quoted).then_some(at));
    text.and_then(|text| words_for(text, scope)).unwrap_or((silent, at))
}

//! Handing work or a text to somebody: "ask her to …", "have alice …", "bob should …".

use super::super::cursor::Cursor;
use super::super::intent::{Intent, Text};
use super::super::lexer::Kind;
use super::super::lexicon::{
    AND, COURTESY, FILLER, HAND, HAND_BARE, MODAL, SHUT_DOWN, TOLD, WHAT_CAME_OUT, is_verb,
};
use super::super::scope::{Party, Scope, is_name_like, path_of};
use super::{Parsed, Until, extent, past_ties, read_clause, stopping, wording};

/// Before a question that is handed on.
const ASKED: &[&str] = &["if", "whether", "what", "when", "where", "who", "why", "how", "which"];

/// What stands between the receivers and the work.
const BETWEEN: &[&str] = &[
    "each",
    "both",
    "all",
    "please",
    "now",
    "also",
    "then",
    "kindly",
    "first",
    "next",
    "individually",
];

/// Verbs of work that are hardly ever nouns.
const PLAIN_VERB: &[&str] = &[
    "create", "write", "run", "execute", "send", "read", "tell", "ask", "delete", "edit",
    "replace", "append", "generate",
];

/// How a text for somebody begins.
enum Form<'a> {
    /// An order, in the infinitive.
    Order(Cursor<'a>),
    /// A question.
    Question(Cursor<'a>),
    /// Something to find out first, and then to tell.
    Finding(Cursor<'a>),
    /// A thing that is asked for.
    Wish(Cursor<'a>),
    /// A text as it is.
    Words(Cursor<'a>),
}

/// Whether a piece of work for somebody begins here.
pub(super) fn begins_handing(at: Cursor<'_>, scope: &Scope) -> bool {
    let handed = || {
        let (_, rest) = receivers(at, scope)?;
        let bare = at.after(HAND_BARE).is_some() && begins_order(rest);
        (rest.after(&["to"]).is_some() || bare).then_some(())
    };
    handed().is_some() || subject(at, scope).is_some()
}

/// "Ask alice to …", "have bob …", "tell them that …", "let her know …"
pub(super) fn hand<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let (party, rest) = receivers(at, scope)?;
    let form = if let Some(order) = rest.after(&["to"]) {
        Form::Order(order.past(BETWEEN))
    } else if let Some(known) = rest.after(&["know", "know that", "know :", "know about"]) {
        Form::Words(known.past(&[","]))
    } else if at.after(HAND_BARE).is_some() {
        Form::Order(Some(rest).filter(|rest| begins_order(*rest))?)
    } else if at.after(&["ask", "request"]).is_some() {
        asked(rest)?
    } else if at.after(&["tell", "remind", "instruct", "order", "direct", "advise"]).is_some() {
        told(rest)?
    } else {
        return None;
    };
    deliver(&party, &form, scope)
}

/// Those behind a verb of handing. "Let me see" and "tell me whether" hand nothing to anybody.
fn receivers<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Cursor<'a>)> {
    let object = at.after(HAND)?;
    let (party, rest) = scope.party(object)?;
    let asks = matches!(object.word(), "me" | "us")
        && !rest.is(Kind::Quoted)
        && rest.after(&["that"]).is_none();
    (!asks).then(|| (party, rest.past(BETWEEN)))
}

/// "bob should …", "carol must be told that …", "alice: …"
pub(super) fn addressed<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let (party, form) = subject(at, scope).or_else(|| called(at, scope))?;
    deliver(&party, &form, scope)
}

/// Somebody named before what is to be done.
fn subject<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Form<'a>)> {
    let (party, rest) = named(at, scope)?;
    if let Some(text) = rest.after(TOLD) {
        let text = text.past(BETWEEN);
        let order = text.after(&["to"]).map(Form::Order);
        return Some((party, order.or_else(|| told(text))?));
    }
    let rest = rest.past(BETWEEN);
    if let Some(order) = rest.after(MODAL).map(|order| order.past(BETWEEN)) {
        return begins_order(order).then_some((party, Form::Order(order)));
    }
    // "…, and bob to run the tests", "…, and bob run the tests": the verb of handing is left out.
    let gap = rest.after(&["to"]).filter(|order| is_verb(order.word()));
    let order = gap.or_else(|| Some(rest).filter(|order| acts(&party, *order, scope)))?;
    Some((party, Form::Order(order)))
}

/// "alice, …", "bob: …", "could carol …?"
fn called<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Form<'a>)> {
    if let Some(asked) = at.after(&["could", "can", "would", "will", "should", "must", "may"]) {
        let (party, rest) = named(asked, scope)?;
        let order = rest.past(BETWEEN);
        return is_verb(order.word()).then_some((party, Form::Order(order)));
    }
    let (party, rest) = named(at, scope)?;
    let order = rest.after(&[",", ":"])?.past(BETWEEN).past(COURTESY);
    let single = matches!(&party, Party::Names(names) if names.len() == 1);
    let acts = acts(&party, order, scope) || single && is_verb(order.word()) && order.len() > 1;
    acts.then_some((party, Form::Order(order)))
}

fn named<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Cursor<'a>)> {
    let is_verb = is_verb(at.word()) && !scope.knows(at.word());
    if is_verb { None } else { scope.party(at) }
}

/// Whether a verb follows that these could be told to do. A name that nobody knows is one only before
/// a verb that cannot be a noun.
fn acts(party: &Party, order: Cursor<'_>, scope: &Scope) -> bool {
    let Party::Names(names) = party else { return false };
    let plain = order.after(PLAIN_VERB).is_some_and(|object| !object.is_empty());
    if names.iter().all(|name| scope.knows(name)) {
        return is_verb(order.word());
    }
    plain && names.iter().all(|name| !name.ends_with("ly"))
}

/// Whether a verb may stand here.
fn begins_order(at: Cursor<'_>) -> bool {
    is_verb(at.word()) || matches!(at.word(), "do" | "be") || at.first().is_some_and(is_name_like)
}

/// What stands behind "ask her".
fn asked(at: Cursor<'_>) -> Option<Form<'_>> {
    if let Some(wish) = at.after(&["for"]) {
        return Some(Form::Wish(wish));
    }
    let text = at.past(&[",", ":"]);
    if text.after(ASKED).is_some() { Some(Form::Question(text)) } else { told(at) }
}

/// What stands behind "tell her".
fn told(at: Cursor<'_>) -> Option<Form<'_>> {
    let text = at.past(&[",", ":"]);
    if let Some(statement) = text.after(&["that", "the following", "this", "of", "saying"]) {
        return Some(Form::Words(statement.past(&[":"])));
    }
    if text.after(ASKED).is_some() {
        return Some(Form::Finding(text));
    }
    (!text.is_empty()).then_some(Form::Words(text))
}

fn deliver<'a>(party: &Party, form: &Form<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let own = *party == Party::Names(vec![scope.me.clone()]);
    if let (Form::Order(order), true) = (form, own) {
        // The rest of the sentence is simply the next command.
        return Some(Parsed { intents: Vec::new(), rest: *order });
    }
    let mut heard = scope.clone();
    heard.mention(party);
    let receivers = heard.last.clone();
    let mut before = Vec::new();
    let (text, rest) = match *form {
        Form::Order(order) => {
            let words = order.take(extent(order, Until::Handover, &heard));
            let rest = order.skip(words.len());
            if let (true, Party::Names(names)) = (ends_somebody(words), party) {
                return Some(Parsed { intents: stopping::each(names, None, scope), rest });
            }
            let text = wording::imperative(words, &heard, &receivers);
            remember(words, &mut heard);
            (Text::Words(text), rest)
        }
        Form::Question(words) => {
            let length = extent(words, Until::Then, &heard);
            let text = wording::question(words.take(length), &heard, &receivers);
            (Text::Words(text), words.skip(length))
        }
        Form::Finding(words) => match found_out(words, &mut heard) {
            Some(looked) => {
                before = looked.intents;
                (Text::Outcome, looked.rest)
            }
            None => words_for(words, &heard)?,
        },
        Form::Wish(words) => {
            let length = extent(words, Until::Then, &heard);
            let text = format!("Send {} {}.", scope.seen_by_others(), words.take(length).text());
            (Text::Words(text), words.skip(length))
        }
        Form::Words(words) => words_for(words, &heard)?,
    };
    *scope = heard;
    before.extend(mail(party, &text, scope));
    Some(Parsed { intents: before, rest })
}

/// "what is in x", "whether y exists": looked up before it is told.
fn found_out<'a>(words: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let looks = |intent: &Intent| {
        matches!(
            intent,
            Intent::ReadFile { .. }
                | Intent::CheckFile { .. }
                | Intent::ListFiles { .. }
                | Intent::ListTeam
        )
    };
    let mut trial = scope.clone();
    let read = read_clause(words, &mut trial).filter(|read| read.intents.iter().all(looks))?;
    *scope = trial;
    Some(read)
}

/// A text as it is: a quotation, or the words up to where the next command begins.
pub(super) fn words_for<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Text, Cursor<'a>)> {
    if let Some(quote) = at.first().filter(|token| token.kind == Kind::Quoted) {
        let rest = at.skip(1);
        let ends = rest.past(FILLER).is_empty() || past_ties(rest, scope).len() < rest.len();
        if ends {
            return Some((Text::Words(quote.text.clone()), rest));
        }
    }
    if let Some(rest) = at.after(WHAT_CAME_OUT) {
        let rest = rest.past(FILLER);
        if rest.is_empty() || rest.after(AND).is_some() {
            return Some((Text::Outcome, rest));
        }
    }
    let length = extent(at, Until::Then, scope);
    let words = at.take(length).text();
    (!words.is_empty()).then(|| (Text::Words(words.to_owned()), at.skip(length)))
}

/// One message to each of the party.
pub(super) fn mail(party: &Party, text: &Text, scope: &Scope) -> Vec<Intent> {
    match (party, text) {
        (Party::Names(names), _) => {
            let send = |to: &String| Intent::Send { to: to.clone(), text: text.clone() };
            names.iter().map(send).collect()
        }
        (Party::Everyone, Text::Words(words)) => vec![Intent::Broadcast { text: words.clone() }],
        (Party::Everyone, Text::Greeting | Text::Outcome) => {
            vec![Intent::Broadcast { text: format!("Hello everyone, this is {}.", scope.me) }]
        }
    }
}

/// "to stop", "to shut down": the order ends its receiver.
fn ends_somebody(order: Cursor<'_>) -> bool {
    let order = order.past(&["be"]);
    let ended = order.after(SHUT_DOWN).or_else(|| order.after(&["exit", "leave", "go home"]));
    ended.is_some_and(|rest| {
        let own = ["working", "work", "itself", "himself", "herself", "themselves"];
        rest.past(&own).past(FILLER).is_empty()
    })
}

/// Files and agents named in an order are what later words refer to.
fn remember(order: Cursor<'_>, scope: &mut Scope) {
    for (at, token) in order.places().filter_map(|at| at.first().map(|token| (at, token))) {
        if let Some(path) = path_of(token) {
            scope.file = Some(path);
        }
        if let Some(name) = wording::mentioned(order.up_to(at).last(), token, scope) {
            scope.last = vec![name];
        }
    }
}

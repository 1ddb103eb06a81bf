//! Handing work or a text to somebody: "ask her to …", "have alice …", "bob should …".

use super::super::cursor::Cursor;
use super::super::intent::{Intent, Text};
use super::super::lexer::Kind;
use super::super::lexicon::{
    AND, FILLER, HAND, HAND_BARE, MODAL, SHUT_DOWN, TOLD, WHAT_CAME_OUT, is_verb,
};
use super::super::scope::{Party, Scope, is_name_like, owner, path_of};
use super::{Parsed, Until, extent, past_ties, wording};

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

/// How a text for somebody begins.
enum Form<'a> {
    /// An order, in the infinitive.
    Order(Cursor<'a>),
    /// A question.
    Question(Cursor<'a>),
    /// A thing that is asked for.
    Wish(Cursor<'a>),
    /// A text as it is.
    Words(Cursor<'a>),
}

/// Whether a piece of work for somebody begins here.
pub(super) fn begins_handing(at: Cursor<'_>, scope: &Scope) -> bool {
    let handed = || {
        let (_, rest) = receivers(at, scope)?;
        let bare = at.after(HAND_BARE).is_some() && rest.first().is_some_and(is_name_like);
        (rest.after(&["to"]).is_some() || bare).then_some(())
    };
    handed().is_some() || subject(at, scope).is_some()
}

/// "Ask alice to …", "have bob …", "tell them that …", "let her know …"
pub(super) fn hand<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let (party, rest) = receivers(at, scope)?;
    let bare = at.after(HAND_BARE).is_some();
    let tells =
        at.after(&["tell", "remind", "ask", "instruct", "order", "direct", "advise", "task"]);
    let form = if let Some(order) = rest.after(&["to"]) {
        Form::Order(order.past(BETWEEN))
    } else if let Some(known) = rest.after(&["know", "know that", "know :", "know about"]) {
        Form::Words(known.past(&[","]))
    } else if bare {
        let order = rest.first().filter(|token| is_name_like(token));
        order.map(|_| Form::Order(rest))?
    } else if tells.is_some() {
        told(rest)?
    } else {
        return None;
    };
    deliver(party, form, scope)
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
    let (party, form) = subject(at, scope)?;
    deliver(party, form, scope)
}

/// Somebody named before what is to be done.
fn subject<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(Party, Form<'a>)> {
    if is_verb(at.word()) && !scope.knows(at.word()) {
        return None;
    }
    let (party, rest) = scope.party(at)?;
    if let Some(text) = rest.after(TOLD) {
        let text = text.past(BETWEEN);
        let form = text.after(&["to"]).map_or_else(|| told(text), |order| Some(Form::Order(order)));
        return Some((party, form?));
    }
    let order = if let Some(order) = rest.past(BETWEEN).after(MODAL) {
        order.past(BETWEEN)
    } else {
        let known = match &party {
            Party::Names(names) => names.iter().all(|name| scope.knows(name)),
            Party::Everyone => false,
        };
        // "…, and bob to run the tests": the verb of handing is left out.
        let gap = rest.past(BETWEEN).after(&["to"]).filter(|order| is_verb(order.word()));
        let called = rest.after(&[",", ":"]).or_else(|| rest.after(BETWEEN)).unwrap_or(rest);
        gap.or_else(|| Some(called.past(BETWEEN)).filter(|at| known && is_verb(at.word())))?
    };
    order.first().is_some_and(is_name_like).then_some((party, Form::Order(order)))
}

/// What stands behind "tell her".
fn told(at: Cursor<'_>) -> Option<Form<'_>> {
    let text = at.past(&[",", ":"]);
    if let Some(statement) = text.after(&["that", "the following", "this", "of", "saying"]) {
        return Some(Form::Words(statement.past(&[":"])));
    }
    if let Some(wish) = text.after(&["for"]) {
        return Some(Form::Wish(wish));
    }
    if text.after(ASKED).is_some() {
        return Some(Form::Question(text));
    }
    (!text.is_empty()).then_some(Form::Words(text))
}

fn deliver<'a>(party: Party, form: Form<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let own = Party::Names(vec![scope.me.clone()]);
    if let (Form::Order(order), true) = (&form, party == own) {
        // The rest of the sentence is simply the next command.
        return Some(Parsed { intents: Vec::new(), rest: *order });
    }
    let to_giver = party == Party::Names(vec![scope.giver.clone()]);
    let receiver = match &party {
        Party::Names(names) if names.len() == 1 => names.concat(),
        Party::Names(_) | Party::Everyone => String::new(),
    };
    let before = scope.last.clone();
    scope.mention(&party);
    let (text, rest) = match form {
        Form::Order(order) => {
            let length = extent(order, Until::Handover, scope);
            let words = order.take(length);
            if let (Some(()), Party::Names(names)) = (goes(words), &party) {
                let intents = super::stopping::each(names, None, scope);
                return Some(Parsed { intents, rest: order.skip(length) });
            }
            let text = wording::imperative(words, scope, &receiver);
            remember(words, scope);
            (Text::Words(text), order.skip(length))
        }
        Form::Question(words) => {
            let rest = words.skip(extent(words, Until::Then, scope));
            let words = words.up_to(rest);
            let outcome =
                words.after(WHAT_CAME_OUT).is_some_and(|rest| rest.past(FILLER).is_empty());
            let text = if outcome {
                Text::Outcome
            } else {
                Text::Words(wording::question(words, scope, &receiver))
            };
            (text, rest)
        }
        Form::Wish(words) => {
            let rest = words.skip(extent(words, Until::Then, scope));
            let wish = words.up_to(rest).text();
            let text = format!("Send {} {wish}.", asker(scope));
            (Text::Words(text), rest)
        }
        Form::Words(words) => words_for(words, scope)?,
    };
    if text == Text::Words(String::new()) {
        scope.last = before;
        return None;
    }
    // "Tell me …" is answered by the closing text, when it is the outcome that is asked for.
    if to_giver && text == Text::Outcome && scope.giver == "user" {
        return Some(Parsed { intents: vec![Intent::Report], rest });
    }
    Some(Parsed { intents: mail(&party, &text, scope), rest })
}

fn asker(scope: &Scope) -> String {
    if scope.me == "lead" { "the lead".into() } else { scope.me.clone() }
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
fn goes(order: Cursor<'_>) -> Option<()> {
    let rest = order.after(SHUT_DOWN).or_else(|| order.after(&["exit", "leave", "go home"]))?;
    let rest = rest.past(&["working", "work", "itself", "himself", "herself", "themselves"]);
    rest.past(FILLER).is_empty().then_some(())
}

/// Files and agents named in an order are what later words refer to.
fn remember(order: Cursor<'_>, scope: &mut Scope) {
    for token in order.tokens() {
        if let Some(path) = path_of(token) {
            scope.file = Some(path);
        }
        let name = owner(&token.low).unwrap_or(&token.low);
        if scope.knows(name) {
            scope.last = vec![name.to_owned()];
        }
    }
}

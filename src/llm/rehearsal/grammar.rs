//! Text -> intents: cuts sentences into commands and finds the rule that reads each.
//!
//! A rule reads one command and says where it ended. What no rule reads is named, never guessed at:
//! a sentence that forbids, or that depends on something, is never carried out in part.

mod files;
mod handing;
mod looking;
mod reviewing;
mod sending;
mod spawning;
mod stopping;
mod tasks;
mod wording;
mod writing;

use super::cursor::Cursor;
use super::intent::Intent;
use super::lexer::{Kind, sentences, tokens};
use super::lexicon::{
    AND, CONDITION, COURTESY, FILLER, FORBID, REPORT, REST, THEN, WHAT_CAME_OUT, verbs,
};
use super::scope::Scope;

/// What a rule read, and what is still ahead.
struct Parsed<'a> {
    intents: Vec<Intent>,
    rest: Cursor<'a>,
}

/// Reads one command at the begin of what is ahead, or nothing; then it leaves the scope alone.
type Rule = for<'a> fn(Cursor<'a>, &mut Scope) -> Option<Parsed<'a>>;

/// Rules that need the rest of the sentence, because a text in it may look like a command.
const OF_SENTENCES: &[Rule] = &[
    resting,
    reviewing::review,
    spawning::spawn,
    sending::broadcast,
    reporting,
    handing::addressed,
    handing::hand,
    sending::send,
    writing::edit,
];

/// Rules that get one command, cut out of its sentence.
const OF_COMMANDS: &[Rule] = &[
    stopping::shut_down,
    tasks::tasks,
    looking::inbox,
    looking::roster,
    writing::append,
    files::remove,
    files::transfer,
    files::make_folder,
    files::list,
    files::check,
    files::read,
    files::run,
    writing::write,
    help,
];

/// Commands are short: of a longer text only the begin is read, and what follows is named.
const MAX_SENTENCES: usize = 100;

/// The same for the words of one sentence.
const MAX_TOKENS: usize = 300;

/// Everything a text asks for, in order. The scope remembers who and what was named.
pub(super) fn intents(text: &str, scope: &mut Scope) -> Vec<Intent> {
    let tokens = tokens(text);
    let sentences = sentences(&tokens);
    let (read, left) = sentences.split_at(sentences.len().min(MAX_SENTENCES));
    let mut found = Vec::new();
    for sentence in read {
        let sentence = Cursor::new(text, sentence);
        if sentence.len() > MAX_TOKENS {
            found.push(Intent::Unclear(sentence.text().into()));
        } else {
            let mut rest = sentence;
            while !rest.is_empty() {
                let line = rest.take(line_length(rest, scope));
                read_sentence(line, scope, &mut found);
                rest = rest.skip(line.len());
            }
        }
    }
    found.extend(left.first().map(|next| Intent::Unclear(Cursor::new(text, next).text().into())));
    found
}

/// A new line in lower case goes on with the sentence, unless it begins with a command.
fn line_length(sentence: Cursor<'_>, scope: &Scope) -> usize {
    let begins = |at: &Cursor<'_>| {
        let next = past_ties(*at, scope);
        at.begins_line() && (begins_command(next, scope) || begins_loosely(next))
    };
    sentence.skip(1).places().position(|at| begins(&at)).map_or(sentence.len(), |at| at + 1)
}

fn read_sentence(sentence: Cursor<'_>, scope: &mut Scope, found: &mut Vec<Intent>) {
    if sentence.past(AND).past(COURTESY).after(FORBID).is_some() {
        found.push(Intent::Refrain(sentence.text().into()));
        return;
    }
    let mut ahead = past_ties(sentence, scope);
    if ahead.after(CONDITION).is_some() {
        found.push(Intent::Unclear(sentence.text().into()));
        return;
    }
    if ahead.is_empty() && sentence.word().starts_with(char::is_alphabetic) {
        found.push(Intent::Rest);
    }
    while !ahead.is_empty() {
        let rest = read_command(ahead, scope, found);
        ahead = past_ties(rest, scope);
    }
}

/// Reads one command into `found`; what it returns is always shorter than what it got.
fn read_command<'a>(ahead: Cursor<'a>, scope: &mut Scope, found: &mut Vec<Intent>) -> Cursor<'a> {
    let end = ahead.skip(ahead.len());
    if ahead.after(FORBID).is_some() {
        found.push(Intent::Refrain(ahead.text().into()));
        return end;
    }
    let before = scope.clone();
    let whole = OF_SENTENCES.iter().find_map(|rule| rule(ahead, scope));
    let Some(read) = whole.or_else(|| read_clause(ahead, scope)) else {
        let clause = ahead.take(extent(ahead, Until::Command, scope));
        found.push(Intent::Unclear(clause.text().into()));
        return ahead.skip(clause.len());
    };
    // "… when she is ready": nobody here can watch for that, so nothing is done.
    let rest = read.rest.past(FILLER);
    if rest.past(AND).after(CONDITION).is_some() && rest.past(AND).after(THEN).is_none() {
        *scope = before;
        found.push(Intent::Unclear(ahead.text().into()));
        return end;
    }
    found.extend(read.intents);
    rest
}

fn read_clause<'a>(ahead: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let clause = ahead.take(extent(ahead, Until::Command, scope));
    let mut read = OF_COMMANDS.iter().find_map(|rule| rule(clause, scope))?;
    let left = read.rest.past(FILLER);
    if left.past(AND).after(CONDITION).is_some() {
        return Some(Parsed { rest: ahead.skip(clause.len() - left.len()), ..read });
    }
    if !left.is_empty() {
        read.intents.push(Intent::Unclear(left.text().into()));
    }
    Some(Parsed { rest: ahead.skip(clause.len()), ..read })
}

/// Whether a condition stands in a command: nobody here can watch for it.
fn depends(at: Cursor<'_>) -> bool {
    at.places().any(|at| at.after(CONDITION).is_some())
}

/// Where a command ends, by what may stand behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Any other command ends it.
    Command,
    /// It is handed to somebody else: only what that one cannot be meant to do ends it.
    Handover,
    /// It is a text: "then" with a command ends it, or a piece of work for somebody.
    Then,
}

/// How many tokens belong to the command at the begin.
fn extent(ahead: Cursor<'_>, until: Until, scope: &Scope) -> usize {
    let ends = |at: Cursor<'_>| {
        let next = past_ties(at, scope);
        let tied = at.after(AND).or_else(|| at.after(THEN)).is_some() && next.len() < at.len();
        let then = at.past(AND).after(THEN).is_some();
        tied && match until {
            Until::Command => begins_command(next, scope) || then && begins_loosely(next),
            Until::Handover => {
                handing::begins_handing(next, scope)
                    || stopping::begins_stopping(next, scope)
                    || spawning::begins_spawning(next)
                    || looking::begins_looking(next)
            }
            Until::Then => {
                then && begins_command(next, scope) || handing::begins_handing(next, scope)
            }
        }
    };
    (1..ahead.len()).find(|count| ends(ahead.skip(*count))).unwrap_or(ahead.len())
}

/// A question or "in x, …": a command too, but only where one is sure to begin.
fn begins_loosely(at: Cursor<'_>) -> bool {
    at.after(&["what", "what's", "who", "who's", "does", "is there", "in", "inside"]).is_some()
}

/// A cheap guess whether a command stands here: a verb and something it can act on.
fn begins_command(at: Cursor<'_>, scope: &Scope) -> bool {
    let acts = verbs().any(|list| {
        let object = at.after(list).filter(|object| object.after(AND).is_none());
        object
            .and_then(Cursor::first)
            .is_some_and(|next| matches!(next.kind, Kind::Word | Kind::Quoted | Kind::Colon))
    });
    let rests = |list| at.after(list).is_some_and(|rest| rest.past(FILLER).is_empty());
    acts || rests(REST)
        || reporting(at, &mut scope.clone()).is_some()
        || at.after(FORBID).is_some()
        || handing::begins_handing(at, scope)
}

/// Past what ties commands together, courtesies, and the own name at the begin.
fn past_ties<'a>(at: Cursor<'a>, scope: &Scope) -> Cursor<'a> {
    let mut rest = at;
    loop {
        let next = rest.past(THEN).past(AND).past(COURTESY);
        let named = next.after(&[scope.me.as_str(), "team", "lead", "team lead"]);
        let called =
            named.filter(|rest| rest.is_empty() || rest.is(Kind::Comma) || rest.is(Kind::Colon));
        let next = called.map_or(next, |rest| rest.skip(1));
        if next.len() == rest.len() {
            return rest;
        }
        rest = next;
    }
}

/// "Wait.", "You are bob, the tester.", "This is the lead.": nothing to do.
fn resting<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    const INTRODUCTION: &[&str] = &[
        "you are",
        "you're",
        "your name is",
        "your role is",
        "this is",
        "i am",
        "i'm",
        "my name is",
        "welcome",
        "nice to meet you",
        "good morning",
        "good evening",
        "good afternoon",
    ];
    if at.after(INTRODUCTION).is_some() {
        return Some(Parsed { intents: vec![Intent::Rest], rest: at.skip(at.len()) });
    }
    let rest = at.after(REST)?.past(&["patiently", "quietly", "idle", "a moment", "a bit"]);
    if rest.after(&["for", "until", "till", "further"]).is_some() {
        // What is to come after the waiting cannot be: the turn ends.
        let last = extent(rest, Until::Then, scope) == rest.len();
        let intent = if last { Intent::Rest } else { Intent::Unclear(at.text().into()) };
        return Some(Parsed { intents: vec![intent], rest: rest.skip(rest.len()) });
    }
    let rest = rest.past(&["instructions", "orders", "to", "work", "help"]).past(FILLER);
    let ends = rest.is_empty() || rest.after(AND).is_some() || rest.after(THEN).is_some();
    ends.then_some(Parsed { intents: vec![Intent::Rest], rest })
}

/// "Report back.", "Let me know what you find.": said by the closing text of the turn.
fn reporting<'a>(at: Cursor<'a>, _: &mut Scope) -> Option<Parsed<'a>> {
    let object = at.after(REPORT)?;
    let rest = object.after(WHAT_CAME_OUT).unwrap_or(object).past(FILLER);
    let ends = rest.is_empty() || rest.after(AND).is_some() || rest.after(THEN).is_some();
    ends.then_some(Parsed { intents: vec![Intent::Report], rest })
}

fn help<'a>(at: Cursor<'a>, _: &mut Scope) -> Option<Parsed<'a>> {
    let asked = ["help", "what can you do", "what do you do", "who are you", "what are you"];
    let rest = at.after(&asked)?;
    Some(Parsed { intents: vec![Intent::Help], rest: rest.skip(rest.len()) })
}

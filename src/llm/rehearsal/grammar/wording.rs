//! How the words of a command become the words of a message: orders in the imperative, pronouns
//! replaced by what they mean to the receiver.

use super::super::cursor::Cursor;
use super::super::lexer::{Kind, Token};
use super::super::lexicon::{MESSAGE_NOUN, OUTCOME_NOUN, is_verb};
use super::super::scope::{Scope, name_of, path_of};

/// Verbs behind which somebody stands who gets something.
const GIVING: &[&str] =
    &["send", "tell", "ask", "give", "message", "show", "write", "let", "have", "inform", "ping"];

/// An order as one sentence: "send her a note" -> "Send alice a note."
pub(super) fn imperative(order: Cursor<'_>, scope: &Scope, receivers: &[String]) -> String {
    let text = reworded(order, scope, receivers);
    let begins_with_word =
        order.first().is_some_and(|token| token.kind == Kind::Word && path_of(token).is_none());
    let mut chars = text.chars();
    let mut sentence = match chars.next() {
        Some(first) if begins_with_word => {
            first.to_uppercase().collect::<String>() + chars.as_str()
        }
        Some(_) | None => text,
    };
    if !sentence.is_empty() && !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}

/// A question as one sentence: "whether it works" -> "Can you say whether it works?"
pub(super) fn question(words: Cursor<'_>, scope: &Scope, receivers: &[String]) -> String {
    format!("Can you say {}?", reworded(words, scope, receivers))
}

fn reworded(words: Cursor<'_>, scope: &Scope, receivers: &[String]) -> String {
    let mut heard = scope.clone();
    let mut text = String::new();
    let mut end = None;
    for (at, token) in words.places().filter_map(|at| at.first().map(|token| (at, token))) {
        if let Some(end) = end {
            text.push_str(words.between(end, token.start));
        }
        let before = words.up_to(at).last();
        match replacement(before, at, &heard, receivers) {
            Some(word) => text.push_str(&word),
            None => text.push_str(words.between(token.start, token.end)),
        }
        if let Some(name) = mentioned(before, token, &heard) {
            heard.last = vec![name];
        }
        // From here on "it" is a file that the receiver reads about, too.
        if path_of(token).is_some() {
            heard.file = None;
        }
        end = Some(token.end);
    }
    text
}

/// The agent that a word of an order names: one that is known, or to whom something is given.
pub(super) fn mentioned(before: Option<&Token>, token: &Token, scope: &Scope) -> Option<String> {
    let name = name_of(token)?;
    let noun = [MESSAGE_NOUN, OUTCOME_NOUN].iter().any(|nouns| nouns.contains(&name.as_str()));
    let given = before.is_some_and(|word| GIVING.contains(&word.low.as_str()));
    (scope.knows(&name) || given && !noun && !is_verb(&name)).then_some(name)
}

/// What stands for a pronoun; `None` when the word stays.
fn replacement(
    before: Option<&Token>,
    at: Cursor<'_>,
    scope: &Scope,
    receivers: &[String],
) -> Option<String> {
    let who = |names: &[String]| match names {
        [] => None,
        _ if names.iter().all(|name| receivers.contains(name)) => Some("you".to_owned()),
        _ => Some(names.join(" and ")),
    };
    let last = scope.last.last().map(std::slice::from_ref).unwrap_or_default();
    let whose = |name: String| if name == "you" { "your".into() } else { format!("{name}'s") };
    let are_meant = || {
        let subject = before.map(|word| word.low.as_str());
        matches!(subject, Some("he" | "she")) && who(last).is_some_and(|who| who == "you")
    };
    match at.word() {
        "him" | "he" | "she" => who(last),
        "them" | "they" => who(scope.they()),
        "her" if is_object(before, at.skip(1)) => who(last),
        "her" | "his" => who(last).map(whose),
        "their" => who(scope.they()).map(whose),
        "himself" | "herself" | "themselves" => {
            who(last).filter(|who| who == "you").map(|_| "yourself".into())
        }
        "is" if are_meant() => Some("are".into()),
        "has" if are_meant() => Some("have".into()),
        "was" if are_meant() => Some("were".into()),
        "me" | "i" | "us" => Some(scope.giver_seen_by_others()),
        "you" => Some(scope.seen_by_others()),
        "your" => Some(whose(scope.seen_by_others())),
        "my" | "our" => Some(whose(scope.giver_seen_by_others())),
        "it" if before.is_some_and(|word| stands_for_file(&word.low)) => scope.file.clone(),
        "its" => scope.file.as_ref().map(|file| format!("{file}'s")),
        _ => None,
    }
}

/// Whether "it" behind this word may be a file.
fn stands_for_file(before: &str) -> bool {
    is_verb(before) || matches!(before, "that" | "whether" | "if" | "in" | "from" | "of" | "to")
}

/// Whether "her" is the person, not what she owns.
fn is_object(before: Option<&Token>, after: Cursor<'_>) -> bool {
    const AFTER: &[&str] = &[
        "to", "that", "a", "an", "the", "if", "whether", "about", "and", "or", "then", "what",
        "how", "when", "who", "why", "know", "saying", "for", "with", "by", "of", "in", "on",
        "some", "down", "off", "go",
    ];
    after.first().is_none_or(|next| next.kind != Kind::Word || AFTER.contains(&next.low.as_str()))
        || before.is_some_and(|word| GIVING.contains(&word.low.as_str()))
}

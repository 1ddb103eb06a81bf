//! How the words of a command become the words of a message: orders in the imperative, pronouns
//! replaced by what they mean to the receiver.

use super::super::cursor::Cursor;
use super::super::lexer::{Kind, Token};
use super::super::lexicon::is_verb;
use super::super::scope::{Scope, path_of};

/// An order as one sentence: "send her a note" -> "Send alice a note."
pub(super) fn imperative(order: Cursor<'_>, scope: &Scope, receiver: &str) -> String {
    let text = reworded(order, scope, receiver);
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
pub(super) fn question(words: Cursor<'_>, scope: &Scope, receiver: &str) -> String {
    format!("Can you say {}?", reworded(words, scope, receiver))
}

fn reworded(words: Cursor<'_>, scope: &Scope, receiver: &str) -> String {
    let mut text = String::new();
    let mut end = None;
    let mut file = scope.file.as_deref();
    for (at, token) in words.places().filter_map(|at| at.first().map(|token| (at, token))) {
        if let Some(end) = end {
            text.push_str(words.between(end, token.start));
        }
        let before = words.up_to(at).last();
        match replacement(before, at, scope, receiver, file) {
            Some(word) => text.push_str(&word),
            None => text.push_str(words.between(token.start, token.end)),
        }
        // From here on "it" is a file that the receiver reads about, too.
        if path_of(token).is_some() {
            file = None;
        }
        end = Some(token.end);
    }
    text
}

/// What stands for a pronoun; `None` when the word stays.
fn replacement(
    before: Option<&Token>,
    at: Cursor<'_>,
    scope: &Scope,
    receiver: &str,
    file: Option<&str>,
) -> Option<String> {
    let who = |names: &[String]| {
        let names: Vec<_> =
            names.iter().map(|name| if name == receiver { "you" } else { name }).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    };
    let last = scope.last.last().map(std::slice::from_ref).unwrap_or_default();
    let whose = |name: String| if name == "you" { "your".into() } else { format!("{name}'s") };
    match at.word() {
        "him" | "he" | "she" => who(last),
        "them" | "they" => who(&scope.last),
        "her" if is_object(before, at.skip(1)) => who(last),
        "her" | "his" => who(last).map(whose),
        "me" | "i" | "us" => Some(scope.giver_seen_by_others()),
        "my" | "our" => Some(whose(scope.giver_seen_by_others())),
        "it" if before.is_some_and(|word| is_verb(&word.low)) => file.map(str::to_owned),
        "its" => file.map(|file| format!("{file}'s")),
        _ => None,
    }
}

/// Whether "her" is the person, not what she owns.
fn is_object(before: Option<&Token>, after: Cursor<'_>) -> bool {
    const AFTER: &[&str] = &[
        "to", "that", "a", "an", "the", "if", "whether", "about", "and", "or", "then", "what",
        "how", "when", "who", "why", "know", "saying", "for", "with", "by", "of", "in", "on",
        "some", "down", "off", "go",
    ];
    const GIVING: &[&str] = &[
        "send", "tell", "ask", "give", "message", "show", "write", "let", "have", "inform", "ping",
    ];
    after.first().is_none_or(|next| next.kind != Kind::Word || AFTER.contains(&next.low.as_str()))
        || before.is_some_and(|word| GIVING.contains(&word.low.as_str()))
}

//! Questions about mail and about who is on the team.

use super::super::cursor::Cursor;
use super::super::intent::Intent;
use super::super::lexer::Kind;
use super::super::lexicon::{LOOK, QUESTION, TASK_NOUN};
use super::super::scope::{Party, Scope, owner, path_of};
use super::Parsed;

const MAIL: &[&str] = &["inbox", "mailbox", "mail", "mails", "messages", "inbox's", "post"];
const RESULT: &[&str] = &[
    "result",
    "results",
    "report",
    "reports",
    "answer",
    "answers",
    "reply",
    "replies",
    "message",
    "response",
    "responses",
    "news",
    "word",
    "output",
    "findings",
];
const TEAM: &[&str] = &[
    "team",
    "roster",
    "teammates",
    "members",
    "agents",
    "crew",
    "teammate",
    "workers",
    "team's",
    "everyone",
    "everybody",
    "anyone",
    "anybody",
    "somebody",
    "status",
    "statuses",
];
const ABOUT_PEOPLE: &[&str] = &[
    "around",
    "alive",
    "idle",
    "working",
    "running",
    "there",
    "online",
    "active",
    "here",
    "busy",
    "available",
    "finished",
    "done",
    "ready",
    "up",
    "doing",
];

/// Whether the giver must be meant: a look at the team, or at the lead's own inbox.
pub(super) fn begins_looking(at: Cursor<'_>) -> bool {
    let clause = at.take(at.places().position(|at| at.is(Kind::Comma)).unwrap_or(at.len()));
    let own_inbox = clause.has(MAIL) && clause.has(&["lead", "lead's", "my", "our"]);
    looks(at) && (shows_team(clause) || own_inbox)
}

/// "Check the inbox", "any mail from bob?", "show me alice's answer"
pub(super) fn inbox<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let bare = at.after(&["inbox", "mail", "messages", "/inbox"]).is_some_and(Cursor::is_empty);
    let asks = bare || looks(at) || at.after(QUESTION).is_some();
    let whose_result = at.places().find(|at| {
        let owned = whose(at.word()).is_some() || matches!(at.word(), "his" | "her" | "their");
        owned && at.skip(1).has(RESULT) && at.skip(1).places().take(3).any(|at| is_any(at, RESULT))
    });
    let came =
        at.after(&["any", "is there any", "are there any", "did", "has", "do i have", "what did"]);
    let from =
        at.has(&["from", "reply", "replied", "answered", "reported", "answer", "say", "said"]);
    let mail = bare || at.has(MAIL) || whose_result.is_some() || (came.is_some() && from);
    if !asks || !mail || at.tokens().iter().any(|token| path_of(token).is_some()) {
        return None;
    }
    let rest = at.skip(at.len());
    if let Some(name) = foreign_inbox(at, scope) {
        let why = format!("only {name} reads the inbox of {name}; look with `team inbox {name}`");
        return Some(Parsed { intents: vec![Intent::Unable(why)], rest });
    }
    let about = sender(at, scope).filter(|name| *name != scope.me);
    Some(Parsed { intents: vec![Intent::ReadInbox { about }], rest })
}

/// "Show the team", "who is idle?", "what is everyone doing?", "/team"
pub(super) fn roster<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let files = at.has(&["file", "files", "folder", "directory", "contents", "content"]);
    let named = at.tokens().iter().any(|token| path_of(token).is_some_and(|path| path != "/team"));
    let direct = at.after(&["/team", "team status", "team", "roster", "status"]);
    let direct = direct.is_some_and(Cursor::is_empty);
    let asks = looks(at) && shows_team(at) || asks_who(at, scope);
    let tasks = at.has(TASK_NOUN);
    (direct || (asks && !files && !named && !tasks))
        .then(|| Parsed { intents: vec![Intent::ListTeam], rest: at.skip(at.len()) })
}

fn shows_team(at: Cursor<'_>) -> bool {
    at.has(TEAM)
        || at.after(LOOK).is_some_and(|rest| rest.after(&["who", "who is", "who's"]).is_some())
}

fn asks_who(at: Cursor<'_>, scope: &Scope) -> bool {
    let who = at.after(&["who", "who's", "who all", "which"]).is_some();
    let what = at.after(&["what", "what's", "how", "how's", "is", "are", "has"]).is_some();
    let member = at.tokens().iter().any(|token| scope.knows(&token.low));
    (who && (at.has(TEAM) || at.has(ABOUT_PEOPLE)))
        || (what && (at.has(TEAM) || member && at.has(ABOUT_PEOPLE)))
}

fn looks(at: Cursor<'_>) -> bool {
    at.after(LOOK).is_some()
}

fn is_any(at: Cursor<'_>, words: &[&str]) -> bool {
    words.contains(&at.word())
}

/// Whose inbox it is, when it is not the reader's own.
fn foreign_inbox(at: Cursor<'_>, scope: &Scope) -> Option<String> {
    let place = at.places().find(|at| is_any(*at, &["inbox", "mailbox"]))?;
    let before = at.up_to(place).last()?;
    let name = match before.low.as_str() {
        "lead" => "lead",
        "her" | "his" => scope.last.last()?.as_str(),
        word => owner(word)?,
    };
    (name != scope.me).then(|| name.to_owned())
}

/// Whose mail is looked for.
fn sender(at: Cursor<'_>, scope: &Scope) -> Option<String> {
    let mail = at.places().position(|at| is_any(at, MAIL)).map_or(at, |place| at.skip(place + 1));
    let after = mail.places().find_map(|place| {
        if let Some(name) = whose(place.word()) {
            return Some(name.to_owned());
        }
        if matches!(place.word(), "her" | "his") {
            return scope.last.last().cloned();
        }
        let named = place.after(&["from", "by", "did", "has"])?;
        match scope.party(named)?.0 {
            Party::Names(senders) => senders.into_iter().next(),
            Party::Everyone => None,
        }
    });
    let known = scope.agents.iter().map(|(name, _)| name).find(|name| mail.has(&[name]));
    after.or_else(|| known.cloned())
}

/// The agent in "alice's", but not the "what" in "what's".
fn whose(word: &str) -> Option<&str> {
    const CONTRACTED: &[&str] =
        &["what", "who", "it", "there", "that", "here", "lead", "let", "how", "he", "she", "where"];
    owner(word).filter(|name| !TEAM.contains(name) && !CONTRACTED.contains(name))
}

//! Who and what the words of a command stand for: names, pronouns, roles, "it".
//!
//! The scope is carried through a whole conversation: it is what the rehearsal remembers.

use super::cursor::Cursor;
use super::lexer::{Kind, Token};
use super::lexicon::{AND, EVERYONE, NO_NAME, is_verb};

/// More names than any team has stand in no command.
const MAX_PARTY: usize = 64;

/// What has been said so far, as far as later words refer to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// The agent that reads the command.
    pub(super) me: String,
    /// Who gives the command: what "me" means in it.
    pub(super) giver: String,
    /// Agents that were started, with their roles.
    pub(super) agents: Vec<(String, String)>,
    /// The agents named last: what "her" means.
    pub(super) last: Vec<String>,
    /// The last that were named together: what "them" means while one of them is spoken of.
    pub(super) group: Vec<String>,
    /// The file named last: what "it" means.
    pub(super) file: Option<String>,
    /// The task named last.
    pub(super) task: Option<String>,
    /// Plans that were submitted to this agent: by whom, and their requests.
    pub(super) plans: Vec<(String, String)>,
}

/// Whom a command concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Party {
    /// These agents.
    Names(Vec<String>),
    /// All of them.
    Everyone,
}

impl Scope {
    /// What others call the agent that a command addresses as "you".
    pub(super) fn seen_by_others(&self) -> String {
        if self.me == "lead" { "the lead".into() } else { self.me.clone() }
    }

    /// Where an agent's own words are meant to arrive when a command says "me".
    pub(super) fn giver_seen_by_others(&self) -> String {
        if self.me == "lead" { "the lead".into() } else { format!("the {}", self.giver) }
    }

    /// Whether an agent of this name was started.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.agents.iter().any(|(known, _)| known == name)
    }

    /// Remembers who is spoken of.
    pub(super) fn mention(&mut self, party: &Party) {
        self.last = match party {
            Party::Names(names) => names.clone(),
            Party::Everyone => self.agents.iter().map(|(name, _)| name.clone()).collect(),
        };
        if self.last.len() > 1 {
            self.group.clone_from(&self.last);
        }
    }

    /// Those that "they" stands for.
    pub(super) fn they(&self) -> &[String] {
        let in_group = self.last.iter().all(|name| self.group.contains(name));
        if in_group && !self.group.is_empty() { &self.group } else { &self.last }
    }

    /// Reads "alice", "alice, bob and carol", "her", "the tester", "everyone".
    pub(super) fn party<'a>(&self, at: Cursor<'a>) -> Option<(Party, Cursor<'a>)> {
        if let Some(rest) = at.after(EVERYONE) {
            // "all files": a noun follows, so nobody is meant.
            let goes_on = at.word() == "all"
                && at.len() - rest.len() == 1
                && rest.first().is_some_and(is_name_like);
            if !goes_on {
                return Some((Party::Everyone, rest));
            }
        }
        let (mut names, mut rest) =
            self.one(at).or_else(|| self.one(at.after(&["both", "either"])?))?;
        while let Some(next) = rest.after(AND).map(|next| next.past(AND))
            && names.len() < MAX_PARTY
        {
            // "ask alice and run ls": a verb ends the list.
            let goes_on = !is_verb(next.word()) || self.knows(next.word());
            let Some((more, after)) = self.one(next).filter(|_| goes_on) else { break };
            names.extend(more);
            rest = after;
        }
        let mut seen = Vec::new();
        names.retain(|name| {
            !seen.contains(name) && {
                seen.push(name.clone());
                true
            }
        });
        Some((Party::Names(names), rest))
    }

    /// One agent, or the group a pronoun stands for.
    fn one<'a>(&self, at: Cursor<'a>) -> Option<(Vec<String>, Cursor<'a>)> {
        let both = ["both of them", "the two of them", "the two", "these two", "both of you"];
        if let Some(rest) = at.after(&both).filter(|_| !self.they().is_empty()) {
            return Some((self.they().to_vec(), rest));
        }
        let last = || self.last.last().map(|name| vec![name.clone()]);
        let found = match at.word() {
            "him" | "her" | "he" | "she" | "it" | "himself" | "herself" => last()?,
            "them" | "they" if !self.they().is_empty() => self.they().to_vec(),
            "me" | "myself" => vec![self.giver.clone()],
            "yourself" | "you" => vec![self.me.clone()],
            "the" | "your" | "our" | "my" => return self.described(at.skip(1)),
            "teammate" | "agent" | "member" if at.skip(1).first().is_some_and(is_name_like) => {
                return self.one(at.skip(1));
            }
            _ => vec![name_of(at.first()?)?],
        };
        Some((found, at.skip(1)))
    }

    /// "the lead", "the tester": somebody named by role.
    fn described<'a>(&self, at: Cursor<'a>) -> Option<(Vec<String>, Cursor<'a>)> {
        if let Some(rest) = at.after(&["lead", "team lead", "leader", "team leader"]) {
            return Some((vec!["lead".into()], rest));
        }
        if let Some(rest) = at.after(&["user", "person"]) {
            return Some((vec!["user".into()], rest));
        }
        let by_role = self.agents.iter().filter_map(|(name, role)| {
            let role = role.to_lowercase();
            let last = role.split(' ').next_back()?.to_owned();
            let rest = at.after(&[role.as_str()]).or_else(|| at.after(&[last.as_str()]))?;
            Some((vec![name.clone()], rest))
        });
        let teammate = || {
            let rest = at.after(&["teammate", "agent"])?;
            let (names, rest) = self.one(rest)?;
            Some((names, rest))
        };
        by_role.min_by_key(|(_, rest)| rest.len()).or_else(teammate)
    }
}

/// The name a token stands for, as the team writes it.
pub(super) fn name_of(token: &Token) -> Option<String> {
    is_name_like(token).then(|| plain(&token.low).to_owned())
}

/// Whether a token could be a name: one word of letters, digits, `_` and `-` that steers nothing.
pub(super) fn is_name_like(token: &Token) -> bool {
    let name = plain(&token.low);
    token.kind == Kind::Word
        && name.starts_with(char::is_alphabetic)
        && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
        && !NO_NAME.contains(&name)
}

/// Whose something is: "alice" of "alice's".
pub(super) fn owner(word: &str) -> Option<&str> {
    word.strip_suffix("'s").filter(|name| !name.is_empty())
}

fn plain(word: &str) -> &str {
    word.strip_suffix("-").unwrap_or(word)
}

/// The file a token names, when it looks like one.
pub(super) fn path_of(token: &Token) -> Option<String> {
    const KNOWN: &[&str] = &["makefile", "dockerfile", "license", "readme", "changelog", "gemfile"];
    let text = owner(&token.text).unwrap_or(&token.text);
    let text = text.strip_suffix("’s").unwrap_or(text);
    let is_word = token.kind == Kind::Word;
    let shaped = text.contains('/')
        || text.rsplit_once('.').is_some_and(|(_, end)| {
            (1..=10).contains(&end.len()) && end.starts_with(char::is_alphabetic)
        });
    let known = is_word && KNOWN.contains(&token.low.as_str());
    let fits = matches!(token.kind, Kind::Word | Kind::Quoted)
        && !text.contains("://")
        && !text.contains(char::is_whitespace)
        && text.chars().any(char::is_alphanumeric);
    (fits && (shaped || known)).then(|| text.to_owned())
}

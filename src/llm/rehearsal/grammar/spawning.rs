//! Starting teammates: names and roles in whatever order English puts them.

use super::super::cursor::Cursor;
use super::super::intent::Intent;
use super::super::lexer::Kind;
use super::super::lexicon::{
    AGENT_NOUN, AND, ARTICLE, COUNT, FILLER, SPAWN, SPAWN_MAYBE, THEN, is_verb,
};
use super::super::scope::{Party, Scope, is_name_like, name_of, path_of};
use super::{Parsed, Until, extent, wording};

/// The role of a teammate that got none.
const DEFAULT_ROLE: &str = "teammate";

/// Between a description of an agent and its name.
const CALLED: &[&str] =
    &["named", "called", "by the name of", "with the name", "known as", "whose name is"];

/// Between the name of an agent and its role.
const AS: &[&str] = &[
    "as",
    ", as",
    "to be",
    "to act as",
    "to work as",
    "to serve as",
    "acting as",
    "who is",
    ", who is",
    "who acts as",
    "in the role",
    "in the role of",
    "for the role of",
    "with role",
    "with role :",
    "with the role",
    "with the role of",
    "with the role :",
    "whose role is",
    "role :",
    ", role :",
];

/// Words that end a role.
const ROLE_ENDS: &[&str] = &[
    "and", "&", "plus", "then", "to", "who", "that", "named", "called", "with", "as", "for",
    "while", "please", "now", "whose", "which", "by", "but", "also", "if", "when", "because",
    "after", "once", "known", "unless", "until", "in",
];

/// What a new agent is told, in the words of people.
const PROMPT: &[&str] =
    &["prompt", "the prompt", "instructions", "the instructions", "task", "the task", "job"];

/// Behind an agent that must submit a plan before it changes anything.
const IN_PLAN_MODE: &[&str] =
    &["in plan mode", "in mode plan", "with mode plan", "with the mode plan", "in planning mode"];

/// An agent as it was asked for.
struct Wanted {
    name: String,
    role: Option<String>,
    /// The role was given in the plural, so it is everybody's who has none.
    shared: bool,
}

/// Whether only a lead could be meant to do what stands here: starting somebody.
pub(super) fn begins_spawning(at: Cursor<'_>) -> bool {
    let object = at.after(SPAWN).or_else(|| at.after(SPAWN_MAYBE));
    object.and_then(wanted).is_some_and(|(found, _)| found.iter().all(|agent| agent.role.is_some()))
}

/// "Hire x (coder) and y (tester)", "start two testers named x and y", …
pub(super) fn spawn<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let surely = at.after(SPAWN);
    let (agents, rest) = wanted(surely.or_else(|| at.after(SPAWN_MAYBE))?)?;
    // "Create a poster": what has no name of its own, or no role, may be a thing.
    let is_agent = |agent: &Wanted| {
        agent.role.as_ref().is_some_and(|role| !role.to_lowercase().ends_with(&agent.name))
    };
    if surely.is_none() && !agents.iter().all(is_agent) {
        return None;
    }
    let agents: Vec<_> = agents
        .into_iter()
        .map(|agent| (agent.name, agent.role.unwrap_or_else(|| DEFAULT_ROLE.into())))
        .collect();
    for (name, _) in &agents {
        scope.agents.retain(|(known, _)| known != name);
    }
    scope.agents.extend(agents.iter().cloned());
    scope.mention(&Party::Names(agents.iter().map(|(name, _)| name.clone()).collect()));
    let planned = rest.past(&[","]).after(IN_PLAN_MODE);
    let mode = planned.map(|_| "plan");
    let (task, rest) = first_task(planned.unwrap_or(rest), scope);
    let intents = agents.into_iter().map(|(name, role)| Intent::Spawn {
        name,
        role,
        task: task.clone(),
        mode,
    });
    Some(Parsed { intents: intents.collect(), rest })
}

/// A list of agents, perhaps with their number and a common role before it.
fn wanted(at: Cursor<'_>) -> Option<(Vec<Wanted>, Cursor<'_>)> {
    let object = at.past(&["me", "us", "also", ":"]);
    let (common, first) = match object.past(ARTICLE).after(COUNT) {
        Some(kind) => {
            let words = kind.take(role_length(kind));
            let names = kind.skip(words.len()).past(&[",", ":"]).past(CALLED).past(&[":"]);
            (role_of(words).map(|role| singular(&role)), names)
        }
        None => (None, object),
    };
    let (agent, mut rest) = one(first)?;
    let mut agents = vec![agent];
    while let Some((more, after)) = rest
        .after(AND)
        .map(|next| next.past(AND))
        .filter(|next| {
            !is_verb(next.word()) && next.after(THEN).is_none() && next.after(PROMPT).is_none()
        })
        .and_then(one)
    {
        agents.push(more);
        rest = after;
    }
    let shared = agents.last().filter(|last| last.shared).and_then(|last| last.role.clone());
    let shared = shared.or(common);
    for agent in agents.iter_mut().filter(|agent| agent.role.is_none()) {
        agent.role.clone_from(&shared);
    }
    Some((agents, rest))
}

fn one(at: Cursor<'_>) -> Option<(Wanted, Cursor<'_>)> {
    if at.skip(1).is(Kind::Open) {
        return named_first(at);
    }
    let described = at.past(ARTICLE);
    let general = described.after(AGENT_NOUN).is_some();
    if described.len() < at.len() || general { described_first(described) } else { named_first(at) }
}

/// "alice", "alice (coder)", "alice as a coder", "alice, the coder"
fn named_first(at: Cursor<'_>) -> Option<(Wanted, Cursor<'_>)> {
    let name = proper_name(at)?;
    let rest = at.skip(1);
    if rest.is(Kind::Open) {
        let close = rest.places().position(|at| at.is(Kind::Close)).unwrap_or(rest.len());
        let role = rest.take(close).skip(1).past(&["role", ":", "a", "an", "the"]);
        return Some((Wanted::new(name, role), rest.skip(close + 1)));
    }
    let dashed = rest.is(Kind::Colon)
        || rest.first().is_some_and(|token| matches!(token.text.as_str(), "-" | "–" | "—"));
    let dashed = Some(rest.skip(1)).filter(|role| dashed && !is_verb(role.word()));
    let apposed = rest.past(&[","]).after(&["the", "a", "an", "our"]);
    let Some(marked) = rest.after(AS).or(apposed).or(dashed) else {
        return Some((Wanted { name, role: None, shared: false }, rest));
    };
    let bare = marked.past(&["both", ":"]);
    let role = bare.past(ARTICLE);
    let words = role.take(if role.is(Kind::Quoted) { 1 } else { role_length(role) });
    let mut agent = Wanted::new(name, words);
    agent.shared =
        apposed.or(dashed).is_none() && role.len() == bare.len() && words.text().ends_with('s');
    if agent.shared {
        agent.role = agent.role.map(|role| singular(&role));
    }
    Some((agent, role.skip(words.len())))
}

/// "backend developer named alice", "teammate bob as a tester", "tester" (which is its name, too)
fn described_first(at: Cursor<'_>) -> Option<(Wanted, Cursor<'_>)> {
    if let Some(found) = at.after(AGENT_NOUN).and_then(named_first) {
        return Some(found);
    }
    let words = at.take(role_length(at));
    let rest = at.skip(words.len());
    let role = role_of(words);
    if let Some(name) = rest.past(&[","]).after(CALLED) {
        let (mut agent, rest) = named_first(name)?;
        let general = words.places().any(|at| at.after(AGENT_NOUN).is_some());
        let default = general.then(|| DEFAULT_ROLE.to_owned());
        let kind = role.filter(|_| general || is_person(words)).or(default);
        agent.role = agent.role.or(kind);
        return Some((agent, rest));
    }
    let name = words.last().filter(|_| is_person(words)).and_then(name_of)?;
    Some((Wanted { name, role, shared: false }, rest))
}

/// Whether a description is that of somebody, not of a thing: "tester", "db-expert", "analyst".
fn is_person(words: Cursor<'_>) -> bool {
    const PERSON: &[&str] = &[
        "er", "or", "ist", "ant", "ect", "yst", "lead", "expert", "dev", "critic", "qa", "ian",
        "eer",
    ];
    const THING: &[&str] = &[
        "folder",
        "server",
        "container",
        "header",
        "footer",
        "paper",
        "letter",
        "order",
        "error",
        "number",
        "list",
        "object",
        "project",
        "document",
        "editor",
        "parser",
        "timer",
        "router",
    ];
    words.last().is_some_and(|last| {
        PERSON.iter().any(|end| last.low.ends_with(end)) && !THING.contains(&last.low.as_str())
    })
}

/// What the new agents are to do at once, behind their description.
fn first_task<'a>(at: Cursor<'a>, scope: &Scope) -> (String, Cursor<'a>) {
    const WITH: &[&str] = &[
        "with the prompt",
        "with prompt",
        "with the instructions",
        "with the instruction",
        "with the task",
        "with the job",
        "with instructions",
        "with the task of",
        "and prompt",
        "with the message",
        "with this prompt",
        "with this task",
        "whose task is",
        "whose job is",
    ];
    const PURPOSE: &[&str] =
        &["to", "who should", "who must", "who will", "that should", "who can", "who shall"];
    let at = at.past(FILLER);
    let with = at.after(WITH).or_else(|| at.past(AND).after(PROMPT));
    let with = with.map(|task| task.past(&[":", "to"]));
    if let Some(task) = with
        && let Some(quote) = task.first().filter(|token| token.kind == Kind::Quoted)
    {
        return (quote.text.clone(), task.skip(1));
    }
    let purpose = at.after(PURPOSE).filter(|task| task.first().is_some_and(is_name_like));
    let Some(task) = with.or(purpose) else { return (String::new(), at) };
    let length = extent(task, Until::Handover, scope);
    (wording::imperative(task.take(length), scope, &scope.last), task.skip(length))
}

/// How many words belong to the role at the begin.
fn role_length(at: Cursor<'_>) -> usize {
    let ends = |at: Cursor<'_>| {
        !at.is(Kind::Word)
            || ROLE_ENDS.contains(&at.word())
            || at.after(THEN).is_some()
            || at.first().is_some_and(|token| path_of(token).is_some())
    };
    at.places().position(ends).unwrap_or(at.len())
}

/// The role in a description, without the general noun at its end: "coding agent" -> "coding".
fn role_of(words: Cursor<'_>) -> Option<String> {
    let ends = |at: Cursor<'_>| at.after(AGENT_NOUN).is_some_and(Cursor::is_empty);
    let general = words.places().position(ends).unwrap_or(words.len());
    let role = words.take(general).text();
    (!role.is_empty()).then(|| role.to_owned())
}

/// A name, also one that breaks the rule for names: the tool explains it better.
fn proper_name(at: Cursor<'_>) -> Option<String> {
    let token = at.first()?;
    let written = token.text.trim_matches('*').to_lowercase();
    let quoted = token.kind == Kind::Quoted && !written.contains(char::is_whitespace);
    let numbered = token.low.starts_with(|c: char| c.is_ascii_digit());
    let marked = token.kind == Kind::Word && at.skip(1).is(Kind::Open);
    match name_of(token) {
        Some(name) => Some(name),
        None if !written.is_empty() && (quoted || numbered || marked) => Some(written),
        None => None,
    }
}

fn singular(role: &str) -> String {
    let plural = role.ends_with('s') && !role.ends_with("ss");
    role.strip_suffix('s').filter(|_| plural).unwrap_or(role).to_owned()
}

impl Wanted {
    fn new(name: String, role: Cursor<'_>) -> Self {
        let words = match role.first() {
            Some(token) if token.kind == Kind::Quoted => token.text.as_str(),
            Some(_) | None => role.text(),
        };
        Self { name, role: (!words.is_empty()).then(|| words.to_owned()), shared: false }
    }
}

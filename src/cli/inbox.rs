//! `team inbox NAME`: what waits there and what was taken in; with `--drain`, taking it as the owner.

use super::args::InboxArgs;
use super::build_agent::{LETTING_GO, block_on, fresh_word, let_go, open_mailbox, take_name};
use super::context::{Context, mailbox_name, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::settings::Flags;
use crate::store::{TeamDir, read_cursor, unread};
use crate::ui::messages::{self, Standing};
use crate::ui::view::View;
use crate::wire::AgentName;
use crate::wire::message::Message;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the files are looked at with `--follow`.
const LOOK_EVERY: Duration = Duration::from_millis(100);

type Raw = Map<String, Value>;

pub(super) fn run(context: &Context, args: &InboxArgs) -> Result<Exit, Failure> {
    let team = context.team()?;
    let name = mailbox_name(&args.name)?;
    if !team.inbox(&name).exists() {
        let what = format!("{name} has no inbox");
        let why = "nobody of that name belongs to this team";
        return Err(Failure::new(Exit::Failure, what, why, "`team ls` shows who is there"));
    }
    if args.drain {
        return drain(context, &team, &name, args.show.json);
    }
    if args.follow {
        return follow(context, &team, &name, args.show.json);
    }
    let items = look(&team, &name)?;
    let printed = if args.show.json {
        let messages: Vec<Value> =
            items.into_iter().map(|(raw, state)| marked(raw, state)).collect();
        out::say_json(&json!({ "schema": 1, "owner": name.as_str(), "messages": messages }))
    } else {
        out::say(&render(&name, items, &context.view()))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

/// What was taken in since the person last looked, then what is unread.
pub(super) fn look(team: &TeamDir, name: &AgentName) -> Result<Vec<(Raw, Standing)>, Failure> {
    // Unread first: mail that is taken in between the two looks is in both rather than in neither.
    let unread = unread(team, name)?;
    let taken = read_cursor::since_last_look(team, name).map_err(store_failure)?;
    let known: BTreeSet<String> = taken.iter().map(identity).collect();
    let unread = unread.into_iter().filter(|raw| !known.contains(&identity(raw)));
    let taken = taken.into_iter().map(|raw| (raw, Standing::TakenIn));
    Ok(taken.chain(unread.map(|raw| (raw, Standing::Unread))).collect())
}

/// The lines that wait and are messages; what is none will become a dead letter.
fn unread(team: &TeamDir, name: &AgentName) -> Result<Vec<Raw>, Failure> {
    let waiting = unread::waiting(team, name).map_err(store_failure)?;
    Ok(waiting.into_iter().filter_map(|waiting| waiting.object).collect())
}

/// The view of `/inbox` and `team inbox`.
pub(super) fn render(name: &AgentName, items: Vec<(Raw, Standing)>, view: &View) -> String {
    let items: Vec<(Message, Standing)> = items
        .into_iter()
        .filter_map(|(raw, standing)| Some((Message::read(&raw).ok()?, standing)))
        .collect();
    messages::inbox(name.as_str(), &items, view)
}

fn marked(mut raw: Raw, standing: Standing) -> Value {
    let state = match standing {
        Standing::Unread => "unread",
        Standing::TakenIn => "taken_in",
    };
    raw.insert("state".into(), state.into());
    Value::Object(raw)
}

/// Takes the mail, as the owner: only while nobody else holds the name.
fn drain(context: &Context, team: &TeamDir, name: &AgentName, json: bool) -> Result<Exit, Failure> {
    context.refuse_inside("inbox --drain")?;
    let life = take_name(team, name, &fresh_word(), &fresh_word(), "hand")?;
    let rules = context.settings(&Flags::default())?.rules();
    let mailbox = Arc::new(Mutex::new(open_mailbox(team, name, &life, rules)?));
    let mail = mailbox.lock().unwrap_or_else(PoisonError::into_inner).drain();
    let mail = mail.map_err(store_failure)?;
    let view = context.view();
    let mut read = true;
    for mail in mail.mail {
        read &= if json {
            out::say_json(&Value::Object(mail.object()))
        } else {
            out::say(&messages::message(&mail.message, &view))
        };
    }
    block_on(let_go(mailbox, LETTING_GO))?;
    drop(life);
    Ok(if read { Exit::Ok } else { Exit::Failure })
}

/// Shows every message once: those unread now, then whatever comes, also when the owner takes it in
/// before this command sees it in the inbox.
fn follow(
    context: &Context,
    team: &TeamDir,
    name: &AgentName,
    json: bool,
) -> Result<Exit, Failure> {
    let mut taken_tail = read_cursor::mail_from_now_on(team, name).map_err(store_failure)?;
    // What was shown as unread, by identity, until it is seen as taken in.
    let mut shown: BTreeMap<String, u32> = BTreeMap::new();
    let view = context.view();
    let print = |raw: &Raw| {
        if json {
            return out::say_json(&Value::Object(raw.clone()));
        }
        let message = Message::read(raw);
        message.map_or(true, |message| out::say(&messages::message(&message, &view)))
    };
    let mut just_taken: BTreeSet<String> = BTreeSet::new();
    block_on(async {
        loop {
            for raw in taken_tail.read_new().map_err(store_failure)? {
                let identity = identity(&raw);
                match shown.get_mut(&identity) {
                    Some(count) if *count > 0 => *count -= 1,
                    Some(_) | None => {
                        if !print(&raw) {
                            return Ok(Exit::Ok);
                        }
                    }
                }
                just_taken.insert(identity);
            }
            // A claim may still be there for a moment after its mail was taken in.
            let listed = unread(team, name)?;
            let identities: Vec<String> = listed.iter().map(identity).collect();
            let mut waiting: BTreeMap<&str, u32> = BTreeMap::new();
            for (raw, identity) in listed.iter().zip(&identities) {
                if just_taken.contains(identity) {
                    continue;
                }
                let count = waiting.entry(identity).or_default();
                *count += 1;
                let before = shown.entry(identity.clone()).or_default();
                if *before < *count {
                    *before += 1;
                    if !print(raw) {
                        return Ok(Exit::Ok);
                    }
                }
            }
            just_taken.retain(|identity| identities.contains(identity));
            shown.retain(|_, count| *count > 0);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    })?
}

/// What makes a message the same one before and after it was taken in; lines without an id get one
/// only then.
fn identity(raw: &Raw) -> String {
    match raw.get("id").and_then(Value::as_str).filter(|id| !id.starts_with("raw-")) {
        Some(id) => id.to_owned(),
        None => {
            let mut raw = raw.clone();
            raw.shift_remove("id");
            Value::Object(raw).to_string()
        }
    }
}

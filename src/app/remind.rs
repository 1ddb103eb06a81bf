//! The timers of members as the user sets, lists and cancels them.

use super::context::Context;
use super::names::{mailbox_name, unknown_name};
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock};
use crate::protocol::timers::{SetOutcome, TimerRecord};
use crate::store::timers::{AllTimers, MemberTimers};
use crate::store::{StoreError, TeamDir, liveness, roster};
use crate::timers::{self, TimerError, TimerOrder, When, when_in_words};
use crate::ui::style::Palette;
use crate::ui::tables::{TimerRow, timer_table};
use crate::wire::AgentName;
use crate::wire::nearest::nearest;
use serde_json::{Value, json};

/// A timer that was set.
pub(crate) struct SetTimer {
    owner: AgentName,
    timer: TimerRecord,
    /// Whether the member runs; otherwise it gets the reminder when it next starts.
    is_running: bool,
}

impl SetTimer {
    pub(crate) fn json(&self) -> Value {
        let Self { owner, timer, is_running } = self;
        json!({ "schema": 1, "to": owner.as_str(), "timer": timer, "is_running": is_running })
    }

    pub(crate) fn text(&self) -> String {
        let Self { owner, timer, is_running } = self;
        let later = if *is_running {
            String::new()
        } else {
            format!("; {owner} is not running: a reminder that is due comes when it next starts")
        };
        format!("{}: {owner} is reminded at {}{later}", timer.id, when_in_words(timer))
    }
}

/// Sets a timer of a member. On a failure nothing has changed.
pub(crate) fn set(
    context: &Context,
    to: &str,
    when: &str,
    text: String,
) -> Result<SetTimer, Failure> {
    context.refuse_inside_agent("remind NAME")?;
    let bus = context.team_bus()?;
    let dir = bus.dir();
    let owner = member(dir, to)?;
    let refused = |why: TimerError| failure(&format!("no timer was set for {owner}"), &why);
    let now = SystemClock.now();
    let when = When::typed(when, now).map_err(refused)?;
    let order =
        TimerOrder { owner: owner.clone(), by: AgentName::user(), when, text, origin: None };
    let timer = match timers::set(dir, order, bus.fsync(), now).map_err(refused)? {
        SetOutcome::Open(timer) => *timer,
        // Only a repeated tool call finds an ended timer.
        SetOutcome::Over => return Err(refused(TimerError::Unknown(owner.to_string()))),
    };
    let is_running = liveness::probe(dir, &owner).is_ok_and(|liveness| liveness.is_alive());
    Ok(SetTimer { owner, timer, is_running })
}

/// Returns the member with this name, or the lead.
fn member(dir: &TeamDir, given: &str) -> Result<AgentName, Failure> {
    let name = mailbox_name(given)?;
    if name.is_user() {
        let why = "no process of yours runs that could remind you";
        let hint = "remind `lead`, which tells you";
        return Err(Failure::new(Exit::Failure, "no timer was set for user", why, hint));
    }
    if name.is_lead() || roster::read(dir)?.member(name.as_str()).is_some() {
        return Ok(name);
    }
    let what = format!("no timer was set for {given:?}");
    Err(unknown_name(dir, &name, what, "it is not on the roster"))
}

/// Cancels the timer with this id, and returns it.
pub(crate) fn cancel(context: &Context, id: &str) -> Result<TimerRecord, Failure> {
    context.refuse_inside_agent("remind --cancel")?;
    let bus = context.team_bus()?;
    let all = timers::of_all(bus.dir())?;
    let what = format!("the timer {id:?} was not cancelled");
    let find = |member: &MemberTimers| {
        let timer = member.timers.iter().find(|timer| timer.id == id)?;
        Some((member.owner.clone(), timer.clone()))
    };
    let Some((owner, timer)) = all.members.iter().find_map(find) else {
        let ids = all.members.iter().flat_map(|member| member.timers.iter());
        let near = nearest(id, ids.map(|timer| timer.id.as_str()));
        let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        let hint = format!("{near}`team remind` lists the open timers");
        return Err(Failure::new(Exit::Failure, what, "no open timer has this id", hint));
    };
    let cancelled = timers::cancel(bus.dir(), &owner, id, None, bus.fsync());
    cancelled.map_err(|why| failure(&what, &why))?;
    Ok(timer)
}

/// Returns the open timers of all members.
pub(crate) fn list(context: &Context) -> Result<AllTimers, Failure> {
    Ok(timers::of_all(&context.team_to_view()?)?)
}

pub(crate) fn table(all: &AllTimers, palette: Palette) -> String {
    let rows = all.members.iter().flat_map(|member| {
        let row = |timer| TimerRow { owner: member.owner.as_str(), timer };
        member.timers.iter().map(move |timer| row(&**timer))
    });
    timer_table(rows, palette)
}

pub(crate) fn list_json(all: &AllTimers) -> Value {
    let of = |owner: &AgentName, timer: &TimerRecord| {
        let mut fields = json!(timer);
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("to".into(), owner.as_str().into());
        }
        fields
    };
    let members = all.members.iter();
    let timers = members.flat_map(|it| it.timers.iter().map(|timer| of(&it.owner, timer)));
    let timers: Vec<Value> = timers.collect();
    let problems = all.problems.iter().map(|it| json!({ "file": it.file, "why": it.why }));
    let problems: Vec<Value> = problems.collect();
    json!({ "schema": 1, "timers": timers, "problems": problems })
}

fn failure(what: &str, why: &TimerError) -> Failure {
    let exit = if why.is_misuse() {
        Exit::Usage
    } else if why.store_error().is_some_and(StoreError::is_lock_timeout) {
        Exit::InUse
    } else {
        Exit::Failure
    };
    Failure::new(exit, what, why.to_string(), why.hint())
}

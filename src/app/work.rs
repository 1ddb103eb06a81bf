//! The work of teammates in clones, for the user: it is listed, shown, taken and removed.

use super::clones::{folder, saving_setup};
use super::context::Context;
use super::event_loop::block_on;
use super::names::{did_you_mean, member_name, member_names, unknown_name};
use super::output::warn;
use crate::bus::Outgoing;
use crate::error::{Exit, Failure, OrFail};
use crate::settings::Settings;
use crate::store::relay;
use crate::store::{LifeLock, LifeRecord, SystemClock, TeamDir, roster};
use crate::supervise::clones_elsewhere::{ClonesElsewhere, TransferError};
use crate::tools::command::command_setup;
use crate::wire::carried::HostName;
use crate::wire::isolation::ClonePlace;
use crate::wire::{AgentName, WithUnknownFields, roster::Roster};
use crate::work::clone;
use crate::work::error::WorkError;
use crate::work::overview::{OfferState, WorkOverview, diff, last_save, overview};
use crate::work::remove::drop_clone;
use crate::work::save::Saver;
use crate::work::take::{Merged, Taker, WorkToTake};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;

impl From<WorkError> for Failure {
    fn from(why: WorkError) -> Self {
        Self::new(Exit::Failure, why.what, why.why, why.hint)
    }
}

/// A clone of the team.
pub(crate) struct Work {
    name: AgentName,
    place: ClonePlace,
    overview: Result<WorkOverview, WorkError>,
}

/// Returns the clones of the team with the state of their work.
pub(crate) fn list(context: &Context) -> Result<Vec<Work>, Failure> {
    let team = context.team_to_view()?;
    let environment = environment(context);
    let found = places(context, &team)?.into_iter().map(|(name, place)| {
        let overview = overview(&name, &place, &environment);
        Work { name, place, overview }
    });
    Ok(found.collect())
}

/// Returns all clones: those on the roster, and those whose members are on it no more.
fn places(context: &Context, team: &TeamDir) -> Result<Vec<(AgentName, ClonePlace)>, Failure> {
    let roster = roster::read(team)?;
    let members = roster
        .members
        .iter()
        .filter_map(|member| Some((AgentName::member(&member.name).ok()?, member.work.clone()?)));
    let mut found: Vec<_> = members.collect();
    let folder = folder(team, &context.environment);
    for (name, place) in folder.iter().flat_map(|folder| clone::all(folder)) {
        if found.iter().all(|(known, _)| *known != name) {
            found.push((name, place));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

fn place_of(
    context: &Context,
    team: &TeamDir,
    name: &str,
) -> Result<(AgentName, ClonePlace), Failure> {
    let name = member_name(name)?;
    let places = places(context, team)?;
    let known: Vec<AgentName> = places.iter().map(|(known, _)| known.clone()).collect();
    if let Some(found) = places.into_iter().find(|(known, _)| *known == name) {
        return Ok(found);
    }
    let what = format!("{name} has no clone");
    if !member_names(&*roster::read(team)?).contains(&name) {
        return Err(unknown_name(team, &name, what, "no agent of that name belongs to this team"));
    }
    let hint = format!(
        "{}`team work` lists the clones; `git log refs/team/{name}/wip` shows saved work, if there is any",
        did_you_mean(&name, &known)
    );
    let why = "it works in the workspace, or its clone was removed";
    Err(Failure::new(Exit::Failure, what, why, hint))
}

impl Work {
    pub(crate) fn json(&self) -> Value {
        let ClonePlace { path, branch, base, .. } = &self.place;
        let (state, changes, is_there) = match &self.overview {
            Ok(it) => (word(it.offer), Some(&it.changes), it.is_there),
            Err(_) => ("unknown", None, false),
        };
        let is_here = self.place.is_here();
        json!({
            "name": self.name.as_str(), "path": Some(path).filter(|_| is_here), "branch": branch, "base": base,
            "host": Some(&self.place.host).filter(|_| !is_here),
            "changes": changes, "state": state, "there": Some(is_there).filter(|_| is_here),
            "error": self.overview.as_ref().err().map(ToString::to_string),
        })
    }

    /// Returns the clone as a line.
    pub(crate) fn line(&self) -> String {
        let Self { name, place, overview } = self;
        match overview {
            Err(why) => format!("{name}  {why}"),
            Ok(WorkOverview { changes, offer, is_there }) => {
                let changes = if changes.is_empty() { "no changes" } else { changes };
                let missing = if *is_there { "" } else { " (missing)" };
                let path = match &*place.host {
                    "" => place.path.clone(),
                    host => format!("on {host}"),
                };
                format!("{name}  {}  {changes}  {path}{missing}", word(*offer))
            }
        }
    }
}

fn word(offer: OfferState) -> &'static str {
    match offer {
        OfferState::None => "saved",
        OfferState::Offered => "offered",
        OfferState::Earlier => "offered before",
        OfferState::Taken => "taken",
    }
}

/// Returns the differences between the start of a clone and its last save.
pub(crate) fn show_diff(context: &Context, name: &str) -> Result<String, Failure> {
    let team = context.team_to_view()?;
    let (name, place) = place_of(context, &team, name)?;
    collect(context, &team, &name, &place)?;
    let environment = environment(context);
    Ok(diff(&name, &place, &environment)?)
}

/// Brings the saved work of a clone on another host here. If that is not possible, the person is told, and what is here counts.
fn collect(
    context: &Context,
    team: &TeamDir,
    name: &AgentName,
    place: &ClonePlace,
) -> Result<(), Failure> {
    let Some((clones, host)) = clones_elsewhere(context, team, place) else { return Ok(()) };
    let collected = block_on(clones.collect(name, (place, &host)))?;
    if let Err(why) = collected {
        warn(&format!("the work of {name} is that which {host} has sent before: {why}"));
    }
    Ok(())
}

/// Brings the saved work of all clones on a host here.
pub(crate) fn collect_from(context: &Context, team: &TeamDir, host: &str) -> Result<(), Failure> {
    for (name, place) in places(context, team)? {
        if place.host == host {
            collect(context, team, &name, &place)?;
        }
    }
    Ok(())
}

fn clones_elsewhere(
    context: &Context,
    team: &TeamDir,
    place: &ClonePlace,
) -> Option<(ClonesElsewhere, HostName)> {
    let host = HostName::parse(&place.host).ok()?;
    let clones = ClonesElsewhere {
        dir: team.clone(),
        clock: Rc::new(SystemClock),
        clones: folder(team, &context.environment)?,
        environment: environment(context),
        base: context.settings_or_defaults().clone_base.value,
        by: AgentName::user(),
    };
    Some((clones, host))
}

/// Returns the last commit of each clone that is known here, in words, by the names of their agents.
pub(super) fn last_commits(
    context: &Context,
    team: &TeamDir,
) -> Result<BTreeMap<String, String>, Failure> {
    let environment = environment(context);
    let words = |(name, place): (AgentName, ClonePlace)| {
        let words = match last_save(&name, &place, &environment) {
            Ok(Some(commit)) => format!("its last commit here is {commit} (refs/team/{name}/wip)"),
            Ok(None) => "no commit of it has come here".into(),
            Err(why) => why.to_string(),
        };
        (name.to_string(), words)
    };
    Ok(places(context, team)?.into_iter().map(words).collect())
}

fn environment(context: &Context) -> Vec<(String, String)> {
    context.environment.passed_on(&context.settings_or_defaults().pass_environment.value)
}

/// Takes the work of a teammate, perhaps not offered, into the workspace. Returns a text for the user.
pub(crate) fn take(context: &Context, name: &str) -> Result<String, Failure> {
    context.refuse_inside_agent("work take")?;
    let bus = context.team_bus()?;
    let (name, place) = place_of(context, bus.dir(), name)?;
    let team = bus.dir().clone();
    collect(context, &team, &name, &place)?;
    let environment = command_setup(environment(context), String::new(), None).env;
    let by = AgentName::user();
    let taker = Taker { team, name: name.clone(), place: place.clone(), by, environment };
    match taker.take(WorkToTake::OfferOrSaved)? {
        Merged::Clean { stat } => {
            Ok(format!("{stat}\nTaken into the workspace; nothing is committed."))
        }
        Merged::Conflict { files } => {
            let files = files.join(", ");
            if let Some((clones, _)) = clones_elsewhere(context, bus.dir(), &place)
                && let Err(why) = block_on(clones.send_files(&name))?
            {
                warn(&format!("the files of the workspace do not reach {name}: {why}"));
            }
            let content =
                format!("The user could not take your work: these files conflict: {files}");
            let told = bus.send(&AgentName::user(), name.as_str(), Outgoing::text(content));
            let told = if told.is_ok() { format!("; {name} was told") } else { String::new() };
            let what = format!("the work of {name} was not taken");
            let why = format!("these files conflict with the workspace: {files}");
            let hint = format!("look with `team work diff {name}`{told}");
            Err(Failure::new(Exit::Failure, what, why, hint))
        }
    }
}

/// Removes a clone whose work is saved. Returns a text for the user.
pub(crate) fn remove(context: &Context, name: &str) -> Result<String, Failure> {
    context.refuse_inside_agent("work drop")?;
    let team = context.team()?;
    let settings: Settings = context.settings()?;
    let (name, place) = place_of(context, &team, name)?;
    if let Some((clones, host)) = clones_elsewhere(context, &team, &place) {
        return remove_elsewhere(&team, &clones, (&name, &place), &host);
    }
    // No process of that name starts meanwhile.
    let hint = format!("stop it with `team stop {name}`, then try again");
    let what = format!("the clone of {name} is kept");
    let life =
        LifeLock::take(&team, &name, LifeRecord::of_command()).or_exit(Exit::InUse, what, hint)?;
    let further = &settings.pass_environment.value;
    let sandbox = settings.sandbox();
    let setup = saving_setup(&sandbox, &team, &place, &context.environment, further);
    let saver = Saver { name: name.clone(), place, setup };
    let removed = drop_clone(&saver)?;
    roster::update(&team, settings.fsync.value, |roster: &mut WithUnknownFields<Roster>| {
        if let Some(member) = roster.member_mut(name.as_str()) {
            member.work = None;
            member.cwd = team.workspace().display().to_string();
        }
    })?;
    drop(life);
    Ok(removed.in_words(&name))
}

/// Removes a clone on another host. If that host was given up, only what is noted of it here.
fn remove_elsewhere(
    team: &TeamDir,
    clones: &ClonesElsewhere,
    (name, place): (&AgentName, &ClonePlace),
    host: &HostName,
) -> Result<String, Failure> {
    let known = relay::known_hosts(team)?;
    if known.iter().any(|known| known.host == *host && known.is_given_up) {
        block_on(clones.forget(name))??;
        return Ok(format!(
            "{host} was given up, so the clone of {name} there is only no longer listed; what it has sent stays in refs/team/{name}/wip."
        ));
    }
    block_on(clones.drop_clone(name, (place, host)))?.map_err(|why| {
        if matches!(why, TransferError::Dropped(_)) {
            let what = format!("the clone of {name} on {host} is still listed");
            return Failure::new(Exit::Failure, what, why.to_string(), "repeat the command later");
        }
        let what = format!("the clone of {name} on {host} is kept");
        let hint = format!(
            "stop {name} and try again; if {host} is gone for good, give it up with `team host give-up {host}`"
        );
        Failure::new(Exit::Failure, what, why.to_string(), hint)
    })
}

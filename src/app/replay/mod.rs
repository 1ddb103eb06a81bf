//! `team replay`: plays a recorded team again in a new folder, and compares the two.
//!
//! The new team is a real one: a lead in a process of its own, which starts its teammates as ever. Only the replies of
//! the models come from the record (`agent::replay`). The folder of the record is only read.

mod compare;
mod copy;
mod lead_process;
mod masks;
mod record;
pub(crate) mod report;

pub(crate) use compare::{Compared, Difference};

use super::context::Context;
use super::event_loop::exit_of;
use crate::error::{Exit, Failure, OrFail};
use crate::os::signals::{SignalEvent, Signals};
use crate::store::replay::{self as stored, recorded_agents};
use crate::store::{Fsync, StoreError, TeamDir, roster};
use crate::wire::limits::DEFAULT_ROUNDS;
use crate::wire::replay::{Fault, Pace, PlayEnd, ReplayPlan, ToolSource};
use crate::wire::{AgentName, WallTime};
use compare::{Extent, compare};
use lead_process::LeadEnd;
use record::{Act, Seen};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The number of the signal that kills.
const SIGKILL: i32 = 9;

/// A record that is to be played, and the way.
pub(crate) struct ReplayRequest {
    /// The folder of a project with a team, or its team folder.
    pub(crate) record: PathBuf,
    /// The new folder; `None` for a temporary one.
    pub(crate) into: Option<PathBuf>,
    /// The folder whose files the new one begins with.
    pub(crate) from: Option<PathBuf>,
    pub(crate) tools: ToolSource,
    pub(crate) pace: Pace,
    /// The turn of the lead after which the play ends.
    pub(crate) until: Option<u64>,
    /// Whether the new team is to go on with a model.
    pub(crate) fork: bool,
    pub(crate) faults: Vec<Fault>,
}

/// A replay that has ended.
pub(crate) struct Replayed {
    /// The folder in which it was played.
    pub(crate) folder: PathBuf,
    pub(crate) members: Vec<Compared>,
    /// Whether the new team goes on as any other one.
    pub(crate) is_forked: bool,
    /// The reason for which the end of the record was not played.
    pub(crate) cut: Option<String>,
}

impl Replayed {
    /// Returns the member that differs first, by the time of the record.
    pub(crate) fn first(&self) -> Option<(&AgentName, &Difference)> {
        let found = self.members.iter();
        let found = found.filter_map(|it| Some((&it.name, it.difference.as_ref()?)));
        found.min_by(|(_, one), (_, other)| one.at.as_secs().total_cmp(&other.at.as_secs()))
    }
}

/// Plays a record, and compares.
pub(crate) fn run(context: &Context, request: &ReplayRequest) -> Result<Replayed, Failure> {
    context.refuse_inside_agent("replay")?;
    let record = open_record(&request.record)?;
    let seen = Seen::read(&record)?;
    seen.refuse_unplayable(&record)?;
    check_faults(&request.faults, &seen)?;
    let (acts, cut) = seen.acts(request.until)?;
    let mode = roster::read(&record)?.lead.as_ref().map(|lead| lead.mode.clone());
    let folder = new_folder(context, request.into.as_deref())?;
    if let Some(from) = &request.from {
        copy::files(from, &folder).map_err(StoreError::from)?;
    }
    let team = TeamDir::create(&folder.join(".team"))?;
    copy::settings(&record, &team).map_err(StoreError::from)?;
    let mode = mode.as_deref();
    let signals = Signals::listen();
    let signals = signals.or_fail("signals cannot be handled", "close other programs")?;
    let play = Play {
        record: &record,
        team: &team,
        folder: &folder,
        seen: &seen,
        request,
        mode,
        signals: &signals,
    };
    let members = play.acts(&acts)?;
    play.fail_if_stopped(signals.take())?;
    if request.fork {
        restore_models(&record, &team)?;
        stored::end(&team).or_fail("the new team cannot go on", "play the record again")?;
    }
    Ok(Replayed { folder, members, is_forked: request.fork, cut })
}

/// Gives the members of the new team the models of the record.
fn restore_models(record: &TeamDir, team: &TeamDir) -> Result<(), StoreError> {
    let recorded = roster::read(record)?;
    roster::update(team, Fsync::Never, |roster| {
        if let (Some(lead), Some(of_record)) = (&mut roster.lead, &recorded.lead) {
            lead.model.clone_from(&of_record.model);
        }
        for member in &mut roster.members {
            let found = recorded.members.iter().find(|of_record| of_record.name == member.name);
            if let Some(of_record) = found {
                member.model.clone_from(&of_record.model);
            }
        }
    })
}

/// Opens the record for reading. Fails if it has no conversation of a lead.
fn open_record(folder: &Path) -> Result<TeamDir, Failure> {
    let hint = "name a folder in which a team has run";
    let found = std::fs::canonicalize(folder);
    let what = || format!("there is no record at {}", folder.display());
    let found = found.or_exit(Exit::Usage, what(), hint)?;
    let inner = found.join(".team");
    let record = TeamDir::look(if inner.is_dir() { &inner } else { &found });
    let record = record.or_exit(Exit::Usage, what(), hint)?;
    let has_lead = recorded_agents(&record)?.iter().any(AgentName::is_lead);
    if has_lead {
        return Ok(record);
    }
    Err(Failure::new(Exit::Usage, what(), "it has no conversation of a lead", hint))
}

/// Fails for a fault of a member that the record does not have.
fn check_faults(faults: &[Fault], seen: &Seen) -> Result<(), Failure> {
    for fault in faults {
        let Fault::Kill { name, .. } = fault else { continue };
        if !seen.agents.iter().any(|agent| agent.as_str() == name) {
            let names: Vec<&str> = seen.agents.iter().map(AgentName::as_str).collect();
            let why = format!("the record has {}", names.join(", "));
            let what = format!("{name} cannot be killed");
            return Err(Failure::new(Exit::Usage, what, why, "name one of these"));
        }
    }
    Ok(())
}

/// Makes the folder in which the record is played. Fails if it holds anything already.
fn new_folder(context: &Context, into: Option<&Path>) -> Result<PathBuf, Failure> {
    let hint = "name a folder that does not exist yet, with --into";
    let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
    if let Some(into) = into {
        let path = context.cwd.join(into);
        let what = || format!("{} cannot be the new folder", path.display());
        let is_empty = std::fs::read_dir(&path).is_ok_and(|mut all| all.next().is_none());
        if !is_empty && path.is_dir() {
            return Err(Failure::new(Exit::Usage, what(), "it is not empty", hint));
        }
        if !is_empty {
            make(&path).or_exit(Exit::Usage, what(), hint)?;
        }
        return std::fs::canonicalize(&path).or_exit(Exit::Usage, what(), hint);
    }
    let above = context.temporary_folder();
    let base = format!("team-replay-{}", std::process::id());
    let paths = (1..).map(|count| above.join(format!("{base}-{count}")));
    for path in paths {
        match make(&path) {
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => {
                let what = format!("no folder can be made in {}", above.display());
                made.or_exit(Exit::Failure, what, hint)?;
                return std::fs::canonicalize(&path).or_fail("the new folder is gone", hint);
            }
        }
    }
    Err(Failure::new(Exit::Failure, "there is no new folder", "", hint))
}

/// A record that is played, and the new team.
struct Play<'a> {
    record: &'a TeamDir,
    team: &'a TeamDir,
    /// The folder of the new team.
    folder: &'a Path,
    seen: &'a Seen,
    request: &'a ReplayRequest,
    /// The mode of the recorded team.
    mode: Option<&'a str>,
    /// The signals that ask this process to stop.
    signals: &'a Signals,
}

impl Play<'_> {
    /// Plays the acts one after another, up to the one with the first difference, and compares.
    fn acts(&self, acts: &[Act]) -> Result<Vec<Compared>, Failure> {
        let mut members = Vec::new();
        let mut calls_before = 0;
        for (number, act) in acts.iter().enumerate() {
            let plan = ReplayPlan {
                record: self.record.root().to_owned(),
                tools: self.request.tools,
                pace: self.request.pace,
                end: act.end,
                ending: act.ending,
                resumed_at: act.resumed_at,
                faults: self.request.faults.clone(),
            };
            stored::begin(self.team, &plan)?;
            let is_of_lead = |fault: &&Fault| {
                matches!(fault, Fault::Kill { name, call }
                    if name == "lead" && (calls_before + 1..=act.calls).contains(call))
            };
            let kills = self.request.faults.iter().filter(is_of_lead).count();
            self.lead(number > 0, kills)?;
            calls_before = act.calls;
            let extents: Vec<_> = acts.iter().take(number + 1).map(extent).collect();
            members = self.compare(&extents)?;
            if members.iter().any(|member: &Compared| member.difference.is_some()) {
                break;
            }
        }
        Ok(members)
    }

    fn compare(&self, extents: &[Extent]) -> Result<Vec<Compared>, StoreError> {
        let (of_record, of_new) = (self.seen.names(self.record), self.seen.names(self.team));
        let has_notes = self.request.tools == ToolSource::Real;
        let (record, new) = ((self.record, &of_record), (self.team, &of_new));
        let members = self.seen.agents.iter();
        members.map(|name| compare(record, new, name, extents, has_notes)).collect()
    }

    /// Runs a lead of the new team until it ends. One that a fault kills comes back.
    fn lead(&self, is_resumed: bool, kills: usize) -> Result<(), Failure> {
        let what = "the new team could not play";
        let program = std::env::current_exe().or_fail(what, "install `team` again")?;
        for killed in 0..=kills {
            let mut lead = Command::new(&program);
            lead.args(["lead", "-p", "--model", "replay"]).current_dir(self.folder);
            lead.args(self.mode.iter().flat_map(|mode| ["--mode", *mode]));
            lead.args((is_resumed || killed > 0).then_some("--resume"));
            // In the record, too, they took tasks by themselves.
            lead.envs(self.seen.takes_tasks.then_some(("TEAM_AUTO_CLAIM", "true")));
            // A limit that the record has passed does not end a turn.
            let rounds = self.seen.rounds.max(DEFAULT_ROUNDS).to_string();
            lead.envs((self.seen.rounds > DEFAULT_ROUNDS).then_some(("TEAM_MAX_ROUNDS", rounds)));
            lead.env_remove("TEAM_DIR").env_remove("TEAM_RUN").stdin(Stdio::null());
            lead.stdout(Stdio::null()).stderr(Stdio::piped());
            let LeadEnd { output: ran, stop } = lead_process::run(lead, self.signals)?;
            self.fail_if_stopped(stop)?;
            if ran.status.signal() == Some(SIGKILL) {
                continue;
            }
            // The run has its own outcome, such as a denied call. Only a lead that has not begun is a failure.
            if !folder_has_lead(self.folder) {
                let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
                return Err(Failure::new(Exit::Failure, what, said, "see what its lead has said"));
            }
            break;
        }
        Ok(())
    }

    /// Fails if a signal has asked the replay to stop.
    fn fail_if_stopped(&self, signal: Option<SignalEvent>) -> Result<(), Failure> {
        let Some(signal) = signal else { return Ok(()) };
        let why = format!("{} has ended it and its team", signal.word());
        let hint = format!("what was played so far is in {}", self.folder.display());
        Err(Failure::new(exit_of(signal), "the record was not played to its end", why, hint))
    }
}

/// Returns the part of the record that an act has played.
fn extent(act: &Act) -> Extent {
    let latest = WallTime::from_secs(f64::MAX);
    Extent {
        end: act.end.unwrap_or(latest),
        has_tail: act.ending == PlayEnd::Ended && act.end.is_some(),
        next: act.resumed_at.unwrap_or(latest),
    }
}

fn folder_has_lead(folder: &Path) -> bool {
    let team = TeamDir::look(&folder.join(".team"));
    team.is_ok_and(|team| {
        recorded_agents(&team).is_ok_and(|all| all.iter().any(AgentName::is_lead))
    })
}

//! The shared task list: applies the rules of `protocol::tasks` to the files of `store::tasks`, checks that
//! owners are running, and notifies members by mail.
//!
//! A team on several hosts has one list, which the host of the lead keeps. There the files are changed; every other host reads a
//! copy of them, and gives that host orders for its changes (`elsewhere`, `ordered`).
//!
//! *Invariant:* every read on the host that keeps the list repairs it first: tasks of dead owners are pending again. A read on
//! another host writes nothing. This layer does not know models, tools or processes.

mod elsewhere;
mod error;
#[cfg(test)]
mod host_tests;
mod ordered;
#[cfg(test)]
mod tests;

pub(crate) use error::TaskError;

use crate::bus::{Bus, Outgoing, lock};
use crate::protocol::owner::OwnerLiveness;
use crate::protocol::tasks::{
    Actor, NewOwner, NewTask, TaskEdit, TaskRefusal, blockers, claim, create, freed_by,
    is_abandoned, is_assigned, next_for, release, update,
};
use crate::store::tasks::{Problem, TaskList};
use crate::store::{SharedClock, StoreError, TeamDir, liveness, relay, roster};
use crate::wire::limits::DEFAULT_LEAD_AWAY;
use crate::wire::message::Body;
use crate::wire::roster::{ExitCause, Member, Roster, Status};
use crate::wire::task::{Board, Task, TaskId, TaskStatus};
use crate::wire::task_order::OrderedTaskChange;
use crate::wire::{AgentName, WithUnknownFields};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// The team's task list.
pub(crate) struct Tasks {
    bus: Arc<Bus>,
    clock: SharedClock,
    list: Mutex<TaskList>,
    can_complete: CanCompleteTasks,
    /// Whether a claim of the next task was not answered by the host that keeps the list, and may have been made.
    may_have_taken: AtomicBool,
}

/// Whether a member in this role can complete tasks. Only such members claim tasks on their own.
pub(crate) type CanCompleteTasks = fn(&TeamDir, role: &str) -> bool;

type TaskRecord = WithUnknownFields<Task>;

#[derive(Debug)]
pub(crate) struct TaskSnapshot {
    pub(crate) board: Board,
    pub(crate) problems: Vec<Problem>,
    /// Whether there are earlier tasks that are not on the board.
    pub(crate) has_archive: bool,
}

#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) task: TaskRecord,
    /// The tasks for which it waits.
    waits_for: Vec<TaskId>,
    /// Tasks that can begin because of the change.
    pub(crate) ready: Vec<TaskRecord>,
    /// Owners that could not be notified, each with the reason.
    pub(crate) untold: Vec<String>,
}

impl Tasks {
    /// Creates the list of the team whose mail `bus` carries.
    pub(crate) fn new(bus: Arc<Bus>, clock: SharedClock, can_complete: CanCompleteTasks) -> Self {
        let list = Mutex::new(TaskList::of(bus.dir(), bus.fsync()));
        Self { bus, clock, list, can_complete, may_have_taken: AtomicBool::new(false) }
    }

    /// Returns the bus of the team with this list.
    pub(crate) fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    pub(crate) fn dir(&self) -> &TeamDir {
        self.bus.dir()
    }

    /// Reads the list without the archived tasks. Fails if the folder cannot be read.
    pub(crate) fn snapshot(&self) -> Result<TaskSnapshot, TaskError> {
        let mut list = lock(&self.list);
        self.repair(&mut list, false)?;
        Ok(TaskSnapshot {
            board: list.board().clone(),
            problems: list.problems().to_vec(),
            has_archive: list.has_archive(),
        })
    }

    /// Reads the list with the archived tasks. Fails if a folder cannot be read.
    pub(crate) fn snapshot_of_all(&self) -> Result<TaskSnapshot, TaskError> {
        lock(&self.list).want_all()?;
        Ok(TaskSnapshot { has_archive: false, ..self.snapshot()? })
    }

    /// Reads one task. Fails if the task does not exist.
    pub(crate) fn get(&self, id: TaskId) -> Result<(TaskRecord, TaskSnapshot), TaskError> {
        lock(&self.list).want([id]);
        let seen = self.snapshot()?;
        let task = seen.board.get(&id).cloned();
        Ok((task.ok_or_else(|| TaskRefusal::unknown(&seen.board, id))?, seen))
    }

    /// Creates a task, once for a repeated tool call. Fails if the rules refuse or the owner is not reachable.
    pub(crate) fn create(&self, new: &NewTask, by: &AgentName) -> Result<Changed, TaskError> {
        let changed = match self.kept_on()? {
            None => self.create_here(new, by)?,
            Some(host) => self.create_on(&host, new.clone(), by)?,
        };
        Ok(self.tell_owner(changed, by))
    }

    fn create_here(&self, new: &NewTask, by: &AgentName) -> Result<Changed, TaskError> {
        if let Some(owner) = &new.owner {
            self.check_owner(owner, by)?;
        }
        lock(&self.list).want(new.blocked_by.iter().copied());
        self.change(by, |board, next, by| {
            let made = |task: &&TaskRecord| new.origin.is_some() && task.origin == new.origin;
            match board.values().find(made) {
                Some(task) => Ok((task.id, None)),
                None => Ok((next, Some(create(board, next, new.clone(), by)?))),
            }
        })
    }

    /// Claims a task for `who`. Fails if the rules refuse or `who` is not running.
    pub(crate) fn claim(&self, id: TaskId, who: &AgentName) -> Result<Changed, TaskError> {
        match self.kept_on()? {
            None => self.claim_here(id, who),
            Some(host) => self.change_on(&host, OrderedTaskChange::Claim { task_id: id }, who),
        }
    }

    fn claim_here(&self, id: TaskId, who: &AgentName) -> Result<Changed, TaskError> {
        self.check_life(who)?;
        lock(&self.list).want([id]);
        self.change(who, |board, _, by| Ok((id, claim(board, id, by)?)))
    }

    /// Ends a task. Fails if the rules refuse.
    pub(crate) fn end(
        &self,
        id: TaskId,
        how: TaskStatus,
        why: Option<String>,
        by: &AgentName,
    ) -> Result<Changed, TaskError> {
        self.update(id, TaskEdit::status(how, why), by)
    }

    /// Changes a task. Fails if the rules refuse or the new owner is not reachable.
    pub(crate) fn update(
        &self,
        id: TaskId,
        edit: TaskEdit,
        by: &AgentName,
    ) -> Result<Changed, TaskError> {
        let assigns = edit.owner.is_some();
        let changed = match self.kept_on()? {
            None => self.update_here(id, edit, by)?,
            Some(host) => {
                self.change_on(&host, OrderedTaskChange::Update { task_id: id, edit }, by)?
            }
        };
        let changed = if assigns { self.tell_owner(changed, by) } else { changed };
        Ok(self.tell_of_freed(changed, by))
    }

    fn update_here(
        &self,
        id: TaskId,
        edit: TaskEdit,
        by: &AgentName,
    ) -> Result<Changed, TaskError> {
        if let Some(NewOwner::Agent(owner)) = &edit.owner {
            self.check_owner(owner, by)?;
        }
        let blockers = edit.blocked_by.iter().flatten().copied();
        lock(&self.list).want(blockers.chain([id]));
        let mut changed = self.change(by, |board, _, by| Ok((id, update(board, id, edit, by)?)))?;
        if changed.task.status == TaskStatus::Completed {
            changed.ready = freed_by(lock(&self.list).board(), changed.task.id);
        }
        Ok(changed)
    }

    /// Returns the task that this member would claim next. Fails if the list or the roster cannot be read.
    pub(crate) fn next_for(&self, name: &AgentName) -> Result<Option<TaskId>, TaskError> {
        let role = self.role_of(name)?;
        let board = self.snapshot()?.board;
        let next = self.taken_unanswered(&board, name).map(|task| task.id);
        let next = next.or_else(|| next_for(&board, name, &role));
        Ok(next.filter(|_| (self.can_complete)(self.dir(), &role)))
    }

    /// Claims the next suitable task for this member and mails it. If the send fails, the task is pending again.
    pub(crate) fn take_next(&self, name: &AgentName) -> Result<Option<TaskRecord>, TaskError> {
        let taken = match self.kept_on()? {
            None => self.take_next_here(name)?,
            Some(host) => self.take_next_on(&host, name)?,
        };
        let Some(task) = taken else { return Ok(None) };
        if let Err(why) = self.mail(&task, &[], &AgentName::system(), name) {
            let note = Some(format!("it could not be handed to {name}: {why}"));
            self.update(task.id, TaskEdit::status(TaskStatus::Pending, note), name)?;
            return Err(why);
        }
        Ok(Some(task))
    }

    fn take_next_here(&self, name: &AgentName) -> Result<Option<TaskRecord>, TaskError> {
        let role = self.role_of(name)?;
        self.check_life(name)?;
        if !(self.can_complete)(self.dir(), &role) {
            return Ok(None);
        }
        let taken = self.change(name, |board, _, by| {
            let id = next_for(board, name, &role).ok_or(TaskError::NothingToDo)?;
            Ok((id, claim(board, id, by)?))
        });
        match taken {
            Err(TaskError::NothingToDo) => Ok(None),
            taken => Ok(Some(taken?.task)),
        }
    }

    /// Claims the tasks of `who` among `ids` that can begin: their assignment was delivered, so `who` works on them.
    pub(crate) fn begin_assigned(&self, ids: &[TaskId], who: &AgentName) -> Result<(), TaskError> {
        let role = self.role_of(who)?;
        if !who.is_lead() && !(self.can_complete)(self.dir(), &role) {
            return Ok(());
        }
        match self.kept_on()? {
            None => self.begin_assigned_here(ids, who),
            Some(host) => {
                let change = OrderedTaskChange::BeginAssigned { task_ids: ids.to_vec() };
                self.order(&host, change, who).map(drop)
            }
        }
    }

    fn begin_assigned_here(&self, ids: &[TaskId], who: &AgentName) -> Result<(), TaskError> {
        let board = self.snapshot()?.board;
        let is_own = |id: &&TaskId| {
            board.get(*id).is_some_and(|task| {
                task.status == TaskStatus::Pending
                    && task.owner.as_deref() == Some(who.as_str())
                    && blockers(&board, task).is_empty()
            })
        };
        let claimed = ids.iter().filter(is_own).map(|id| self.claim_here(*id, who).map(drop));
        // A claim that is refused does not keep the others from being made.
        let refused: Vec<TaskError> = claimed.filter_map(Result::err).collect();
        refused.into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns the tasks that this agent works on.
    pub(crate) fn in_progress_of(&self, who: &AgentName) -> Result<Vec<TaskRecord>, TaskError> {
        let board = self.snapshot()?.board;
        let is_its = |task: &TaskRecord| {
            task.status == TaskStatus::InProgress && task.owner.as_deref() == Some(who.as_str())
        };
        Ok(board.into_values().filter(is_its).collect())
    }

    /// Whether an idle member would claim a task on its own.
    pub(crate) fn is_any_wanted(&self) -> Result<bool, TaskError> {
        let roster = roster::read(self.dir())?;
        let board = self.snapshot()?.board;
        for member in &roster.members {
            let Ok(name) = AgentName::member(&member.name) else { continue };
            if member.status == Status::Idle
                && self.is_served(&name, member)?
                && next_for(&board, &name, &member.role).is_some()
                && (self.can_complete)(self.dir(), &member.role)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the process of a member is alive, and its host not away for so long that nobody waits for it.
    fn is_served(&self, name: &AgentName, member: &Member) -> Result<bool, TaskError> {
        if member.host.is_none() {
            return Ok(liveness::probe(self.dir(), name).map_err(StoreError::from)?.is_alive());
        }
        let is_lost = |since| self.clock.now().since(since) > DEFAULT_LEAD_AWAY;
        Ok(member.alive == Some(true) && !member.away_since.is_some_and(is_lost))
    }

    /// Makes tasks of dead owners pending again, and returns them as they were. A failed release is repeated by
    /// the next read.
    pub(crate) fn release_abandoned(&self) -> Result<Vec<TaskRecord>, TaskError> {
        Ok(self.repair(&mut lock(&self.list), true)?)
    }

    /// Reads the list, and releases the tasks of dead owners if this host keeps it. With `tidies`, also removes files of killed writers.
    fn repair(&self, list: &mut TaskList, tidies: bool) -> Result<Vec<TaskRecord>, StoreError> {
        list.look()?;
        let is_unfinished = tidies && list.is_any_unfinished();
        if !is_unfinished && self.abandoned(list.board()).is_empty() {
            return Ok(Vec::new());
        }
        if self.kept_on()?.is_some() {
            return Ok(Vec::new());
        }
        list.change(|board, _| {
            let released = self.abandoned(board);
            let before = released.iter().filter_map(|task| board.get(&task.id)).cloned().collect();
            (released, before)
        })
    }

    /// Changes one task on a list that was repaired under the same lock.
    fn change(
        &self,
        by: &AgentName,
        rule: impl FnOnce(&Board, TaskId, &Actor) -> Result<(TaskId, Option<TaskRecord>), TaskError>,
    ) -> Result<Changed, TaskError> {
        let mut list = lock(&self.list);
        let ruled = list.change(|board, next| {
            // The clock is read under the lock, so that times in histories are in order.
            let (actor, released) = (self.actor(by), self.abandoned(board));
            let mut seen = Cow::Borrowed(board);
            for task in &released {
                seen.to_mut().insert(task.id, task.clone());
            }
            let ruled = rule(&seen, next, &actor).and_then(|(id, ruled)| {
                let task = ruled.clone().or_else(|| seen.get(&id).cloned());
                Ok((task.ok_or_else(|| TaskRefusal::unknown(&seen, id))?, ruled))
            });
            let changed = ruled.as_ref().ok().and_then(|(_, ruled)| ruled.clone());
            let mut stored = released;
            stored.retain(|task| changed.as_ref().is_none_or(|changed| changed.id != task.id));
            stored.extend(changed);
            (stored, ruled.map(|(task, _)| task))
        })?;
        let task = ruled?;
        let waits_for = blockers(list.board(), &task).into_iter().map(|(id, _)| id).collect();
        Ok(Changed { task, waits_for, ready: Vec::new(), untold: Vec::new() })
    }

    /// Returns the tasks of dead owners and of owners that do not come back, as they are after their release.
    fn abandoned(&self, board: &Board) -> Vec<TaskRecord> {
        let repairer = self.actor(&AgentName::system());
        let mut owners: BTreeMap<&str, OwnerLiveness> = BTreeMap::new();
        let mut found = Vec::new();
        let waits = board.values().any(|task| is_assigned(task));
        let roster = if waits { roster::read(self.dir()).ok() } else { None };
        for task in board.values() {
            let owner = task.owner.as_deref().unwrap_or_default();
            if is_assigned(task) {
                if roster.as_ref().is_some_and(|roster| self.has_left(owner, roster)) {
                    found.push(release(task, &repairer));
                }
                continue;
            }
            // Most tasks are not leased and need no check of a life lock.
            if !is_abandoned(task, &OwnerLiveness::Ended) {
                continue;
            }
            let liveness = owners.entry(owner).or_insert_with(|| self.liveness_of(owner));
            if is_abandoned(task, liveness) {
                found.push(release(task, &repairer));
            }
        }
        found
    }

    /// Whether a member has ended and does not come back by itself: the lead that runs has not started it, or it was
    /// stopped by name and there is no lead. A lead that is starting may be about to resume it, and one that is
    /// ending stops the whole team.
    fn has_left(&self, name: &str, roster: &Roster) -> bool {
        let lead_runs = self.liveness_of(AgentName::lead().as_str()) != OwnerLiveness::Ended;
        let is_at_work = roster.lead.as_ref().is_some_and(|lead| {
            !matches!(lead.status, Status::Starting | Status::Stopping) && !lead.status.is_over()
        });
        let Some(member) = roster.member(name) else { return lead_runs && is_at_work };
        let cause = member.last_exit.as_ref().map(|exit| exit.cause);
        let is_expected = if lead_runs { !is_at_work } else { cause != Some(ExitCause::Stopped) };
        member.status.is_over() && !is_expected && self.liveness_of(name) == OwnerLiveness::Ended
    }

    /// Returns the state of the process of an agent. That of another host is what its host has said last: it does not end
    /// with the relay of this host, which holds its life lock, nor while its host is away.
    fn liveness_of(&self, name: &str) -> OwnerLiveness {
        match self.elsewhere(name) {
            Ok(None) => liveness::of_owner(self.dir(), name),
            Ok(Some(liveness)) => liveness,
            Err(_) => OwnerLiveness::Unknown,
        }
    }

    /// Returns the state of the process of an agent of another host; `None` for one of this host.
    fn elsewhere(&self, name: &str) -> Result<Option<OwnerLiveness>, StoreError> {
        if relay::identity(self.dir())?.is_none() {
            return Ok(None);
        }
        let roster = roster::read(self.dir())?;
        let of_process = |alive: Option<bool>, incarnation: &str| {
            if alive == Some(true) {
                OwnerLiveness::Running(incarnation.into())
            } else {
                OwnerLiveness::Ended
            }
        };
        let lead = roster.lead.as_ref().filter(|lead| lead.host.is_some());
        if let Some(lead) = lead.filter(|_| name == AgentName::lead().as_str()) {
            return Ok(Some(of_process(lead.alive, &lead.incarnation)));
        }
        let member = roster.member(name).filter(|member| member.host.is_some());
        Ok(member.map(|member| of_process(member.alive, &member.incarnation)))
    }

    fn actor(&self, name: &AgentName) -> Actor {
        let incarnation = match self.liveness_of(name.as_str()) {
            OwnerLiveness::Running(incarnation) if !name.is_user() => Some(incarnation),
            OwnerLiveness::Running(_) | OwnerLiveness::Ended | OwnerLiveness::Unknown => None,
        };
        Actor { name: name.clone(), incarnation, now: self.clock.now() }
    }

    /// Checks that `who` is running, because a claim is a lease.
    fn check_life(&self, who: &AgentName) -> Result<(), TaskError> {
        let is_fine =
            who.is_user() || matches!(self.liveness_of(who.as_str()), OwnerLiveness::Running(_));
        if is_fine { Ok(()) } else { Err(TaskError::NotRunning(who.clone())) }
    }

    fn check_owner(&self, owner: &AgentName, by: &AgentName) -> Result<(), TaskError> {
        let reachable = self.bus.reachable()?;
        if owner == by || reachable.contains(owner) {
            return Ok(());
        }
        Err(TaskError::NoSuchOwner { owner: owner.clone(), reachable })
    }

    fn role_of(&self, name: &AgentName) -> Result<String, TaskError> {
        let roster = roster::read(self.dir())?;
        Ok(roster.member(name.as_str()).map(|member| member.role.clone()).unwrap_or_default())
    }

    fn tell_owner(&self, mut changed: Changed, by: &AgentName) -> Changed {
        if let Some((owner, why)) = self.tell(&changed.task, &changed.waits_for, by) {
            changed.untold.push(format!("{owner}: {why}"));
        }
        changed
    }

    /// Notifies the owners of the tasks that a completion made ready. A repetition has no effect.
    fn tell_of_freed(&self, mut changed: Changed, by: &AgentName) -> Changed {
        for task in &changed.ready {
            if let Some((owner, why)) = self.tell(task, &[], by) {
                changed.untold.push(format!("{owner} (task {}): {why}", task.id));
            }
        }
        changed
    }

    /// Notifies the owner of a task, unless it is `by`. On an error, returns the owner and the error.
    fn tell(
        &self,
        task: &Task,
        waits_for: &[TaskId],
        by: &AgentName,
    ) -> Option<(AgentName, TaskError)> {
        let owner = AgentName::mailbox(task.owner.as_deref()?).ok().filter(|owner| owner != by)?;
        self.mail(task, waits_for, by, &owner).err().map(|why| (owner, why))
    }

    /// Sends a task to its owner, with whether it can begin. The same state of a task has the same message id.
    fn mail(
        &self,
        task: &Task,
        waits_for: &[TaskId],
        by: &AgentName,
        to: &AgentName,
    ) -> Result<(), TaskError> {
        let open: Vec<String> = waits_for.iter().map(ToString::to_string).collect();
        let (events, waits) = (task.history.len(), open.len());
        let is_from_list = by.as_str() == "system";
        let content = match (open.is_empty(), is_from_list) {
            (true, true) => "You have taken this task from the list; it is claimed for you.",
            (true, false) => "This task is yours and can begin.",
            (false, _) => "This task is yours; wait until you are told that it can begin.",
        };
        let body = Body::TaskAssignment {
            task_id: task.id.to_string(),
            subject: task.subject.clone(),
            description: task.description.clone(),
            assigned_by: if is_from_list { &task.created_by } else { by.as_str() }.into(),
            blocked_by: open,
        };
        let id = Some(format!("{by}:task-{}-{events}-{waits}", task.id));
        let outgoing = Outgoing { id, ..Outgoing::of(body, content) };
        self.bus.send(by, to.as_str(), outgoing)?;
        Ok(())
    }
}

//! The background commands of one agent: their records, their tasks, and the notices of their ends.

use super::live::{LiveCommand, LogSink};
use super::output::{CommandLog, KEPT_BYTES, NewOutput};
use crate::bus::Outgoing;
use crate::os::command::END_WITHIN;
use crate::os::failpoint::hit;
use crate::os::pidfd::ExitKind;
use crate::os::spawn::spawn_local;
use crate::os::{Clock, SystemClock};
use crate::store::asynchronous::offload;
use crate::store::output_spill::OutputSpill;
use crate::store::{StoreError, background};
use crate::tools::call::{Call, ToolError};
use crate::tools::command::output::OutputStore;
use crate::tools::command::shell::{CommandEnd, StartedCommand};
use crate::tools::team_context::TeamContext;
use crate::undo::look::Checkout;
use crate::undo::recorder::Recorder;
use crate::wire::AgentName;
use crate::wire::background::{BackgroundCommand, CommandList, CommandState, OutputLook};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The maximum number of commands of an agent that run at once.
pub(super) const MOST_RUNNING: usize = 8;

/// The number of commands that have ended whose output is kept.
const MOST_ENDED: usize = 8;

/// The maximum number of characters of a command line in a record.
const RECORD_CHARS: usize = 2000;

/// The maximum size of the end of the output in a notice, in bytes.
const NOTICE_BYTES: usize = 2000;

/// The wait before a notice that could not be sent is sent again.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// The time in which a command that was stopped has ended and was looked at.
const STOPPED_WITHIN: Duration = END_WITHIN.saturating_mul(5);

const EARLIER: &str = "state unknown: it ended with the earlier process";

/// The background commands of one agent.
pub(crate) struct BackgroundCommands {
    /// The maximum number that run at once.
    most: usize,
    team: Rc<TeamContext>,
    store: OutputStore,
    list: RefCell<CommandList>,
    live: RefCell<BTreeMap<String, Rc<LiveCommand>>>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
    /// Held while the list is written.
    saving: tokio::sync::Mutex<()>,
    is_loaded: Cell<bool>,
    is_ending: Cell<bool>,
}

/// The files in which a command may make changes.
pub(super) struct Place {
    pub(super) recorder: Arc<Recorder>,
    pub(super) checkout: Checkout,
    pub(super) folder: PathBuf,
}

/// A command that has ended, before the work after its end.
pub(super) struct Ending {
    /// The end of its output.
    pub(super) output: String,
    /// Whether its mail is to be sent: it has not ended with its agent.
    pub(super) is_sending: bool,
}

/// A call that is about to show the end of a command, so that no notice is sent meanwhile. Dropped without a commit, the
/// model has seen nothing.
struct PendingLook<'a> {
    commands: &'a BackgroundCommands,
    live: Rc<LiveCommand>,
    /// The record before the look.
    before: Option<BackgroundCommand>,
}

impl<'a> PendingLook<'a> {
    fn new(commands: &'a BackgroundCommands, live: Rc<LiveCommand>) -> Self {
        live.looks.update(|looks| looks + 1);
        Self { commands, live, before: None }
    }

    fn commit(mut self) {
        self.before = None;
    }
}

impl Drop for PendingLook<'_> {
    fn drop(&mut self) {
        if let Some(BackgroundCommand { id, seen, look, told, .. }) = self.before.take() {
            self.commands.change(&id, |it| (it.seen, it.look, it.told) = (seen, look, told));
        }
        self.live.looks.update(|looks| looks - 1);
        self.live.changed.notify_waiters();
    }
}

impl BackgroundCommands {
    /// Returns the commands of an agent. Those of an earlier process are loaded later.
    pub(crate) fn new(team: Rc<TeamContext>, store: OutputStore) -> Rc<Self> {
        Self::with_most(MOST_RUNNING, team, store)
    }

    /// Creates the list of an agent that may run none, since nobody would learn of their ends.
    pub(in crate::tools) fn none(team: Rc<TeamContext>, store: OutputStore) -> Rc<Self> {
        Self::with_most(0, team, store)
    }

    fn with_most(most: usize, team: Rc<TeamContext>, store: OutputStore) -> Rc<Self> {
        Rc::new(Self {
            most,
            team,
            store,
            list: RefCell::default(),
            live: RefCell::default(),
            tasks: RefCell::default(),
            saving: tokio::sync::Mutex::default(),
            is_loaded: Cell::default(),
            is_ending: Cell::default(),
        })
    }

    /// Loads the records of an earlier process, unless that was done.
    pub(super) async fn load(&self) {
        if self.is_loaded.replace(true) {
            return;
        }
        let (dir, me) = (self.store.dir.clone(), self.team.me.clone());
        let read = offload(move || background::read(&dir, &me)).await;
        let read =
            read.inspect_err(|why| tracing::warn!(%why, "background commands are not known"));
        *self.list.borrow_mut() = read.unwrap_or_default();
    }

    /// Returns the ids of the calls that have started a command or looked at one, in an earlier process.
    pub(crate) async fn known_calls(&self) -> BTreeSet<String> {
        self.load().await;
        let list = self.list.borrow();
        let started = list.commands.iter().map(|command| command.call.clone());
        let looked =
            list.commands.iter().filter_map(|command| Some(command.look.as_ref()?.call.clone()));
        started.chain(looked).collect()
    }

    /// Tells the agent what has become of commands of an earlier process, once. `begun` and `answered` are the ids of the
    /// calls in its transcript that were begun, and answered.
    pub(crate) async fn resume(&self, begun: &BTreeSet<String>, answered: &BTreeSet<String>) {
        self.load().await;
        let mut untold = Vec::new();
        for command in &mut self.list.borrow_mut().commands {
            if let Some(look) = command.look.take().filter(|look| answered.contains(&look.call)) {
                command.seen = look.to;
                command.told |= look.end;
            }
            if command.is_running() {
                command.state = CommandState::Unknown;
                command.end = EARLIER.into();
            }
            // A command of another conversation tells this one nothing.
            if !begun.contains(&command.call) {
                command.told = true;
            }
            if !command.told {
                untold.push(command.id.clone());
            }
        }
        if self.list.borrow().commands.is_empty() {
            return;
        }
        self.save().await;
        for id in untold {
            if let Ok((live, command)) = self.find(&id).await {
                // Without a notice now, the next process tells it.
                let _is_told = self.tell(&live, &command).await;
            }
        }
    }

    /// Fails if too many commands run; the error lists them.
    pub(in crate::tools::command) fn check_room(&self) -> Result<(), ToolError> {
        let list = self.list.borrow();
        let running: Vec<String> = list
            .commands
            .iter()
            .filter(|it| it.is_running())
            .map(BackgroundCommand::title)
            .collect();
        if running.len() < self.most {
            return Ok(());
        }
        if self.most == 0 {
            return Err(ToolError::reply(
                "you can run no command in the background; leave `background` out, and give it a `timeout`",
            ));
        }
        Err(ToolError::Reply(format!(
            "{} commands already run in the background, more are not allowed: {}; stop one with stop_command, or wait \
             for one",
            running.len(),
            running.join(", ")
        )))
    }

    /// Records a command that is about to start. Returns its id.
    pub(super) async fn record(
        &self,
        command: &str,
        limit: Option<Duration>,
        call: &Call,
        place: Place,
    ) -> Result<String, ToolError> {
        let _saving = self.saving.lock().await;
        let mut list = self.list.borrow().clone();
        list.last = list.last.saturating_add(1);
        let id = format!("c{}", list.last);
        let old = forget_old(&mut list);
        let (clean, held) = (self.store.redact)(command.to_owned());
        let mut new = BackgroundCommand {
            id: id.clone(),
            call: call.id.clone(),
            command: (clean + &held).chars().take(RECORD_CHARS).collect(),
            folder: PathBuf::new(),
            since: SystemClock.now(),
            timeout: limit.map(|limit| limit.as_secs()),
            state: CommandState::Running,
            end: String::new(),
            report: String::new(),
            seen: 0,
            look: None,
            told: false,
        };
        let (dir, me, fsync) =
            (self.store.dir.clone(), self.team.me.clone(), self.team.bus.fsync());
        let gone = old.clone();
        let recorded = offload(move || {
            let Place { recorder, checkout, folder } = place;
            let id = new.id.clone();
            let record = |at, top: Option<PathBuf>| {
                (new.since, new.folder) = (at, top.unwrap_or(folder));
                list.commands.push(new.clone());
                background::write(&dir, &me, &list, fsync)
            };
            recorder.begin_background(&checkout, &id, record)?;
            for id in gone {
                fs::remove_file(dir.command_output(&me, &id)).unwrap_or_default();
            }
            Ok::<_, StoreError>(new)
        });
        let new = recorded.await.map_err(|why| {
            ToolError::Reply(format!(
                "the command was not started, because it could not be recorded: {why}; try again"
            ))
        })?;
        let mut list = self.list.borrow_mut();
        list.last = list.last.saturating_add(1);
        list.commands.retain(|it| !old.contains(&it.id));
        list.commands.push(new);
        self.live.borrow_mut().retain(|id, _| !old.contains(id));
        Ok(id)
    }

    /// Removes the record of a command that could not be started.
    pub(super) async fn forget(&self, id: &str) {
        self.list.borrow_mut().commands.retain(|it| it.id != id);
        self.save().await;
    }

    /// Attends to a command until it has ended and the agent knows it. `after` does the work after its end, and returns a
    /// text for the model.
    pub(super) async fn attend(
        self: &Rc<Self>,
        id: &str,
        started: StartedCommand,
        limit: Option<Duration>,
        after: impl AsyncFnOnce(Ending) -> String + 'static,
    ) {
        let (dir, me, of) = (self.store.dir.clone(), self.team.me.clone(), id.to_owned());
        let spill = offload(move || OutputSpill::of_command(&dir, &me, &of)).await;
        let spill = spill.inspect_err(|why| {
            tracing::warn!(%why, "the output of a background command is not stored");
        });
        let live = LiveCommand::new(CommandLog::new(self.store.clone(), spill.ok()), false);
        self.live.borrow_mut().insert(id.to_owned(), Rc::clone(&live));
        if self.is_ending.get() {
            live.stop();
        }
        let (own, id) = (Rc::clone(self), id.to_owned());
        let task = spawn_local(async move {
            let begun = SystemClock.monotonic();
            let stopped = async {
                let stopped = live.until(|live| live.is_stopped.get());
                match limit {
                    Some(limit) => timeout(limit, stopped).await.unwrap_or_default(),
                    None => stopped.await,
                }
            };
            let ended = started.run(stopped, &mut LogSink(Rc::clone(&live))).await;
            live.log.borrow_mut().finish();
            let output = live.log.borrow().since(0, KEPT_BYTES).text;
            let is_sending = !own.is_ending.get();
            let report = after(Ending { output, is_sending }).await;
            // A command that has ended with its agent is told by the next process.
            if !is_sending {
                return;
            }
            let seconds = SystemClock.monotonic().duration_since(begun).as_secs();
            let end = end_in_words(ended, &live, limit);
            own.change(&id, |it| {
                it.state = CommandState::Ended;
                it.end = format!("{end} after {seconds} s");
                it.report = report;
            });
            own.save().await;
            hit("background.ended");
            live.has_ended.set(true);
            live.changed.notify_waiters();
            own.tell_end(&live, &id).await;
        });
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// Sends the notice of the end of a command, unless a call shows it before.
    async fn tell_end(&self, live: &LiveCommand, id: &str) {
        loop {
            live.until(|live| live.looks.get() == 0).await;
            let is_shown =
                |command: &BackgroundCommand| command.look.as_ref().is_some_and(|look| look.end);
            let Some(command) = self.get(id).filter(|command| !is_shown(command)) else { return };
            if self.tell(live, &command).await || self.is_ending.get() {
                return;
            }
            tokio::time::sleep(TELL_AGAIN).await;
        }
    }

    /// Waits for a notice that is being sent. Returns what a call says whose model gets the end with that notice.
    async fn told_meanwhile(&self, live: &LiveCommand, id: &str) -> Option<String> {
        if !live.is_telling.get() {
            return None;
        }
        live.until(|live| !live.is_telling.get()).await;
        let is_told = self.get(id).is_some_and(|command| command.told);
        is_told.then(|| format!("[{id}: ended; the next message tells its end and its new output]"))
    }

    /// Ends all commands of an agent that ends. Their records stay, so that the next process tells what has become of
    /// them.
    pub(crate) async fn end_all(&self) {
        self.is_ending.set(true);
        self.live.borrow().values().for_each(|live| live.stop());
        let tasks = self.tasks.take();
        let all = async {
            for task in tasks {
                task.await.unwrap_or_default();
            }
        };
        if timeout(END_WITHIN, all).await.is_err() {
            tracing::warn!("background commands have not ended in time");
        }
    }

    /// Ends a command of this process as the user wishes, and returns its title; `None` if none of this id runs. The agent
    /// gets the notice of its end.
    pub(crate) fn stop_by_user(&self, id: &str) -> Option<String> {
        let command = self.get(id).filter(BackgroundCommand::is_running)?;
        let live = self.live.borrow().get(id).cloned()?;
        live.is_stopped_by_user.set(true);
        live.stop();
        Some(command.title())
    }

    /// Returns the new output of a command and its state, for this call. Waits at most `wait` for either.
    pub(super) async fn look(
        &self,
        id: &str,
        call: &Call,
        wait: Option<Duration>,
    ) -> Result<String, ToolError> {
        let (live, command) = self.find(id).await?;
        if let Some(told) = self.told_meanwhile(&live, id).await {
            return Ok(told);
        }
        let pending = PendingLook::new(self, Rc::clone(&live));
        let seen = seen(&command);
        if let Some(wait) = wait {
            let is_news =
                |live: &LiveCommand| live.has_ended.get() || live.log.borrow().total() > seen;
            timeout(wait, live.until(is_news)).await.unwrap_or_default();
        }
        self.show(pending, id, call).await
    }

    /// Ends a command and returns its new output, for this call.
    pub(super) async fn stop(&self, id: &str, call: &Call) -> Result<String, ToolError> {
        let (live, _) = self.find(id).await?;
        if let Some(told) = self.told_meanwhile(&live, id).await {
            return Ok(told);
        }
        let pending = PendingLook::new(self, Rc::clone(&live));
        live.stop();
        let ended = timeout(STOPPED_WITHIN, live.until(|live| live.has_ended.get())).await;
        if ended.is_err() {
            return Err(ToolError::Reply(format!(
                "{id} has not ended yet; look at it with command_output"
            )));
        }
        self.show(pending, id, call).await
    }

    async fn show(
        &self,
        mut pending: PendingLook<'_>,
        id: &str,
        call: &Call,
    ) -> Result<String, ToolError> {
        let command = self.get(id).ok_or_else(|| self.unknown(id))?;
        let live = Rc::clone(&pending.live);
        let (from, to, end) = (seen(&command), live.log.borrow().total(), live.has_ended.get());
        let NewOutput { text, skipped } = live.log.borrow().since(from, KEPT_BYTES);
        let mut shown = String::new();
        if skipped > 0 {
            let path = self.store.dir.command_output(&self.team.me, id);
            let path = self.store.readable(&path);
            shown = format!("[... {skipped} bytes before this: {path}]\n");
        }
        shown += if text.is_empty() { "(no new output)" } else { &text };
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
        let state = if end {
            command.end.clone()
        } else {
            format!("running for {} s", SystemClock.now().since(command.since).as_secs())
        };
        let _infallible = write!(shown, "[{id}: {state}]{}", command.report);
        // The look before this one is in the transcript.
        let was_told = command.told || command.look.as_ref().is_some_and(|look| look.end);
        let look = OutputLook { call: call.id.clone(), to, end };
        self.change(id, |it| (it.seen, it.look, it.told) = (from, Some(look), was_told));
        pending.before = Some(command);
        self.save().await;
        pending.commit();
        Ok(shown)
    }

    /// Sends the agent the notice of the end of a command. Returns whether it was sent.
    async fn tell(&self, live: &LiveCommand, command: &BackgroundCommand) -> bool {
        live.is_telling.set(true);
        let is_sent = self.send_notice(live, command).await;
        if is_sent {
            self.change(&command.id, |it| it.told = true);
        }
        live.is_telling.set(false);
        live.changed.notify_waiters();
        if is_sent {
            self.save().await;
        }
        is_sent
    }

    /// Sends a notice. A second one has the same id and the same content, so it is delivered once.
    async fn send_notice(&self, live: &LiveCommand, command: &BackgroundCommand) -> bool {
        let NewOutput { text, skipped } = live.log.borrow().since(seen(command), NOTICE_BYTES);
        let mut content = format!("background command {}: {}", command.title(), command.end);
        content += &command.report;
        if !text.trim().is_empty() {
            let what = if skipped > 0 { "the end of its new output" } else { "its new output" };
            let _infallible = write!(content, "\n{what}:\n{}", text.trim_end());
        }
        let (bus, me) = (Arc::clone(&self.team.bus), self.team.me.clone());
        let id = Some(format!("system:command:{me}:{}", command.call));
        let sent = offload(move || {
            let outgoing = Outgoing { id, ..Outgoing::text(bus.cut(&content)) };
            bus.send(&AgentName::system(), me.as_str(), outgoing)
        })
        .await;
        if let Err(why) = sent {
            tracing::warn!(%why, id = command.id, "the end of a background command was not told");
            return false;
        }
        hit("background.told");
        true
    }

    fn get(&self, id: &str) -> Option<BackgroundCommand> {
        self.list.borrow().commands.iter().find(|it| it.id == id).cloned()
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut BackgroundCommand)) {
        if let Some(command) = self.list.borrow_mut().commands.iter_mut().find(|it| it.id == id) {
            change(command);
        }
    }

    /// Finds a command, perhaps one of an earlier process.
    async fn find(&self, id: &str) -> Result<(Rc<LiveCommand>, BackgroundCommand), ToolError> {
        self.load().await;
        let command = self.get(id).ok_or_else(|| self.unknown(id))?;
        let known = self.live.borrow().get(id).cloned();
        if let Some(live) = known {
            return Ok((live, command));
        }
        let (dir, me, of) = (self.store.dir.clone(), self.team.me.clone(), id.to_owned());
        let read = offload(move || background::output_end(&dir, &me, &of, KEPT_BYTES as u64)).await;
        let (kept, total) = read.map_err(ToolError::reply)?;
        let log = CommandLog::of_earlier(self.store.clone(), kept, total);
        let live = LiveCommand::new(log, true);
        self.live.borrow_mut().insert(id.to_owned(), Rc::clone(&live));
        Ok((live, command))
    }

    fn unknown(&self, id: &str) -> ToolError {
        let known: Vec<String> =
            self.list.borrow().commands.iter().map(BackgroundCommand::title).collect();
        let known = if known.is_empty() { "there is none".into() } else { known.join(", ") };
        ToolError::Reply(format!("{id:?} is no background command; known: {known}"))
    }

    /// Writes the list as it is when no other write is under way.
    async fn save(&self) {
        let _saving = self.saving.lock().await;
        let (dir, me, list) =
            (self.store.dir.clone(), self.team.me.clone(), self.list.borrow().clone());
        let fsync = self.team.bus.fsync();
        let saved = offload(move || background::write(&dir, &me, &list, fsync)).await;
        if let Err(why) = saved {
            tracing::warn!(%why, "the list of background commands was not written");
        }
    }
}

/// Removes the oldest commands that have ended. Returns their ids.
fn forget_old(list: &mut CommandList) -> Vec<String> {
    let is_over = |it: &&BackgroundCommand| !it.is_running() && !it.will_wake();
    let over: Vec<String> = list.commands.iter().filter(is_over).map(|it| it.id.clone()).collect();
    let surplus = over.len().saturating_sub(MOST_ENDED);
    let old: Vec<String> = over.into_iter().take(surplus).collect();
    list.commands.retain(|it| !old.contains(&it.id));
    old
}

/// Returns the size of the output that the model has seen.
fn seen(command: &BackgroundCommand) -> u64 {
    command.look.as_ref().map_or(command.seen, |look| look.to)
}

fn end_in_words(
    ended: io::Result<CommandEnd>,
    live: &LiveCommand,
    limit: Option<Duration>,
) -> String {
    match ended {
        Err(why) => format!("it could not be attended: {why}; ended"),
        Ok(CommandEnd { was_cut: true, .. }) if live.is_stopped_by_user.get() => {
            "stopped by the user".into()
        }
        Ok(CommandEnd { was_cut: true, .. }) if live.is_stopped.get() => "stopped".into(),
        Ok(CommandEnd { was_cut: true, .. }) => {
            format!("timed out ({} s)", limit.unwrap_or_default().as_secs())
        }
        Ok(CommandEnd { end: ExitKind::Code(code), .. }) => format!("exit code {code}"),
        Ok(CommandEnd { end: ExitKind::Signal(signal), .. }) => format!("ended by signal {signal}"),
    }
}

#[cfg(test)]
mod tests;

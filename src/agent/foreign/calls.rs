//! The tool calls of one turn of a foreign agent, as far as they are told and recorded.

use super::call::ForeignCall;
use crate::acp::update::{ToolStatus, ToolUpdate};

/// The most calls that are followed at once. The oldest one is forgotten for a new one.
const MAX_CALLS: usize = 256;

#[derive(Debug)]
pub(super) struct Calls {
    count: u64,
    followed: Vec<Followed>,
}

#[derive(Debug)]
struct Followed {
    call: ForeignCall,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Told,
    Announced,
    Started,
    Finished,
}

/// The parts of a call that are to be recorded.
#[derive(Debug, PartialEq)]
pub(super) struct News {
    pub(super) is_announced: bool,
    pub(super) is_started: bool,
    /// The output, and whether the call failed.
    pub(super) result: Option<(String, bool)>,
}

impl Calls {
    /// Creates the calls of a turn that `count` calls precede.
    pub(super) fn after(count: u64) -> Self {
        Self { count, followed: Vec::new() }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Notes what the agent tells about a call, and returns its id.
    pub(super) fn told(&mut self, told: ToolUpdate) -> String {
        self.note(told, |_| true)
    }

    /// Notes a question about a call, and returns its id. Codex and `OpenCode` report a call as running before they ask
    /// about it. An id that the agent gives to a finished call again is another call.
    pub(super) fn asked_about(&mut self, told: ToolUpdate) -> String {
        self.note(told, |stage| stage < Stage::Finished)
    }

    fn note(&mut self, told: ToolUpdate, is_same: impl Fn(Stage) -> bool) -> String {
        let known = self.followed.iter_mut().rev().find(|known| known.call.told.id == told.id);
        if let Some(known) = known.filter(|known| is_same(known.stage)) {
            known.call.told.merge(told);
            return known.call.id.clone();
        }
        self.count += 1;
        let fits = |c: &char| c.is_ascii_alphanumeric() || "_-.".contains(*c);
        let own: String = told.id.chars().filter(fits).take(64).collect();
        let id = format!("{own}-{}", self.count);
        if self.followed.len() >= MAX_CALLS {
            let is_over = |known: &Followed| known.stage == Stage::Finished;
            let at = self.followed.iter().position(is_over).unwrap_or_default();
            self.followed.remove(at);
        }
        let call = ForeignCall { id: id.clone(), told };
        self.followed.push(Followed { call, stage: Stage::Told });
        id
    }

    pub(super) fn get(&self, id: &str) -> Option<&ForeignCall> {
        self.followed.iter().find(|known| known.call.id == id).map(|known| &known.call)
    }

    /// Returns what is new of a call; `None` if it is finished.
    pub(super) fn news(&self, id: &str) -> Option<News> {
        let known = self.followed.iter().find(|known| known.call.id == id)?;
        if known.stage == Stage::Finished {
            return None;
        }
        let told = &known.call.told;
        let has_input =
            told.input.as_ref().is_some_and(|it| it.as_object().is_none_or(|it| !it.is_empty()));
        let is_over = matches!(told.progress, Some(ToolStatus::Completed | ToolStatus::Failed));
        let is_running = is_over || told.progress == Some(ToolStatus::InProgress);
        let result = is_over.then(|| {
            (told.output.clone().unwrap_or_default(), told.progress == Some(ToolStatus::Failed))
        });
        Some(News { is_announced: has_input || is_running, is_started: is_running, result })
    }

    pub(super) fn announce(&mut self, id: &str) -> Option<ForeignCall> {
        self.advance(id, Stage::Announced)
    }

    pub(super) fn start(&mut self, id: &str) -> Option<ForeignCall> {
        self.advance(id, Stage::Started)
    }

    pub(super) fn finish(&mut self, id: &str) -> Option<ForeignCall> {
        self.advance(id, Stage::Finished)
    }

    /// Returns the recorded calls without a result.
    pub(super) fn open(&self) -> Vec<String> {
        let is_open = |known: &&Followed| matches!(known.stage, Stage::Announced | Stage::Started);
        self.followed.iter().filter(is_open).map(|known| known.call.id.clone()).collect()
    }

    /// Advances a call, and returns it; `None` if it is that far already.
    fn advance(&mut self, id: &str, stage: Stage) -> Option<ForeignCall> {
        let known = self.followed.iter_mut().find(|known| known.call.id == id)?;
        if known.stage >= stage {
            return None;
        }
        known.stage = stage;
        Some(known.call.clone())
    }
}

//! Tool calls that run: those that only read at the same time, subagents at the same time, any other one alone.

use super::{EXTENSION_CALLS, Next, TurnEnd, TurnPhase, TurnState, WINDING_DOWN};
use crate::agent::conversation::event::{HostAction, TurnEffect};
use crate::agent::progress::{CallEnd, Progress};
use crate::tools::{Call, ToolError, ToolOutput, find, signal};
use crate::wire::activity::Activity;
use crate::wire::message::Outcome;
use crate::wire::tool::{Effect, Signal};
use crate::wire::tool_summary::summary;
use crate::wire::transcript::Entry;
use std::ops::ControlFlow;

/// The largest number of calls that run at the same time.
const MAX_TOGETHER: usize = 8;

impl TurnState {
    /// Runs a call, or first judges the next one if both only read, or both run a subagent.
    pub(super) fn gather(&mut self, call: Call) -> Next {
        self.ready.push(call);
        let together = || self.ready.iter().chain(self.calls.front());
        let is_group = self.ready.len() < MAX_TOGETHER && together().all(only_reads)
            || together().all(runs_subagent);
        if is_group && let Some(next) = self.calls.pop_front() {
            return self.judge(next);
        }
        self.run_ready()
    }

    /// Runs a call.
    pub(in crate::agent::conversation) fn run(&mut self, call: Call) -> Next {
        self.ready.push(call);
        self.run_ready()
    }

    /// Runs the calls that may run at the same time. The intent is durable before the tools run.
    pub(super) fn run_ready(&mut self) -> Next {
        let calls = std::mem::take(&mut self.ready);
        for Call { id, name, .. } in &calls {
            self.record(Entry::ToolStart { tool_use_id: id.clone(), name: name.clone() });
        }
        self.push(TurnEffect::Sync);
        if let Some(first) = calls.first() {
            self.push(HostAction::Doing(Activity::Tool(first.name.clone())));
        }
        for Call { id, name, input } in calls.clone() {
            let summary = summary(find(&name), &input);
            self.push(TurnEffect::Show(Progress::ToolStarted { id, name, input, summary }));
        }
        self.push(TurnEffect::RunTools(calls.clone()));
        Next::Continue(TurnPhase::Acting(calls))
    }

    /// Answers calls that were run, and continues unless a failure is fatal. `last` is the answer to the other calls if
    /// these were the last calls of the turn.
    pub(in crate::agent::conversation) fn tools_ended(
        &mut self,
        calls: Vec<Call>,
        results: Vec<Result<ToolOutput, ToolError>>,
        last: Option<&str>,
    ) -> Next {
        let (mut done, mut fatal) = (Vec::new(), None);
        let mut results = results.into_iter();
        for call in calls {
            let result =
                results.next().unwrap_or_else(|| Err(ToolError::reply("it has no result")));
            match self.tool_ended(&call, result) {
                Ok(succeeded) => done.push((call, succeeded)),
                Err(why) => fatal = fatal.or(Some(why)),
            }
        }
        if let Some(why) = fatal {
            self.refuse_calls("not run: the agent cannot go on");
            let end = self.fail(why.clone());
            return end.map_break(|end| TurnEnd { fatal: Some(why), ..end });
        }
        if let Some(others) = last {
            self.refuse_calls(others);
            return self.end(Outcome::Interrupted);
        }
        for (call, succeeded) in done {
            if self.follow_signal(&call, succeeded).is_break() {
                self.refuse_calls(WINDING_DOWN);
                return self.end(Outcome::Interrupted);
            }
        }
        match self.held.take() {
            Some((call, verdict)) => self.judged(call, verdict),
            None => self.act(),
        }
    }

    /// Answers a call that was run, and returns whether it succeeded. Fails with the reason for which the agent cannot
    /// continue.
    fn tool_ended(
        &mut self,
        call: &Call,
        result: Result<ToolOutput, ToolError>,
    ) -> Result<bool, String> {
        let succeeded = result.is_ok();
        let output = match result {
            Ok(output) => output,
            Err(ToolError::Reply(why)) => why.into(),
            Err(ToolError::Fatal(why)) => {
                self.answer(call, why.clone(), true);
                return Err(why);
            }
        };
        let text = self.loop_detector.look(self.rounds, call, output.text, !succeeded);
        let end = if succeeded { CallEnd::Succeeded } else { CallEnd::Failed };
        self.answer_with(call, ToolOutput { text, ..output }, end);
        Ok(succeeded)
    }

    /// Acts on the signal of a call that has ended. Breaks if the turn ends because the member agrees to shut down.
    fn follow_signal(&mut self, call: &Call, succeeded: bool) -> ControlFlow<()> {
        let signal = succeeded.then(|| signal(call));
        let argument = |name: &str| call.input.get(name);
        let is_to_lead = argument("to").and_then(|to| to.as_str()) == Some("lead");
        self.told_lead = signal == Some(Signal::SendsMessage) && is_to_lead;
        self.wants_idle |= signal == Some(Signal::EndsTurn);
        if signal == Some(Signal::AnswersShutdown) {
            if argument("approve").and_then(serde_json::Value::as_bool) != Some(true) {
                let reason = argument("reason").and_then(serde_json::Value::as_str);
                let reason = reason.unwrap_or("no reason was given");
                self.push(HostAction::EndRefused(reason.into()));
                self.extension = self.winding_down.take().map(|_| EXTENSION_CALLS);
            } else if self.winding_down.is_some() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether a call runs a subagent. How many work at the same time is a setting of theirs.
fn runs_subagent(call: &Call) -> bool {
    signal(call) == Signal::RunsSubagent
}

/// Whether a call changes nothing, so that another one may run at the same time.
fn only_reads(call: &Call) -> bool {
    find(&call.name).is_some_and(|spec| spec.effect == Effect::Reads)
}

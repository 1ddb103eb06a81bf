//! Replies of the scripted models of the long run. The tools that they call are real. The replies depend on
//! the files and not on the conversation, so that the work continues after a summary or a restart.

use super::job::{Job, LICENCE, Step};
use crate::rng::Rng;
use crate::support::fake::{Reply, RequestView};
use crate::support::fake_models::{agent_of, call, conversation, results};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

pub(super) const MEMBERS: usize = 4;

/// The name of a member.
pub(super) fn name(member: usize) -> String {
    format!("t{member}")
}

/// The number of files after which a member sends a message to the next member.
const WRITES_EVERY: usize = 8;

/// The scripted models and their state.
pub(super) struct Play {
    pub(super) job: Job,
    /// The context of the models in tokens.
    pub(super) context: u64,
    /// The approximate average delay of an answer. Each delay is at least half of it.
    pub(super) pace: Duration,
    told: Mutex<Told>,
}

/// The replies so far and their usage.
#[derive(Default)]
pub(super) struct Told {
    rng: Option<Rng>,
    /// The number of requests, input tokens and output tokens of each agent.
    pub(super) of: BTreeMap<String, [u64; 3]>,
    pub(super) longest: u64,
    spawned: bool,
    /// The files that each agent has read since its process started.
    read: BTreeSet<(String, usize)>,
    written: BTreeSet<(usize, usize)>,
    /// The output of the lead's check.
    pub(super) verdict: String,
    check: Phase,
}

/// The progress of the lead's check at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Open,
    Asked,
    Done,
}

fn tokens(view: &RequestView) -> u64 {
    view.body.to_string().len() as u64 / 4
}

impl Play {
    pub(super) fn new(job: Job, context: u64, pace: Duration, rng: Rng) -> Self {
        let told = Told { rng: Some(rng), ..Told::default() };
        Self { job, context, pace, told: Mutex::new(told) }
    }

    pub(super) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    /// Forgets the files that were read, after a kill of all processes: the next processes have read none.
    pub(super) fn all_died(&self) {
        let mut told = self.told();
        told.read.clear();
    }

    pub(super) fn answer(&self, view: &RequestView) -> Reply {
        let (who, used) = (who_asks(view), tokens(view));
        if used > self.context {
            let message = format!("prompt is too long: {used} tokens > {} maximum", self.context);
            return Reply::error(400, "invalid_request_error", &message);
        }
        let (reply, written) = if view.body["tools"].is_null() {
            let notes = "NOTES: the files are done one by one; the disk says which.";
            (Reply::text(notes), 20)
        } else if who == "lead" {
            (self.lead(view), 40)
        } else {
            (self.teammate(view, &who), 60)
        };
        let mut told = self.told();
        told.longest = told.longest.max(used);
        let [calls, read, out] = told.of.entry(who).or_default();
        (*calls, *read, *out) = (*calls + 1, *read + used, *out + written);
        let tenths = told.rng.as_mut().unwrap().below(10);
        let delay = self.pace / 2 + self.pace / 10 * u32::try_from(tenths).unwrap();
        reply.usage(used, written).after(delay)
    }

    fn lead(&self, view: &RequestView) -> Reply {
        let mut told = self.told();
        if !told.spawned {
            told.spawned = true;
            return (0..MEMBERS).fold(Reply::text("I am a played model."), |reply, member| {
                let order = json!({"name": name(member), "role": "worker",
                    "prompt": "License, describe and check your files, one after another."});
                reply.tool(&format!("call-{}-{member}", view.number), "spawn_teammate", &order)
            });
        }
        if told.check == Phase::Asked {
            told.verdict = results(view);
            told.check = Phase::Done;
        }
        let is_over = self.job.checked() == self.job.files();
        if is_over && told.check == Phase::Open {
            told.check = Phase::Asked;
            return call(view, "bash", &json!({"command": "sh check.sh", "timeout": 600}));
        }
        Reply::text(if is_over { "All of it is done and checked." } else { "I wait." })
    }

    fn teammate(&self, view: &RequestView, who: &str) -> Reply {
        let member = (0..MEMBERS).find(|member| name(*member) == who).unwrap();
        let Some((at, step)) = self.job.next(member) else {
            return Reply::text(&format!("{who}: my files are done."));
        };
        let file = &self.job.share(member)[at];
        let key = (who.to_owned(), at);
        let mut told = self.told();
        if at % WRITES_EVERY == WRITES_EVERY - 1 && told.written.insert((member, at)) {
            let content = format!("{who} is at file {at}: {file}");
            let to = name((member + 1) % MEMBERS);
            return call(view, "send_message", &json!({"to": to, "content": content}));
        }
        // The files that it reads are those of this program, and one has these words.
        if results(view).ends_with("; read it first with read_file, then repeat this call") {
            told.read.remove(&key);
        }
        match step {
            Step::License if told.read.insert(key) => {
                call(view, "read_file", &json!({ "path": file }))
            }
            Step::License => {
                let old = self.job.beginning(file);
                let new = format!("{LICENCE}\n{old}");
                call(view, "edit_file", &json!({"path": file, "old_text": old, "new_text": new}))
            }
            Step::Describe => bash(
                view,
                &format!(
                    "grep -n 'pub' {file} | head -n 200; \
                     echo \"{file} $(grep -c '' {file})\" >> index/{who}; echo described {file} >> done/{who}"
                ),
            ),
            Step::Check => {
                bash(view, &format!("sh check.sh {file} && echo checked {file} >> done/{who}"))
            }
        }
    }
}

fn bash(view: &RequestView, command: &str) -> Reply {
    call(view, "bash", &json!({ "command": command }))
}

/// The agent that sent the request. A request for a summary has no name, so the conversation in it decides.
fn who_asks(view: &RequestView) -> String {
    if view.body["tools"].is_null() { summarized(view) } else { agent_of(view) }
}

fn summarized(view: &RequestView) -> String {
    let said = conversation(view);
    let of = |member: &usize| said.contains(&format!("done/{}", name(*member)));
    (0..MEMBERS).find(of).map_or_else(|| "lead".to_owned(), name)
}

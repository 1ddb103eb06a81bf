//! Resumes a member: reads the conversation back, answers the calls that were cut off, sends the last report
//! again, and records a note about the start for the model.

use super::{Member, MemberStart};
use crate::agent::conversation::{AfterRestart, CutOff, RecordError};
use crate::store::{past, unread};
use crate::tools::{Call, may_restore};
use crate::wire::message::{Message, Outcome};
use crate::wire::permission::{Decision, DecisionOutcome};
use crate::wire::transcript::{Entry, Line};
use memchr::memmem::Finder;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The separator of the parts of a note.
const BETWEEN: &str = "; ";

/// The end of the part of a note about mail that was there before the start.
const OLDER: &str = "older than this start";

/// Returns the choice of the lines before the last summary that a member needs which is resumed, besides those of its conversation.
fn needed_lines<'a>(
    background: &'a BTreeSet<String>,
    mail_of_subagents: Option<&'a str>,
) -> impl Fn(&[u8]) -> bool + 'a {
    let of_background: Vec<Finder<'_>> = background.iter().map(Finder::new).collect();
    let of_subagents = mail_of_subagents.map(Finder::new);
    move |line| {
        let found = |it: &Finder<'_>| it.find(line).is_some();
        Line::may_be(line, "mail") && of_subagents.as_ref().is_some_and(found)
            || Line::may_be(line, "tool_result") && may_restore(line)
            || of_background.iter().any(found)
    }
}

impl Member {
    /// Reads the transcript into the memory and answers the calls that were cut off. Returns the calls that are
    /// still to run if the transcript ends within a turn. If the transcript holds a conversation, the `reason` of
    /// the start is part of the note. Without a reason the member was started again, so a turn that a stop cut off is not
    /// continued. With a new prompt, neither is one in which the process was killed: it ends here, unless a question of it
    /// is open. Fails if the transcript cannot be read or written.
    pub(super) async fn resume(
        &mut self,
        start: MemberStart,
    ) -> Result<Option<VecDeque<Call>>, RecordError> {
        let MemberStart { reason, has_new_prompt } = start;
        let (mut has_past, mut last_report) = (false, None);
        let mut asked = BTreeSet::new();
        // A long transcript has many calls, of which few are of background commands.
        let background = self.conversation.tools.background().known_calls().await;
        let (mut begun, mut answered) = (BTreeSet::new(), BTreeSet::new());
        let mut foreign = None;
        let subagents = self.subagents.all.clone();
        let mut questions = BTreeMap::new();
        let (conversation, host) = (&mut self.conversation, &mut self.host);
        let mail_of_subagents = subagents.as_ref().map(|it| it.mail_prefix());
        let is_needed = needed_lines(&background, mail_of_subagents.as_deref());
        let read = past::each_needed(
            self.context.bus.dir(),
            &self.context.me.name,
            is_needed,
            |Line { entry, .. }| {
                conversation.remember(&entry);
                if let Some(subagents) = &subagents {
                    subagents.follow(&entry);
                }
                if let Entry::Decision(decision) = &entry {
                    questions.remove(&decision.request_id);
                }
                if let Entry::Session { foreign: session, .. } = entry {
                    foreign = session.or(foreign.take());
                    return;
                }
                has_past = true;
                last_report = None;
                if let Entry::Request { question, .. } = &entry {
                    asked.insert(question.tool_use_id.clone());
                    let subagent = question.subagent.clone();
                    questions.extend(subagent.map(|id| (question.request_id.clone(), id)));
                } else if let Entry::ToolStart { tool_use_id, .. } = &entry {
                    begun.extend(background.get(tool_use_id).cloned());
                } else if let Entry::ToolResult { tool_use_id, .. } = &entry {
                    answered.extend(background.get(tool_use_id).cloned());
                }
                if let Entry::TurnEnd { outcome, report: Some(report), .. } = entry {
                    last_report = Some((outcome, report));
                }
            },
        );
        read.map_err(|why| RecordError::Broken(why.to_string()))?;
        if reason.is_some() && !has_new_prompt {
            conversation.journal.reopen_turn();
        }
        let session = Entry::Session {
            incarnation: self.context.me.incarnation.clone(),
            pid: i32::try_from(std::process::id()).unwrap_or_default(),
            model: conversation.model.model.provider.label(),
            foreign: None,
        };
        conversation.journal.record(session, host).await?;
        // The last report may not have been sent. Its id makes a second send harmless.
        if let Some((outcome, report)) = last_report {
            host.send_report(outcome, report).await;
        }
        // Before the calls that were cut off get an answer, which is no result.
        conversation.tools.background().resume(&begun, &answered).await;
        let restart = match self.foreign {
            Some(_) => AfterRestart::Foreign,
            None if has_new_prompt => AfterRestart::TurnOver,
            None => AfterRestart::GoOn,
        };
        let mut cut_off = conversation.answer_open_calls(&asked, restart, host).await?;
        self.close_left_questions(questions, cut_off.turn.as_ref()).await?;
        let (conversation, host) = (&mut self.conversation, &mut self.host);
        // A call that waits for a decision is asked about again, so it does not run unasked.
        let has_questions = cut_off.turn.as_ref().is_some_and(|calls| !calls.is_empty());
        let is_over = has_new_prompt && cut_off.is_begun && !has_questions;
        let is_over = is_over && cut_off.turn.take().is_some();
        if is_over {
            let outcome = Outcome::Interrupted;
            let end = Entry::TurnEnd { outcome, rounds: 0, report: None, cut_off: false };
            conversation.journal.record(end, host).await?;
        }
        if cut_off.turn.is_some() {
            conversation.tools.recorder().continue_turn();
        }
        if let Some(agent) = &mut self.foreign {
            agent.know_session(foreign);
            conversation.journal.observer = Some(agent.observer());
            if cut_off.turn.is_some()
                && let Some(text) = conversation.journal.memory().asked_in_turn()
            {
                agent.repeat(&text);
            }
        }
        let reason = reason.filter(|_| has_past);
        if let Some(content) = self.start_note(reason, has_past, is_over, &cut_off) {
            let note = Entry::Note { content };
            self.conversation.journal.record(note, &mut self.host).await?;
        }
        Ok(cut_off.turn)
    }

    /// Withdraws the questions of subagents that do not go on.
    async fn close_left_questions(
        &mut self,
        questions: BTreeMap<String, String>,
        turn: Option<&VecDeque<Call>>,
    ) -> Result<(), RecordError> {
        let calls = turn.into_iter().flatten().map(|call| call.id.as_str());
        let Some(all) = &self.subagents.all else { return Ok(()) };
        let going_on = all.going_on(&calls.collect());
        for (request_id, _) in questions.into_iter().filter(|(_, id)| !going_on.contains(id)) {
            let why = "the subagent was ended";
            let decision = Decision::by_program(&request_id, DecisionOutcome::Withdrawn, why);
            let entry = Entry::Decision(decision);
            self.conversation.journal.record(entry, &mut self.host).await?;
        }
        Ok(())
    }

    fn start_note(
        &self,
        reason: Option<String>,
        has_past: bool,
        is_over: bool,
        cut_off: &CutOff,
    ) -> Option<String> {
        let mut parts: Vec<String> = reason.into_iter().collect();
        let tool = cut_off.tool.as_ref();
        let during = tool.map_or_else(String::new, |tool| format!(" (during {tool})"));
        if is_over {
            parts.push(format!(
                "you were restarted for a new prompt, in the middle of a turn{during}; that turn is over: do not go on \
                 with it, and do not repeat its calls unless you are asked to"
            ));
        } else if cut_off.turn.is_some() && cut_off.follows_interrupted {
            parts.push(
                "the last mail before this start is not answered yet; the turn before it was interrupted and is over"
                    .into(),
            );
        } else if cut_off.turn.is_some() {
            parts.push(format!(
                "you were restarted in the middle of a turn{during}; go on from here"
            ));
        }
        // A new member cannot have mail from before its start.
        if has_past || self.context.me.name.is_lead() {
            let waiting =
                unread::waiting(self.context.bus.dir(), &self.context.me.name).unwrap_or_default();
            let wakes = |message: &Message| message.body.wakes();
            let old = waiting.iter().filter(|line| line.message.as_ref().is_some_and(wakes));
            match old.count() {
                0 => {}
                1 => parts.push(format!("the message that comes next is {OLDER}")),
                more => parts.push(format!("the {more} messages that come next are {OLDER}")),
            }
        }
        (!parts.is_empty()).then(|| parts.join(BETWEEN))
    }
}

/// Returns a note about a start without the number of messages that were there before it, which depends on the moment.
/// `None` if it says nothing else.
pub(crate) fn without_older_mail(note: &str) -> Option<String> {
    let parts: Vec<&str> = note.split(BETWEEN).filter(|part| !part.ends_with(OLDER)).collect();
    (!parts.is_empty()).then(|| parts.join(BETWEEN))
}

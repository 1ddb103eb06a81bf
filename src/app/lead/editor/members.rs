//! The teammates as the editor is told of them: who joins and who ends, their tool calls, and what they say between
//! those. The calls come from the transcripts, since the roster names only the running tool.

use super::calls::AgentCall;
use crate::acp::served::updates::{CallReport, CallStatus};
use crate::store::tail::Tail;
use crate::store::{TeamDir, roster};
use crate::tools::find;
use crate::wire::activity::Activity;
use crate::wire::chat::Block;
use crate::wire::roster::{Member, Status};
use crate::wire::tool::Signal;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A piece of news about a member.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MemberNews {
    /// A sentence about the member.
    Told {
        name: String,
        text: String,
    },
    /// The member has said something before it called a tool.
    Said {
        name: String,
        text: String,
    },
    Call(Box<CallReport>),
}

/// The members that are followed.
#[derive(Debug)]
pub(super) struct Members {
    /// News from before this time are not told.
    began: WallTime,
    followed: BTreeMap<String, Followed>,
}

#[derive(Debug)]
struct Followed {
    tail: Tail,
    last_status: Status,
    incarnation: String,
    /// The reason for which the model call is tried again, as it was told.
    retry: Option<String>,
    /// The calls of the last reply, by id.
    calls: BTreeMap<String, MemberCall>,
}

#[derive(Debug)]
struct MemberCall {
    tool: String,
    input: Value,
    is_started: bool,
}

impl Members {
    pub(super) fn new(began: WallTime) -> Self {
        Self { began, followed: BTreeMap::new() }
    }

    /// Returns the news since the last look. A member that ended before the first look is no news.
    pub(super) fn look(&mut self, team: &TeamDir) -> Vec<MemberNews> {
        let Ok(roster) = roster::read(team) else { return Vec::new() };
        let mut news = Vec::new();
        for member in &roster.members {
            let Ok(name) = AgentName::member(&member.name) else { continue };
            if !self.followed.contains_key(&member.name) {
                let followed = Followed {
                    tail: Tail::new(team.transcript(&name)),
                    last_status: Status::Shutdown,
                    incarnation: String::new(),
                    retry: None,
                    calls: BTreeMap::new(),
                };
                self.followed.insert(member.name.clone(), followed);
            }
            let Some(followed) = self.followed.get_mut(&member.name) else { continue };
            followed.follow_start(member, &mut news);
            followed.follow_transcript(team, member, self.began, &mut news);
            followed.follow_end(member, &mut news);
        }
        news
    }
}

/// Returns the folder in which a member works.
pub(super) fn folder_of(team: &TeamDir, member: &Member) -> PathBuf {
    let clone = member.work.as_ref().map(|work| PathBuf::from(&work.folder));
    clone.unwrap_or_else(|| team.workspace().to_owned())
}

impl Followed {
    fn follow_start(&mut self, member: &Member, news: &mut Vec<MemberNews>) {
        let is_new = self.incarnation != member.incarnation;
        let was_over = self.last_status.is_over();
        self.incarnation.clone_from(&member.incarnation);
        if member.status.is_over() || !is_new {
            return;
        }
        let verb = if was_over { "joins" } else { "is started again" };
        let text = format!("{verb}: {}, model {}", member.role, member.model);
        news.push(MemberNews::Told { name: member.name.clone(), text });
        self.last_status = member.status;
    }

    fn follow_transcript(
        &mut self,
        team: &TeamDir,
        member: &Member,
        began: WallTime,
        news: &mut Vec<MemberNews>,
    ) {
        let folder = folder_of(team, member);
        // A transcript that cannot be read tells nothing now.
        for line in self.tail.read_new().unwrap_or_default() {
            let line = Line::read(&line).filter(|line| line.at >= began);
            let Some(Line { entry, .. }) = line else { continue };
            if let Entry::Assistant { blocks, .. } = entry {
                self.take_reply(&member.name, blocks, news);
            } else if let Entry::ToolStart { tool_use_id, .. } = entry {
                let call = self.call(member, &folder, &tool_use_id);
                news.extend(call.map(|call| call.report(CallStatus::InProgress)).map(report));
                if let Some(call) = self.calls.get_mut(&tool_use_id) {
                    call.is_started = true;
                }
            } else if let Entry::ToolResult { tool_use_id, content, is_error, .. } = entry {
                let is_started = self.calls.get(&tool_use_id).is_some_and(|call| call.is_started);
                let call = self.call(member, &folder, &tool_use_id);
                news.extend(
                    call.map(|call| call.whole_end(is_started, is_error, &content)).map(report),
                );
                self.calls.remove(&tool_use_id);
            }
        }
    }

    fn take_reply(&mut self, name: &str, blocks: Vec<Block>, news: &mut Vec<MemberNews>) {
        let mut said = Vec::new();
        self.calls.clear();
        for block in blocks {
            match block {
                Block::Text { text } => said.push(text),
                Block::ToolUse { id, name, input } if !is_end_of_turn(&name) => {
                    self.calls.insert(id, MemberCall { tool: name, input, is_started: false });
                }
                Block::ToolUse { .. }
                | Block::ToolResult { .. }
                | Block::Image { .. }
                | Block::Opaque { .. } => {}
            }
        }
        // The text of a reply without a call is the report, which comes as mail.
        if !self.calls.is_empty() && !said.is_empty() {
            news.push(MemberNews::Said { name: name.to_owned(), text: said.join("\n") });
        }
    }

    fn call<'a>(
        &'a self,
        member: &'a Member,
        folder: &'a std::path::Path,
        id: &'a str,
    ) -> Option<AgentCall<'a>> {
        let MemberCall { tool, input, .. } = self.calls.get(id)?;
        Some(AgentCall { teammate: Some(&member.name), id, tool, input, folder })
    }

    fn follow_end(&mut self, member: &Member, news: &mut Vec<MemberNews>) {
        let name = || member.name.clone();
        let retry = match &member.activity {
            Some(Activity::Retrying(why)) if member.status == Status::Working => Some(why.clone()),
            _ => None,
        };
        if retry.is_some() && retry != self.retry {
            let why = retry.clone().unwrap_or_default();
            news.push(MemberNews::Told { name: name(), text: format!("{why}; trying again") });
        }
        self.retry = retry;
        if member.status.is_over() && !self.last_status.is_over() {
            let cause = member.last_exit.as_ref().map_or("unknown", |exit| exit.cause.word());
            let verb = if member.status == Status::Failed { "failed" } else { "ends" };
            news.push(MemberNews::Told { name: name(), text: format!("{verb} ({cause})") });
        }
        self.last_status = member.status;
    }
}

/// Whether a call only says that the member rests now.
fn is_end_of_turn(tool: &str) -> bool {
    find(tool).is_some_and(|spec| spec.signal == Signal::EndsTurn)
}

fn report(report: CallReport) -> MemberNews {
    MemberNews::Call(Box::new(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed() -> Followed {
        Followed {
            tail: Tail::new(PathBuf::from("/nowhere")),
            last_status: Status::Shutdown,
            incarnation: String::new(),
            retry: None,
            calls: BTreeMap::new(),
        }
    }

    #[test]
    fn a_start_a_retry_and_an_end_are_told_once() {
        let mut followed = followed();
        let mut told = |status: Status, incarnation: &str, activity: Option<Activity>| {
            let member = Member {
                name: "alice".into(),
                role: "coder".into(),
                model: "m".into(),
                incarnation: incarnation.into(),
                status,
                activity,
                ..Member::default()
            };
            let mut news = Vec::new();
            followed.follow_start(&member, &mut news);
            followed.follow_end(&member, &mut news);
            let text = |news: MemberNews| {
                let MemberNews::Told { text, .. } = news else { panic!("{news:?}") };
                text
            };
            news.into_iter().map(text).collect::<Vec<_>>()
        };
        let retrying = || Some(Activity::Retrying("reset".into()));
        assert!(told(Status::Shutdown, "0", None).is_empty());
        assert_eq!(told(Status::Starting, "a", None), ["joins: coder, model m"]);
        assert!(told(Status::Idle, "a", None).is_empty());
        assert_eq!(told(Status::Working, "a", retrying()), ["reset; trying again"]);
        assert!(told(Status::Working, "a", retrying()).is_empty());
        assert_eq!(told(Status::Starting, "b", None), ["is started again: coder, model m"]);
        assert_eq!(told(Status::Shutdown, "b", None), ["ends (unknown)"]);
        assert!(told(Status::Shutdown, "b", None).is_empty());
    }

    #[test]
    fn only_what_is_said_before_a_call_is_told() {
        let (mut followed, mut news) = (followed(), Vec::new());
        let text = |text: &str| Block::Text { text: text.into() };
        followed.take_reply("alice", vec![text("done")], &mut news);
        assert!(news.is_empty());
        let call = Block::ToolUse { id: "t".into(), name: "x".into(), input: Value::Null };
        followed.take_reply("alice", vec![text("I look."), call], &mut news);
        let wanted = MemberNews::Said { name: "alice".into(), text: "I look.".into() };
        assert_eq!(news, [wanted]);
    }
}

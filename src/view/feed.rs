//! The changes of a team between one look at its files and the next.

use super::change::{Change, LineDiff, MessageProgress, ModelCallUsage, PendingQuestion, Stage};
use super::members::{MemberView, members};
use crate::os::file::{Access, open};
use crate::store::mail_tracker::{MailLocation, MailTracker, TrackedMail};
use crate::store::relay::copies;
use crate::store::roster::Cached;
use crate::store::tail::Tail;
use crate::store::tasks::TaskList;
use crate::store::{Fsync, StoreError, TeamDir};
use crate::tools::find;
use crate::wire::chat::{Block, Usage};
use crate::wire::price_list::PriceList;
use crate::wire::roster::{Roster, Status};
use crate::wire::tool::Signal;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime, WithUnknownFields};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// The bytes that the first look reads from the end of a conversation: a long one must not delay the view.
const LOOK_BACK: u64 = 4 * 1024 * 1024;

/// The bytes that the first look reads from the ends of all conversations together: it must not take a second.
const LOOK_BACK_OF_ALL: u64 = 32 * 1024 * 1024;

/// The bytes that the first look reads from the end of a conversation at least.
const LEAST_LOOK_BACK: u64 = 16 * 1024;

/// The longest part of the roster file that is shown, in bytes.
const CONFIG_BYTES: u64 = 1024 * 1024;

/// The reader of a team's files that returns the changes.
#[derive(Debug)]
pub(crate) struct Feed {
    dir: TeamDir,
    roster: Cached<WithUnknownFields<Roster>>,
    mail_tracker: MailTracker,
    tasks: TaskList,
    conversations: Conversations,
    /// The roster file at the last look, and its lines.
    config: (Vec<u8>, Vec<String>),
    members: Option<Vec<MemberView>>,
    /// The last task list and open requests: a change of these lists is sent as the whole list.
    lists: Vec<Change>,
}

/// The readers of all conversations.
#[derive(Debug)]
struct Conversations {
    followers: BTreeMap<AgentName, TranscriptFollower>,
    requests: BTreeMap<String, PendingQuestion>,
    prices: PriceList,
}

/// An agent of the roster, with its transcript or the copy of it.
struct Followed<'a> {
    name: &'a AgentName,
    path: PathBuf,
    /// Its model by the roster.
    model: &'a str,
    /// The bytes that are read from the end of the conversation when it is first followed.
    look_back: u64,
}

#[derive(Debug)]
struct TranscriptFollower {
    /// The transcript, or its copy.
    path: PathBuf,
    tail: Tail,
    model: String,
    /// The messages that the model has received and not answered yet.
    unanswered: Vec<MessageProgress>,
}

impl Feed {
    /// Creates a feed whose first look returns the whole state; `prices`, by `provider/name`, give the cost of calls.
    pub(crate) fn of(dir: &TeamDir, prices: PriceList) -> Self {
        Self {
            dir: dir.clone(),
            roster: Cached::of(dir),
            mail_tracker: MailTracker::of(dir),
            tasks: TaskList::of(dir, Fsync::Never),
            conversations: Conversations {
                followers: BTreeMap::new(),
                requests: BTreeMap::new(),
                prices,
            },
            config: (Vec::new(), Vec::new()),
            members: None,
            lists: Vec::new(),
        }
    }

    /// Returns the changes since the last look; at the first look, the whole state.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn look(&mut self) -> Result<Vec<Change>, StoreError> {
        let roster = self.roster.current(&self.dir)?;
        let lead = roster.lead.as_ref().map_or(("", Status::Idle), |it| (&*it.model, it.status));
        let listed = roster.members.iter();
        let listed = listed
            .filter_map(|it| Some((AgentName::member(&it.name).ok()?, (&*it.model, it.status))));
        let (names, known): (Vec<AgentName>, Vec<(&str, Status)>) =
            [(AgentName::lead(), lead), (AgentName::user(), ("", Status::Idle))]
                .into_iter()
                .chain(listed)
                .unzip();
        let mut mail: Vec<MessageProgress> =
            self.mail_tracker.look(&names)?.iter().filter_map(tracked_progress).collect();
        let mut spent = Vec::new();
        let least = look_back(names.len());
        for (name, (model, status)) in names.iter().zip(known) {
            // A copy of the files of another host may come later.
            let path = copies::folder_of(&self.dir, roster, name).transcript(name);
            // A question that waits for its answer may be far from the end.
            let look_back = if status == Status::Waiting { LOOK_BACK } else { least };
            let followed = Followed { name, path, model, look_back };
            self.conversations.listen(followed, &mut mail, &mut spent)?;
        }
        self.tasks.look()?;
        let requests = self.conversations.requests.values().cloned().collect();
        let mail_tracker = &self.mail_tracker;
        let members = members(&self.dir, roster, |name| mail_tracker.unread(name));
        let tasks = self.tasks.board().values().cloned().collect();
        let whole = [Change::Tasks { tasks }, Change::Requests { requests }];
        let mut changes: Vec<Change> = self.new_config().into_iter().collect();
        changes.extend(self.changed_members(members));
        changes.extend(whole.iter().filter(|change| !self.lists.contains(change)).cloned());
        self.lists = whole.into();
        changes.extend(spent.into_iter().map(Change::Usage));
        changes.extend(mail.into_iter().map(Change::Mail));
        Ok(changes)
    }

    fn new_config(&mut self) -> Option<Change> {
        let mut text = Vec::new();
        if let Ok(file) = open(&self.dir.config(), Access::Read) {
            // A read error leaves the part of the file that was read.
            let _shown = file.take(CONFIG_BYTES).read_to_end(&mut text);
        }
        let (known, known_lines) = &self.config;
        if text == *known {
            return None;
        }
        let lines: Vec<String> =
            String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
        let diff = LineDiff::between(known_lines, &lines);
        self.config = (text, lines);
        diff.map(Change::Config)
    }

    fn changed_members(&mut self, members: Vec<MemberView>) -> Option<Change> {
        if self.members.as_ref() == Some(&members) {
            return None;
        }
        let before = self.members.replace(members.clone());
        let is_same_list = |before: &Vec<MemberView>| {
            before.iter().map(|it| &it.name).eq(members.iter().map(|it| &it.name))
        };
        let Some(before) = before.filter(is_same_list) else {
            return Some(Change::Team { members });
        };
        let pairs = members.into_iter().zip(&before);
        let changed: Vec<_> = pairs.filter(|(new, old)| new != *old).map(|(new, _)| new).collect();
        (!changed.is_empty()).then_some(Change::Members { members: changed })
    }
}

/// Returns the bytes that the first look reads from the end of each of so many conversations.
fn look_back(conversations: usize) -> u64 {
    let conversations = u64::try_from(conversations).unwrap_or(u64::MAX).max(1);
    (LOOK_BACK_OF_ALL / conversations).clamp(LEAST_LOOK_BACK, LOOK_BACK)
}

impl Conversations {
    /// Reads the new lines of a conversation.
    fn listen(
        &mut self,
        Followed { name, path, model, look_back }: Followed<'_>,
        mail: &mut Vec<MessageProgress>,
        spent: &mut Vec<ModelCallUsage>,
    ) -> Result<(), StoreError> {
        let begin = |path: PathBuf| TranscriptFollower {
            tail: Tail::of_last(path.clone(), look_back),
            path,
            model: model.to_owned(),
            unanswered: Vec::new(),
        };
        let prices = &self.prices;
        let spent_on = |at, model: &str, usage: Usage| {
            let output = usage.output_tokens;
            let input = usage.total().saturating_sub(output);
            let cost = prices.get(model).map(|price| price.of(usage));
            ModelCallUsage { at, name: name.as_str().into(), input, output, cost }
        };
        if self.followers.get(name).is_some_and(|known| known.path != path) {
            self.followers.remove(name);
        }
        let conversation = self.followers.entry(name.clone()).or_insert_with(|| begin(path));
        for line in conversation.tail.read_new()? {
            let Some(Line { at, entry }) = Line::read(&line) else { continue };
            match entry {
                Entry::Mail { message, .. } => {
                    let stage = Stage::Acknowledged;
                    let read = MessageProgress::read(name.as_str(), &message, stage);
                    conversation.unanswered.extend(read.clone());
                    mail.extend(read);
                }
                Entry::Assistant { blocks, usage, .. } => {
                    let stage = Stage::Answered;
                    let answered = conversation.unanswered.drain(..);
                    mail.extend(answered.map(|it| MessageProgress { stage, ..it }));
                    mail.extend(blocks.iter().filter_map(|block| sent_by(name, block, at)));
                    spent.push(spent_on(at, &conversation.model, usage));
                }
                Entry::Compacted { usage, .. } => {
                    spent.push(spent_on(at, &conversation.model, usage));
                }
                Entry::Session { model, .. } | Entry::Model { model } => conversation.model = model,
                Entry::Request { question, decider, deadline } => {
                    let from = name.as_str().to_owned();
                    let id = question.request_id.clone();
                    let asked = PendingQuestion::new(from, decider, deadline, question);
                    self.requests.insert(id, asked);
                }
                Entry::Decision(decision) => {
                    self.requests.remove(&decision.request_id);
                }
                Entry::ToolResult { tool_use_id, .. } => {
                    self.requests.retain(|_, asked| asked.question.tool_use_id != tool_use_id);
                }
                Entry::User { .. }
                | Entry::ToolStart { .. }
                | Entry::Subagent(_)
                | Entry::Note { .. }
                | Entry::Instructions { .. }
                | Entry::Interrupt { .. }
                | Entry::ResultsLeftOut { .. }
                | Entry::HandedOut { .. }
                | Entry::TurnEnd { .. }
                | Entry::Unknown => {}
            }
        }
        Ok(())
    }
}

fn tracked_progress(seen: &TrackedMail) -> Option<MessageProgress> {
    let stage = match seen.place {
        MailLocation::Inbox => Stage::Appended,
        MailLocation::Claim => Stage::Claimed,
    };
    MessageProgress::read(seen.owner.as_str(), &seen.object, stage)
}

/// Returns the message of a `send_message` call, which is not in any inbox yet.
fn sent_by(name: &AgentName, block: &Block, at: WallTime) -> Option<MessageProgress> {
    let Block::ToolUse { id, name: tool, input } = block else { return None };
    let field = |key: &str| input.get(key).and_then(Value::as_str).map(str::to_owned);
    (find(tool)?.signal == Signal::SendsMessage).then_some(())?;
    Some(MessageProgress {
        id: format!("{name}:{id}"),
        kind: "message".into(),
        from: name.as_str().into(),
        to: field("to")?,
        content: field("content").unwrap_or_default(),
        timestamp: Some(at),
        stage: Stage::Sent,
        is_protocol: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::{append, record, team_folder};
    use crate::wire::money::Money;
    use serde_json::json;

    struct Fixture {
        _top: tempfile::TempDir,
        dir: TeamDir,
        feed: Feed,
    }

    fn fixture() -> Fixture {
        let (top, dir) = team_folder();
        let roster = json!({"version":1,"team_name":"t","members":[{"name":"alice"}]});
        append(&dir.config(), &roster.to_string());
        let price = serde_json::from_value(json!({"input": 2, "output": 10})).unwrap();
        let prices = PriceList::new(move |model| (model == "p/m").then_some(price));
        let feed = Feed::of(&dir, prices);
        Fixture { _top: top, dir, feed }
    }

    impl Fixture {
        /// Appends these lines to the conversation of alice, and returns the changes.
        fn look_after(&mut self, lines: &[Value]) -> Vec<Change> {
            let path = self.dir.transcript(&AgentName::member("alice").unwrap());
            for line in lines {
                record(&path, line);
            }
            self.feed.look().unwrap()
        }
    }

    fn stages(changes: &[Change]) -> Vec<(&str, Stage)> {
        let mail = changes.iter().filter_map(|change| {
            let Change::Mail(progress) = change else { return None };
            Some((progress.id.as_str(), progress.stage))
        });
        mail.collect()
    }

    #[test]
    fn a_message_is_reported_at_each_stage() {
        let mut fixture = fixture();
        assert_eq!(fixture.look_after(&[]).len(), 4, "the whole state, once");
        assert!(fixture.look_after(&[]).is_empty());
        let message = json!({"type":"message","from":"user","content":"hi","id":"user:1"});
        record(&fixture.dir.inbox(&AgentName::member("alice").unwrap()), &message);
        let changes = fixture.look_after(&[]);
        assert_eq!(stages(&changes), [("user:1", Stage::Appended)]);
        let is_unread = |change: &Change| matches!(change, Change::Members { members } if members[0].unread == 1);
        assert!(changes.iter().any(is_unread), "{changes:?}");
        let mail = json!({"kind":"mail","at":1,"gen":"1-0123abcd","offset":0,"message":message});
        let changes = fixture.look_after(&[mail]);
        assert_eq!(stages(&changes), [("user:1", Stage::Acknowledged)]);
        let input = json!({"to":"lead","content":"hello"});
        let call = json!({"type":"tool_use","id":"t1","name":"send_message","input":input});
        let changes = fixture.look_after(&[
            json!({"kind":"session","at":1.5,"incarnation":"x","pid":1,"model":"p/m"}),
            json!({"kind":"assistant","at":2,"blocks":[call],"stop_reason":"tool_use",
                "usage":{"input_tokens":5,"output_tokens":2},"model":"m"}),
            json!({"kind":"turn_end","at":3,"outcome":"done","rounds":1}),
        ]);
        let sent = ("alice:t1", Stage::Sent);
        assert_eq!(stages(&changes), [("user:1", Stage::Answered), sent]);
        let (at, name, cost) = (2.0.into(), "alice".into(), Money::try_from(0.000_03).ok());
        let usage = ModelCallUsage { at, name, input: 5, output: 2, cost };
        assert!(changes.contains(&Change::Usage(usage)));
    }

    #[test]
    fn only_changed_members_are_reported() {
        let mut fixture = fixture();
        fixture.look_after(&[]);
        let mut look_at = |status: &str| {
            let members = json!([{"name":"alice","status":"idle"},{"name":"bob","status":status}]);
            let roster = json!({"version":1,"team_name":"t","members":members});
            let new = fixture.dir.root().join("new");
            append(&new, &serde_json::to_string_pretty(&roster).unwrap());
            std::fs::rename(&new, fixture.dir.config()).unwrap();
            fixture.feed.look().unwrap()
        };
        let changes = look_at("shutdown");
        let both =
            |change: &Change| matches!(change, Change::Team { members } if members.len() == 2);
        assert!(changes.iter().any(both), "a member is new: {changes:?}");
        let changes = look_at("failed");
        let [Change::Config(diff), Change::Members { members }] = changes.as_slice() else {
            panic!("{changes:?}");
        };
        assert_eq!((diff.gone, diff.lines.len()), (1, 1), "{diff:?}");
        assert_eq!(members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["bob"]);
    }

    #[test]
    fn of_each_conversation_of_a_large_team_little_is_read_unless_a_question_waits() {
        assert_eq!([look_back(0), look_back(8)], [LOOK_BACK; 2]);
        assert_eq!(look_back(100_000), LEAST_LOOK_BACK);
        let (_top, dir) = team_folder();
        let mut members: Vec<Value> =
            (0..2_100).map(|number| json!({"name": format!("m{number}")})).collect();
        members.extend([
            json!({"name": "alice", "status": "waiting"}),
            json!({"name": "bob", "status": "working"}),
        ]);
        let roster = json!({"version":1,"team_name":"t","members":members});
        append(&dir.config(), &roster.to_string());
        let note = json!({"kind": "note", "at": 5, "content": "x".repeat(1_000)});
        for name in ["alice", "bob"] {
            let path = dir.transcript(&AgentName::member(name).unwrap());
            let asked = json!({"kind": "request", "at": 1, "decider": "user", "deadline": 9,
                "request_id": name, "tool_use_id": "call", "about": "permission", "tool": "bash",
                "input": {}, "description": "ls"});
            record(&path, &asked);
            (0..50).for_each(|_| record(&path, &note));
        }
        let changes = Feed::of(&dir, PriceList::default()).look().unwrap();
        let is_requests = |change: &&Change| matches!(change, Change::Requests { .. });
        let Some(Change::Requests { requests }) = changes.iter().find(is_requests) else {
            panic!("no requests")
        };
        let names: Vec<&str> = requests.iter().map(|asked| asked.from.as_str()).collect();
        assert_eq!(names, ["alice"]);
    }
}

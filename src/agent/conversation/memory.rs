//! The conversation as the model sees it, built from transcript entries.
//!
//! *Invariant:* the memory is a function of the entries alone. An agent that resumes from its transcript sends the
//! same request as one that was never interrupted, and the provider's cache still applies.

use super::stale_results::{AnsweredCall, LEFT_OUT};
use crate::tools::Call;
use crate::wire::chat::{Block, ChatMessage, Role};
use crate::wire::image::ShownImage;
use crate::wire::inbox_block::{inbox_block, marked};
use crate::wire::message::{Body, Message, Outcome};
use crate::wire::newest::Newest;
use crate::wire::transcript::Entry;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::iter;

/// The number of bytes that count as one token, because no tokenizer is available.
pub(super) const BYTES_PER_TOKEN: usize = 4;

/// The maximum number of bytes of a turn's prompts and mail that are repeated after a compaction.
const ASKED_BYTES: usize = 16_384;

/// The number of messages that are kept of the conversation of an agent that has its own memory.
const KEPT_MESSAGES: usize = 100;

#[derive(Debug, Clone)]
pub(crate) struct Memory {
    said: Vec<ConversationTurn>,
    /// The newest prompts and mail since the last turn ended: their senders still wait for an answer. A compaction
    /// keeps them.
    asked: Newest<Piece>,
    /// The input and output tokens of the last model call.
    counted: u64,
    /// The bytes added since the last model call.
    uncounted: usize,
    /// The size of the model's context in tokens, if a refusal has shown it.
    pub(super) context_shown: Option<u64>,
    /// Calls that need a result before the model can be called again, in order.
    pub(crate) open_calls: Vec<OpenCall>,
    /// Whether the transcript ends within a turn.
    pub(crate) in_turn: bool,
    /// Whether a person interrupted the last turn, and nothing but mail came since.
    pub(crate) was_interrupted: bool,
    /// Whether the transcript ends with a turn that a stop of the agent cut off.
    pub(crate) is_cut_off: bool,
    /// The number of the model's replies since the last turn ended.
    pub(crate) replies: u32,
}

/// A tool call that was recorded but not answered. After a resume, an earlier process did not finish it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenCall {
    pub(crate) call: Call,
    /// Whether the call had started; its effect is then unknown.
    pub(crate) started: bool,
}

#[derive(Debug, Clone)]
enum ConversationTurn {
    /// A user message: results first, then the other entries in order.
    User(Vec<Block>, Vec<Piece>),
    Assistant(Vec<Block>),
}

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Inbox(Vec<Map<String, Value>>),
    Image(ShownImage),
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            said: Vec::new(),
            asked: Newest::within(ASKED_BYTES),
            counted: 0,
            uncounted: 0,
            context_shown: None,
            open_calls: Vec::new(),
            in_turn: false,
            was_interrupted: false,
            is_cut_off: false,
            replies: 0,
        }
    }
}

/// Returns the instructions of a folder as the model gets them; without a content, only where they are.
fn instructions(file: &str, content: &str) -> String {
    let folder = file.rsplit_once('/').map_or(file, |(folder, _)| folder);
    if content.is_empty() {
        return format!(
            "[team: {file} has instructions for the files below {folder}/. There is no room for them here: read that \
             file before you change anything there]"
        );
    }
    format!(
        "[team: instructions of the workspace for the files below {folder}/, from {file}. They count more than those \
         for a folder above:\n{content}]"
    )
}

pub(super) fn call_of(block: &Block) -> Option<Call> {
    let Block::ToolUse { id, name, input } = block else { return None };
    Some(Call { id: id.clone(), name: name.clone(), input: input.clone() })
}

impl Memory {
    pub(crate) fn push(&mut self, entry: &Entry) {
        let is_of_turn = matches!(entry, Entry::User { .. } | Entry::Assistant { .. });
        self.is_cut_off &= !is_of_turn;
        self.was_interrupted &= !is_of_turn;
        match entry {
            Entry::User { content } => {
                self.in_turn = true;
                let piece = Piece::Text(content.clone());
                self.ask(&piece);
                self.add(piece);
            }
            Entry::Mail { message, verified, .. } => self.push_mail(message, *verified),
            Entry::Note { content } => self.add(Piece::Text(format!("[team: {content}]"))),
            Entry::Instructions { file, content } => {
                self.add(Piece::Text(instructions(file, content)));
            }
            Entry::Assistant { blocks, usage, .. } => {
                (self.in_turn, self.replies) = (true, self.replies.saturating_add(1));
                (self.counted, self.uncounted) = (usage.total(), 0);
                let calls = blocks.iter().filter_map(call_of);
                self.open_calls.extend(calls.map(|call| OpenCall { call, started: false }));
                if !blocks.is_empty() {
                    self.said.push(ConversationTurn::Assistant(blocks.clone()));
                }
            }
            Entry::ToolStart { tool_use_id, .. } => {
                for open in self.open_calls.iter_mut().filter(|open| open.call.id == *tool_use_id) {
                    open.started = true;
                }
            }
            Entry::ToolResult { tool_use_id, content, is_error, images, .. } => {
                let of_call = |open: &mut OpenCall| open.call.id == *tool_use_id;
                // A result without a call (an edited transcript) would make every request invalid.
                if self.open_calls.extract_if(.., of_call).count() > 0 {
                    self.uncounted += content.len();
                    let (tool_use_id, content) = (tool_use_id.clone(), content.clone());
                    let result = Block::ToolResult { tool_use_id, content, is_error: *is_error };
                    self.user_side().0.push(result);
                    for image in images {
                        self.add(Piece::Image(image.clone()));
                    }
                }
            }
            Entry::TurnEnd { cut_off, outcome, .. } => {
                (self.in_turn, self.is_cut_off, self.replies) = (false, *cut_off, 0);
                self.was_interrupted = *outcome == Outcome::Interrupted && !cut_off;
                if !cut_off {
                    drop(self.asked.take());
                }
            }
            Entry::ResultsLeftOut { tool_use_ids } => self.leave_out(tool_use_ids),
            Entry::Compacted { summary, situation, context_tokens, .. } => {
                self.compact(summary, situation, *context_tokens);
            }
            Entry::Model { .. } => self.context_shown = None,
            Entry::Session { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Subagent(_)
            | Entry::Interrupt { .. }
            | Entry::HandedOut { .. }
            | Entry::Unknown => {}
        }
    }

    /// Returns the calls whose results the conversation holds, in order.
    pub(super) fn answered_calls(&self) -> Vec<AnsweredCall<'_>> {
        let mut calls = BTreeMap::new();
        let mut answered = Vec::new();
        for turn in &self.said {
            let (ConversationTurn::Assistant(blocks) | ConversationTurn::User(blocks, _)) = turn;
            for block in blocks {
                if let Block::ToolUse { id, name, input } = block {
                    calls.insert(id, (name, input));
                } else if let Block::ToolResult { tool_use_id: id, content, is_error } = block
                    && let Some((name, input)) = calls.get(id)
                {
                    let (bytes, is_error) = (content.len(), *is_error);
                    answered.push(AnsweredCall { id, name, input, bytes, is_error });
                }
            }
        }
        answered
    }

    /// Replaces the results of these calls by a short text.
    fn leave_out(&mut self, tool_use_ids: &[String]) {
        for turn in &mut self.said {
            let ConversationTurn::User(results, _) = turn else { continue };
            for result in results {
                let Block::ToolResult { tool_use_id, content, .. } = result else { continue };
                if tool_use_ids.contains(tool_use_id) && content.len() > LEFT_OUT.len() {
                    let freed = (content.len() - LEFT_OUT.len()) / BYTES_PER_TOKEN;
                    let freed = u64::try_from(freed).unwrap_or_default();
                    self.counted = self.counted.saturating_sub(freed);
                    LEFT_OUT.clone_into(content);
                }
            }
        }
    }

    /// Forgets all but the newest messages.
    pub(super) fn forget_old(&mut self) {
        let old = self.said.len().saturating_sub(KEPT_MESSAGES);
        self.said.drain(..old);
    }

    /// Returns the prompts and the mail since the last turn ended, as a text; `None` if there are none.
    pub(crate) fn asked_in_turn(&self) -> Option<String> {
        let texts: Vec<String> = self.asked.iter().map(Piece::render).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// Continues the last turn if a stop of the agent cut it off.
    pub(crate) fn reopen_turn(&mut self) {
        self.in_turn |= self.is_cut_off;
    }

    /// Replaces the conversation by the summary, and repeats the prompts and the mail of this turn.
    fn compact(&mut self, summary: &str, situation: &str, context_shown: Option<u64>) {
        self.said.clear();
        (self.counted, self.uncounted) = (0, 0);
        self.context_shown = context_shown.or(self.context_shown);
        self.add(Piece::Text(format!(
            "[team: your conversation was too long and was replaced by these notes. \
             {situation}]\n\n{summary}"
        )));
        let asked = self.asked.clone();
        if !asked.is_empty() {
            let left_out = match asked.dropped() {
                0 => String::new(),
                more => format!(" ({more} before it: see the notes)"),
            };
            let head = "[team: what you were asked in this turn, once more";
            self.add(Piece::Text(format!("{head}{left_out}:]")));
        }
        for piece in asked.iter() {
            self.add(piece.clone());
        }
    }

    /// Estimates the tokens of the next request: those of the last call, plus an estimate for later entries.
    pub(crate) fn tokens(&self) -> u64 {
        let since = self.uncounted / BYTES_PER_TOKEN;
        self.counted.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// Whether the conversation holds more than a summary and the prompts and mail of the turn.
    pub(crate) fn is_worth_compacting(&self) -> bool {
        self.said.len() > 3
    }

    fn push_mail(&mut self, message: &Map<String, Value>, verified: bool) {
        let body = Message::read(message).map(|message| message.body);
        // Mail for the program is of no use to the model and would cost tokens.
        if body.as_ref().is_ok_and(Body::is_for_program) {
            return;
        }
        // An agent whose process ended before it acted on the mail resumes with a turn.
        self.in_turn |= body.is_ok_and(|body| body.wakes());
        let piece = Piece::Inbox(vec![marked(message, verified)]);
        self.ask(&piece);
        self.add(piece);
    }

    /// Notes what a compaction repeats. A piece that is too long by itself is cut.
    fn ask(&mut self, piece: &Piece) {
        let length = piece.render().len();
        let cut = (length > ASKED_BYTES).then(|| piece.cut(ASKED_BYTES / 4));
        let length = cut.as_ref().map_or(length, |cut| cut.render().len());
        self.asked.push(length, cut.unwrap_or_else(|| piece.clone()));
    }

    fn add(&mut self, piece: Piece) {
        self.uncounted += piece.size();
        match (self.user_side().1.last_mut(), piece) {
            (Some(Piece::Inbox(mail)), Piece::Inbox(more)) => mail.extend(more),
            (_, piece) => self.user_side().1.push(piece),
        }
    }

    /// Returns the user message that is being filled; after an assistant message, a new one.
    fn user_side(&mut self) -> (&mut Vec<Block>, &mut Vec<Piece>) {
        if !matches!(self.said.last(), Some(ConversationTurn::User(..))) {
            self.said.push(ConversationTurn::User(Vec::new(), Vec::new()));
        }
        match self.said.last_mut() {
            Some(ConversationTurn::User(results, pieces)) => (results, pieces),
            Some(ConversationTurn::Assistant(_)) | None => {
                unreachable!("a user message was just made the last")
            }
        }
    }

    /// Returns the conversation as alternating messages, the user's first.
    pub(crate) fn messages(&self) -> Vec<ChatMessage> {
        let mut messages: Vec<ChatMessage> = Vec::new();
        for turn in &self.said {
            let (role, blocks) = match turn {
                ConversationTurn::Assistant(blocks) => (Role::Assistant, blocks.clone()),
                ConversationTurn::User(results, pieces) => {
                    let pieces = pieces.iter().flat_map(Piece::blocks);
                    (Role::User, results.iter().cloned().chain(pieces).collect())
                }
            };
            match messages.last_mut() {
                Some(last) if last.role == role => last.blocks.extend(blocks),
                None if role == Role::Assistant => {}
                _ => messages.push(ChatMessage { role, blocks }),
            }
        }
        messages
    }
}

impl Piece {
    /// Cuts every text in the piece to `room` bytes.
    fn cut(&self, room: usize) -> Self {
        match self {
            Self::Text(text) => Self::Text(cut(text, room)),
            Self::Image(image) => Self::Image(image.clone()),
            Self::Inbox(mail) => {
                let mut mail = mail.clone();
                for text in mail.iter_mut().flat_map(Map::values_mut) {
                    if let Value::String(text) = text {
                        *text = cut(text, room);
                    }
                }
                Self::Inbox(mail)
            }
        }
    }

    fn render(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Inbox(mail) => inbox_block(mail),
            Self::Image(image) => format!("[team: the image {}:]", image.path),
        }
    }

    /// Returns the size in bytes, as far as it counts for the size of the conversation.
    fn size(&self) -> usize {
        let of_image = match self {
            Self::Image(image) => {
                usize::try_from(image.tokens()).unwrap_or_default() * BYTES_PER_TOKEN
            }
            Self::Text(_) | Self::Inbox(_) => 0,
        };
        self.render().len() + of_image
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        let image = match self {
            Self::Image(image) => Some(Block::Image { image: image.clone(), data: None }),
            Self::Text(_) | Self::Inbox(_) => None,
        };
        iter::once(Block::Text { text: self.render() }).chain(image)
    }
}

/// Cuts a text to about `room` bytes: keeps its beginning, which names the subject, and a longer end.
pub(crate) fn cut(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let (head, tail) = (room / 4, room - room / 4);
    let head = text.get(..text.floor_char_boundary(head)).unwrap_or_default();
    let tail = text.get(text.ceil_char_boundary(text.len() - tail)..).unwrap_or_default();
    format!("{head}\n[… left out …]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::chat::{StopReason, Usage};
    use proptest::prelude::*;
    use serde_json::json;

    fn user(content: impl Into<String>) -> Entry {
        Entry::User { content: content.into() }
    }

    fn mail(value: Value) -> Entry {
        let Value::Object(message) = value else { panic!("no object") };
        Entry::Mail { claim: "1".into(), offset: 0, message, verified: true }
    }

    fn from_bob(content: &str) -> Entry {
        mail(json!({"from": "bob", "content": content}))
    }

    fn reply(blocks: Vec<Block>, usage: Usage) -> Entry {
        Entry::Assistant { blocks, stop_reason: StopReason::EndTurn, usage, model: "m".into() }
    }

    fn calls(ids: &[&str]) -> Entry {
        let call =
            |id: &&str| Block::ToolUse { id: (*id).into(), name: "bash".into(), input: json!({}) };
        reply(ids.iter().map(call).collect(), Usage::default())
    }

    fn started(id: &str) -> Entry {
        Entry::ToolStart { tool_use_id: id.into(), name: "bash".into() }
    }

    fn result(id: &str, content: &str) -> Entry {
        Entry::tool_result(id.into(), content.into(), false, Vec::new())
    }

    fn end(outcome: Outcome) -> Entry {
        Entry::TurnEnd { outcome, rounds: 1, report: None, cut_off: false }
    }

    fn remember(entries: &[Entry]) -> Memory {
        let mut memory = Memory::default();
        for entry in entries {
            memory.push(entry);
        }
        memory
    }

    #[test]
    fn results_come_before_mail_in_a_user_message() {
        let memory = remember(&[
            user("go"),
            calls(&["a", "b"]),
            result("a", "ok"),
            from_bob("hi"),
            result("b", "ok"),
            from_bob("again"),
        ]);
        let messages = memory.messages();
        assert_eq!(messages.len(), 3);
        let [
            Block::ToolResult { tool_use_id: first, .. },
            Block::ToolResult { tool_use_id: second, .. },
            Block::Text { text },
        ] = &messages[2].blocks[..]
        else {
            panic!("{messages:?}")
        };
        assert_eq!((first.as_str(), second.as_str()), ("a", "b"));
        assert!(text.contains("hi") && text.contains("again"), "one block for both: {text}");
    }

    #[test]
    fn a_conversation_that_was_cut_off_has_open_calls() {
        let memory = remember(&[
            user("go"),
            calls(&["a", "b", "c"]),
            started("a"),
            result("a", "ok"),
            started("b"),
        ]);
        let open = memory.open_calls.iter().map(|open| (open.call.id.as_str(), open.started));
        assert_eq!(open.collect::<Vec<_>>(), [("b", true), ("c", false)]);
        assert!(memory.in_turn);
    }

    #[test]
    fn a_compaction_repeats_what_was_asked_in_this_turn() {
        let summary = |context_tokens| Entry::Compacted {
            summary: "NOTES".into(),
            situation: "You are alice.".into(),
            usage: Usage::default(),
            context_tokens,
        };
        let mut memory = remember(&[
            user("an older wish"),
            calls(&["a"]),
            result("a", "ok"),
            end(Outcome::Done),
            from_bob("a newer wish"),
            calls(&["b"]),
            result("b", "ok"),
        ]);
        let long = "y".repeat(ASKED_BYTES);
        let halves = [from_bob(&long), user("z".repeat(ASKED_BYTES / 4 * 3))];
        // The size that a refusal has shown, the new entries, and the words that the conversation must then hold.
        for (context_tokens, asked, wanted) in [
            (Some(500), &[][..], &["NOTES", "You are alice.", "a newer wish"][..]),
            // A second compaction keeps the message as well. A piece that is too long by itself is cut.
            (None, &[], &["a newer wish"]),
            (None, &[user("x".repeat(ASKED_BYTES + 1))], &["xxx\\n[… left out …]"]),
            // Mail is cut as well, and the pieces that do not fit are counted.
            (None, &halves, &["(3 before it: see the notes)", "zzz"]),
            (None, &[from_bob(&long)], &["yyy", "left out", "bob"]),
        ] {
            for entry in asked.iter().chain([&summary(context_tokens)]) {
                memory.push(entry);
            }
            let messages = memory.messages();
            let told = format!("{messages:?}");
            for word in wanted {
                assert!(told.contains(word), "{word} is not in {told}");
            }
            let is_short = told.len() < ASKED_BYTES + ASKED_BYTES / 4;
            assert!(messages.len() == 1 && is_short && !told.contains("an older wish"), "{told}");
            assert_eq!(memory.context_shown, Some(500), "what a refusal has shown stays");
            assert!(memory.in_turn && !memory.is_worth_compacting());
        }
    }

    #[test]
    fn mail_that_causes_no_turn_is_kept_for_a_compaction_only_within_its_room() {
        let mut memory = Memory::default();
        for number in 0..5_000 {
            memory.push(&from_bob(&format!("report {number}")));
        }
        let kept: Vec<String> = memory.asked.iter().map(Piece::render).collect();
        assert_eq!(kept.len() + memory.asked.dropped(), 5_000);
        let bytes: usize = kept.iter().map(String::len).sum();
        assert!(bytes <= ASKED_BYTES && kept.len() > 100, "{bytes} bytes");
        assert!(kept.last().unwrap().contains("report 4999"));
    }

    #[test]
    fn instructions_of_a_folder_name_it_and_their_file() {
        let told = |content: &str| {
            let file = "src/a/AGENTS.md".into();
            let memory = remember(&[Entry::Instructions { file, content: content.into() }]);
            format!("{:?}", memory.messages())
        };
        let text = told("Use tabs.");
        assert!(text.contains("below src/a/, from src/a/AGENTS.md. They count"), "{text}");
        assert!(text.contains("above:\\nUse tabs.]"), "{text}");
        assert!(told("").contains("no room for them here: read that file"), "{}", told(""));
    }

    #[test]
    fn tokens_are_those_of_the_last_call_and_an_estimate_of_the_rest() {
        let mut memory = remember(&[user("x".repeat(400))]);
        assert_eq!(memory.tokens(), 100);
        let usage = Usage { input_tokens: 900, output_tokens: 100, ..Usage::default() };
        let Entry::Assistant { blocks, .. } = calls(&["a"]) else { panic!() };
        memory.push(&reply(blocks, usage));
        assert_eq!(memory.tokens(), 1000);
        memory.push(&result("a", &"x".repeat(40)));
        assert_eq!(memory.tokens(), 1010);
    }

    #[test]
    fn unhandled_mail_is_a_turn_to_resume_but_idle_notices_cost_no_tokens() {
        let idle =
            || mail(json!({"type": "idle_notification", "from": "a", "reason": "available"}));
        assert!(remember(&[from_bob("hi")]).in_turn);
        assert!(remember(&[from_bob("hi"), end(Outcome::Done), from_bob("hi")]).in_turn);
        assert!(!remember(&[from_bob("hi"), end(Outcome::Done), idle()]).in_turn);
        let failed = remember(&[idle(), user("one"), end(Outcome::Failed), user("two")]);
        let messages = failed.messages();
        assert_eq!((messages.len(), messages[0].blocks.len()), (1, 2), "failed turns merge");
    }

    #[test]
    fn a_cut_text_keeps_its_beginning_and_a_longer_end() {
        let text = format!("begin {} end", "ä".repeat(500));
        let short = cut(&text, 100);
        assert!(short.starts_with("begin ") && short.ends_with(" end"), "{short}");
        assert!(short.contains("left out") && short.len() < 130, "{short}");
        assert_eq!(cut(&text, text.len()), text);
        assert!(cut("äöü", 1).contains("left out"));
    }

    proptest! {
        #[test]
        fn any_order_of_entries_gives_a_valid_request(picks in proptest::collection::vec(0usize..6, 0..30)) {
            let mut memory = Memory::default();
            for (n, pick) in picks.iter().enumerate() {
                let id = format!("t{n}");
                match pick {
                    0 => memory.push(&user(id)),
                    1 => memory.push(&from_bob(&id)),
                    2 => memory.push(&reply(vec![Block::Text { text: id }], Usage::default())),
                    3 => {
                        memory.push(&calls(&[&id]));
                        memory.push(&result(&id, "ok"));
                    }
                    4 => memory.push(&result("no-such-call", "ok")),
                    _ => memory.push(&Entry::Note { content: id }),
                }
            }
            let messages = memory.messages();
            prop_assert!(messages.first().is_none_or(|first| first.role == Role::User));
            prop_assert!(messages.windows(2).all(|pair| pair[0].role != pair[1].role));
            prop_assert!(messages.iter().all(|message| !message.blocks.is_empty()));
        }
    }
}

//! The facts about a conversation that its lines tell, counted line by line.

use crate::wire::WallTime;
use crate::wire::chat::Usage;
use crate::wire::message::Message;
use crate::wire::money::Price;
use crate::wire::roster::UsageCount;
use crate::wire::transcript::{Entry, Line};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The maximum length of a title, in bytes.
const TITLE_BYTES: usize = 400;

/// The price of a model, by its label in a transcript.
pub(crate) type PriceOf<'a> = &'a dyn Fn(&str) -> Option<Price>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Facts {
    pub(super) incarnation: Option<String>,
    /// Whether a person, a model or a message that starts a turn has said anything. Known if all mail was counted.
    pub(super) has_content: bool,
    /// The newest batch of mail. Known if all mail was counted.
    pub(super) newest_batch: Option<String>,
    title: Option<String>,
    /// The first line of the first mail, if it came before a prompt.
    mail: Option<String>,
    pub(super) began_at: Option<WallTime>,
    pub(super) last_used_at: Option<WallTime>,
    pub(super) prompts: u64,
    turns: u64,
    /// The tokens of the calls of each model, by its label in the transcript.
    calls: BTreeMap<String, Usage>,
    /// The label of the model that the newest process used.
    #[serde(skip)]
    model: String,
    /// The bytes of the lines that were counted.
    #[serde(skip)]
    bytes: u64,
}

impl Facts {
    pub(super) fn count(&mut self, line: &[u8]) {
        self.bytes = self.bytes.saturating_add(line.len() as u64).saturating_add(1);
        let needs_mail = self.title.is_none() && self.mail.is_none();
        let kinds = ["session", "model", "user", "assistant", "compacted", "turn_end"];
        let is_counted = kinds.iter().any(|kind| Line::may_be(line, kind))
            || (needs_mail && Line::may_be(line, "mail"));
        if !is_counted {
            return;
        }
        if let Some(Line { at, entry }) = Line::read(line) {
            self.count_entry(at, entry);
        }
    }

    pub(super) fn count_entry(&mut self, at: WallTime, entry: Entry) {
        let needs_mail = self.title.is_none() && self.mail.is_none();
        match entry {
            Entry::Session { incarnation, model, .. } => {
                self.began_at = self.began_at.or(Some(at));
                self.incarnation.get_or_insert(incarnation);
                self.model = model;
                // A start is no use of the conversation.
                return;
            }
            Entry::Model { model } => {
                self.began_at = self.began_at.or(Some(at));
                self.model = model;
                return;
            }
            Entry::User { content } => {
                self.has_content = true;
                self.prompts += 1;
                self.title.get_or_insert_with(|| first_line(&content));
            }
            Entry::Mail { message, claim, .. } => {
                self.newest_batch = self.newest_batch.take().max(Some(claim));
                if !needs_mail && self.has_content {
                    return;
                }
                self.began_at = self.began_at.or(Some(at));
                let Some(message) = waking(&message) else { return };
                self.has_content = true;
                if !needs_mail {
                    return;
                }
                self.mail = Some(first_line(&format!("{}: {}", message.from, message.content)));
            }
            Entry::Assistant { usage, .. } => {
                self.has_content = true;
                *self.calls.entry(self.model.clone()).or_default() += usage;
            }
            Entry::Compacted { usage, .. } => {
                *self.calls.entry(self.model.clone()).or_default() += usage;
            }
            Entry::TurnEnd { .. } => self.turns += 1,
            Entry::ToolStart { .. }
            | Entry::ToolResult { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Subagent(_)
            | Entry::Interrupt { .. }
            | Entry::ResultsLeftOut { .. }
            | Entry::HandedOut { .. }
            | Entry::Note { .. }
            | Entry::Instructions { .. }
            | Entry::Unknown => return,
        }
        self.began_at = self.began_at.or(Some(at));
        self.last_used_at = Some(at);
    }

    /// Estimates the counts of the whole transcript from those of the part that was read.
    pub(super) fn scale_to(&mut self, bytes: u64) {
        let read = u128::from(self.bytes.max(1));
        let scale = |count: u64| {
            u64::try_from(u128::from(count) * u128::from(bytes) / read).unwrap_or(u64::MAX)
        };
        self.prompts = scale(self.prompts);
        self.turns = scale(self.turns);
        for usage in self.calls.values_mut() {
            *usage = Usage {
                input_tokens: scale(usage.input_tokens),
                output_tokens: scale(usage.output_tokens),
                cache_read_input_tokens: scale(usage.cache_read_input_tokens),
                cache_creation_input_tokens: scale(usage.cache_creation_input_tokens),
            };
        }
    }

    pub(super) fn title(&self) -> String {
        self.title.as_ref().or(self.mail.as_ref()).cloned().unwrap_or_default()
    }

    pub(super) fn usage(&self, price: PriceOf<'_>) -> UsageCount {
        let mut sum = UsageCount { turns: self.turns, ..UsageCount::default() };
        for (model, usage) in &self.calls {
            let price = if model.is_empty() { None } else { price(model) };
            sum.add_call(*usage, price);
        }
        sum
    }
}

pub(super) fn waking(message: &Map<String, Value>) -> Option<Message> {
    Message::read(message).ok().filter(|message| message.body.wakes())
}

/// Returns the first line of a text that is not blank, shortened.
fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.get(..line.floor_char_boundary(TITLE_BYTES)).unwrap_or_default().to_owned()
}

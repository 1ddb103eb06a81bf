//! A conversation with a model, independent of who serves it: roles, blocks, tool calls, usage.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who a chat message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The program's side: prompts, mail, tool results.
    User,
    /// The model's side.
    Assistant,
}

/// One piece of a chat message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// The model asks for a tool to be run.
    ToolUse {
        /// Unique id that the result refers to; the ids of messages sent by the call derive from it.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments, an object when the model behaves.
        input: Value,
    },
    /// What a tool call gave.
    ToolResult {
        /// The id of the call that is answered.
        tool_use_id: String,
        /// What the tool said.
        content: String,
        /// The call failed; `content` says why and what to do.
        is_error: bool,
    },
    /// A block that only the provider understands (thinking with its signature); goes back unchanged.
    Opaque {
        /// The block exactly as the provider sent it.
        value: Value,
    },
}

/// One message of the conversation as a provider sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Whose message it is.
    pub role: Role,
    /// Its pieces; tool results stand before text.
    pub blocks: Vec<Block>,
}

/// A tool as it is announced to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Name the model calls it by.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of the arguments object.
    pub input_schema: Value,
}

/// Everything one model call needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The system prompt.
    pub system: String,
    /// The conversation, alternating user and assistant, beginning with user.
    pub messages: Vec<ChatMessage>,
    /// What the model may call.
    pub tools: Vec<ToolDefinition>,
    /// Most tokens the answer may have.
    pub max_tokens: u32,
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum StopReason {
    /// It had said all.
    EndTurn,
    /// It hit `max_tokens`.
    MaxTokens,
    /// It produced a stop sequence.
    StopSequence,
    /// It wants its tool calls run.
    ToolUse,
    /// The server paused a long turn; the same history is sent again.
    PauseTurn,
    /// It declined.
    Refusal,
    /// The conversation filled its context window.
    ContextWindowExceeded,
    /// A reason this version does not know.
    Other(String),
}

impl From<String> for StopReason {
    fn from(word: String) -> Self {
        match word.as_str() {
            "end_turn" => Self::EndTurn,
            "max_tokens" => Self::MaxTokens,
            "stop_sequence" => Self::StopSequence,
            "tool_use" => Self::ToolUse,
            "pause_turn" => Self::PauseTurn,
            "refusal" => Self::Refusal,
            "model_context_window_exceeded" => Self::ContextWindowExceeded,
            _ => Self::Other(word),
        }
    }
}

impl From<StopReason> for String {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::EndTurn => "end_turn".into(),
            StopReason::MaxTokens => "max_tokens".into(),
            StopReason::StopSequence => "stop_sequence".into(),
            StopReason::ToolUse => "tool_use".into(),
            StopReason::PauseTurn => "pause_turn".into(),
            StopReason::Refusal => "refusal".into(),
            StopReason::ContextWindowExceeded => "model_context_window_exceeded".into(),
            StopReason::Other(word) => word,
        }
    }
}

/// Tokens of one call, or a sum of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens read, without those below.
    pub input_tokens: u64,
    /// Tokens written by the model.
    pub output_tokens: u64,
    /// Tokens read from the provider's cache.
    pub cache_read_input_tokens: u64,
    /// Tokens stored in the provider's cache.
    pub cache_creation_input_tokens: u64,
}

impl Usage {
    /// In and out, cached or not: what `--max-tokens` counts.
    pub fn total(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.output_tokens)
            .saturating_add(self.cache_read_input_tokens)
            .saturating_add(self.cache_creation_input_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_input_tokens =
            self.cache_read_input_tokens.saturating_add(other.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            self.cache_creation_input_tokens.saturating_add(other.cache_creation_input_tokens);
    }
}

/// A whole answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Text, tool calls and opaque blocks in the order they came.
    pub blocks: Vec<Block>,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// What it cost.
    pub usage: Usage,
    /// The model that answered, as the endpoint names it.
    pub model: String,
}

impl Reply {
    /// The text blocks joined, without tool calls.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::ToolUse { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

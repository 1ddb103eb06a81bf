//! A conversation with a model, independent of its provider: roles, blocks, tool calls, usage.

use super::image::ShownImage;
use super::words::words;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The author of a chat message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The program: prompts, mail, tool results.
    User,
    /// The model.
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
    /// A tool call.
    ToolUse {
        /// The unique id, to which the result refers. The ids of messages that the call sends are derived from it.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments; valid ones are an object.
        input: Value,
    },
    /// The result of a tool call.
    ToolResult {
        /// The id of the call.
        tool_use_id: String,
        /// The output of the tool.
        content: String,
        /// Whether the call failed; then `content` says why and what to do next.
        is_error: bool,
    },
    /// An image that a tool has shown; it follows the result in a message of the program.
    Image {
        /// The image.
        image: ShownImage,
        /// The content in base64, once it is loaded for a request.
        #[serde(skip)]
        data: Option<Arc<str>>,
    },
    /// A block that only the provider understands, such as signed thinking; it is sent back unchanged.
    Opaque {
        /// The block as the provider sent it.
        value: Value,
    },
}

/// One message of a conversation, as it is sent to a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// The author.
    pub role: Role,
    /// The content; tool results come before text.
    pub blocks: Vec<Block>,
}

/// A tool as it is announced to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// The name by which the model calls it.
    pub name: String,
    /// A description of the tool's effect and of its proper use.
    pub description: String,
    /// The JSON Schema of the arguments object.
    pub input_schema: Value,
}

/// A model call.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The system prompt.
    pub system: String,
    /// The conversation: user and assistant in turn, the user first.
    pub messages: Vec<ChatMessage>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// The maximum number of tokens of the answer.
    pub max_tokens: u32,
    /// The thinking before the answer.
    pub thinking: Thinking,
}

words! {
    /// The effort of a model before it answers.
    pub enum Effort {
        /// No thinking.
        Off = "off",
        /// Little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
    }
}

/// The thinking that a request asks for. The default asks for nothing: the model decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Thinking {
    /// The effort.
    pub effort: Option<Effort>,
    /// The maximum number of tokens of the thinking; they count as part of the answer.
    pub budget_tokens: Option<u32>,
}

/// The reason for which the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The answer is complete.
    EndTurn,
    /// The answer reached `max_tokens`.
    MaxTokens,
    /// The answer reached a stop sequence.
    StopSequence,
    /// The model waits for the results of its tool calls.
    ToolUse,
    /// The server paused a long turn; the same history is sent again.
    PauseTurn,
    /// The model declined to answer.
    Refusal,
    /// The conversation filled its context window.
    #[serde(rename = "model_context_window_exceeded")]
    ContextWindowExceeded,
    /// A reason that this version does not know.
    #[serde(untagged)]
    Other(String),
}

/// The tokens of one model call, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens outside the provider's cache.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read_input_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_creation_input_tokens: u64,
}

impl Usage {
    /// Returns the number of all tokens, as `--max-tokens` counts them.
    pub fn total(&self) -> u64 {
        let cached = self.cache_read_input_tokens.saturating_add(self.cache_creation_input_tokens);
        self.input_tokens.saturating_add(self.output_tokens).saturating_add(cached)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.input_tokens, other.input_tokens);
        add(&mut self.output_tokens, other.output_tokens);
        add(&mut self.cache_read_input_tokens, other.cache_read_input_tokens);
        add(&mut self.cache_creation_input_tokens, other.cache_creation_input_tokens);
    }
}

/// A complete answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Text, tool calls and opaque blocks in their order.
    pub blocks: Vec<Block>,
    /// The reason for which the answer ended.
    pub stop_reason: StopReason,
    /// The tokens of the call.
    pub usage: Usage,
    /// The model, as the endpoint names it.
    pub model: String,
}

impl Reply {
    /// Returns the text blocks, joined by line breaks.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::ToolUse { .. }
            | Block::ToolResult { .. }
            | Block::Image { .. }
            | Block::Opaque { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

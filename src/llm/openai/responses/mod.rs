//! The Responses API of `OpenAI`: the body of a request, and the assembly of a reply.
//!
//! The conversation is sent whole with each request, and nothing is stored at the endpoint. The reasoning of the model
//! comes as items that only the endpoint can read; they are kept as opaque blocks, and go back with later requests.

pub(in crate::llm) mod reasoning;
pub(in crate::llm) mod reply;
pub(in crate::llm) mod request;

/// The type of an opaque block with a reasoning item, as the endpoint sent it.
const REASONING: &str = "reasoning";

/// The type of an opaque block with the phase of the message whose text is the next block. The API asks for it back: it
/// tells a comment from a final answer.
const PHASE: &str = "message_phase";

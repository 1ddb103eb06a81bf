//! Chat completions of `OpenAI` and of compatible servers: the body of a request, and the assembly of a reply.

pub(in crate::llm) mod reply;
pub(in crate::llm) mod request;

//! Runs a call of a server's tool, with the guards around every call that may change files.

use crate::mcp::CallContent;
use crate::tools::call::{Call, ToolError, ToolFuture};
use crate::tools::command::call_guard::CallGuard;
use crate::tools::command::output::{CappedOutput, OutputSink as _};
use crate::tools::registry::ToolParts;
use crate::wire::tool::Effect;

/// Runs a call that was judged.
pub(in crate::tools) fn run<'a>(call: &'a Call, parts: &'a ToolParts) -> ToolFuture<'a> {
    Box::pin(run_judged(call, parts))
}

async fn run_judged(call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
    let Some(mcp) = &parts.mcp else { return Err(ToolError::reply("there are no MCP servers")) };
    let prepared = mcp.prepare(call).await.map_err(ToolError::Reply)?;
    if prepared.effect == Effect::Reads {
        return text_of(prepared.call(&call.input).await, parts);
    }
    let guard = CallGuard::before(parts, prepared.walls(), None).await;
    let result = prepared.call(&call.input).await;
    let checked = guard.after().await;
    let text = text_of(result, parts)?;
    let report = checked.report(call, (&call.name, &text), parts).await;
    Ok(text + &report)
}

/// Returns the part of a result that a model sees.
fn text_of(content: Result<CallContent, String>, parts: &ToolParts) -> Result<String, ToolError> {
    let CallContent { text, is_error } = content.map_err(ToolError::Reply)?;
    let mut output = CappedOutput::stored_in(&parts.output_store);
    output.push(text.as_bytes());
    let text = output.finish();
    match (is_error, text.is_empty()) {
        (false, true) => Ok("(no output)".into()),
        (false, false) => Ok(text),
        (true, true) => Err(ToolError::reply("it failed without a reason")),
        (true, false) => Err(ToolError::Reply(text)),
    }
}

//! The `find_tools` tool: finds tools of MCP servers if there are too many to offer all of them.

use crate::tools::call::{Call, ToolError};
use crate::tools::registry::{Tool, ToolParts, parameters};
use crate::wire::tool::ParameterType::Text;
use crate::wire::tool::{
    Audience, CompactOffer, Effect, OfferCondition, Purpose, RoleAccess, ToolSpec,
};

parameters!(FindTools {
    query: String = required(Text, "Words for what the tool does, or the name of its server."),
});

impl Tool for FindTools {
    const SPEC: ToolSpec = ToolSpec {
        name: "find_tools",
        description: "Finds further tools, of the MCP servers of this team, by words for what they do. You have \
                      those that it finds from then on; all are named mcp__SERVER__TOOL.",
        effect: Effect::Reads,
        role_access: RoleAccess::Granted,
        purpose: Purpose::Work,
        compact: Some(CompactOffer::when(
            OfferCondition::ToolsToFind,
            Audience::Both,
            "Find further tools by words.",
        )),
        of_subagents: true,
        ..ToolSpec::STRICT
    };

    fn is_available(parts: &ToolParts) -> bool {
        parts.mcp.is_some()
    }

    fn is_offered(parts: &ToolParts) -> bool {
        parts.mcp.as_ref().is_some_and(|mcp| mcp.is_deferred())
    }

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let Some(mcp) = &parts.mcp else {
            return Err(ToolError::reply("there are no MCP servers"));
        };
        mcp.load().await;
        let role = parts.role.borrow();
        Ok(mcp.search(&self.query, |spec| role.has(spec)))
    }
}

//! The servers of one agent, and what they need.

use crate::os::command::CommandSetup;
use crate::store::TeamDir;
use crate::store::tool_pins::ToolPins;
use crate::wire::AgentName;
use crate::wire::mcp::NamedMcpServer;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// The servers of one agent, and what they need.
pub(crate) struct McpSetup {
    pub(crate) servers: Vec<NamedMcpServer>,
    pub(crate) me: AgentName,
    pub(crate) team: TeamDir,
    /// The setup of the agent's commands, which is also that of its servers.
    pub(crate) commands: CommandSetup,
    /// The folder in which the agent works.
    pub(crate) folder: PathBuf,
    pub(crate) pins: ToolPins,
    /// The time without a call after which a server ends.
    pub(crate) idle_after: Duration,
    /// Tells the person of a server that cannot be used.
    pub(crate) tell: Rc<dyn Fn(String)>,
    /// Whether the model gets `find_tools` instead of any number of tools.
    pub(crate) is_compact: bool,
}

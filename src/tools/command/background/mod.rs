//! Commands that run beside the turns of their agent: `bash` starts them with `background`, and the agent looks at their
//! output and stops them by two tools. Their end is mail to the agent.
//!
//! *Invariant:* no such command outlives its agent. The end of one is told once: by a look of the model that is in its
//! transcript, or by mail with an id that derives from the call that has started it.

mod list;
mod live;
mod output;
mod start;
pub(in crate::tools) mod tools;

pub(crate) use list::BackgroundCommands;
pub(in crate::tools) use start::{NewCommand, start};

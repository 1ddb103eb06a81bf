//! The user interface: text for the terminal, and the person's input.
//!
//! *Invariant:* this layer takes values (`wire` types, [`crate::agent::progress::Progress`]) and returns text
//! and [`console::Input`]; it does not open the team folder, send mail or make decisions. Every text of a
//! model, a message or a file passes [`sanitize::sanitize`] before it reaches the terminal.

pub(crate) mod console;
pub(crate) mod diff;
pub(crate) mod external_editor;
pub(crate) mod headless_output;
pub(crate) mod help;
pub(crate) mod live;
pub(crate) mod markdown;
pub(crate) mod mcp_servers;
pub(crate) mod messages;
pub(crate) mod question;
pub(crate) mod roster;
pub(crate) mod sanitize;
pub(crate) mod sessions;
pub(crate) mod style;
mod styled_text;
pub(crate) mod tables;
mod terminal_input;
pub(crate) mod tool_line;
pub(crate) mod top;
pub(crate) mod transcript;
pub(crate) mod undo;
pub(crate) mod view;

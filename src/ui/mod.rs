//! How things look and how a person types.
//!
//! *Invariant:* the terminal is a window, not an actor. This layer gets values (`wire` types,
//! [`crate::agent::progress::Progress`]) and gives back text and [`console::Input`]; it does not know
//! the disk, cannot send mail and decides nothing. Whatever comes from a model, a message or a file
//! passes through [`sanitize::clean`] before it reaches the terminal.

pub(crate) mod console;
mod editor;
pub(crate) mod headless_output;
pub(crate) mod help;
mod history;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod messages;
pub(crate) mod question;
pub(crate) mod roles;
pub(crate) mod roster;
pub(crate) mod sanitize;
pub(crate) mod style;
pub(crate) mod tasks;
mod text_width;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod transcript;
pub(crate) mod view;

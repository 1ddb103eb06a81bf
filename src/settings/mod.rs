//! Reads flags, environment and settings files into one immutable [`Settings`]. The only reader of the environment.
//!
//! Order (SPEC 7): flag, then environment, then `.team/settings.toml`, then
//! `$XDG_CONFIG_HOME/team/settings.toml`, then the default. Every value keeps its source. A folder's file may
//! tighten limits. A value there that runs code, loosens a limit or sends data elsewhere is in force only if
//! [`trust`] lists it.

pub(crate) mod agents;
mod derived;
pub(crate) mod endpoints;
pub(crate) mod environment;
pub(crate) mod granted;
pub(crate) mod host_limits;
mod isolation;
pub(crate) mod last_lead;
mod layers;
mod loading;
mod mcp;
mod mcp_json;
pub(crate) mod model;
mod model_choice;
mod model_settings;
pub(crate) mod models;
pub(crate) mod reference;
mod retention;
mod sandbox;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod trust;
mod value;

pub(crate) use layers::{ConfigRow, Flags};
pub(crate) use loading::MailSettings;
pub(crate) use table::{Rules, Settings};
pub(crate) use value::PromptProfile;

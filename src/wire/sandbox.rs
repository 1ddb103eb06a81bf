//! The sandbox of commands: its level, its access to the network, and its exceptions.

use serde::{Deserialize, Serialize};

/// The extent to which commands are walled in, from the loosest to the strictest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLevel {
    /// Commands have the rights of the user.
    #[default]
    Off,
    /// Commands change files only in the workspace and in temporary folders.
    Workspace,
    /// Commands change files only in temporary folders.
    ReadOnly,
}

/// The access of walled commands to the network, from the loosest to the strictest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxNetwork {
    /// TCP and UDP to every address.
    #[default]
    Open,
    /// A loopback that belongs to the command alone.
    Own,
    /// No address, the loopback included.
    Off,
}

/// The sandbox that a lead hands over to its teammates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its level.
    pub level: SandboxLevel,
    /// Its access to the network.
    pub network: SandboxNetwork,
    /// Further paths that commands may change; a leading `~/` is the home folder.
    #[serde(default)]
    pub write: Vec<String>,
    /// Paths that commands cannot read; a trailing `*` completes the last name.
    #[serde(default)]
    pub hide: Vec<String>,
    /// Whether commands get namespaces of their own.
    #[serde(default)]
    pub has_namespaces: bool,
    /// Whether commands run without a question in the modes in which they would ask.
    #[serde(default)]
    pub runs_unasked: bool,
    /// Whether the machine lacks a wall that the level needs. Only a level that nobody asked for is partial.
    #[serde(default)]
    pub is_partial: bool,
}

impl Sandbox {
    /// Whether all walls of the level stand, so that a command reaches neither the team nor the secrets of the user.
    pub fn is_whole(&self) -> bool {
        self.level != SandboxLevel::Off && !self.is_partial
    }

    /// Whether commands inside the walls need no question.
    pub fn frees_commands(&self) -> bool {
        self.runs_unasked && self.is_whole()
    }
}

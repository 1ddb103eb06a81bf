//! The sandbox of commands: its level, its access to the network, and its exceptions.

use super::host::HostPattern;
use super::words::words;
use serde::{Deserialize, Serialize};

/// The extent to which commands are walled in, from the loosest to the strictest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLevel {
    /// Commands have the rights of the user.
    Off,
    /// Commands change files only in the workspace and in temporary folders.
    #[default]
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
    /// Named hosts, through a proxy of the agent.
    Hosts,
    /// A loopback that belongs to the command alone.
    Own,
    /// No address, the loopback included.
    Off,
}

words! {
    /// A wall around commands, named by that which it protects.
    #[derive(PartialOrd, Ord)]
    pub enum SandboxWall {
        /// Files outside the writable folders are not changed.
        Files = "files",
        /// The team folder is neither read nor changed.
        TeamFolder = "team folder",
        /// The paths that are hidden from commands are not read.
        Secrets = "secrets",
        /// Processes outside are not signalled.
        Signals = "signals",
        /// No socket with a path or an abstract name is connected to.
        Sockets = "sockets",
        /// No address outside is reached.
        Network = "network",
        /// Files in the workspace that run code later are not changed: `.git/hooks`, `.git/config`, `.envrc` and the like.
        GitFiles = "git files",
        /// `/tmp`, `/var/tmp` and `/dev/shm` are private.
        TemporaryFolders = "temporary folders",
    }
}

/// The questions about commands, if walls stand around them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxQuestions {
    /// As the permission mode says.
    #[default]
    ByMode,
    /// Only about commands that are to run outside.
    Outside,
}

/// The sandbox that a lead hands over to its teammates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its level.
    pub level: SandboxLevel,
    /// Its access to the network.
    pub network: SandboxNetwork,
    /// The hosts that commands reach without a question, where the network is that of named hosts.
    #[serde(default)]
    pub hosts: Vec<HostPattern>,
    /// Further paths that commands may change; a leading `~/` is the home folder.
    #[serde(default)]
    pub write: Vec<String>,
    /// Paths that commands cannot read; a trailing `*` completes the last name.
    #[serde(default)]
    pub hide: Vec<String>,
    /// Whether commands get namespaces of their own.
    #[serde(default)]
    pub has_namespaces: bool,
    /// The questions about commands inside the walls.
    #[serde(default)]
    pub questions: SandboxQuestions,
    /// Whether commands do without Landlock, which the machine lacks.
    #[serde(default)]
    pub lacks_landlock: bool,
    /// Whether the machine lacks a wall that the level needs. Only a level that nobody asked for is partial.
    #[serde(default)]
    pub is_partial: bool,
    /// The walls that stand, as far as the machine has been tried.
    #[serde(default)]
    pub walls: Vec<SandboxWall>,
}

/// The sandbox of an agent as the roster shows it. Words of a later version are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxEntry {
    /// The level in force.
    pub level: String,
    /// The access to the network.
    pub network: String,
    /// The walls that stand.
    pub walls: Vec<String>,
    /// The walls of the level that the machine lacks.
    pub missing: Vec<String>,
}

impl SandboxLevel {
    /// Returns the word for the level in settings and messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Workspace => "workspace",
            Self::ReadOnly => "read-only",
        }
    }
}

impl SandboxNetwork {
    /// Returns the word for the access in settings and messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Hosts => "hosts",
            Self::Own => "own",
            Self::Off => "off",
        }
    }
}

impl Sandbox {
    /// Whether all walls of the level stand, so that a command reaches neither the team nor the secrets of the user.
    pub fn is_whole(&self) -> bool {
        self.level != SandboxLevel::Off && !self.is_partial && self.missing().next().is_none()
    }

    /// Whether commands inside the walls need no question.
    pub fn frees_commands(&self) -> bool {
        self.questions == SandboxQuestions::Outside && self.is_whole()
    }

    /// Returns the walls of the level, whether or not they stand.
    pub fn walls_of_level(&self) -> impl Iterator<Item = SandboxWall> {
        let (level, network) = (self.level, self.network);
        let is_meant = move |wall: &SandboxWall| {
            let is_for_closed_network = *wall == SandboxWall::Network;
            level != SandboxLevel::Off
                && (!is_for_closed_network || network != SandboxNetwork::Open)
        };
        SandboxWall::ALL.into_iter().filter(is_meant)
    }

    /// Returns the walls of the level that do not stand.
    pub fn missing(&self) -> impl Iterator<Item = SandboxWall> {
        self.walls_of_level().filter(|wall| !self.walls.contains(wall))
    }

    /// Returns the entry for the roster.
    pub fn entry(&self) -> SandboxEntry {
        let words = |walls: &mut dyn Iterator<Item = SandboxWall>| -> Vec<String> {
            walls.map(|wall| wall.word().to_owned()).collect()
        };
        SandboxEntry {
            level: self.level.word().into(),
            network: self.network.word().into(),
            walls: words(&mut self.walls.iter().copied()),
            missing: words(&mut self.missing()),
        }
    }
}

impl SandboxEntry {
    /// Returns the level, and the missing walls, in a few words.
    pub fn summary(&self) -> String {
        let missing = self.missing.join(", ");
        let without =
            if missing.is_empty() { String::new() } else { format!(", without {missing}") };
        format!("{}{without}", self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roster_has_the_walls_that_stand_and_those_of_the_level_that_are_missing() {
        let all = Sandbox { level: SandboxLevel::Workspace, ..Sandbox::default() };
        let walls: Vec<_> = all.walls_of_level().collect();
        assert!(!walls.contains(&SandboxWall::Network), "the network is open");
        let whole = Sandbox { walls: walls.clone(), ..all.clone() };
        assert_eq!(whole.entry().summary(), "workspace");
        let standing = walls.into_iter().filter(|wall| *wall != SandboxWall::GitFiles).collect();
        let partial = Sandbox { walls: standing, ..all };
        assert_eq!(partial.entry().summary(), "workspace, without git files");
        assert_eq!(partial.entry().missing, ["git files"]);
        let off = Sandbox { level: SandboxLevel::Off, ..Sandbox::default() };
        assert_eq!((off.entry().summary(), off.entry().missing), ("off".to_owned(), vec![]));
    }
}

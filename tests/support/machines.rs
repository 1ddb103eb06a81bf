//! Machines that permit some walls around commands, or all of them, imitated by a filter of system calls.

use super::harness::{Team, has_python};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Returns the program that refuses system calls.
pub(crate) fn calls_filter() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks/refuse_calls.py")
}

/// Has a filter refuse system calls to all programs of a team: `namespaces` or `landlock`.
pub(crate) fn refuse_calls(team: &mut Team, what: &str) {
    let script = calls_filter();
    team.start_by(&["python3", "-B", &script.display().to_string(), what]);
}

/// The walls that commands of a team have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    /// The level `off`.
    Unwalled,
    /// The default level, with all walls of this machine.
    Walled,
    /// The default level without mounts: Landlock and seccomp.
    NoNamespaces,
    /// The default level without Landlock: mounts and seccomp.
    NoLandlock,
}

impl Machine {
    pub(crate) const ALL: [Self; 4] =
        [Self::Unwalled, Self::Walled, Self::NoNamespaces, Self::NoLandlock];

    /// Returns the system calls that are refused. Without Python nothing refuses them.
    fn refused_calls(self) -> Option<&'static str> {
        let calls = match self {
            Self::Unwalled | Self::Walled => return None,
            Self::NoNamespaces => "namespaces",
            Self::NoLandlock => "landlock",
        };
        has_python(&format!("teams without {calls}")).then_some(calls)
    }

    /// Creates a team on this machine.
    pub(crate) fn team(self) -> Team {
        if self == Self::Unwalled {
            return Team::without_walls();
        }
        let mut team = Team::new();
        if let Some(calls) = self.refused_calls() {
            refuse_calls(&mut team, calls);
        }
        team
    }

    /// Asserts that the lead of a team has no wall that this machine does not permit, and those of an unwalled one none.
    #[track_caller]
    pub(crate) fn assert_walls(self, team: &Team) {
        let sandbox = team.team(&["ls", "--json"]).expect(0).json()["sandbox"].clone();
        let lacks = |wall: &str| sandbox["missing"].as_array().unwrap().contains(&json!(wall));
        let lacking = match self.refused_calls() {
            Some("namespaces") => Some("team folder"),
            Some(_) => Some("signals"),
            None => None,
        };
        let is_off = sandbox["level"] == "off";
        let is_as_expected = is_off || lacking.map_or(self != Self::Unwalled, lacks);
        assert!(is_as_expected, "{self:?}: {sandbox}");
    }
}

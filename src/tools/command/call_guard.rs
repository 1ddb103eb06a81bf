//! The guards around a call that may change files: leases of other agents, files by which git runs code, and undo.

use super::git_guard::GitGuard;
use super::lease_guard::LeaseGuard;
use super::undo_guard::UndoGuard;
use crate::os::wall::Walls;
use crate::tools::call::Call;
use crate::tools::command_turn::OwnedTurn;
use crate::tools::registry::ToolParts;
use std::path::PathBuf;

pub(in crate::tools) struct CallGuard {
    turn: OwnedTurn,
    leases: LeaseGuard,
    git: GitGuard,
    undo: UndoGuard,
}

/// The guard after a call: git and undo are done.
pub(in crate::tools) struct CheckedCall {
    leases: LeaseGuard,
    git_report: String,
}

impl CallGuard {
    /// Waits until no other command of the agent runs, and looks at the files before a call. `walls` are those around its process, `mounting` those that make leased paths
    /// read-only for it.
    pub(in crate::tools) async fn before(
        parts: &ToolParts,
        walls: Option<&Walls>,
        mounting: Option<&Walls>,
    ) -> Self {
        let turn = parts.command_turn.take().await;
        let leases = LeaseGuard::of(parts, mounting).await;
        let git = GitGuard::of(parts, walls).await;
        let undo = UndoGuard::before(parts).await;
        // An interrupted call is looked at, too. Git runs only after the quarantine.
        let git = git.before(undo.look());
        Self { turn, leases, git, undo }
    }

    /// Returns the paths that the process of the call may only read.
    pub(in crate::tools) fn read_only(&self) -> Vec<PathBuf> {
        self.leases.read_only()
    }

    /// Looks at the files after the call.
    pub(in crate::tools) async fn after(self) -> CheckedCall {
        let git_report = self.git.report().await;
        self.undo.after().await;
        drop(self.turn);
        CheckedCall { leases: self.leases, git_report }
    }
}

impl CheckedCall {
    /// Returns the text below the `output` of the call: what was quarantined, and changes of leased files. Tells the owners
    /// of the latter.
    pub(in crate::tools) async fn report(
        self,
        call: &Call,
        (about, output): (&str, &str),
        parts: &ToolParts,
    ) -> String {
        let mut text = self.git_report;
        let output = format!("{output}{text}");
        text += &self.leases.report(call, (about, &output), parts).await;
        text
    }
}

/// The guard of a command that runs beside other calls. It compares no leased paths: their owners change them meanwhile.
/// It looks at no changes for undo: they cannot be told from those of others.
pub(in crate::tools) struct BackgroundGuard {
    leases: LeaseGuard,
    git: GitGuard,
}

impl BackgroundGuard {
    /// Prepares the guard of a command behind these walls.
    pub(in crate::tools) async fn before(parts: &ToolParts, walls: Option<&Walls>) -> Self {
        let leases = LeaseGuard::of(parts, walls).await;
        Self { leases, git: GitGuard::of(parts, walls).await }
    }

    /// Returns the paths that the command may only read.
    pub(in crate::tools) fn read_only(&self) -> Vec<PathBuf> {
        self.leases.read_only()
    }

    /// Quarantines what the command has left for git. Returns the text below its `output`.
    pub(in crate::tools) async fn after(self, output: &str) -> String {
        self.git.report().await + &self.leases.explain(output)
    }
}

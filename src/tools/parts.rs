//! The parts that the tools of one agent are made from.

use super::command::{CommandEnvironment, OutputStore};
use super::files::FileAccess;
use super::tasks::TaskContext;
use super::team::{Ops, TeamContext};
use crate::tasks::Tasks;
use crate::wire::tool::Audience;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// Everything that a tool may need.
pub(crate) struct ToolParts {
    pub(super) workspace: PathBuf,
    pub(super) environment: CommandEnvironment,
    pub(super) output_store: OutputStore,
    pub(super) files: Rc<FileAccess>,
    pub(super) team: Rc<TeamContext>,
    pub(super) tasks: Rc<TaskContext>,
    /// The lead's operations; a teammate has none.
    pub(super) ops: Option<Ops>,
}

impl ToolParts {
    /// The parts of a lead, or without `ops` of a teammate.
    ///
    /// # Errors
    /// The workspace cannot be entered.
    pub(crate) fn new(
        team: &Rc<TeamContext>,
        tasks: &Arc<Tasks>,
        ops: Option<Ops>,
        environment: CommandEnvironment,
        output_store: OutputStore,
    ) -> io::Result<Self> {
        let dir = tasks.dir();
        let files = Rc::new(FileAccess::open(dir.workspace(), dir.root())?);
        Ok(Self {
            workspace: files.workspace().to_owned(),
            environment,
            output_store,
            files,
            team: Rc::clone(team),
            tasks: Rc::new(TaskContext::new(Rc::clone(team), Arc::clone(tasks))),
            ops,
        })
    }

    /// The kind of agent.
    pub(super) fn audience(&self) -> Audience {
        if self.ops.is_some() { Audience::Lead } else { Audience::Teammate }
    }
}

//! What an agent works with: a shell and the files of its workspace.

use super::Registry;
use super::bash::Bash;
pub(crate) use super::environment::CommandEnvironment;
use super::files::add_file_tools;
pub(crate) use super::output_store::OutputStore;
use super::workspace::Workspace;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Adds `bash` and the file tools, for work in `workspace`; `team` is the team folder in it,
/// `output_store` takes what is too long to be shown.
///
/// # Errors
/// The workspace cannot be entered.
pub(crate) fn add_work_tools(
    registry: &mut Registry,
    workspace: &Path,
    team: &Path,
    environment: CommandEnvironment,
    output_store: OutputStore,
) -> io::Result<()> {
    let workspace = Rc::new(Workspace::open(workspace, team)?);
    registry.add(Bash::new(workspace.path().to_owned(), environment, output_store));
    add_file_tools(registry, workspace);
    Ok(())
}

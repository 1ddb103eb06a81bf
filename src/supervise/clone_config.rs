//! The settings of a lead for the clones of its teammates.

use crate::os::command::CommandSetup;
use crate::wire::isolation::{CloneBase, ClonePlace, Isolation};
use std::path::PathBuf;

/// Returns the setup of the commands that save a clone.
type SetupOfClone = Box<dyn Fn(&ClonePlace) -> CommandSetup>;

/// The clones of a team.
pub(crate) struct CloneConfig {
    /// The folder that teammates work in, unless their role or spawn asks for more.
    pub(crate) isolation: Isolation,
    pub(crate) base: CloneBase,
    /// The folder for clones; `None` if the user has none for the state of programs.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) setup: SetupOfClone,
}

//! The person's own editor (`VISUAL` or `EDITOR`) on a text of a request.
//!
//! The text is in a file of mode 0600 in a new folder of mode 0700. The folder is removed afterwards, with what the
//! editor has left in it.

use crate::os::Signal;
use crate::os::pidfd::{ExitKind, Pidfd};
use crate::os::terminal::foreground;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest edited text that is read, in bytes: more than any message may have.
const LONGEST: u64 = 64 * 1024 * 1024;

/// The time for which an editor may go on after it was asked to end.
const END_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct ExternalEditor {
    /// A command of the shell, such as `vim` or `code --wait`; `None` if the person has set none.
    command: Option<String>,
    environment: Vec<(String, String)>,
    /// The folder for temporary files.
    temporary: PathBuf,
    running: Arc<Mutex<Option<Arc<Pidfd>>>>,
}

impl ExternalEditor {
    pub(crate) fn new(
        command: Option<String>,
        environment: Vec<(String, String)>,
        temporary: PathBuf,
    ) -> Self {
        Self { command, environment, temporary, running: Arc::default() }
    }

    /// Lets the person edit a text; `name` is the end of the file's name. Returns the new text, or the reason for
    /// which nothing has changed.
    pub(crate) fn edit(&self, name: &str, text: &str) -> Result<String, String> {
        let Some(command) = &self.command else {
            return Err("nothing was changed: no editor is set; set VISUAL or EDITOR".into());
        };
        let folder = self.temporary.join(format!("team-edit-{}", uuid::Uuid::new_v4().simple()));
        let edited = self.edit_in(&folder, command, name, text);
        // A folder that cannot be removed holds nothing that others can read.
        std::fs::remove_dir_all(&folder).unwrap_or_default();
        let edited = edited?;
        // Many editors end each file with a line feed.
        let has_end = text.ends_with('\n');
        let edited =
            edited.strip_suffix('\n').filter(|_| !has_end).map(ToOwned::to_owned).unwrap_or(edited);
        if edited == text {
            return Err("nothing was changed: the text is the same as before".into());
        }
        Ok(edited)
    }

    fn edit_in(
        &self,
        folder: &Path,
        command: &str,
        name: &str,
        text: &str,
    ) -> Result<String, String> {
        let failed = |why: io::Error| format!("nothing was changed: {}: {why}", folder.display());
        let file = folder.join(file_name(name));
        DirBuilder::new().mode(0o700).create(folder).map_err(failed)?;
        let mut options = OpenOptions::new();
        let created = options.write(true).create_new(true).mode(0o600).open(&file);
        created.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
        let mut program = Command::new("sh");
        program.arg("-c").arg(format!("exec {command} \"$@\"")).arg("editor").arg(&file);
        program.env_clear().envs(self.environment.iter().cloned());
        let exit = foreground::run(program, |child| *self.running() = Some(child));
        *self.running() = None;
        let hint = "check VISUAL and EDITOR";
        match exit {
            Ok(ExitKind::Code(0)) => {}
            Ok(ExitKind::Code(code)) => {
                let what = format!("the editor {command:?} ended with exit code {code}");
                return Err(format!("nothing was changed: {what}; {hint}"));
            }
            Ok(ExitKind::Signal(number)) => {
                let what = format!("the editor {command:?} was ended by signal {number}");
                return Err(format!("nothing was changed: {what}"));
            }
            Err(why) => return Err(format!("nothing was changed: {command:?}: {why}; {hint}")),
        }
        // Opened by name: many editors write another file and rename it.
        let mut edited = Vec::new();
        let read = OpenOptions::new().read(true).open(&file);
        read.and_then(|file| file.take(LONGEST).read_to_end(&mut edited)).map_err(failed)?;
        String::from_utf8(edited).map_err(|_| "nothing was changed: the text is not UTF-8".into())
    }

    /// Whether the editor has the terminal now.
    pub(crate) fn is_running(&self) -> bool {
        self.running().is_some()
    }

    /// Ends a running editor, because the program ends.
    pub(crate) fn stop(&self) {
        let child = self.running().clone();
        if let Some(child) = child {
            child.send_signal(Signal::SIGHUP).unwrap_or_default();
            if !child.ends_within(END_LIMIT) {
                child.send_signal(Signal::SIGKILL).unwrap_or_default();
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Arc<Pidfd>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a name for the file whose end tells the editor the language.
fn file_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let plain: String = name.chars().filter(|c| is_plain(*c)).collect();
    let start = plain.len().saturating_sub(64);
    format!("edit-{}", plain.get(start..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_a_harmless_name_with_the_same_end() {
        for (path, wanted) in [
            ("src/main.rs", "edit-main.rs"),
            ("a/..", "edit-.."),
            ("../$(rm x)\n.sh", "edit-rmx.sh"),
            ("", "edit-"),
        ] {
            assert_eq!(file_name(path), wanted, "{path:?}");
        }
        assert!(file_name(&"x".repeat(500)).len() < 80);
    }
}

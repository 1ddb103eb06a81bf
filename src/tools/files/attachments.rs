//! Files that come with messages: those that a model attaches, and the copies that it has got.

use super::access::{FileAccess, is_guarded};
use super::load::path_error;
use crate::os::safe_path::{SafePath, SafePathError, anywhere};
use crate::store::attachments::AttachableFile;
use crate::tools::call::ToolError;
use crate::wire::attachment::MOST_ATTACHMENTS;
use crate::wire::tool::Effect;
use std::path::{Path, PathBuf};

impl FileAccess {
    /// Opens the files of the workspace that a model attaches to a message: those that it may read, and of which no rule says that
    /// the person is asked first.
    pub(in crate::tools) fn find_attached(
        &self,
        paths: &[String],
    ) -> Result<Vec<AttachableFile>, ToolError> {
        if paths.len() > MOST_ATTACHMENTS {
            return Err(ToolError::Reply(format!(
                "{} files are more than {MOST_ATTACHMENTS}; attach an archive",
                paths.len()
            )));
        }
        paths.iter().map(|path| self.find_one_attached(path)).collect()
    }

    fn find_one_attached(&self, path: &str) -> Result<AttachableFile, ToolError> {
        let refused = |why: &str| ToolError::Reply(format!("{path} {why}"));
        let spot = self.find(path, Effect::Reads)?;
        let real = spot.path();
        if self.attachment(&real).is_some() {
            return Err(refused("came with a message; copy it into your workspace to attach it"));
        }
        if real.is_absolute() {
            return Err(refused("is outside your workspace; copy it there to attach it"));
        }
        let whole = self.workspace.path().join(&real);
        let limits = [self.limits.as_ref(), self.search_limits()];
        if limits.into_iter().flatten().any(|limits| limits.refuses(&whole)) {
            return Err(refused("cannot be attached: you may not read it without being asked"));
        }
        let file = spot.open().map_err(|why| path_error(path, &why))?;
        let file = file.ok_or_else(|| refused("does not exist; give the path of a file"))?;
        AttachableFile::of(&real, file)
            .map_err(|why| refused(&format!("cannot be attached: {why}")))
    }

    /// Returns the path of an attachment of the team below the folder around it; `None` for any other file.
    pub(super) fn attachment(&self, real: &Path) -> Option<PathBuf> {
        let root = self.writer.dir.root().canonicalize().ok()?;
        let real = self.workspace.path().join(real);
        let below = real.strip_prefix(&root).ok()?;
        let is_one = below.starts_with(self.writer.dir.attachments().file_name()?);
        is_one.then(|| Path::new(root.file_name().unwrap_or_default()).join(below))
    }

    /// Returns the file outside the workspace at `path`. Fails if the path contains a link, or leads into the workspace or to a
    /// guarded file. Attachments are read, although the team folder is guarded.
    pub(super) fn find_outside(
        &self,
        path: &Path,
        effect: Effect,
    ) -> Result<SafePath, SafePathError> {
        let workspace = self.workspace.path();
        // Every problem has the same error: the model must not learn which files exist outside.
        let Ok(spot) = anywhere(&workspace.join(path)) else { return Err(SafePathError::Outside) };
        let real = spot.path();
        let is_attachment = effect == Effect::Reads && self.attachment(&real).is_some();
        if real.starts_with(workspace) || (is_guarded(&real) && !is_attachment) {
            return Err(SafePathError::Outside);
        }
        Ok(spot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::permission::PermissionSubject;
    use crate::store::{Fsync, test_team};
    use crate::tools::call::Call;
    use crate::wire::AgentName;
    use serde_json::json;
    use std::fs::{self, File};
    use std::io::Write;

    fn write(path: &Path, content: &[u8]) {
        File::create(path).unwrap().write_all(content).unwrap();
    }

    #[test]
    fn an_agent_attaches_files_of_its_workspace_only() {
        let (folder, dir) = test_team();
        let files = FileAccess::open(&dir, &AgentName::lead(), dir.workspace(), None).unwrap();
        write(&folder.path().join("plot.png"), b"a plot");
        let attach = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
            files.find_attached(&paths)
        };
        let kept = attach(&["plot.png", "./plot.png"]).unwrap().pop().unwrap();
        let kept = kept.keep(&dir, Fsync::Never).unwrap();
        assert_eq!((kept.name(), fs::read(&kept.path).unwrap()), ("plot.png", b"a plot".to_vec()));
        for (path, why) in [
            ("none.png", "does not exist"),
            ("/etc/hostname", "outside your workspace"),
            ("../x", ""),
            (".", ""),
            ("", "is empty"),
            (&kept.path, "came with a message"),
        ] {
            let said = attach(&["plot.png", path]).unwrap_err().to_string();
            assert!(said.contains(why), "{path}: {said}");
        }
        assert!(attach(&["plot.png"; MOST_ATTACHMENTS + 1]).is_err());
    }

    #[test]
    fn an_agent_in_a_clone_reads_what_came_with_a_message_and_changes_nothing_there() {
        let (folder, dir) = test_team();
        let clone = tempfile::tempdir().unwrap();
        let files = FileAccess::open(&dir, &AgentName::lead(), clone.path(), None).unwrap();
        write(&folder.path().join("plot.png"), b"a plot");
        let plot = AttachableFile::open(&folder.path().join("plot.png")).unwrap();
        let kept = plot.keep(&dir, Fsync::Never).unwrap();
        let call = Call { id: "1".into(), name: "read_file".into(), input: json!({}) };
        let judged = files.judge(&call, &kept.path, Effect::Reads).unwrap();
        let below = format!(".team/attachments/{}/plot.png", kept.hash.as_str());
        assert_eq!(judged, PermissionSubject::Path(below));
        files.find_judged(&call, &kept.path, Effect::Reads).unwrap().open().unwrap().unwrap();
        files.judge(&call, &kept.path, Effect::Changes).unwrap_err();
        let config = dir.config().display().to_string();
        files.judge(&call, &config, Effect::Reads).unwrap_err();
    }
}

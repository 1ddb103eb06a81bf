//! File access of one agent's file tools: the workspace, and the files that they never open or write.
//!
//! An agent may ask for some files outside the workspace. As a guard against accidents, the person sees the path
//! before approving it. An agent can never ask for files that give access to more than themselves (keys, tokens,
//! startup files of shells and git, another team's mail).
//!
//! *Invariant:* a call opens only the file that permission rules judged.

use super::image::ImageForm;
use super::load::path_error;
use super::locked_file::Writer;
use super::read_log::ReadLog;
use super::readable::ReadLimits;
use crate::os::git_folders::RUN_CODE;
use crate::os::safe_path::{SafePath, SafePathError, SafeRoot};
use crate::os::wall::Walls;
use crate::protocol::leases::is_leasable;
use crate::protocol::permission::{DeniedFiles, PermissionSubject};
use crate::store::asynchronous::offload;
use crate::store::{TeamDir, images};
use crate::tools::call::{Call, ToolError};
use crate::undo::recorder::Recorder;
use crate::undo::unreadable::UnreadableFiles;
use crate::wire::AgentName;
use crate::wire::file_view::{ContentHash, FileView};
use crate::wire::image::ShownImage;
use crate::wire::isolation::ClonePlace;
use crate::wire::text_change::TextChange;
use crate::wire::tool::Effect;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The maximum length of a path that the kernel accepts, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// Names of files and folders with secrets or privileges, in any folder.
const GUARDED: &str =
    "shadow shadow- gshadow gshadow- sudoers sudoers.d ssh credentials credentials.json secrets";

const KEYS: [&str; 7] = ["pem", "key", "p12", "pfx", "jks", "kdbx", "keystore"];

/// Top-level folders that represent the system instead of files.
const SYSTEM: [&str; 4] = ["proc", "sys", "dev", "run"];

/// The files of this program that belong to the user: settings and trusted folders.
const OURS: [&str; 2] = ["team/settings.toml", "team/trust.json"];

/// The number of judged calls that are remembered. A call runs before so many others are judged.
const MOST_JUDGED: usize = 16;

/// The state that the file tools of one agent share.
#[derive(Debug)]
pub(crate) struct FileAccess {
    pub(in crate::tools) workspace: Arc<SafeRoot>,
    /// The repository of which the workspace is a clone.
    cloned: Option<PathBuf>,
    /// That clone.
    clone: Option<PathBuf>,
    /// The team folder below the workspace.
    team: Option<PathBuf>,
    /// The limits of what the agent may read; `None` without any.
    pub(super) limits: Option<ReadLimits>,
    /// The limits of its searches, which ask nobody.
    search_limits: Option<ReadLimits>,
    pub(super) writer: Writer,
    pub(super) log: RefCell<ReadLog>,
    /// The uses of files by calls that have not ended.
    uses: RefCell<Vec<FileUse>>,
    /// The images that calls show which have not ended, each with the id of its call.
    images: RefCell<Vec<(String, ShownImage)>>,
    /// Whether drafts of processes that were killed have been looked for.
    pub(super) has_recovered: Cell<bool>,
    /// The last judged calls, oldest first, to detect a link that was changed later.
    judged: RefCell<VecDeque<JudgedCall>>,
}

/// A judged call, and the files that it may open.
#[derive(Debug)]
struct JudgedCall {
    id: String,
    files: Vec<PathBuf>,
}

/// The use of a file by a call.
#[derive(Debug)]
struct FileUse {
    call_id: String,
    /// The file as the agent has seen it after the call; `None` if it is gone.
    view: Option<FileView>,
    /// The change that the call has made.
    change: Option<TextChange>,
}

/// The files that a call has used: each as the agent has seen it since, and the changes that the call has made.
#[derive(Debug, Default)]
pub(in crate::tools) struct UsedFiles {
    pub(in crate::tools) views: Vec<FileView>,
    pub(in crate::tools) images: Vec<ShownImage>,
    pub(in crate::tools) changes: Vec<TextChange>,
}

impl FileAccess {
    /// Opens the folder in which an agent works, which may be a clone, for its file tools. The team folder can have any
    /// name. Fails if the folder cannot be opened.
    pub(crate) fn open(
        dir: &TeamDir,
        me: &AgentName,
        folder: &Path,
        clone: Option<&ClonePlace>,
    ) -> io::Result<Self> {
        let workspace = Arc::new(SafeRoot::open(folder)?);
        let cloned = clone.map(|clone| PathBuf::from(&clone.repository));
        let cloned = cloned.map(|cloned| cloned.canonicalize().unwrap_or(cloned));
        let clone = clone.map(|clone| PathBuf::from(&clone.path));
        let clone = clone.map(|clone| clone.canonicalize().unwrap_or(clone));
        let team = dir.root().canonicalize().unwrap_or_else(|_| dir.root().to_owned());
        let team = team.strip_prefix(workspace.path()).ok().map(Path::to_owned);
        let writer = Writer {
            dir: dir.clone(),
            me: me.clone(),
            folder: folder.to_owned(),
            is_in_clone: clone.is_some(),
            recorder: Arc::new(Recorder::new(dir, me, UnreadableFiles::default())),
        };
        let (log, judged, uses) = (RefCell::default(), RefCell::default(), RefCell::default());
        let has_recovered = Cell::new(false);
        Ok(Self {
            workspace,
            cloned,
            clone,
            team,
            limits: None,
            search_limits: None,
            writer,
            log,
            uses,
            images: RefCell::default(),
            has_recovered,
            judged,
        })
    }

    /// Returns the access of a subagent: to the same files in the same name, with a record of its own of what was read.
    pub(in crate::tools) fn for_subagent(&self) -> Self {
        Self {
            workspace: Arc::clone(&self.workspace),
            cloned: self.cloned.clone(),
            clone: self.clone.clone(),
            team: self.team.clone(),
            limits: self.limits.clone(),
            search_limits: self.search_limits.clone(),
            writer: self.writer.clone(),
            log: RefCell::default(),
            uses: RefCell::default(),
            images: RefCell::default(),
            has_recovered: Cell::new(self.has_recovered.get()),
            judged: RefCell::default(),
        }
    }

    /// Sets what the agent may not read, which is kept out of searches and undo: files that these walls hide, those that rules keep from it, and those
    /// outside the workspace that are never opened.
    pub(crate) fn with_unreadable(
        mut self,
        walls: Option<Arc<Walls>>,
        denied: DeniedFiles,
    ) -> Self {
        let Writer { dir, folder, .. } = &self.writer;
        self.limits = Some(ReadLimits::new(folder, dir.root(), walls.clone(), denied.clone()));
        let (workspace, clone) = (self.workspace.path().to_owned(), self.clone.clone());
        let own = clone.clone().unwrap_or_else(|| workspace.clone());
        let refused = move |path: &Path| match path.strip_prefix(&workspace) {
            Ok(inside) => denied.contains(&subject(inside)),
            Err(_) => {
                // Commands change all of a clone, also where only a folder of it is the workspace.
                let own = clone.as_ref().and_then(|clone| path.strip_prefix(clone).ok());
                is_guarded(own.unwrap_or(path)) || denied.contains(&subject(path))
            }
        };
        let unreadable = UnreadableFiles::new(own, walls, Box::new(refused));
        let (dir, me) = (&self.writer.dir, &self.writer.me);
        self.writer.recorder = Arc::new(Recorder::new(dir, me, unreadable));
        self
    }

    /// Sets the limits of searches.
    pub(crate) fn with_search_limits(mut self, limits: ReadLimits) -> Self {
        self.search_limits = Some(limits);
        self
    }

    /// Returns the limits of searches; `None` without any.
    pub(in crate::tools) fn search_limits(&self) -> Option<&ReadLimits> {
        self.search_limits.as_ref()
    }

    /// Returns the recorder of the changes of this agent.
    pub(in crate::tools) fn recorder(&self) -> &Arc<Recorder> {
        &self.writer.recorder
    }

    /// Returns the file that a model's path leads to, for a call of this effect. The result has an absolute path
    /// if the file is outside the workspace; opening it needs an approval.
    pub(super) fn find(&self, path: &str, effect: Effect) -> Result<SafePath, ToolError> {
        check_text(path)?;
        let spot = match self.workspace.find(Path::new(path)) {
            Err(SafePathError::Outside) => self.find_outside(Path::new(path), effect),
            found => found,
        };
        let spot = spot.map_err(|why| path_error(path, &why))?;
        let real = spot.path();
        if effect == Effect::Reads {
            return Ok(spot);
        }
        if real.is_absolute() {
            // The clones of others are beside its own.
            let others = self.cloned.as_ref().and_then(|_| self.workspace.path().parent());
            if self.cloned.as_deref().into_iter().chain(others).any(|other| real.starts_with(other))
            {
                return Err(ToolError::Reply(format!(
                    "{path} is outside your clone; change the file in {} and call offer_work",
                    self.workspace.path().display()
                )));
            }
            return Ok(spot);
        }
        self.check_owner(path, &real)?;
        Ok(spot)
    }

    /// Returns the file or folder of the workspace that a model's path leads to, for a lease. Fails for a path that file
    /// tools do not write, and for the whole workspace.
    pub(in crate::tools) fn find_leasable(&self, path: &str) -> Result<String, ToolError> {
        check_text(path)?;
        let real = self.workspace.resolve(Path::new(path));
        let real = real.map_err(|why| path_error(path, &why))?;
        self.check_owner(path, &real)?;
        let leasable = real.to_str().filter(|real| is_leasable(real));
        leasable.map(ToOwned::to_owned).ok_or_else(|| {
            ToolError::Reply(format!(
                "{path} cannot be claimed: a lease needs a file or folder inside the workspace, with a name in UTF-8; \
                 give the parts that you will change, such as src/parser"
            ))
        })
    }

    /// Fails for a path in the workspace that belongs to the team or decides what git runs.
    fn check_owner(&self, path: &str, real: &Path) -> Result<(), ToolError> {
        let in_team = self.team.as_ref().is_some_and(|team| real.starts_with(team));
        if in_team || names(real).any(|name| name == ".team") {
            return Err(ToolError::Reply(format!(
                "{path} belongs to the team folder, which is never written by file tools; use \
                 send_message and the task tools instead"
            )));
        }
        if runs_code(real) {
            return Err(ToolError::Reply(format!(
                "{path} decides what git runs and is never written by file tools; ask the user to \
                 change it"
            )));
        }
        Ok(())
    }

    /// Returns the file of a call, with links followed, for permission rules. Fails for a path that is never
    /// permitted.
    pub(in crate::tools) fn judge(
        &self,
        call: &Call,
        path: &str,
        effect: Effect,
    ) -> Result<PermissionSubject, ToolError> {
        let path = self.find(path, effect)?.path();
        // A copy that came with a message is as good as a file of the workspace, also for an agent in a clone.
        let attachment = (effect == Effect::Reads).then(|| self.attachment(&path)).flatten();
        let subject = subject(&attachment.unwrap_or_else(|| path.clone()));
        self.note_judged(call, vec![path]);
        Ok(subject)
    }

    fn note_judged(&self, call: &Call, files: Vec<PathBuf>) {
        let mut judged = self.judged.borrow_mut();
        judged.retain(|judged| judged.id != call.id);
        judged.push_back(JudgedCall { id: call.id.clone(), files });
        if judged.len() > MOST_JUDGED {
            judged.pop_front();
        }
    }

    /// Returns the real paths of the files of a call that changes several, for permission rules. Fails for a path that is
    /// never permitted, and for one outside the workspace.
    pub(super) fn judge_all<'a>(
        &self,
        call: &Call,
        paths: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<String>, ToolError> {
        let mut files = Vec::new();
        for path in paths {
            let real = self.find(path, Effect::Changes)?.path();
            if real.is_absolute() {
                return Err(ToolError::Reply(format!(
                    "{path} is outside the workspace, where one call changes one file; use edit_file or write_file"
                )));
            }
            if self.limits.as_ref().is_some_and(|it| it.refuses(&self.workspace.path().join(&real)))
            {
                return Err(ToolError::Reply(format!(
                    "you may not read {path}, so that a patch does not touch it; leave it out"
                )));
            }
            files.push(real);
        }
        let subjects = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
        self.note_judged(call, files);
        Ok(subjects)
    }

    /// Restores a file that the agent has seen, from its transcript.
    pub(in crate::tools) fn restore(&self, view: &FileView) {
        self.log.borrow_mut().restore(view);
    }

    /// Notes the use of a file by a call: the file as the log has it, and its change.
    pub(super) fn note_use(&self, call: &Call, path: &Path, change: Option<TextChange>) {
        let view = self.log.borrow().view(path);
        self.uses.borrow_mut().push(FileUse { call_id: call.id.clone(), view, change });
    }

    /// Returns the files that this call has read or written, and forgets them.
    pub(in crate::tools) fn take_uses(&self, call: &Call) -> UsedFiles {
        let mut used = UsedFiles::default();
        for FileUse { view, change, .. } in
            self.uses.borrow_mut().extract_if(.., |it| it.call_id == call.id)
        {
            used.views.extend(view);
            used.changes.extend(change);
        }
        let of_call = |(id, _): &mut (String, ShownImage)| *id == call.id;
        let images =
            self.images.borrow_mut().extract_if(.., of_call).map(|(_, image)| image).collect();
        UsedFiles { images, ..used }
    }

    /// Keeps an image that a call shows to the model. Fails if it cannot be stored.
    pub(super) async fn note_image(
        &self,
        call: &Call,
        path: &str,
        form: ImageForm,
        content: Vec<u8>,
    ) -> Result<(), ToolError> {
        let (dir, me) = (self.writer.dir.clone(), self.writer.me.clone());
        let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let kept = offload(move || images::keep(&dir, &me, &content)).await;
        let hash = kept.map_err(|why| {
            ToolError::Reply(format!(
                "{path} could not be kept for the conversation: {why}; try again"
            ))
        })?;
        let ImageForm { media_type, width, height } = form;
        let image = ShownImage { path: path.to_owned(), hash, media_type, width, height, bytes };
        self.images.borrow_mut().push((call.id.clone(), image));
        Ok(())
    }

    /// Returns the content of an image that the agent was shown; `None` if it is not kept any more.
    pub(in crate::tools) async fn load_image(&self, hash: &ContentHash) -> Option<Vec<u8>> {
        let (dir, me, hash) = (self.writer.dir.clone(), self.writer.me.clone(), hash.clone());
        let loaded = offload(move || images::load(&dir, &me, &hash)).await;
        loaded.inspect_err(|why| tracing::warn!(%why, "an image cannot be read")).ok()?
    }

    /// Returns the file of a judged call. Fails if the path now leads to another file than the judged one.
    pub(super) fn find_judged(
        &self,
        call: &Call,
        path: &str,
        effect: Effect,
    ) -> Result<SafePath, ToolError> {
        let spot = self.find(path, effect)?;
        let judged = self.judged.borrow();
        let judged = judged.iter().find(|judged| judged.id == call.id);
        if judged.is_some_and(|judged| judged.files.contains(&spot.path())) {
            return Ok(spot);
        }
        Err(ToolError::Reply(format!(
            "not done: a link was changed meanwhile, and the path now leads to {}, which was not \
             approved; look where it leads, then repeat the call",
            spot.path().display()
        )))
    }
}

/// Returns a real path, absolute outside the workspace, for permission rules.
fn subject(path: &Path) -> PermissionSubject {
    let subject =
        if path.is_absolute() { PermissionSubject::Outside } else { PermissionSubject::Path };
    subject(path.to_string_lossy().into_owned())
}

/// Fails for a text that is no path.
fn check_text(path: &str) -> Result<(), ToolError> {
    let problem = match path.len() {
        0 => "is empty".into(),
        _ if path.contains('\0') => "contains a NUL character".into(),
        length if length > MAX_PATH_BYTES => {
            format!("has {length} bytes, {MAX_PATH_BYTES} are allowed")
        }
        _ => return Ok(()),
    };
    Err(ToolError::Reply(format!(
        "the path {problem}; give a path inside the workspace, such as src/main.rs"
    )))
}

/// Whether git runs code from this file: hooks and configuration, also of submodules and worktrees.
fn runs_code(path: &Path) -> bool {
    let from_git: Vec<String> = names(path).skip_while(|name| name != ".git").collect();
    // `.git` can be a file that names another git folder.
    from_git.len() == 1 || from_git.iter().any(|name| RUN_CODE.contains(&&**name))
}

/// Whether this file outside the workspace is never opened.
pub(super) fn is_guarded(path: &Path) -> bool {
    let names: Vec<String> = names(path).collect();
    let is_memory_disk = names.starts_with(&["dev".into(), "shm".into()]);
    let is_system = !is_memory_disk && names.first().is_some_and(|name| SYSTEM.contains(&&**name));
    let is_named = |name: &String| name.starts_with('.') || GUARDED.split(' ').any(|it| it == name);
    let last = names.last().map(Path::new).and_then(Path::extension);
    let is_key = last.is_some_and(|ending| KEYS.iter().any(|key| ending == *key));
    let whole = names.join("/");
    let is_ours = OURS.iter().any(|ours| Path::new(&whole).ends_with(ours));
    is_system || is_key || is_ours || names.iter().any(is_named)
}

/// Returns the names in a path in lower case, as a case-insensitive file system compares them.
fn names(path: &Path) -> impl Iterator<Item = String> {
    path.components().filter_map(|component| {
        let Component::Normal(name) = component else { return None };
        Some(name.to_string_lossy().to_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Creates a workspace with a file, links of every kind and a team folder, beside a folder with a secret.
    fn fixture() -> (tempfile::TempDir, FileAccess) {
        let all = tempfile::tempdir().unwrap();
        let inside = all.path().join("work");
        let folders = "sub/deep .team/inbox .git/hooks nested/.git named ../outside";
        for folder in folders.split(' ') {
            fs::create_dir_all(inside.join(folder)).unwrap();
        }
        let files = "file .team/config.json .git/config named/roster ../outside/secret";
        for file in files.split(' ') {
            fs::File::create(inside.join(file)).unwrap();
        }
        let links = "to_file=file to_sub=sub sub/up=.. out=../outside chain=sub/up/chain2 ring=ring \
            chain2=out/secret dangling=sub/new dangling_out=../outside/new to_team=.team \
            to_hooks=sub/../.git/hooks proc=/proc/self/root";
        for (link, target) in links.split(' ').map(|link| link.split_once('=').unwrap()) {
            symlink(target, inside.join(link)).unwrap();
        }
        symlink(inside.join("file"), inside.join("absolute")).unwrap();
        symlink(all.path().join("outside"), inside.join("out_absolute")).unwrap();
        let dir = TeamDir::create(&inside.join("named")).unwrap();
        let files = FileAccess::open(&dir, &AgentName::lead(), dir.workspace(), None).unwrap();
        (all, files)
    }

    const EACH: [Effect; 2] = [Effect::Reads, Effect::Changes];

    #[test]
    fn a_path_resolves_to_its_real_name_which_is_absolute_outside() {
        let (all, files) = fixture();
        let absolute = all.path().join("work/sub/new").display().to_string();
        for (real, paths) in [
            ("file", "file ./sub/../file to_file absolute"),
            ("sub/new", &format!("dangling {absolute}")),
            ("sub/deep/new", "to_sub/up/to_sub/deep/new"),
            ("new/folder/file", "new/folder/file"),
            ("sub/...", "sub/..."),
            ("-rf", "-rf"),
            ("/etc/passwd", "/etc/passwd"),
        ] {
            for (path, effect) in paths.split(' ').flat_map(|path| EACH.map(|it| (path, it))) {
                assert_eq!(files.find(path, effect).unwrap().path(), Path::new(real), "{path}");
            }
        }
    }

    /// Checks that paths are refused. Each case is a part of the error text, then paths.
    fn refuses(files: &FileAccess, effects: &[Effect], cases: &[&str]) {
        for case in cases {
            let (says, paths) = case.split_once(": ").unwrap();
            for (path, effect) in
                paths.split(' ').flat_map(|path| effects.iter().map(move |it| (path, it)))
            {
                let why = files.find(path, *effect).unwrap_err().to_string();
                assert!(why.contains(says) && why.contains(';'), "{path}: {why}");
            }
        }
    }

    #[test]
    fn a_path_that_leads_out_is_refused() {
        let (_all, files) = fixture();
        let long = format!("4096 are allowed: {}", "x/".repeat(3000));
        let deep = format!("too long: {}", "x/".repeat(1000));
        let cases = [
            "leads out: .. ../outside/secret sub/../../outside/secret / out/secret",
            "leads out: /etc/shadow out_absolute/secret chain dangling_out /dev/fd/3",
            "leads out: proc/etc/passwd /proc/self/root/etc/passwd",
            "symbolic links: ring",
            "without `..`: missing/../file",
            "Not a directory: file/below",
            "is a folder: sub .",
            "NUL: a\0b",
            "the path is empty: ",
            &long,
            &deep,
        ];
        refuses(&files, &EACH, &cases);
    }

    #[test]
    fn git_hooks_and_team_files_are_readable_but_never_writable() {
        let (_all, files) = fixture();
        let team = ".team/config.json .TEAM/inbox/alice.jsonl sub/../.team/new \
            to_team/config.json named/roster sub/.team/x";
        let git = ".git/config .Git/Config .git/hooks/pre-commit .git/hooks/new/x sub/.git \
            .git/modules/x/hooks/y to_hooks/pre-commit nested/.git/config";
        let cases = [format!("send_message: {team}"), format!("git runs: {git}")];
        refuses(&files, &[Effect::Changes], &cases.each_ref().map(String::as_str));
        for path in team.split(' ').chain(git.split(' ')) {
            files.find(path, Effect::Reads).unwrap();
        }
        let free = ".github/hooks/x .gitignore .team.md .git/info/exclude hooks/config";
        for path in free.split(' ') {
            files.find(path, Effect::Changes).unwrap();
        }
    }

    #[test]
    fn a_plain_external_file_can_be_asked_for() {
        let all = tempfile::Builder::new().prefix("plain").tempdir().unwrap();
        let real = all.path().canonicalize().unwrap();
        let workspace = real.join("work");
        for folder in ["work", "beside"] {
            fs::create_dir_all(real.join(folder)).unwrap();
        }
        let dir = TeamDir::create(&workspace.join(".team")).unwrap();
        let files = FileAccess::open(&dir, &AgentName::lead(), &workspace, None).unwrap();
        let absolute = real.join("beside/notes.txt");
        for path in ["../beside/notes.txt", absolute.to_str().unwrap()] {
            let found = files.find_outside(Path::new(path), Effect::Reads).unwrap();
            assert_eq!(found.path(), absolute, "{path}");
        }
        symlink("../beside", real.join("work/out")).unwrap();
        symlink("beside", real.join("other")).unwrap();
        let refused =
            "out/notes.txt ../other/notes.txt ../work/a ../work/.team/config.json ../beside";
        for path in refused.split(' ') {
            let found = files.find_outside(Path::new(path), Effect::Reads);
            assert!(matches!(found, Err(SafePathError::Outside)), "{path}: {found:?}");
        }
    }

    #[test]
    fn secrets_and_system_files_are_never_opened() {
        let never = "/root/.ssh/id_ed25519 /home/me/.bashrc /home/me/.aws/credentials \
            /home/me/project/.team/inbox/alice.jsonl /home/me/project/.TEAM/config.json \
            /home/me/project/.git/hooks/pre-commit /home/me/.netrc /etc/shadow /etc/sudoers.d/me \
            /etc/ssh/ssh_host_rsa_key /srv/site/server.KEY /srv/site/server.pem /proc/self/environ \
            /proc/1/root/etc/hosts /sys/kernel/x /dev/fd/3 /run/secrets/token \
            /srv/state/team/trust.json /srv/config/team/settings.toml";
        let maybe =
            "/etc/hosts /usr/include/stdio.h /home/me/notes.txt /srv/keys.txt /dev/shm/notes";
        for (paths, guarded) in [(never, true), (maybe, false)] {
            for path in paths.split_whitespace() {
                assert_eq!(is_guarded(Path::new(path)), guarded, "{path}");
            }
        }
    }
}

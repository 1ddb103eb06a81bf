//! The environment of a command: the working folder, the team folder with its mail and tasks, the settings.

use super::calling_agent::CallingAgent;
use super::output::warn;
use crate::app::walls::LANDLOCK_CAP;
use crate::bus::{Bus, MailLimits};
use crate::error::{Exit, Failure, OrFail};
use crate::os::failpoint::{self, ENABLED, VARIABLE};
use crate::os::terminal::pager::Pager;
use crate::os::wall::outbox::OUTBOX_VARIABLE;
use crate::os::{SystemClock, deadline, terminal_size};
use crate::settings::environment::{Environment, PassedNames};
use crate::settings::host_limits::HostLimits;
use crate::settings::{Flags, MailSettings, Rules, Settings};
use crate::store::{Fsync, TeamDir, fs_probe, locate, may_hold_team};
use crate::tasks::Tasks;
use crate::tools::can_complete_tasks;
use crate::ui::external_editor::ExternalEditor;
use crate::ui::style::{ColorChoice, Palette};
use crate::ui::view::View;
use crate::wire::limits::LOCK_TIMEOUT;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Once};
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) environment: Environment,
    pub(crate) cwd: PathBuf,
    /// The team folder, which may not exist yet.
    pub(crate) team_path: PathBuf,
    color: ColorChoice,
    /// The folder that `--dir` or `TEAM_DIR` names.
    named: Option<PathBuf>,
}

impl Context {
    /// Resolves `-C`, `--dir` and `TEAM_DIR`.
    pub(crate) fn new(
        chdir: Option<&Path>,
        dir: Option<&Path>,
        color: ColorChoice,
        environment: Environment,
    ) -> Result<Self, Failure> {
        let mut cwd = std::env::current_dir()
            .or_fail("the working folder does not exist", "change to a folder that exists")?;
        if let Some(chdir) = chdir {
            let what = format!("-C {} cannot be used", chdir.display());
            let found = std::fs::canonicalize(cwd.join(chdir));
            cwd = found.or_exit(Exit::Usage, what, "give a folder that exists")?;
        }
        if let Some(dir) = dir {
            let what = format!("--dir {} cannot be used", dir.display());
            let above = cwd.join(dir);
            let found = above.parent().unwrap_or(&cwd).metadata();
            found.or_exit(Exit::Usage, what, "create its parent folder, or name another folder")?;
        }
        let named = dir.or_else(|| environment.get("TEAM_DIR").map(Path::new));
        let named = named.map(|dir| cwd.join(dir));
        let team_path = locate(named.as_deref(), &cwd);
        Ok(Self { environment, cwd, team_path, color, named })
    }

    /// Returns the context of a command in another folder: with the team that `--dir` or `TEAM_DIR` names, else with the
    /// one that is found from there. Fails if the folder does not exist, or does not belong to the named team.
    pub(crate) fn in_folder(&self, folder: &Path) -> Result<Self, Failure> {
        let what = format!("{} cannot be used", folder.display());
        let cwd = std::fs::canonicalize(folder);
        let cwd = cwd.or_exit(Exit::Usage, &what, "give a folder that exists")?;
        if !cwd.is_dir() {
            return Err(Failure::new(Exit::Usage, what, "it is no folder", "give a folder"));
        }
        let team_path = locate(self.named.as_deref(), &cwd);
        if let Some(named) = &self.named {
            let workspace = named.parent().unwrap_or(named);
            let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
            if !cwd.starts_with(&workspace) {
                let why = format!(
                    "it is not in {}, the workspace of the team that --dir or TEAM_DIR names",
                    workspace.display()
                );
                let hint = "open that folder, or leave --dir and TEAM_DIR out";
                return Err(Failure::new(Exit::Usage, what, why, hint));
            }
        }
        let (environment, named) = (self.environment.clone(), self.named.clone());
        Ok(Self { environment, cwd, team_path, color: self.color, named })
    }

    /// Whether a command in the folder in which this process was started finds this team without its name.
    pub(crate) fn is_found_here(&self) -> bool {
        std::env::current_dir().is_ok_and(|here| {
            let named = self.environment.get("TEAM_DIR").map(|dir| here.join(dir));
            locate(named.as_deref(), &here) == self.team_path
        })
    }

    pub(crate) fn team(&self) -> Result<TeamDir, Failure> {
        self.require_folder()?;
        Ok(TeamDir::open(&self.team_path)?.with_user_roles(self.environment.role_folders()))
    }

    /// Returns the outbox of the command of an agent that runs this, if walls hide the team folder from it.
    pub(crate) fn outbox(&self) -> Option<&Path> {
        let outbox = self.environment.get(OUTBOX_VARIABLE).map(Path::new)?;
        let is_readable = TeamDir::look(&self.team_path).is_ok_and(|team| team.can_be_read());
        let is_hidden = !is_readable && CallingAgent::find(&self.environment).is_some();
        is_hidden.then_some(outbox)
    }

    /// Opens the existing team folder for a view, which changes nothing in it.
    pub(crate) fn team_to_view(&self) -> Result<TeamDir, Failure> {
        self.require_folder()?;
        Ok(TeamDir::look(&self.team_path)?.with_user_roles(self.environment.role_folders()))
    }

    fn require_folder(&self) -> Result<(), Failure> {
        if self.team_path.exists() {
            return self.refuse_hidden_folder().and_then(|()| self.refuse_other_folder());
        }
        let why = format!("{} does not exist", self.team_path.display());
        let hint = "start one with `team lead`, or name its folder with --dir or -C";
        Err(Failure::new(Exit::Failure, "there is no team here", why, hint))
    }

    /// Fails for a team folder that walls hide from the command of an agent: an empty folder is mounted over it, or its
    /// files cannot be opened.
    fn refuse_hidden_folder(&self) -> Result<(), Failure> {
        let device = |path: &Path| path.metadata().map(|known| known.dev()).ok();
        let is_mounted = self.team_path.parent().is_some_and(|above| {
            device(above).is_some() && device(above) != device(&self.team_path)
        });
        let is_hidden = TeamDir::look(&self.team_path)
            .map_or(is_mounted, |team| !team.can_be_read() && (is_mounted || team.has_state()));
        let caller = is_hidden.then(|| CallingAgent::find(&self.environment)).flatten();
        let Some(caller) = caller else { return Ok(()) };
        let why = format!("{caller}, and its commands run behind walls (`sandbox.level`)");
        let what = "the team folder is hidden from an agent's command";
        Err(Failure::new(Exit::Failure, what, why, "use the agent's own tools"))
    }

    /// Fails for a folder that holds other things than a team. Nothing in it is changed.
    fn refuse_other_folder(&self) -> Result<(), Failure> {
        let folder = &self.team_path;
        if !folder.is_dir() || may_hold_team(folder) {
            return Ok(());
        }
        let why = format!("{} is a folder, but not that of a team", folder.display());
        let inner = folder.join(".team");
        let hint = if inner.is_dir() {
            let (inner, folder) = (inner.display(), folder.display());
            format!("name the team folder: --dir {inner}, or -C {folder}")
        } else {
            format!("change to the workspace folder, or name it: -C {}", folder.display())
        };
        Err(Failure::new(Exit::Failure, "there is no team here", why, hint))
    }

    /// Opens or creates the team folder. Fails on a file system that cannot hold a team.
    pub(crate) fn make_team(&self) -> Result<TeamDir, Failure> {
        self.refuse_other_folder()?;
        let team = TeamDir::create(&self.team_path)?;
        let team = team.with_user_roles(self.environment.role_folders());
        fs_probe::run(&team)?;
        Ok(team)
    }

    pub(crate) fn settings_with(&self, flags: &Flags) -> Result<Settings, Failure> {
        Settings::load(&self.environment, &TeamDir::settings_in(&self.team_path), flags)
    }

    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        self.settings_with(&Flags::default())
    }

    /// Returns the settings for a command that steers a team. Such a command must always work, so it uses the
    /// defaults, with a warning, if the settings are not understood.
    pub(crate) fn settings_or_defaults(&self) -> Settings {
        self.settings().unwrap_or_else(|why| {
            static WARNED: Once = Once::new();
            WARNED.call_once(|| {
                let advice =
                    "the defaults are in force for this command; `team config` shows the errors";
                warn(&format!("warning: {}: {}; {advice}", why.what, why.why));
            });
            Settings::defaults()
        })
    }

    /// Returns every error in the settings.
    pub(crate) fn settings_errors(&self) -> Vec<Failure> {
        let file = TeamDir::settings_in(&self.team_path);
        Settings::errors(&self.environment, &file, &Flags::default())
    }

    pub(crate) fn bus(&self, team: TeamDir) -> Arc<Bus> {
        open_bus(team, self.settings_or_defaults().rules())
    }

    /// Opens the bus of the existing team, for a command that changes something.
    pub(crate) fn team_bus(&self) -> Result<Arc<Bus>, Failure> {
        Ok(self.bus(self.team()?))
    }

    pub(crate) fn temporary_folder(&self) -> PathBuf {
        self.environment.get("TMPDIR").unwrap_or("/tmp").into()
    }

    pub(crate) fn palette_for(&self, is_terminal: bool) -> Palette {
        let no_color = self.environment.get("NO_COLOR").is_some();
        let is_dumb = self.environment.get("TERM").is_some_and(|term| term == "dumb");
        let is_refused = (no_color || is_dumb) && self.color == ColorChoice::Auto;
        Palette::new(if is_refused { ColorChoice::Never } else { self.color }, is_terminal)
    }

    pub(crate) fn palette(&self) -> Palette {
        self.palette_for(std::io::stdout().is_terminal())
    }

    /// Returns the layout of views on stdout; a pipe gets unwrapped lines.
    pub(crate) fn view(&self) -> View {
        View::new(self.palette(), terminal_size::columns())
    }

    /// Returns the person's editor: `VISUAL`, else `EDITOR`. It gets no variable that may be a credential.
    pub(crate) fn external_editor(&self) -> ExternalEditor {
        const SCREEN: [&str; 5] =
            ["COLORTERM", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR"];
        let get = |name: &str| self.environment.get(name).map(ToOwned::to_owned);
        let screen = SCREEN.into_iter().filter_map(|name| Some((name.to_owned(), get(name)?)));
        let further = PassedNames::default();
        let variables = self.environment.passed_on(&further).into_iter().chain(screen).collect();
        ExternalEditor::new(
            get("VISUAL").or_else(|| get("EDITOR")),
            variables,
            self.temporary_folder(),
        )
    }

    /// Starts the person's pager for long output: `PAGER`, else `less -FRX`, which shows a short text as it is. `None` if
    /// stdout is no terminal, or the person wants none (`cat`, or an empty `PAGER`).
    pub(crate) fn pager(&self) -> Option<Pager> {
        let get = |name: &str| self.environment.get(name).map(ToOwned::to_owned);
        let is_dumb = get("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let wanted = get("PAGER").map_or_else(|| "less".into(), |pager| pager.trim().to_owned());
        if !std::io::stdout().is_terminal() || is_dumb || matches!(wanted.as_str(), "" | "cat") {
            return None;
        }
        let mut program = Command::new("sh");
        // Without the pager, the text is shown as it is.
        program.arg("-c").arg(format!("{wanted} || exec cat"));
        let variables = self.environment.passed_on(&PassedNames::default());
        let less = get("LESS").unwrap_or_else(|| "FRX".into());
        program.env_clear().envs(variables).env("LESS", less).current_dir(&self.cwd);
        Pager::start(program).ok()
    }

    /// Refuses a verb that steers the team when an agent's command runs it.
    pub(crate) fn refuse_inside_agent(&self, verb: &str) -> Result<(), Failure> {
        let Some(caller) = CallingAgent::find(&self.environment) else { return Ok(()) };
        let what = format!("`team {verb}` does not work inside an agent's command");
        let why =
            format!("{caller}: an agent runs this, and agents steer the team with their tools");
        Err(Failure::new(Exit::Failure, what, why, "use the agent's own tools"))
    }
}

pub(super) fn open_bus(team: TeamDir, rules: Rules) -> Arc<Bus> {
    Arc::new(Bus::new(team, limits_of(rules), Arc::new(SystemClock)))
}

fn limits_of(rules: Rules) -> MailLimits {
    MailLimits {
        max_message_bytes: rules.max_message_bytes,
        inbox_bytes: rules.inbox_bytes,
        fsync: rules.fsync,
        lock_limit: LOCK_TIMEOUT,
    }
}

/// Returns the limits of mail of the relay of a team folder: those of the settings, with the reason where they are not
/// understood and the defaults are in force. It syncs what it appends whatever the settings say, because the sender's host then
/// forgets it.
pub fn relay_mail_limits(root: &Path) -> (MailLimits, Option<String>) {
    let file = TeamDir::settings_in(root);
    let default = MailLimits { fsync: Fsync::Always, ..MailLimits::default() };
    match Settings::mail_limits(&Environment::read(), &file) {
        Ok(MailSettings { max_message_bytes, inbox_bytes }) => {
            (MailLimits { max_message_bytes, inbox_bytes, ..default }, None)
        }
        Err(why) => (default, Some(why.why)),
    }
}

/// Returns the limits that the user of this host sets to the teams of other hosts.
///
/// # Errors
/// In words: the file cannot be read or understood.
pub fn host_limits() -> Result<HostLimits, String> {
    HostLimits::read(&Environment::read())
}

pub(crate) fn open_tasks(bus: &Arc<Bus>) -> Arc<Tasks> {
    Arc::new(Tasks::new(Arc::clone(bus), Arc::new(SystemClock), can_complete_tasks))
}

/// Repairs a folder that was opened for a view, as [`TeamDir::open`] does. Call it before the first change.
pub(super) fn repair(team: &TeamDir) -> Result<(), Failure> {
    TeamDir::open(team.root())?;
    Ok(())
}

/// Returns the failpoints that the environment names; `None` in a build without failpoints.
fn failpoints(environment: &Environment) -> Option<&str> {
    environment.get(VARIABLE).filter(|_| ENABLED)
}

pub(crate) fn arm_failpoints(agent: &str, environment: &Environment) -> Result<(), Failure> {
    let Some(points) = failpoints(environment) else { return Ok(()) };
    let hint = "unset it, or name points of src/os/failpoint.rs";
    let armed = failpoint::arm(points, agent, None);
    armed.or_exit(Exit::Usage, format!("{VARIABLE} is invalid"), hint)
}

pub(crate) fn lengthen_deadlines(environment: &Environment) {
    let shortest = environment.get(deadline::VARIABLE).and_then(|text| text.parse().ok());
    if let Some(shortest) = shortest {
        deadline::lengthen_to(Duration::from_millis(shortest));
    }
}

pub(super) fn teammate_environment(
    environment: &Environment,
    further: &PassedNames,
) -> Vec<(String, String)> {
    let mut variables = environment.passed_on(further);
    let points = failpoints(environment);
    variables.extend(points.map(|points| (VARIABLE.to_owned(), points.to_owned())));
    let cap = environment.get(LANDLOCK_CAP).filter(|_| cfg!(debug_assertions));
    variables.extend(cap.map(|cap| (LANDLOCK_CAP.to_owned(), cap.to_owned())));
    variables
}

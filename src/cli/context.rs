//! What every command begins with: where the team is, what the settings say, how output looks.

use super::args::{ColorWhen, Common, ModelArgs};
use crate::bus::{Bus, Limits};
use crate::error::{Exit, Failure};
use crate::os::{SystemClock, terminal_size};
use crate::protocol::permission::Policy;
use crate::settings::environment::Environment;
use crate::settings::{Flags, Fsync, Rules, Settings};
use crate::store::{StoreError, TeamDir, fs_probe, liveness, locate};
use crate::ui::style::{ColorChoice, Palette};
use crate::ui::view::View;
use crate::wire::AgentName;
use crate::wire::permission::Permissions;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

/// The place and manner of a command.
pub(super) struct Context {
    pub(super) environment: Environment,
    /// Where relative paths begin.
    pub(super) cwd: PathBuf,
    /// The team folder, which may not exist yet.
    pub(super) team_path: PathBuf,
    color: ColorWhen,
}

impl Context {
    /// Resolves `-C`, `--dir` and `TEAM_DIR`.
    pub(super) fn new(common: &Common, environment: Environment) -> Result<Self, Failure> {
        let here = std::env::current_dir().map_err(|why| {
            let hint = "change to a folder that exists";
            Failure::new(Exit::Failure, "there is no working folder", why.to_string(), hint)
        })?;
        let cwd = match &common.chdir {
            None => here,
            Some(dir) => std::fs::canonicalize(here.join(dir)).map_err(|why| {
                let what = format!("-C {} is not usable", dir.display());
                Failure::new(Exit::Usage, what, why.to_string(), "give a folder that exists")
            })?,
        };
        let named = common
            .dir
            .clone()
            .or_else(|| environment.get("TEAM_DIR").map(PathBuf::from))
            .map(|dir| cwd.join(dir));
        let team_path = locate(named.as_deref(), &cwd);
        Ok(Self { environment, cwd, team_path, color: common.color })
    }

    /// The existing team folder, to work in.
    pub(super) fn team(&self) -> Result<TeamDir, Failure> {
        self.must_exist()?;
        TeamDir::open(&self.team_path).map_err(store_failure)
    }

    /// The existing team folder, for a view: nothing in it is changed.
    pub(super) fn seen_team(&self) -> Result<TeamDir, Failure> {
        self.must_exist()?;
        TeamDir::look(&self.team_path).map_err(store_failure)
    }

    fn must_exist(&self) -> Result<(), Failure> {
        if self.team_path.exists() {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Failure,
            "there is no team here",
            format!("{} does not exist", self.team_path.display()),
            "start one with `team lead`, or name its folder with --dir or -C",
        ))
    }

    /// The team folder, made if need be, on a file system that can hold one.
    pub(super) fn make_team(&self) -> Result<TeamDir, Failure> {
        let team = TeamDir::create(&self.team_path).map_err(store_failure)?;
        fs_probe::run(&team).map_err(store_failure)?;
        Ok(team)
    }

    /// All settings for this folder.
    pub(super) fn settings(&self, flags: &Flags) -> Result<Settings, Failure> {
        let file = TeamDir::settings_in(&self.team_path);
        Settings::load(&self.environment, &file, flags)
    }

    /// The mail of a team, by the settings of this folder.
    pub(super) fn bus(&self, team: TeamDir) -> Result<Arc<Bus>, Failure> {
        let rules = self.settings(&Flags::default())?.rules();
        Ok(Arc::new(open_bus(team, rules)))
    }

    /// The colours of what goes to `terminal`.
    pub(super) fn palette_for(&self, is_terminal: bool) -> Palette {
        let plain = self.environment.get("NO_COLOR").is_some();
        match self.color {
            ColorWhen::Always => Palette::new(ColorChoice::Always, is_terminal),
            ColorWhen::Never => Palette::plain(),
            ColorWhen::Auto if plain => Palette::plain(),
            ColorWhen::Auto => Palette::new(ColorChoice::Auto, is_terminal),
        }
    }

    /// The colours of stdout.
    pub(super) fn palette(&self) -> Palette {
        self.palette_for(std::io::stdout().is_terminal())
    }

    /// How views on stdout are laid out; pipes get unwrapped lines.
    pub(super) fn view(&self) -> View {
        View::new(self.palette(), terminal_size::columns())
    }

    /// The member inside whose command this runs, if it does (`TEAM_RUN` is set there).
    pub(super) fn inside(&self, team: &TeamDir) -> Option<AgentName> {
        let run_id = self.environment.get("TEAM_RUN")?;
        liveness::holder_of_run_id(team, run_id).ok().flatten()
    }

    /// Refuses a verb that steers inside an agent's command.
    pub(super) fn refuse_inside(&self, verb: &str) -> Result<(), Failure> {
        if self.environment.get("TEAM_RUN").is_none() {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Failure,
            format!("`team {verb}` does not work inside an agent's command"),
            "TEAM_RUN is set: an agent runs this, and agents steer the team with their tools",
            "use the agent's tools (send_message, spawn_teammate, shutdown_teammate, …)",
        ))
    }
}

/// How freely agents may act, with rules that are rules.
pub(super) fn permissions(settings: &Settings) -> Result<Permissions, Failure> {
    let permissions = settings.permissions();
    match Policy::new(permissions.mode, &permissions.rules) {
        Ok(_) => Ok(permissions),
        Err(why) => {
            let hint =
                "correct it under [permissions]; `team config` shows where the rules come from";
            let what = "a permission rule is not understood";
            Err(Failure::new(Exit::Usage, what, why.to_string(), hint))
        }
    }
}

/// The flags that models and their leave to act have in common.
pub(super) fn flags(args: &ModelArgs) -> Flags {
    Flags::of([("--model", args.model.as_deref()), ("--mode", args.mode.as_deref())])
}

/// The mail of a team.
pub(super) fn open_bus(team: TeamDir, rules: Rules) -> Bus {
    let limits = Limits {
        max_message_bytes: rules.max_message_bytes,
        inbox_bytes: rules.inbox_bytes,
        fsync: durability(rules.fsync),
        lock_limit: crate::wire::limits::LOCK_TIMEOUT,
    };
    Bus::new(team, limits, Arc::new(SystemClock))
}

/// The setting as the store understands it.
pub(super) fn durability(fsync: Fsync) -> crate::store::Fsync {
    match fsync {
        Fsync::Always => crate::store::Fsync::Always,
        Fsync::Never => crate::store::Fsync::Never,
    }
}

/// What a view opened to look at is about to be changed: made whole and tightened first, as the commands
/// that change it find it.
pub(super) fn make_whole(team: &TeamDir) -> Result<(), Failure> {
    TeamDir::open(team.root()).map(drop).map_err(store_failure)
}

/// A failure of the team folder.
#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
pub(super) fn store_failure(why: StoreError) -> Failure {
    Failure::new(why_exit(&why), "the team folder is not usable", why.to_string(), why.hint())
}

fn why_exit(why: &StoreError) -> Exit {
    if why.is_lock_timeout() { Exit::InUse } else { Exit::Failure }
}

/// A name from the command line that must have a mailbox.
pub(super) fn mailbox_name(given: &str) -> Result<AgentName, Failure> {
    AgentName::mailbox(given)
        .map_err(|why| Failure::new(Exit::Failure, why.what(), why.why(), why.hint()))
}

/// A name from the command line that must be a member's.
pub(super) fn member_name(given: &str) -> Result<AgentName, Failure> {
    AgentName::member(given)
        .map_err(|why| Failure::new(Exit::Usage, why.what(), why.why(), why.hint()))
}

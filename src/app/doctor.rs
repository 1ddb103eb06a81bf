//! Checks of everything that a team relies on, with remedies. They change nothing and show no credential.

mod agents;
mod hosts;
mod storage;

use super::build_agent::PROMPT_BYTES;
use super::permission_rules::permissions;
use super::walls::{self, Attained, LevelOrigin};
use super::{context::Context, event_loop::block_on, model as model_access};
use crate::error::Failure;
use crate::llm::registry::{ModelName, Variables};
use crate::llm::{CREDENTIAL_VARIABLES, ModelError, ModelListAnswer};
use crate::os::deadline::deadline;
use crate::os::{file::unwritable, usage, watch};
use crate::settings::model::{self, ModelChoice, ProviderCredentials, credential_variables};
use crate::settings::{Settings, trust::TrustList};
use crate::store::diagnose::{Diagnosis, flaws};
use crate::store::skills::{self, SkillFiles};
use crate::store::{StoreError, TeamDir, fs_probe, instructions};
use crate::ui::{sanitize::one_line, style::Palette};
use crate::wire::mcp::{McpTransport, NamedMcpServer};
use crate::wire::{chat::Reply, limits::DOCTOR_CALL, sandbox::SandboxLevel};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The time that a model's endpoint has to answer.
const MODEL_LIST_LIMIT: Duration = Duration::from_secs(3);

/// The number of paths with a wrong mode that are named.
const SHOWN_PATHS: usize = 5;

/// The number of descriptors that the lead of a full team needs.
const NEEDED_DESCRIPTORS: u64 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// A fact that is worth knowing and no fault.
    Note,
    Wrong,
}

#[derive(Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    found: String,
    remedy: Option<String>,
}

/// Whether a command is the path of a program, or the name of one in `path`.
fn is_found(command: &str, path: &str) -> bool {
    if command.contains('/') {
        return Path::new(command).is_file();
    }
    path.split(':').any(|folder| Path::new(folder).join(command).is_file())
}

#[derive(Default)]
pub(crate) struct DoctorReport {
    findings: Vec<Finding>,
}

/// Checks everything; `calls_model` calls the model instead of asking its endpoint for the list of models.
pub(crate) fn check(context: &Context, calls_model: bool) -> Result<DoctorReport, Failure> {
    let mut report = DoctorReport::default();
    report.folder(context);
    report.machine();
    report.instructions(context);
    report.skills(context);
    match context.settings() {
        Ok(settings) => {
            let set = settings.rows().into_iter().filter(|row| row.source != "default");
            let set: Vec<_> = set.map(|row| format!("{} from {}", row.key, row.source)).collect();
            let found = if set.is_empty() { "all default".to_owned() } else { set.join(", ") };
            report.fine("settings", found);
            report.agents(context, &settings)?;
            report.rules(context, &settings);
            report.mcp_servers(context, &settings);
            report.walls(context, &settings)?;
            report.model(context, &settings, calls_model)?;
        }
        Err(_) => {
            let remedy = "correct the line or variable; `team config` shows all errors";
            for why in context.settings_errors() {
                report.failed("settings", &why, remedy);
            }
        }
    }
    Ok(report)
}

/// Returns the source of a model's base URL, as a text for the user.
fn url_source(model: &ModelChoice, credentials: &ProviderCredentials) -> String {
    let access = credentials.access(model);
    match access.base_url_source {
        _ if access.base_url.is_none() => "the provider".into(),
        source => source.unwrap_or_else(|| "the search for local servers".into()),
    }
}

/// Returns the meaning of an endpoint's answer to the request for its models, and a remedy.
fn meaning(status: u16) -> (&'static str, &'static str) {
    match status {
        200..400 => (
            "another program answers at this address",
            "correct the address: without /v1 for anthropic and /v1beta for gemini, with /v1 for openai",
        ),
        404 | 405 => (
            "there is no list of models at this address",
            "correct the address, or try it with `team doctor --call` if the server keeps no list",
        ),
        402 | 429 => (
            "its rate limit or the account's cap is reached",
            "wait, or look at the account's limits, then `team doctor --call`",
        ),
        500.. => (
            "the server fails or is not ready",
            "look at the server's log, and run `team doctor` again when it is ready",
        ),
        _ => (
            "it rejected the request",
            "compare the address and the settings with its documentation",
        ),
    }
}

impl DoctorReport {
    pub(crate) fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.state != State::Wrong)
    }

    fn add(&mut self, check: &'static str, state: State, found: impl Into<String>, remedy: &str) {
        let remedy = (!remedy.is_empty()).then(|| remedy.to_owned());
        self.findings.push(Finding { check, state, found: found.into(), remedy });
    }

    fn fine(&mut self, check: &'static str, found: impl Into<String>) {
        self.add(check, State::Ok, found, "");
    }

    fn note(&mut self, check: &'static str, found: impl Into<String>, remedy: &str) {
        self.add(check, State::Note, found, remedy);
    }

    fn wrong(&mut self, check: &'static str, found: impl Into<String>, remedy: &str) {
        self.add(check, State::Wrong, found, remedy);
    }

    fn failed(&mut self, check: &'static str, why: &Failure, remedy: &str) {
        self.wrong(check, format!("{}: {}", why.what, why.why), remedy);
    }

    fn broken(&mut self, check: &'static str, why: &StoreError) {
        self.wrong(check, why.to_string(), why.hint());
    }

    fn rules(&mut self, context: &Context, settings: &Settings) {
        match permissions(context, settings) {
            Ok((_, warnings)) if warnings.is_empty() => {
                self.fine("permission rules", "each rule names an existing tool");
            }
            Ok((_, warnings)) => {
                for warning in warnings {
                    self.note("permission rules", warning, "correct the rule, or remove it");
                }
            }
            Err(why) => {
                let remedy = why.hint.clone();
                self.failed("permission rules", &why, &remedy);
            }
        }
    }

    /// Looks for the programs of MCP servers; starts none.
    fn mcp_servers(&mut self, context: &Context, settings: &Settings) {
        const CHECK: &str = "MCP servers";
        let configured = &settings.mcp_servers;
        let further = &settings.pass_environment.value;
        let (servers, missing) = configured.resolved(&context.environment, further);
        for problem in configured.problems.iter().chain(&missing) {
            self.note(CHECK, problem, "correct the definition, or remove it");
        }
        for (name, server) in &configured.untrusted {
            let found = format!("{name} is not trusted: {}", server.summary());
            self.note(
                CHECK,
                found,
                "look at .mcp.json; `team trust` puts it in force as it stands now",
            );
        }
        let path = context.environment.get("PATH").unwrap_or_default();
        for NamedMcpServer { name, server, .. } in servers {
            match &server.transport {
                McpTransport::Stdio { command, .. } if !is_found(command, path) => {
                    let found = format!("{name}: there is no program {command}");
                    self.wrong(CHECK, found, "install it, or correct the command");
                }
                McpTransport::Stdio { .. } | McpTransport::Http { .. } => {
                    self.fine(CHECK, format!("{name}: {}", server.summary()));
                }
            }
        }
    }

    /// Tries a command behind the walls that the settings ask for.
    fn walls(&mut self, context: &Context, settings: &Settings) -> Result<(), Failure> {
        const CHECK: &str = "walls around commands";
        let sandbox = settings.sandbox();
        if sandbox.level == SandboxLevel::Off {
            self.fine(CHECK, "off: commands have all rights of your user (`sandbox.level`)");
            return Ok(());
        }
        // Without a team folder there is nothing to hide; another check says that there is none.
        let Ok(team) = TeamDir::look(&context.team_path) else { return Ok(()) };
        let origin = LevelOrigin::of(settings);
        match block_on(walls::attain(sandbox, origin, &team, &context.environment))? {
            Err(why) => {
                let remedy = why.hint.clone();
                self.failed(CHECK, &why, &remedy);
            }
            Ok(Attained { sandbox, missing }) => {
                for wall in &sandbox.walls {
                    self.fine(CHECK, format!("{}: yes", wall.word()));
                }
                for (wall, why) in missing {
                    let remedy = "use a newer kernel, or a machine that permits namespaces";
                    self.note(CHECK, format!("{}: no: {why}", wall.word()), remedy);
                }
            }
        }
        Ok(())
    }

    /// Lists the skills of this folder and of the user; nothing if there are none.
    fn skills(&mut self, context: &Context) {
        const CHECK: &str = "skills";
        let Some(workspace) = context.team_path.parent().filter(|folder| folder.is_dir()) else {
            return;
        };
        let users = context.environment.skill_folders();
        let SkillFiles { skills, hidden, problems } = skills::find(workspace, &users, &|_| false);
        if !skills.is_empty() {
            let named =
                skills.iter().map(|it| format!("{} ({})", it.name, it.folder.shown().display()));
            self.fine(CHECK, named.collect::<Vec<_>>().join(", "));
        }
        for hidden in hidden {
            self.note(CHECK, hidden, "rename one of them, if both are to be used");
        }
        for problem in problems {
            let remedy = "correct the file, or remove the folder; the manual shows a skill";
            self.note(CHECK, problem, remedy);
        }
    }

    /// Reports what is missing in the instructions of the workspace.
    fn instructions(&mut self, context: &Context) {
        let Some(workspace) = context.team_path.parent() else { return };
        let found = instructions::of_workspace(workspace, PROMPT_BYTES, &|_| false);
        for problem in found.problems {
            let remedy = "correct the line, or shorten the file; the manual tells the rules";
            self.note("instructions", problem, remedy);
        }
    }

    fn folder(&mut self, context: &Context) {
        let path = context.team_path.display().to_string();
        let workspace = context.team_path.parent().into_iter();
        for folder in workspace.chain([context.team_path.as_path()]) {
            if let Some(why) = unwritable(folder) {
                let folder = folder.display();
                let remedy = format!("chmod u+w {folder}, or work in another folder");
                self.wrong("team folder", format!("{folder} cannot be written: {why}"), &remedy);
            }
        }
        let team = match TeamDir::look(&context.team_path) {
            Ok(team) => team,
            Err(StoreError::NoTeam { .. }) => {
                let what = format!("none yet; it would be {path}");
                return self.note("team folder", what, "start one with `team lead`");
            }
            Err(why) => return self.broken("team folder", &why),
        };
        self.fine("team folder", path);
        // Settings that cannot be read are reported by their own check.
        let risks = Settings::risks_in(&team.settings()).unwrap_or_default();
        if risks.is_empty() {
            self.fine("trust", "no setting of the folder needs trust");
        } else if TrustList::of(&context.environment).has(team.root(), &risks) {
            self.fine("trust", "this folder is trusted: all of its settings are in force");
        } else {
            let remedy = "read .team/settings.toml; `team trust` puts all of it in force";
            self.note("trust", "not trusted: its looser settings are not in force", remedy);
        }
        match fs_probe::run(&team) {
            Ok(()) => self.fine("file system", "writing, syncing, locking and renaming work"),
            Err(why) => self.broken("file system", &why),
        }
        match fs_probe::has_links(&team) {
            Ok(true) => {}
            Ok(false) => {
                let what = "no hard links: mail is claimed by renaming alone";
                self.note("file system", what, "nothing to do");
            }
            Err(why) => self.broken("file system", &why),
        }
        match flaws(&team) {
            Ok(flaws) if flaws.is_empty() => self.fine("state", "nothing stale, nothing damaged"),
            Ok(flaws) => self.flaws(&team, &flaws),
            Err(why) => self.broken("state", &why),
        }
        self.storage(context, &team);
        self.hosts(context);
    }

    fn flaws(&mut self, team: &TeamDir, flaws: &[Diagnosis]) {
        let open = flaws.iter().filter_map(|flaw| {
            let Diagnosis::Open(path) = flaw else { return None };
            Some(path.strip_prefix(team.workspace()).unwrap_or(path).display().to_string())
        });
        self.open_paths(open.collect());
        for flaw in flaws {
            self.flaw(flaw);
        }
    }

    /// Reports the paths into which other users can look together: a folder that was copied may have thousands.
    fn open_paths(&mut self, mut paths: Vec<String>) {
        let count = paths.len();
        if count == 0 {
            return;
        }
        paths.truncate(SHOWN_PATHS);
        let number = if count == 1 { String::new() } else { format!("{count} paths: ") };
        let more = count - paths.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let found = format!("other users can look into {number}{}{more}", paths.join(", "));
        let modes = "chmod -R go= .team/*/ .team/config.json*";
        self.wrong("modes", found, &format!("{modes}; folders are 0700, files 0600"));
    }

    fn flaw(&mut self, flaw: &Diagnosis) {
        match flaw {
            // They are reported together.
            Diagnosis::Open(_) => {}
            Diagnosis::Foreign(what) => {
                self.wrong("owner", what, "remove it, or work as the user it belongs to");
            }
            Diagnosis::DamagedRoster => {
                let remedy = "start `team lead`: it rebuilds the file and keeps the bad one as \
                              config.json.bad-N";
                self.wrong("roster", "config.json is damaged", remedy);
            }
            Diagnosis::DamagedTask(what) => {
                let remedy = "repair or remove it; the next change of the list moves it aside";
                self.wrong("tasks", what, remedy);
            }
            Diagnosis::DamagedLease(what) => {
                let remedy = "remove it: it protects no file; the next claim moves it aside";
                self.wrong("leases", what, remedy);
            }
            Diagnosis::DamagedTimers(what) => {
                let remedy = "repair or remove it: its reminders are not sent; the next change of \
                              the timers moves it aside";
                self.wrong("timers", what, remedy);
            }
            Diagnosis::Ghost { name, is_of_another_boot } => {
                let since = if *is_of_another_boot { ", since before this boot" } else { "" };
                let found = format!("{name} is listed as alive but is dead{since}");
                let remedy =
                    "team lead --resume continues the team; team clean removes its dead entries";
                self.wrong("roster", found, remedy);
            }
            Diagnosis::Claims { name, count } => {
                let found =
                    format!("{count} batches of {name}'s mail were claimed but not delivered");
                self.note("mail", found, "that agent reads them at its next start");
            }
            Diagnosis::DeadLetters { name, count } => {
                let plural = if *count == 1 { "" } else { "s" };
                let remedy =
                    "each line in dead/NAME.jsonl says why; team clean --purge removes them";
                self.note("mail", format!("{count} dead letter{plural} of {name}"), remedy);
            }
        }
    }

    fn machine(&mut self) {
        let events = usage::events();
        let found = format!(
            "{} of {} queues, {} of {} watches in use",
            events.instances, events.max_instances, events.watches, events.max_watches
        );
        let instead = "agents look at their inboxes four times a second instead";
        if events.max_instances == 0 {
            self.note("file events", "not available here", instead);
        } else if watch::is_to_be_had() {
            self.fine("file events", found);
        } else {
            let remedy = "end programs that watch files, or raise fs.inotify.max_user_instances and \
                          max_user_watches with sysctl";
            let remedy = format!("{instead}; {remedy}");
            self.note("file events", format!("none left: {found}"), &remedy);
        }
        match usage::max_descriptors() {
            Some(most) if most < NEEDED_DESCRIPTORS => {
                let found = format!("a process may have only {most}");
                self.wrong("descriptors", found, "raise it with ulimit -n");
            }
            Some(most) => self.fine("descriptors", format!("up to {most} for a process")),
            None => self.note("descriptors", "the system does not say", ""),
        }
    }

    fn model(
        &mut self,
        context: &Context,
        settings: &Settings,
        calls_model: bool,
    ) -> Result<(), Failure> {
        let (chosen, source) = match model::resolve(settings, &context.environment) {
            Ok(Some(chosen)) => (chosen.value, chosen.source),
            Ok(None) => {
                let remedy = format!("set {}, or --model; see the manual", credential_variables());
                let found = "none is configured: team lead uses the rehearsal model";
                self.note("model", found, &remedy);
                return Ok(());
            }
            Err(why) => {
                self.failed("model", &why, "a model is PROVIDER/NAME");
                return Ok(());
            }
        };
        self.fine("model", format!("{chosen}, from {source}"));
        let credentials = ProviderCredentials::of(settings, &context.environment);
        if chosen.spec().model_name == ModelName::File {
            let file = chosen.name().unwrap_or_default();
            if !Path::new(file).is_file() {
                self.wrong("model", format!("{file} is not a file"), "name a script that exists");
            }
            return Ok(());
        }
        if chosen.is_paid() {
            if !credentials.suffice_for(&chosen) {
                let remedy =
                    format!("set the one that the model needs: {}", credential_variables());
                self.wrong("credentials", "none for this model", &remedy);
                return Ok(());
            }
            let keys = CREDENTIAL_VARIABLES.into_iter().flat_map(Variables::credentials);
            let set = keys.filter(|key| context.environment.get(key).is_some());
            let set = set.collect::<Vec<_>>().join(", ");
            let none = "none, but a base URL is set".to_owned();
            self.fine("credentials", if set.is_empty() { none } else { set });
        }
        match model_access::complete(chosen, credentials, settings) {
            Ok((model, credentials)) if calls_model => self.call(&model, &credentials)?,
            Ok((model, credentials)) => self.endpoint(&model, &credentials)?,
            Err(why) => {
                self.failed("endpoint", &why, "start the local server, or name another model");
            }
        }
        Ok(())
    }

    /// Checks whether the endpoint answers, accepts the credentials, and lists the model.
    fn endpoint(
        &mut self,
        model: &ModelChoice,
        credentials: &ProviderCredentials,
    ) -> Result<(), Failure> {
        let asked = model_access::list_models(model, credentials, deadline(MODEL_LIST_LIMIT));
        let Some(said) = block_on(asked)? else { return Ok(()) };
        let base_url = model_access::base_url(model, credentials).unwrap_or_default();
        let source = url_source(model, credentials);
        // The part before an @ may be a password.
        let shown = base_url.rsplit('@').next().unwrap_or_default();
        match said {
            Ok(ModelListAnswer::Models(models)) => {
                self.fine("endpoint", format!("{shown} answers"));
                let name = model.name().unwrap_or_default();
                let names: Vec<_> = models.iter().map(|listed| listed.name.as_str()).collect();
                let list = names.join(", ");
                if name.is_empty() || names.contains(&name) {
                    self.fine("models", list);
                } else {
                    let found = format!("{name} is not among those it lists: {list}");
                    self.note("models", found, "if it fails, name one of these");
                }
            }
            Ok(ModelListAnswer::Refused) => {
                let remedy = "check the key and the base URL that it is for";
                self.wrong("credentials", format!("{shown} refuses them"), remedy);
            }
            Ok(ModelListAnswer::Unlisted) => {
                self.fine("endpoint", format!("{shown} answers; it lists no models"));
            }
            Ok(ModelListAnswer::Failed { status, why }) => {
                let (meaning, remedy) = meaning(status);
                let remedy = format!("{remedy}; the base URL comes from {source}");
                self.wrong("endpoint", format!("{shown} answers {why}: {meaning}"), &remedy);
            }
            Err(why) => {
                let remedy = format!("start the server, or correct the base URL from {source}");
                self.wrong("endpoint", format!("{shown}: {why}"), &remedy);
            }
        }
        Ok(())
    }

    /// Calls the model for a few tokens. This shows more than the list of models: the key may use this model.
    fn call(
        &mut self,
        model: &ModelChoice,
        credentials: &ProviderCredentials,
    ) -> Result<(), Failure> {
        if model.spec().list_models.is_none() {
            self.note("call", format!("{model} has no endpoint to call"), "nothing to do");
            return Ok(());
        }
        let provider = match model_access::open_alone(model, credentials) {
            Ok(provider) => provider,
            Err(why) => {
                self.failed("call", &why, &why.hint);
                return Ok(());
            }
        };
        match block_on(model_access::call_once(&*provider, DOCTOR_CALL))? {
            Ok(Reply { usage, .. }) => {
                let (input, output) = (usage.input_tokens, usage.output_tokens);
                self.fine("call", format!("{model} answers ({input} tokens in, {output} out)"));
            }
            Err(why) => {
                let step = match &why {
                    ModelError::NoModel(_) | ModelError::Rejected(_) => {
                        "correct the model's name or the address"
                    }
                    ModelError::Unavailable(_) => {
                        "start the server, or wait until it is ready, then run this again"
                    }
                    ModelError::Credentials(_)
                    | ModelError::SpendCap(_)
                    | ModelError::ContextFull(_)
                    | ModelError::Script(_) => why.remedy(),
                };
                let remedy =
                    format!("{step}; the base URL comes from {}", url_source(model, credentials));
                self.wrong("call", why.to_string(), &remedy);
            }
        }
        Ok(())
    }

    pub(crate) fn text(&self, palette: Palette) -> String {
        let (mut rows, mut remedies) = (Vec::new(), Vec::new());
        for Finding { check, state, found, remedy } in &self.findings {
            let mark = match state {
                State::Ok => "ok    ".into(),
                State::Note => palette.dim("note  "),
                State::Wrong => palette.bad("WRONG "),
            };
            rows.push(format!("{mark} {check}: {}", one_line(found, 400)));
            if let Some(remedy) = remedy {
                remedies.push(format!("{}. {check}: {remedy}", remedies.len() + 1));
            }
        }
        if !remedies.is_empty() {
            rows.push("\nwhat to do:".into());
            rows.append(&mut remedies);
        }
        rows.join("\n")
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "schema": 1, "ok": self.is_healthy(), "findings": self.findings })
    }
}

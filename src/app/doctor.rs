//! Checks of everything that a team relies on, each with its remedy. They change nothing, and show no
//! credential.

use super::context::Context;
use super::event_loop::block_on;
use super::model_discovery;
use super::provider::{base_url, list_models};
use crate::error::Failure;
use crate::llm::Listing;
use crate::llm::PROVIDERS;
use crate::llm::registry::{ModelName, Variables};
use crate::os::{usage, watch};
use crate::settings::Settings;
use crate::settings::model::{self, Credentials, ModelChoice, credential_variables};
use crate::settings::trust::TrustList;
use crate::store::diagnose::{Diagnosis, flaws};
use crate::store::{StoreError, TeamDir, fs_probe};
use crate::ui::style::Palette;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The time that a model's endpoint has to answer.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// Descriptors that the lead of a full team needs.
const NEEDED_DESCRIPTORS: u64 = 256;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fine,
    /// Worth knowing, and no fault.
    Note,
    Wrong,
}

struct Finding {
    check: &'static str,
    state: State,
    found: String,
    remedy: String,
}

/// The findings of all checks.
#[derive(Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
}

/// Checks everything that a team relies on.
pub(crate) fn check(context: &Context) -> Result<Report, Failure> {
    let mut report = Report::default();
    report.folder(context);
    report.machine();
    if let Some(settings) = report.settings(context) {
        report.model(context, &settings)?;
    }
    Ok(report)
}

impl Report {
    /// Whether no check has found a fault.
    pub(crate) fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.state != State::Wrong)
    }

    fn add(
        &mut self,
        check: &'static str,
        state: State,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.findings.push(Finding { check, state, found: found.into(), remedy: remedy.into() });
    }

    fn fine(&mut self, check: &'static str, found: impl Into<String>) {
        self.add(check, State::Fine, found, "");
    }

    fn folder(&mut self, context: &Context) {
        let path = context.team_path.display().to_string();
        let team = match TeamDir::look(&context.team_path) {
            Ok(team) => team,
            Err(StoreError::NoTeam { .. }) => {
                let what = format!("there is none yet; it would be {path}");
                self.add("team folder", State::Note, what, "start one with `team lead`");
                return;
            }
            Err(why) => return self.add("team folder", State::Wrong, why.to_string(), why.hint()),
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
            let found = "not trusted: its looser settings are not in force";
            self.add("trust", State::Note, found, remedy);
        }
        match fs_probe::run(&team) {
            Ok(()) => self.fine("file system", "writing, syncing, locking and renaming work"),
            Err(why) => self.add("file system", State::Wrong, why.to_string(), why.hint()),
        }
        match fs_probe::has_links(&team) {
            Ok(true) => {}
            Ok(false) => {
                let what = "no hard links: mail is claimed by renaming alone";
                self.add("file system", State::Note, what, "nothing is to be done");
            }
            Err(why) => self.add("file system", State::Wrong, why.to_string(), why.hint()),
        }
        match flaws(&team) {
            Ok(flaws) if flaws.is_empty() => self.fine("state", "nothing stale, nothing damaged"),
            Ok(flaws) => flaws.iter().for_each(|flaw| self.flaw(flaw)),
            Err(why) => self.add("state", State::Wrong, why.to_string(), why.hint()),
        }
    }

    fn flaw(&mut self, flaw: &Diagnosis) {
        let (check, state, found, remedy) = match flaw {
            Diagnosis::Open(path) => (
                "modes",
                State::Wrong,
                format!("others may look into {}", path.display()),
                "chmod -R go= .team/*/ .team/config.json*; folders are 0700, files 0600",
            ),
            Diagnosis::Foreign(what) => (
                "owner",
                State::Wrong,
                what.clone(),
                "remove it, or work as the user it belongs to",
            ),
            Diagnosis::DamagedRoster => (
                "roster",
                State::Wrong,
                "config.json cannot be understood".into(),
                "start `team lead`: it is rebuilt, and the bad one kept as config.json.bad-N",
            ),
            Diagnosis::DamagedTask(what) => (
                "tasks",
                State::Wrong,
                what.clone(),
                "repair or remove it; the next change of the list puts it beside",
            ),
            Diagnosis::Ghost { name, is_of_another_boot } => {
                let since = if *is_of_another_boot { ", since before this boot" } else { "" };
                (
                    "roster",
                    State::Wrong,
                    format!("{name} stands there as living and is dead{since}"),
                    "team lead --resume goes on with the team, team clean removes its ghosts",
                )
            }
            Diagnosis::Claims { name, count } => (
                "mail",
                State::Note,
                format!("{count} batches of {name}'s mail were taken and not acted on"),
                "the next start of that agent takes them in",
            ),
            Diagnosis::DeadLetters { name, count } => (
                "mail",
                State::Note,
                format!("{count} dead letter{} of {name}", if *count == 1 { "" } else { "s" }),
                "each line in dead/NAME.jsonl says why; team clean --purge removes them",
            ),
        };
        self.add(check, state, found, remedy);
    }

    fn machine(&mut self) {
        let events = usage::events();
        let found = format!(
            "{} of {} queues, {} of {} watches in use",
            events.instances, events.max_instances, events.watches, events.max_watches
        );
        if events.max_instances == 0 {
            let remedy = "agents look at their inboxes four times a second instead";
            self.add("file events", State::Note, "there are none here", remedy);
        } else if watch::is_to_be_had() {
            self.fine("file events", found);
        } else {
            let remedy = "agents look at their inboxes four times a second instead; end programs that watch \
                          files, or raise fs.inotify.max_user_instances and max_user_watches with sysctl";
            self.add("file events", State::Note, format!("none is left: {found}"), remedy);
        }
        match usage::max_descriptors() {
            Some(most) if most < NEEDED_DESCRIPTORS => {
                let found = format!("a process may have {most} only");
                self.add("descriptors", State::Wrong, found, "raise it with ulimit -n");
            }
            Some(most) => self.fine("descriptors", format!("up to {most} for a process")),
            None => self.add("descriptors", State::Note, "the system does not say", ""),
        }
    }

    fn settings(&mut self, context: &Context) -> Option<Settings> {
        match context.settings() {
            Ok(settings) => {
                let set = settings.rows().into_iter().filter(|row| row.source != "default");
                let set: Vec<String> =
                    set.map(|row| format!("{} from {}", row.key, row.source)).collect();
                let found = if set.is_empty() { "all default".to_owned() } else { set.join(", ") };
                self.fine("settings", found);
                Some(settings)
            }
            Err(why) => {
                let found = format!("{}: {}", why.what, why.why);
                let remedy = "correct the line or variable; `team config` lists the keys";
                self.add("settings", State::Wrong, found, remedy);
                None
            }
        }
    }

    fn model(&mut self, context: &Context, settings: &Settings) -> Result<(), Failure> {
        let chosen = match model::resolve(settings, &context.environment) {
            Ok(Some(chosen)) => chosen,
            Ok(None) => {
                let remedy = format!("set {}, or --model; see the manual", credential_variables());
                let found = "none is configured: team lead uses the rehearsal model";
                self.add("model", State::Note, found, remedy);
                return Ok(());
            }
            Err(why) => {
                let found = format!("{}: {}", why.what, why.why);
                self.add("model", State::Wrong, found, "a model is PROVIDER/NAME");
                return Ok(());
            }
        };
        self.fine("model", format!("{}, from {}", chosen.value, chosen.source));
        let credentials = Credentials::of(settings, &context.environment);
        if chosen.value.spec().model_name == ModelName::File {
            let file = chosen.value.name().unwrap_or_default();
            if !Path::new(file).is_file() {
                let found = format!("{file} is not a file");
                self.add("model", State::Wrong, found, "name a script that exists");
            }
            return Ok(());
        }
        if chosen.value.is_paid() {
            let variables = PROVIDERS.iter().filter_map(|spec| spec.variables);
            let keys = variables.flat_map(Variables::credentials);
            let set: Vec<String> =
                keys.filter(|key| context.environment.get(key).is_some()).collect();
            if credentials.reach(&chosen.value) {
                let set = if set.is_empty() {
                    "none, but a server is named".into()
                } else {
                    set.join(", ")
                };
                self.fine("credentials", set);
            } else {
                let remedy = format!("set {}, whichever the model wants", credential_variables());
                self.add("credentials", State::Wrong, "none for this model", remedy);
                return Ok(());
            }
        }
        match model_discovery::complete(chosen.value, credentials, settings) {
            Ok((model, credentials)) => self.endpoint(&model, &credentials),
            Err(why) => {
                let found = format!("{}: {}", why.what, why.why);
                self.add(
                    "endpoint",
                    State::Wrong,
                    found,
                    "start the local server, or name another model",
                );
                Ok(())
            }
        }
    }

    /// Whether the endpoint answers, takes the credentials, and has the model.
    fn endpoint(&mut self, model: &ModelChoice, credentials: &Credentials) -> Result<(), Failure> {
        let Some(said) = block_on(async { list_models(model, credentials, PROBE_LIMIT).await })?
        else {
            return Ok(());
        };
        let base_url = base_url(model, credentials).unwrap_or_default();
        // The part before an @ may be a password.
        let shown = base_url.rsplit('@').next().unwrap_or_default();
        match said {
            Ok(Listing::Models(models)) => {
                self.fine("endpoint", format!("{shown} answers"));
                let name = model.name().unwrap_or_default();
                let list = models.join(", ");
                if name.is_empty() || models.iter().any(|listed| listed == name) {
                    self.fine("models", list);
                } else {
                    let found = format!("{name} is not among those it lists: {list}");
                    self.add("models", State::Note, found, "name one of these, if it fails");
                }
            }
            Ok(Listing::Refused) => {
                let remedy = "check the key and the base url that it is for";
                let found = format!("{shown} refuses them");
                self.add("credentials", State::Wrong, found, remedy);
            }
            Ok(Listing::Unlisted) => {
                self.fine("endpoint", format!("{shown} answers; it lists no models"));
            }
            Err(why) => {
                let remedy = "check the network, and the provider's _BASE_URL variable";
                self.add("endpoint", State::Wrong, format!("{shown}: {why}"), remedy);
            }
        }
        Ok(())
    }

    /// Renders the findings and what to do as text.
    pub(crate) fn text(&self, palette: Palette) -> String {
        let mut rows = Vec::new();
        let mut remedies = Vec::new();
        for Finding { check, state, found, remedy } in &self.findings {
            let found = crate::ui::sanitize::one_line(found, 400);
            let row = format!("{check}: {found}");
            match state {
                State::Fine => rows.push(format!("ok     {row}")),
                State::Note => rows.push(format!("{} {row}", palette.dim("note  "))),
                State::Wrong => rows.push(format!("{} {row}", palette.bad("WRONG "))),
            }
            if *state != State::Fine && !remedy.is_empty() {
                remedies.push(format!("{}. {check}: {remedy}", remedies.len() + 1));
            }
        }
        if !remedies.is_empty() {
            rows.push("\nwhat to do:".into());
            rows.append(&mut remedies);
        }
        rows.join("\n")
    }

    /// Renders the findings as JSON.
    pub(crate) fn json(&self) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                let state = match finding.state {
                    State::Fine => "ok",
                    State::Note => "note",
                    State::Wrong => "wrong",
                };
                let remedy = Some(&finding.remedy).filter(|remedy| !remedy.is_empty());
                json!({
                    "check": finding.check, "state": state, "found": finding.found, "remedy": remedy,
                })
            })
            .collect();
        json!({ "schema": 1, "ok": self.is_healthy(), "findings": findings })
    }
}

//! The permission rules in force, each with its source, and the way to take back those of answers.

use super::context::Context;
use super::permission_rules::file_and_line;
use super::stop_members::is_alive;
use crate::bus::{Bus, new_id};
use crate::error::{Exit, Failure};
use crate::os::{deadline::deadline, local_time};
use crate::settings::Settings;
use crate::settings::granted::{GrantedFile, GrantedRule};
use crate::store::asynchronous::offload;
use crate::store::{Liveness, TeamDir, liveness};
use crate::ui::sanitize::{one_line, sanitize};
use crate::ui::style::Palette;
use crate::wire::message::{Body, Correlation};
use crate::wire::permission::{RuleLists, RuleScope};
use crate::wire::{AgentName, WallTime};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The time that the lead has to take a rule back.
const REVOKE_LIMIT: Duration = Duration::from_secs(15);

const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A rule, and its source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleInForce {
    /// The number by which it can be taken back; `None` for a rule of the settings.
    pub(crate) number: Option<u64>,
    /// The list: `allow`, `ask` or `deny`.
    pub(crate) list: &'static str,
    pub(crate) rule: String,
    pub(crate) source: RuleSource,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RuleSource {
    /// A settings file, with the line if it is known.
    Settings(Option<String>),
    /// An answer of the person to a question of this agent.
    Answer { agent: String, scope: RuleScope, at: WallTime },
}

impl RuleInForce {
    /// Describes the source to a person.
    pub(crate) fn source_words(&self) -> String {
        match &self.source {
            RuleSource::Settings(place) => {
                sanitize(place.as_deref().unwrap_or("the settings")).into_owned()
            }
            RuleSource::Answer { agent, scope, at } => {
                let when = local_time(*at);
                format!("answered {when} to {agent}; for {}", scope.meaning(agent))
            }
        }
    }

    pub(crate) fn json(&self) -> Value {
        let (source, place, agent, scope, at) = match &self.source {
            RuleSource::Settings(place) => ("settings", place.as_deref(), None, None, None),
            RuleSource::Answer { agent, scope, at } => {
                ("answer", None, Some(agent.as_str()), Some(scope.word()), Some(at.as_secs()))
            }
        };
        json!({
            "number": self.number, "list": self.list, "rule": self.rule, "source": source,
            "place": place, "agent": agent, "scope": scope, "at": at,
        })
    }
}

/// Returns the rules of the settings.
pub(crate) fn settings_in_force(context: &Context, settings: &Settings) -> Vec<RuleInForce> {
    let RuleLists { allow, ask, deny } = settings.permissions().rules;
    let lists = [("deny", deny), ("ask", ask), ("allow", allow)];
    let rules =
        lists.into_iter().flat_map(|(list, rules)| rules.into_iter().map(move |it| (list, it)));
    let in_force = |(list, rule): (&'static str, String)| {
        let source = RuleSource::Settings(file_and_line(context, &rule));
        RuleInForce { number: None, list, rule, source }
    };
    rules.map(in_force).collect()
}

/// Returns the rules of answers.
pub(crate) fn granted_in_force(rules: &[GrantedRule]) -> Vec<RuleInForce> {
    let in_force = |it: &GrantedRule| {
        let source = RuleSource::Answer { agent: it.agent.clone(), scope: it.scope, at: it.at };
        RuleInForce { number: Some(it.number), list: "allow", rule: it.rule.clone(), source }
    };
    rules.iter().map(in_force).collect()
}

/// Returns the rules in force in the folder of `context`: with a running lead, those of its answers as well.
pub(crate) fn in_force(context: &Context, team: &TeamDir) -> Result<Vec<RuleInForce>, Failure> {
    let settings = context.settings()?;
    let granted = granted(context, team);
    Ok(settings_in_force(context, &settings)
        .into_iter()
        .chain(granted_in_force(&granted))
        .collect())
}

/// Returns the rules of answers that the running lead has, or that the next one will have.
fn granted(context: &Context, team: &TeamDir) -> Vec<GrantedRule> {
    let file = GrantedFile::of(&context.environment, team.root());
    let known = file.read();
    if incarnation_of_lead(team).is_some_and(|lead| lead == known.lead) {
        return known.rules;
    }
    file.for_good().rules
}

fn incarnation_of_lead(team: &TeamDir) -> Option<String> {
    match liveness::probe(team, &AgentName::lead()) {
        Ok(Liveness::Alive(Some(record))) => Some(record.incarnation),
        Ok(Liveness::Alive(None) | Liveness::Dead) | Err(_) => None,
    }
}

/// Renders rules as lines: number, list, rule, source.
pub(crate) fn table(rules: &[RuleInForce], palette: Palette) -> String {
    if rules.is_empty() {
        return "There are no permission rules: the mode decides.\n".into();
    }
    let number = |it: &RuleInForce| it.number.map_or_else(|| "-".into(), |it| it.to_string());
    let widest = |cell: &dyn Fn(&RuleInForce) -> usize| rules.iter().map(cell).max().unwrap_or(0);
    let numbers = widest(&|it| number(it).len());
    let width = widest(&|it| it.rule.chars().count().min(60));
    let line = |it: &RuleInForce| {
        let (number, rule) = (number(it), one_line(&it.rule, 200));
        let source = palette.dim(&it.source_words());
        format!("{number:>numbers$}  {:5}  {rule:width$}  {source}\n", it.list)
    };
    rules.iter().map(line).collect()
}

/// Takes back the rules with these numbers, and waits until the running lead has done it. Fails if a number is not that
/// of a rule of an answer.
pub(crate) async fn revoke(
    context: &Context,
    bus: &Arc<Bus>,
    numbers: &[u64],
) -> Result<Vec<RuleInForce>, Failure> {
    let team = bus.dir();
    let known = granted(context, team);
    let is_known = |number: &&u64| known.iter().any(|it| it.number == **number);
    if let Some(unknown) = numbers.iter().find(|number| !is_known(number)) {
        let what = format!("no answer has made a rule {unknown}");
        let hint =
            "`team permissions` lists the rules; to remove a rule of the settings, edit its file";
        return Err(Failure::new(Exit::Failure, what, "nothing was revoked", hint));
    }
    let gone: Vec<GrantedRule> =
        known.into_iter().filter(|it| numbers.contains(&it.number)).collect();
    let file = GrantedFile::of(&context.environment, team.root());
    let failed = |why: String, hint: &str| {
        Failure::new(Exit::Failure, "the rules were not revoked", why, hint)
    };
    let Some(incarnation) = incarnation_of_lead(team) else {
        let mut rules = file.read();
        rules.revoke(numbers);
        let hint = "check the folder of its file";
        file.write(&rules).map_err(|why| failed(why.to_string(), hint))?;
        return Ok(granted_in_force(&gone));
    };
    let (lead, user) = (AgentName::lead(), AgentName::user());
    let correlation = Correlation { request_id: new_id(&user), incarnation };
    let body = Body::PermissionUpdate {
        rules: json!(RuleLists::default()),
        removed: None,
        revoked: Some(numbers.to_vec()),
    };
    let (sender, to) = (Arc::clone(bus), lead.clone());
    let send = move || sender.control(&user, &to, body, correlation);
    offload(send).await.map_err(|why| failed(why.to_string(), &why.hint()))?;
    let give_up = tokio::time::Instant::now() + deadline(REVOKE_LIMIT);
    while tokio::time::Instant::now() < give_up {
        let left = file.read().rules;
        if !left.iter().any(|it| numbers.contains(&it.number)) {
            return Ok(granted_in_force(&gone));
        }
        if !is_alive(team, &lead) {
            return Err(failed("the lead has ended meanwhile".into(), "try again"));
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    let why = "the lead has the request but has not acted on it yet".into();
    Err(failed(why, "`team permissions` shows whether they are still in force"))
}

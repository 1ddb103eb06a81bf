//! A model as settings and commands name it. `llm` has the list of providers.

use crate::error::{Exit, Failure};
use crate::llm::registry::ProviderSpec;
use crate::llm::{FALLBACK, PROVIDERS};
use std::fmt;

#[derive(Clone)]
pub(crate) struct ModelChoice {
    pub(super) provider: &'static ProviderSpec,
    pub(super) name: Option<String>,
}

impl ModelChoice {
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let read =
            |provider: &&'static ProviderSpec| Some(Self { provider, name: provider.read(text)? });
        PROVIDERS.iter().find_map(read).ok_or_else(|| {
            let example = PROVIDERS.iter().find_map(|spec| Some((spec, spec.default_model?)));
            let example = example.map(|(spec, model)| spec.write(Some(model)));
            Failure::new(
                Exit::Usage,
                format!("{text:?} is not a model that this version can use"),
                format!("a model is {}", model_forms()),
                format!("for example --model {}", example.unwrap_or_default()),
            )
        })
    }

    /// Returns the model of a provider without a name, for what concerns all of its models.
    pub(crate) fn of_provider(provider: &'static ProviderSpec) -> Self {
        Self { provider, name: None }
    }

    /// Returns the model that is used if none is configured.
    pub(crate) fn fallback() -> Self {
        Self { provider: FALLBACK, name: None }
    }

    pub(crate) fn spec(&self) -> &'static ProviderSpec {
        self.provider
    }

    /// Returns the name of the agent of another vendor; `None` for a model.
    pub(crate) fn agent(&self) -> Option<&str> {
        self.name().filter(|_| self.provider.is_agent)
    }

    /// Whether the replies come from a record.
    pub(crate) fn is_replay(&self) -> bool {
        self.provider.is_replay
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the model of this name of the same provider.
    pub(crate) fn named(&self, name: String) -> Self {
        Self { provider: self.provider, name: Some(name) }
    }

    /// Whether the provider takes credentials and bills the use.
    pub(crate) fn is_paid(&self) -> bool {
        self.provider.variables.is_some()
    }
}

impl PartialEq for ModelChoice {
    fn eq(&self, other: &Self) -> bool {
        (self.provider.name, &self.name) == (other.provider.name, &other.name)
    }
}

impl Eq for ModelChoice {}

impl fmt::Debug for ModelChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ModelChoice({self})")
    }
}

impl fmt::Display for ModelChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.provider.write(self.name()))
    }
}

/// Returns the forms of models, and those of agents that only a teammate can have.
pub(crate) fn model_forms() -> String {
    let forms = |is_agent: bool| {
        let offered = PROVIDERS.iter().filter(|spec| !spec.is_replay);
        let chosen = offered.filter(|spec| spec.is_agent == is_agent);
        or_list(chosen.flat_map(|spec| spec.forms()).collect())
    };
    format!("{}; for a teammate also {}", forms(false), forms(true))
}

/// Returns the usual variables that hold credentials, as a text for the user.
pub(crate) fn credential_variables() -> String {
    let variables = PROVIDERS.iter().filter_map(|spec| Some(spec.variables?.name("API_KEY")));
    or_list(variables.collect())
}

fn or_list(mut items: Vec<String>) -> String {
    match items.pop() {
        Some(last) if !items.is_empty() => format!("{} or {last}", items.join(", ")),
        last => last.unwrap_or_default(),
    }
}

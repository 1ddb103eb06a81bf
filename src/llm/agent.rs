//! `acp/NAME`: an agent of another vendor instead of a model. A teammate runs it (`agent::foreign`); it cannot be called as
//! a model.

use super::provider::{ModelError, Provider, Sink, TurnFuture};
use super::registry::{ConnectError, ModelName, ProviderSpec};
use crate::wire::chat::Request;

/// The provider of the models `acp/NAME`.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::Required,
    is_agent: true,
    connect: |_| Err(ConnectError::Setup(NO_MODEL.into())),
    ..ProviderSpec::new("acp", "the agent")
};

const NO_MODEL: &str =
    "acp/NAME is an agent of another vendor, not a model: only a teammate can run it";

/// The model of a teammate that runs an agent. It has a name and is never called.
#[derive(Debug)]
pub struct NoModel {
    /// `acp/NAME`.
    pub label: String,
}

impl Provider for NoModel {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn turn<'a>(&'a self, _request: &'a Request, _sink: Sink<'a>) -> TurnFuture<'a> {
        Box::pin(async { Err(ModelError::Rejected(NO_MODEL.into())) })
    }
}

//! `replay`: the replies of a recorded team, which `team replay` plays again. An agent of such a team reads them from the
//! record (`agent::replay`); any other one has none.

use super::provider::{ModelError, Provider, Sink, TurnFuture};
use super::registry::{Connected, ProviderSpec};
use crate::wire::chat::Request;
use std::rc::Rc;

/// `replay`: recorded replies.
pub static SPEC: ProviderSpec = ProviderSpec {
    is_replay: true,
    connect: |_| Ok(Connected { provider: Rc::new(NoRecord), warning: None }),
    ..ProviderSpec::new("replay", "`team replay`, which makes the folder of such a team")
};

/// The model of an agent without a record.
#[derive(Debug)]
struct NoRecord;

impl Provider for NoRecord {
    fn label(&self) -> String {
        SPEC.name.into()
    }

    fn turn<'a>(&'a self, _request: &'a Request, _sink: Sink<'a>) -> TurnFuture<'a> {
        let why = "this team plays no record: `team replay DIR` makes a folder that does";
        Box::pin(async move { Err(ModelError::Script(why.into())) })
    }
}

//! The provider `rehearsal`.

use super::Rehearsal;
use crate::llm::registry::{Connected, ProviderSpec};
use std::rc::Rc;

/// `rehearsal`: the embedded stand-in for a model.
pub static SPEC: ProviderSpec = ProviderSpec {
    notice: Some(
        "REHEARSAL MODEL: this is not a language model. It understands short commands and turns them \
         into real tool calls.",
    ),
    connect: |connection| {
        let provider = Rc::new(Rehearsal::new(connection.incarnation));
        Ok(Connected { provider, warnings: Vec::new() })
    },
    ..ProviderSpec::new("rehearsal", "the program")
};

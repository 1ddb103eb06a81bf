//! Arguments that several verbs have, and the standard input that an argument `-` stands for.

use crate::error::{Exit, Failure, OrFail};
use crate::settings::{Flags, model::model_forms};
use std::io::Read;

/// No arguments.
#[derive(Debug, clap::Args)]
pub(super) struct None {}

/// The format of what a command prints.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Json {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The model and the permission mode of an agent.
#[derive(Debug, clap::Args)]
pub(super) struct ModelArgs {
    #[arg(long, value_name = "MODEL", help = format!("PROVIDER/NAME: {}", model_forms()))]
    model: Option<String>,
    /// Permission mode: plan, default, `accept_edits` or bypass
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
}

impl ModelArgs {
    pub(super) fn flags(&self) -> Flags {
        Flags::of([("--model", self.model.as_deref()), ("--mode", self.mode.as_deref())])
    }
}

/// Reads what an argument `-` stands for from standard input.
pub(super) fn read_stdin(what: &str) -> Result<String, Failure> {
    let hint = "pipe UTF-8 text into the command";
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.or_exit(Exit::Usage, format!("{what} cannot be read"), hint)?;
    Ok(text)
}

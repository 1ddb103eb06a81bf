//! `team teammate NAME`.

use super::args::ModelArgs;
use crate::app::context::Context;
use crate::app::teammate::{self, options::TeammateRequest};
use crate::error::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the teammate
    #[arg(id = "new_name", value_name = "NAME", allow_hyphen_values = true)]
    pub(super) name: String,
    /// Role of the teammate
    #[arg(long, default_value = "teammate")]
    role: String,
    /// The first prompt
    #[arg(long, value_name = "PROMPT")]
    prompt: Option<String>,
    /// Exit after the first turn, once there is no unread mail
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    model: ModelArgs,
    /// The descriptor of the control socket, when a lead spawns this
    #[arg(long, hide = true, value_name = "N")]
    control_fd: Option<i32>,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let Args { name, role, prompt, once, model, control_fd } = args;
    let flags = model.flags();
    teammate::run(context, TeammateRequest { name, role, prompt, once, flags, control_fd })
}

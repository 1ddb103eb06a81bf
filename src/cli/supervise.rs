//! `team supervise`: the supervisor of this host, which a relay starts for an order of another host.

use crate::app::context::Context;
use crate::app::host_supervisor;
use crate::error::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(context: &Context, _: Args) -> Result<Exit, Failure> {
    host_supervisor::run(context)
}

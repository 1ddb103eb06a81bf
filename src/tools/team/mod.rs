//! Tools by which agents start, end and direct each other, and the state that team tools share.

mod context;
mod idle;
mod list_teammates;
mod ops;
mod review_plan;
mod shutdown_response;
mod shutdown_teammate;
mod spawn_teammate;
pub(crate) mod submit_plan;

pub(crate) use context::TeamContext;
pub(crate) use ops::{Ops, OpsFuture, SpawnOrder, TeamOps};
pub(crate) use shutdown_response::refusal_reason;

use super::registry::Registration;

/// The tools of this folder.
pub(super) const TOOLS: &[Registration] = &[
    list_teammates::TOOL,
    spawn_teammate::TOOL,
    shutdown_teammate::TOOL,
    shutdown_response::TOOL,
    submit_plan::TOOL,
    review_plan::TOOL,
    idle::TOOL,
];

//! `team top`: the live view.

pub(super) use super::args::None as Args;
use crate::app::{context::Context, top};
use crate::error::{Exit, Failure};

pub(super) fn run(context: &Context, _: Args) -> Result<Exit, Failure> {
    top::run(context)
}

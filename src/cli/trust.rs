//! `team trust`: what this folder's settings loosen is in force from now on.

use super::args::Show;
use super::context::Context;
use super::out;
use crate::error::{Exit, Failure};
use crate::settings::trust::TrustList;
use serde_json::json;

pub(super) fn run(context: &Context, show: &Show) -> Result<Exit, Failure> {
    context.refuse_inside("trust")?;
    let team = context.team()?;
    let added = TrustList::of(&context.environment).add(team.root())?;
    let folder = team.root().display().to_string();
    let printed = if show.json {
        out::say_json(&json!({ "schema": 1, "team": folder, "trusted": true, "new": added }))
    } else if added {
        out::say(&format!("{folder} is trusted: what its settings loosen is in force"))
    } else {
        out::say(&format!("{folder} was trusted already"))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

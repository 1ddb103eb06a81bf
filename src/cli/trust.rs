//! `team trust`: lets the present settings of this folder run code, loosen limits and send data elsewhere.

use super::args::Json;
use crate::app::{context::Context, output::print_result};
use crate::error::{Exit, Failure};
use crate::settings::{Settings, endpoints::redacted, trust::TrustList};
use crate::store::{TeamDir, lock::exclusive};
use crate::ui::sanitize::sanitize;
use crate::wire::limits::LOCK_TIMEOUT;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Stop trusting this folder
    #[arg(long)]
    revoke: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    context.refuse_inside_agent("trust")?;
    let team = context.team()?;
    let list = TrustList::of(&context.environment);
    let folder = team.root().display().to_string();
    // A concurrent `team trust` must not lose this change.
    let lock = exclusive(&list.lock_file()?, LOCK_TIMEOUT)?;
    let risks = Settings::risks_in(&TeamDir::settings_in(team.root()))?;
    let was_trusted = list.has(team.root(), &risks);
    list.set(team.root(), (!args.revoke).then(|| risks.clone()))?;
    drop(lock);
    let as_json = || {
        let is_new = !args.revoke && !was_trusted;
        json!({
            "schema": 1, "team": folder, "trusted": !args.revoke, "new": is_new,
            "settings": redacted(&risks),
        })
    };
    let folder = sanitize(&folder);
    let as_text = || {
        if args.revoke {
            format!("{folder} is not trusted")
        } else if was_trusted {
            format!("{folder} was trusted already, with its settings as they are now")
        } else if risks.is_empty() {
            format!(
                "{folder}: no setting needs trust now; if one does later, run `team trust` again"
            )
        } else {
            let line = |(key, value)| format!("\n  {key} = {value}");
            let lines: String = redacted(&risks).into_iter().map(line).collect();
            format!("{folder} is trusted with these values:{lines}")
        }
    };
    Ok(print_result(args.json.json, as_json, as_text))
}

//! `team trust`: the present settings of this folder that run code, loosen limits or send data elsewhere take effect.

use super::args::TrustArgs;
use super::context::{Context, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::settings::endpoints::redacted;
use crate::settings::trust::TrustList;
use crate::store::TeamDir;
use crate::store::lock::exclusive;
use crate::wire::limits::LOCK_TIMEOUT;
use serde_json::json;

pub(super) fn run(context: &Context, args: &TrustArgs) -> Result<Exit, Failure> {
    context.refuse_inside("trust")?;
    let team = context.team()?;
    let list = TrustList::of(&context.environment);
    let folder = team.root().display().to_string();
    // A concurrent `team trust` must not lose this change.
    let lock =
        exclusive(&list.lock_file()?, LOCK_TIMEOUT).map_err(|why| store_failure(why.into()))?;
    let risks = Settings::risks_in(&TeamDir::settings_in(team.root()))?;
    let was = list.has(team.root(), &risks);
    if args.revoke {
        list.remove(team.root())?;
    } else {
        list.add(team.root(), risks.clone())?;
    }
    drop(lock);
    let printed = if args.show.json {
        let (trusted, new) = (!args.revoke, !args.revoke && !was);
        let object = json!({
            "schema": 1, "team": folder, "trusted": trusted, "new": new, "settings": redacted(&risks),
        });
        out::say_json(&object)
    } else if args.revoke {
        out::say(&format!("{folder} is not trusted"))
    } else if was {
        out::say(&format!("{folder} was trusted already, with its settings as they stand now"))
    } else if risks.is_empty() {
        out::say(&format!(
            "{folder}: its settings run, loosen and redirect nothing; what they say later asks again"
        ))
    } else {
        let risks = redacted(&risks);
        let lines = risks.iter().map(|(key, value)| format!("  {key} = {value}"));
        let lines: Vec<String> = lines.collect();
        out::say(&format!("{folder} is trusted with this, as it stands now:\n{}", lines.join("\n")))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

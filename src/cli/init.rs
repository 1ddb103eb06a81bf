//! `team init`: a team folder with commented settings and the three example roles.

use super::args::Show;
use super::context::{Context, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::settings::reference::commented_file;
use serde_json::json;

/// The example roles: those of this project's own team folder.
const ROLES: [(&str, &str); 3] = [
    ("roles/coder.md", include_str!("../../.team/roles/coder.md")),
    ("roles/tester.md", include_str!("../../.team/roles/tester.md")),
    ("roles/reviewer.md", include_str!("../../.team/roles/reviewer.md")),
];

pub(super) fn run(context: &Context, show: &Show) -> Result<Exit, Failure> {
    context.refuse_inside("init")?;
    let team = context.make_team()?;
    let mut made = Vec::new();
    let settings = commented_file()?;
    for (name, text) in [("settings.toml", settings.as_str())].into_iter().chain(ROLES) {
        if team.create_committed(name, text.as_bytes()).map_err(store_failure)? {
            made.push(name);
        }
    }
    let folder = team.root().display();
    let printed = if show.json {
        out::say_json(&json!({ "schema": 1, "team": folder.to_string(), "made": made }))
    } else if made.is_empty() {
        out::say(&format!("{folder} is complete; nothing was changed"))
    } else {
        out::say(&format!("{folder}: made {}. Next: team lead", made.join(", ")))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

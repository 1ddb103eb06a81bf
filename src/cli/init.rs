//! `team init`: makes a team folder with commented settings and the three example roles.

pub(super) use super::args::Json as Args;
use crate::app::{context::Context, output::print_result};
use crate::error::{Exit, Failure};
use crate::settings::reference::commented_file;
use crate::ui::sanitize::sanitize;
use serde_json::json;

/// The example roles: those of this project's own team folder.
const ROLES: [(&str, &str); 3] = [
    ("roles/coder.md", include_str!("../../.team/roles/coder.md")),
    ("roles/tester.md", include_str!("../../.team/roles/tester.md")),
    ("roles/reviewer.md", include_str!("../../.team/roles/reviewer.md")),
];

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    context.refuse_inside_agent("init")?;
    let team = context.make_team()?;
    let mut made = Vec::new();
    let settings = commented_file()?;
    for (name, text) in [("settings.toml", settings.as_str())].into_iter().chain(ROLES) {
        if team.create_scaffold(name, text.as_bytes())? {
            made.push(name);
        }
    }
    let folder = team.root().display().to_string();
    let as_json = || json!({ "schema": 1, "team": folder, "made": made });
    let folder = sanitize(&folder);
    let as_text = || match made.as_slice() {
        [] => format!("{folder} is complete; nothing was changed"),
        made => format!("{folder}: created {}. Next: team lead", made.join(", ")),
    };
    Ok(print_result(args.json, as_json, as_text))
}

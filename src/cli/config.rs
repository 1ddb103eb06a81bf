//! `team config`: every setting with the source of its value.

pub(super) use super::args::Json as Args;
use crate::app::context::Context;
use crate::app::output::{print_result, warn};
use crate::app::permission_rules::permissions;
use crate::error::{Exit, Failure};
use crate::settings::{ConfigRow, model};
use serde_json::json;

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let errors = context.settings_errors();
    if !errors.is_empty() {
        for error in &errors {
            warn(&error.to_string());
        }
        return Ok(Exit::Usage);
    }
    let settings = context.settings()?;
    settings.ignored.iter().for_each(|ignored| warn(ignored));
    let (_, warnings) = permissions(context, &settings)?;
    for warning in &warnings {
        warn(warning);
    }
    let mut rows = settings.rows();
    if settings.model.value.is_none()
        && let Some(found) = model::resolve(&settings, &context.environment)?
    {
        for row in rows.iter_mut().filter(|row| row.key == "model") {
            (row.value, row.source) = (found.value.to_string(), found.source.clone());
        }
    }
    let as_json = || {
        let settings = rows.iter().map(|ConfigRow { key, value, source }| {
            json!({ "key": key, "value": value, "source": source })
        });
        let folder = context.team_path.display().to_string();
        json!({ "schema": 1, "team": folder, "settings": settings.collect::<Vec<_>>() })
    };
    let as_text = || {
        let width = rows.iter().map(|row| row.key.len()).max().unwrap_or_default();
        let line = |row: &ConfigRow| format!("{:width$}  {}  ({})", row.key, row.value, row.source);
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    Ok(print_result(args.json, as_json, as_text))
}

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
        return Ok(refuse(&errors));
    }
    let (settings, mut errors) = (context.settings()?, Vec::new());
    let rules = permissions(context, &settings).map_err(|bad| errors.push(bad));
    let model = model::resolve(&settings, &context.environment).map_err(|bad| errors.push(bad));
    if !errors.is_empty() {
        return Ok(refuse(&errors));
    }
    settings.ignored.iter().for_each(|ignored| warn(ignored));
    for warning in rules.iter().flat_map(|(_, warnings)| warnings) {
        warn(warning);
    }
    let mut rows = settings.rows();
    if settings.model.value.is_none()
        && let Ok(Some(found)) = model
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

fn refuse(errors: &[Failure]) -> Exit {
    for error in errors {
        warn(&error.to_string());
    }
    Exit::Usage
}

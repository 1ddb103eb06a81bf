//! `team config`: every setting with the source of its value.

pub(super) use super::args::Json as Args;
use crate::app::context::Context;
use crate::app::output::{print_result, warn};
use crate::error::{Exit, Failure};
use crate::settings::model;
use crate::settings::spending::Row;
use serde_json::json;

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let settings = context.settings()?;
    settings.ignored.iter().for_each(|ignored| warn(ignored));
    let mut rows: Vec<Row> =
        settings.rows().into_iter().map(|(key, value, from)| (key.into(), value, from)).collect();
    rows.extend(settings.endpoints.rows());
    rows.extend(settings.spending.rows());
    if settings.model.value.is_none()
        && let Some(found) = model::resolve(&settings, &context.environment)?
    {
        let in_force = ("model".into(), found.value.to_string(), found.source.to_string());
        rows.retain(|(key, ..)| key != "model");
        rows.push(in_force);
    }
    let as_json = || {
        let settings = rows
            .iter()
            .map(|(key, value, source)| json!({ "key": key, "value": value, "source": source }));
        let folder = context.team_path.display().to_string();
        json!({ "schema": 1, "team": folder, "settings": settings.collect::<Vec<_>>() })
    };
    let as_text = || {
        let width = rows.iter().map(|(key, ..)| key.len()).max().unwrap_or_default();
        let lines =
            rows.iter().map(|(key, value, source)| format!("{key:width$}  {value}  ({source})"));
        lines.collect::<Vec<_>>().join("\n")
    };
    Ok(print_result(args.json, as_json, as_text))
}

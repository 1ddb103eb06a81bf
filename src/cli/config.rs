//! `team config`: every setting and where its value comes from.

use super::args::Show;
use super::context::Context;
use super::out;
use crate::error::{Exit, Failure};
use crate::settings::{ConfigRow, Flags, model};
use serde_json::json;

pub(super) fn run(context: &Context, show: &Show) -> Result<Exit, Failure> {
    let settings = context.settings(&Flags::default())?;
    settings.ignored.iter().for_each(|ignored| out::complain(ignored));
    let mut rows = settings.rows();
    if settings.model.value.is_none()
        && let Some(found) = model::resolve(&settings, &context.environment)?
    {
        for row in rows.iter_mut().filter(|row| row.key == "model") {
            (row.value, row.source) = (found.value.to_string(), found.source.to_string());
        }
    }
    let printed = if show.json {
        let settings: Vec<_> = rows
            .iter()
            .map(|ConfigRow { key, value, source }| json!({ "key": key, "value": value, "source": source }))
            .collect();
        let folder = context.team_path.display().to_string();
        out::say_json(&json!({ "schema": 1, "team": folder, "settings": settings }))
    } else {
        let width = rows.iter().map(|row| row.key.len()).max().unwrap_or_default();
        let lines: Vec<String> = rows
            .iter()
            .map(|ConfigRow { key, value, source }| format!("{key:width$}  {value}  ({source})"))
            .collect();
        out::say(&lines.join("\n"))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

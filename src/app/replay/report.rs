//! The outcome of a replay, for people and for programs.

use super::{Compared, Difference, ReplayRequest, Replayed};
use crate::ui::sanitize::sanitize;
use crate::wire::replay::ToolSource;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The words for an entry that is missing.
const NOTHING: &str = "(nothing)";

/// Returns the outcome in lines.
pub(crate) fn text(replayed: &Replayed, request: &ReplayRequest) -> String {
    let mut text = String::new();
    let names = replayed.members.iter().map(|member| member.name.as_str().len());
    let width = names.max().unwrap_or_default();
    for Compared { name, alike, difference } in &replayed.members {
        let name = name.as_str();
        let entries = if *alike == 1 { "entry" } else { "entries" };
        let then = if difference.is_some() { ", then a difference" } else { "" };
        let _infallible = writeln!(text, "{name:width$}  {alike} {entries} alike{then}");
    }
    match replayed.first() {
        None => text.push_str("no difference\n"),
        Some((name, Difference { entry, turn, recorded, new, .. })) => {
            let recorded = recorded.as_deref().unwrap_or(NOTHING);
            let new = new.as_deref().unwrap_or(NOTHING);
            let _infallible = writeln!(
                text,
                "first difference: {name}, turn {turn}, line {entry} of the transcript\n  recorded: {recorded}\n  now:      {new}"
            );
        }
    }
    if let Some(why) = &replayed.cut {
        let _infallible = writeln!(text, "played up to this point only: {why}");
    }
    let folder = replayed.folder.display();
    let began = match &request.from {
        Some(from) => format!("the files of {}", from.display()),
        None => "no files".into(),
    };
    let tools = match request.tools {
        ToolSource::Real => "run for real",
        ToolSource::Recorded => "answered from the record",
    };
    let _infallible =
        writeln!(text, "played in {folder}, which began with {began}; tools were {tools}");
    if replayed.is_forked {
        let _infallible = writeln!(
            text,
            "to go on from there with the models of the record: team -C {folder} lead --resume"
        );
    }
    sanitize(text.trim_end()).into_owned()
}

/// Returns the outcome for programs.
pub(crate) fn json(replayed: &Replayed) -> Value {
    let difference = |found: &Difference| {
        let Difference { entry, turn, at, recorded, new } = found;
        json!({ "line": entry, "turn": turn, "at": at, "recorded": recorded, "now": new })
    };
    let members: Vec<Value> = replayed
        .members
        .iter()
        .map(|Compared { name, alike, difference: found }| {
            json!({
                "name": name,
                "alike": alike,
                "difference": found.as_ref().map(difference),
            })
        })
        .collect();
    json!({
        "alike": replayed.first().is_none(),
        "first": replayed.first().map(|(name, _)| name),
        "members": members,
        "folder": replayed.folder,
        "cut": replayed.cut,
        "forked": replayed.is_forked,
    })
}

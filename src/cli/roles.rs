//! `team roles`: what agents can be, where that is written, and what is wrong with the files.

use super::args::Show;
use super::context::Context;
use super::out;
use crate::error::{Exit, Failure};
use crate::store::RoleFile;
use crate::ui::roles::role_table;
use crate::ui::sanitize::one_line;
use crate::wire::front_matter::Problem;
use serde_json::{Value, json};

/// Columns of a problem on a line.
const LONGEST_PROBLEM: usize = 400;

pub(super) fn run(context: &Context, show: &Show) -> Result<Exit, Failure> {
    let files = context.seen_team()?.role_files(crate::tools::find_by_alias);
    let printed = if show.json {
        let roles: Vec<Value> = files.iter().map(as_json).collect();
        out::say_json(&json!({ "schema": 1, "roles": roles }))
    } else {
        let rows: Vec<_> =
            files.iter().map(|file| (&file.role, file.path.display().to_string())).collect();
        out::say(&role_table(&rows, context.palette()))
    };
    if !show.json {
        for RoleFile { path, problems, .. } in &files {
            for Problem { line, what } in problems {
                let text = format!("{}:{line}: {what}", path.display());
                out::complain(&one_line(&text, LONGEST_PROBLEM));
            }
        }
    }
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

fn as_json(file: &RoleFile) -> Value {
    let RoleFile { path, role, problems } = file;
    let problems: Vec<Value> =
        problems.iter().map(|it| json!({ "line": it.line, "what": it.what })).collect();
    json!({
        "name": role.name,
        "description": role.description,
        "file": path.display().to_string(),
        "tools": role.tools,
        "disallowed_tools": role.disallowed,
        "model": role.model,
        "mode": role.mode,
        "max_turns": role.max_turns,
        "problems": problems,
    })
}

//! `team roles`: the roles of agents, their files, and the problems of the files.

pub(super) use super::args::Json as Args;
use crate::app::context::Context;
use crate::app::output::{print_result, warn};
use crate::error::{Exit, Failure};
use crate::store::{RoleFile, RoleFiles};
use crate::tools::find_by_alias;
use crate::ui::{sanitize::one_line, tables::role_table};
use crate::wire::front_matter::Problem;
use serde_json::{Value, json};

const MAX_PROBLEM_COLUMNS: usize = 400;

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let RoleFiles { files, unreadable } = context.team_to_view()?.role_files(find_by_alias);
    let as_json = || {
        let roles: Vec<Value> = files.iter().map(role_json).collect();
        json!({ "schema": 1, "roles": roles, "unreadable": unreadable })
    };
    let as_text = || {
        let rows: Vec<_> = files.iter().map(|file| (&file.role, source(file))).collect();
        role_table(&rows, context.palette())
    };
    let exit = print_result(args.json, as_json, as_text);
    if args.json {
        return Ok(exit);
    }
    for folder in unreadable {
        warn(&one_line(
            &format!("a folder of roles cannot be read: {folder}"),
            MAX_PROBLEM_COLUMNS,
        ));
    }
    for (path, Problem { line, what }) in files
        .iter()
        .flat_map(|RoleFile { path, problems, .. }| problems.iter().map(move |it| (path, it)))
    {
        warn(&one_line(&format!("{}:{line}: {what}", path.display()), MAX_PROBLEM_COLUMNS));
    }
    Ok(exit)
}

/// Returns the path of a role's file, and the file that counts instead of it.
fn source(file: &RoleFile) -> String {
    let path = file.path.display();
    let hidden = file.hidden_by.as_ref();
    hidden.map_or_else(|| path.to_string(), |by| format!("{path}, hidden by {}", by.display()))
}

fn role_json(file: &RoleFile) -> Value {
    let RoleFile { path, role, problems, hidden_by } = file;
    let problems: Vec<Value> =
        problems.iter().map(|it| json!({ "line": it.line, "what": it.what })).collect();
    json!({
        "name": role.name,
        "description": role.description,
        "file": path.display().to_string(),
        "hidden_by": hidden_by.as_ref().map(|path| path.display().to_string()),
        "tools": role.tools,
        "disallowed_tools": role.disallowed,
        "model": role.model,
        "fallback_models": role.fallback_models,
        "mode": role.mode,
        "isolation": role.isolation,
        "max_turns": role.max_turns,
        "skills": role.skills,
        "mcp_servers": role.mcp_servers,
        "problems": problems,
    })
}

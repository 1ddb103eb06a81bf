//! The leases on files as a table and as JSON, and their release by the user.

use super::context::Context;
use crate::bus::Outgoing;
use crate::error::{Exit, Failure};
use crate::leases;
use crate::store::leases::LeaseFiles;
use crate::ui::style::Palette;
use crate::ui::tables::lease_table;
use crate::wire::AgentName;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Returns the leases of agents that run.
pub(crate) fn list(context: &Context) -> Result<LeaseFiles, Failure> {
    Ok(leases::list(&context.team_to_view()?)?)
}

pub(crate) fn table(found: &LeaseFiles, palette: Palette) -> String {
    lease_table(found.leases.iter().map(|lease| &**lease), palette)
}

pub(crate) fn list_json(found: &LeaseFiles) -> Value {
    let problems = found.problems.iter().map(|it| json!({ "file": it.file, "why": it.why }));
    let problems: Vec<Value> = problems.collect();
    json!({ "schema": 1, "leases": found.leases, "problems": problems })
}

/// Releases the lease with this id, or this path, and tells the owner. Returns a text for the user.
pub(crate) fn release(context: &Context, what: &str) -> Result<String, Failure> {
    context.refuse_inside_agent("leases release")?;
    let bus = context.team_bus()?;
    let path = below_workspace(bus.dir().workspace(), &context.cwd, what);
    let path = path.to_string_lossy();
    let released = leases::release_by_hand(bus.dir(), what, &path)?;
    if released.is_empty() {
        let why = format!("no running agent has leased {path}, and no lease has this id");
        let hint = "`team leases` shows ids and paths";
        return Err(Failure::new(Exit::Failure, format!("there is no lease {what:?}"), why, hint));
    }
    let mut by_owner: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (owner, path) in released {
        by_owner.entry(owner).or_default().push(path);
    }
    let lines = by_owner.into_iter().map(|(owner, paths)| {
        let paths = paths.join(", ");
        let content = format!("The user has released your lease on {paths}.");
        match bus.send(&AgentName::user(), &owner, Outgoing::text(content)) {
            Ok(_) => format!("released {paths}; {owner} was told"),
            Err(why) => format!("released {paths}; {owner} was not told: {why}"),
        }
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Returns a path that a person types as leases have it: relative to the workspace, without dots.
fn below_workspace(workspace: &Path, cwd: &Path, given: &str) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in cwd.join(given).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                plain.push(component);
            }
        }
    }
    let real = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let inside = [workspace, &real].into_iter().find_map(|it| plain.strip_prefix(it).ok());
    inside.map_or_else(|| plain.clone(), Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_path_is_relative_to_the_folder_in_which_it_was_typed() {
        let path = |cwd: &str, given: &str| {
            below_workspace(Path::new("/w"), Path::new(cwd), given).display().to_string()
        };
        assert_eq!(path("/w", "src/a.rs"), "src/a.rs");
        assert_eq!(path("/w/src", "./a.rs"), "src/a.rs");
        assert_eq!(path("/w/src", "../docs/"), "docs");
        assert_eq!(path("/elsewhere", "/w/src"), "src");
        assert_eq!(path("/elsewhere", "src"), "/elsewhere/src");
    }
}

//! The table of roles. The caller names the file of each role.

use super::sanitize::one_line;
use super::style::Palette;
use super::text_width::{columns, pad};
use crate::wire::role::Role;

/// The width of a description, in columns.
const DESCRIPTION: usize = 60;

/// The table of roles with their files.
pub(crate) fn role_table(roles: &[(&Role, String)], palette: Palette) -> String {
    if roles.is_empty() {
        let example = palette.bold("team init");
        return format!("There are no roles here. To make three examples:\n  {example}\n");
    }
    let header = ["ROLE", "FROM", "TOOLS", "MODEL", "MODE", "FOR"].map(str::to_owned);
    let cells = std::iter::once(header).chain(roles.iter().map(|(role, from)| {
        let description = one_line(&role.description, DESCRIPTION);
        let (name, from) = (one_line(&role.name, 64), one_line(from, 64));
        let model = role.model.as_deref().map_or_else(|| "-".into(), |model| one_line(model, 32));
        let mode = role.mode.map_or_else(|| "-".into(), |mode| mode.to_string());
        [name, from, tools(role), model, mode, description]
    }));
    let cells: Vec<[String; 6]> = cells.collect();
    let width = |at: usize| cells.iter().filter_map(|row| row.get(at)).map(|it| columns(it)).max();
    let widths: Vec<usize> = (0..6).map(|at| width(at).unwrap_or_default()).collect();
    let mut table = String::new();
    for (at, row) in cells.iter().enumerate() {
        let padded: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| pad(cell, *width)).collect();
        let line = padded.join("  ").trim_end().to_owned();
        table.push_str(&if at == 0 { palette.dim(&line) } else { line });
        table.push('\n');
    }
    table
}

/// The tools of a role, in short.
fn tools(role: &Role) -> String {
    let given = match role.tools.as_deref() {
        None => "all".to_owned(),
        Some([]) => "none".to_owned(),
        Some(tools) => tools.join(","),
    };
    let refused = match role.disallowed.as_slice() {
        [] => String::new(),
        refused => format!(" but {}", refused.join(",")),
    };
    one_line(&format!("{given}{refused}"), 48)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_is_a_row() {
        let (role, _) = Role::parse(
            "a",
            "---\ntools: Read\ndisallowedTools: broadcast\ndescription: \"x\\ny\"\nmodel: rehearsal\n---\n",
            crate::tools::find_by_alias,
        );
        let table = role_table(&[(&role, "roles/a.md".into())], Palette::plain());
        let words: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split("  ").filter(|it| !it.is_empty()).collect())
            .collect();
        let line = ["a", "roles/a.md", "read_file but broadcast", "rehearsal", "-", "x y"];
        assert_eq!(words[1].iter().map(|it| it.trim()).collect::<Vec<_>>(), line);
        assert!(role_table(&[], Palette::plain()).contains("team init"));
    }
}

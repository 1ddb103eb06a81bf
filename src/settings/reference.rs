//! The documentation of the settings: the commented settings file and the table of the manual.

use super::environment::Environment;
use super::layers::Flags;
use super::table::Settings;
use crate::error::Failure;
use std::path::Path;

const INTRODUCTION: &str = "\
## Settings of this team. Everything is optional. ## begins a description, # a default or an example.
## Order: flag, environment (TEAM_MAX_ROUNDS=9 and so on), this file, your own settings file, default.
## `team config` shows each value and where it comes from.
";

/// Returns the settings file that `team init` writes: every setting with its description, commented out.
pub(crate) fn commented_file() -> Result<String, Failure> {
    let mut settings = defaults()?.declared();
    // In TOML, a key below the header of a table belongs to that table, so keys without a table come first.
    settings.sort_by_key(|(spec, _)| match spec.block {
        None => u8::from(spec.key.contains('.')),
        Some(_) => 2,
    });
    let mut lines = vec![INTRODUCTION.to_owned()];
    let mut open_section = "";
    for (spec, default) in settings {
        let (section, name) = spec.key.rsplit_once('.').unwrap_or((open_section, spec.key));
        // A block names its own tables.
        if section != open_section && spec.block.is_none() {
            lines.push(format!("# [{section}]"));
            open_section = section;
        }
        lines.extend(spec.description_lines().map(|line| format!("## {line}")));
        let value = default.or(spec.example.map(Into::into)).unwrap_or_default();
        let shown = spec.block.map_or_else(|| format!("{name} = {value}"), Into::into);
        lines.extend(shown.lines().map(|line| format!("# {line}")));
        lines.push(String::new());
    }
    Ok(lines.join("\n"))
}

fn defaults() -> Result<Settings, Failure> {
    Settings::load(&Environment::default(), Path::new(""), &Flags::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::layers::SettingSpec;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    /// Returns the table of the manual: key, default, environment variable, readers, description.
    fn manual_table() -> String {
        let defaults = defaults().unwrap();
        let shown: BTreeMap<String, String> =
            defaults.rows().into_iter().map(|row| (row.key, row.value)).collect();
        let row = |spec: &SettingSpec| {
            let key = spec.key;
            let default = shown.get(key).map_or(spec.unset, String::as_str);
            let names: Vec<String> = spec.variables().map(|name| format!("`{name}`")).collect();
            let variable = if names.is_empty() { "-".into() } else { names.join(", ") };
            let readers = if Settings::HANDED_OVER.contains(&key) { "team" } else { "lead" };
            let about = spec.description_lines().collect::<Vec<_>>().join(" ");
            format!("\n| `{key}` | {default} | {variable} | {readers} | {} |", about.trim())
        };
        let rows: String = defaults.declared().iter().map(|(spec, _)| row(spec)).collect();
        format!("| key | default | variable | for | |\n|---|---|---|---|---|{rows}")
    }

    /// Compares part of a committed file with the generated text; `UPDATE_DOCS=1` writes it instead.
    fn must_be_current(file: &str, part: impl Fn(&str) -> String, generated: &str) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
        let committed = std::fs::read_to_string(&path).unwrap();
        let part = part(&committed);
        #[expect(clippy::disallowed_methods, reason = "it asks the person that runs this test")]
        let is_update = std::env::var_os("UPDATE_DOCS").is_some();
        if part != generated && is_update {
            #[expect(clippy::disallowed_methods, reason = "a generated file of this repository")]
            std::fs::write(&path, committed.replace(&part, generated)).unwrap();
        } else {
            assert!(
                part == generated,
                "{file} is out of date: run UPDATE_DOCS=1 cargo test --lib settings::reference"
            );
        }
    }

    #[test]
    fn the_committed_settings_file_is_the_generated_one() {
        let generated = commented_file().unwrap();
        must_be_current(".team/settings.toml", str::to_owned, &generated);
    }

    #[test]
    fn the_manual_has_the_generated_table() {
        let table = |manual: &str| {
            let lines = manual.lines().skip_while(|line| *line != "## Settings");
            let lines = lines.skip_while(|line| !line.starts_with('|'));
            lines.take_while(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n")
        };
        must_be_current("docs/manual.md", table, &manual_table());
    }

    #[test]
    fn the_commented_file_is_valid_with_and_without_its_comments() {
        let commented = commented_file().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.toml");
        let settings = commented.lines().filter(|line| !line.starts_with("##"));
        let all: Vec<&str> = settings.map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        for text in [commented.clone(), all.join("\n")] {
            #[expect(clippy::disallowed_methods, reason = "a test fixture")]
            std::fs::write(&file, &text).unwrap();
            Settings::load(&Environment::default(), &file, &Flags::default()).unwrap();
        }
    }
}

//! `team export`: the whole run of a team in one file, for another person: as JSON Lines, or as a page.

mod page;
mod redaction;
mod value;

use super::context::Context;
use super::output::{exit_after, print, warn};
use crate::error::{Exit, Failure, OrFail};
use crate::os::file::{Access, create_new};
use crate::os::{Clock, SystemClock, formatted_time};
use crate::store::TeamDir;
use crate::wire::WallTime;
use jiff::tz::TimeZone;
use redaction::ExportRedactor;
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use value::{ExportedValue, each_value};

/// The version of the form of an export.
const VERSION: u32 = 1;

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportForm {
    /// A line of JSON for each value of each file.
    Lines,
    /// A page for people, which loads nothing from elsewhere.
    Page,
}

/// Writes the export of the team to a new file; to stdout if its name is `-`. Fails if the file exists or cannot be written;
/// nothing is left then.
pub(crate) fn export(
    context: &Context,
    form: ExportForm,
    has_archive: bool,
    output: Option<&Path>,
) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let now = SystemClock.now();
    let mut redactor = ExportRedactor::new(&context.environment);
    if output.is_some_and(|name| name == "-") {
        let mut is_read = true;
        write(&team, now, form, has_archive, &mut redactor, |line| {
            is_read = is_read && print(line);
            Ok(())
        })?;
        warn(&advice(redactor.found));
        return Ok(exit_after(is_read));
    }
    let path = context.cwd.join(output.map_or_else(|| default_name(form, now), Path::to_owned));
    let mut file = new_file(&path)?;
    let written =
        write(&team, now, form, has_archive, &mut redactor, |line| writeln!(file, "{line}"));
    let written = written.and_then(|()| file.flush().map_err(|why| unwritten(&path, &why)));
    if let Err(why) = written {
        let _gone = fs::remove_file(&path);
        return Err(why);
    }
    warn(&advice(redactor.found));
    Ok(exit_after(print(&format!("wrote {}", path.display()))))
}

/// Passes the lines of the export to `put`.
fn write(
    team: &TeamDir,
    now: WallTime,
    form: ExportForm,
    has_archive: bool,
    redactor: &mut ExportRedactor,
    mut put: impl FnMut(&str) -> io::Result<()>,
) -> Result<(), Failure> {
    let head = json!({
        "team_export": VERSION,
        "at": now,
        "program": env!("CARGO_PKG_VERSION"),
        "workspace": redactor.text(&team.workspace().display().to_string()),
    });
    let mut failed = None;
    let mut put = |line: &str| {
        if failed.is_none() {
            failed = put(line).err();
        }
    };
    match form {
        ExportForm::Lines => {
            put(&head.to_string());
            each_value(team, has_archive, redactor, |ExportedValue { file, value, .. }| {
                put(&json!({ "file": file, "value": value }).to_string());
            })?;
        }
        ExportForm::Page => {
            let mut values = Vec::new();
            each_value(team, has_archive, redactor, |value| values.push(value))?;
            put(&page::page(&head, &values));
        }
    }
    failed.map_or(Ok(()), |why| Err(unwritten(Path::new("the export"), &why)))
}

fn default_name(form: ExportForm, now: WallTime) -> PathBuf {
    let end = match form {
        ExportForm::Lines => "jsonl",
        ExportForm::Page => "html",
    };
    let time = formatted_time(now, TimeZone::system(), "%Y%m%d-%H%M%S").unwrap_or_default();
    PathBuf::from(format!("team-export-{time}.{end}"))
}

/// Creates the file, which only the user can read.
fn new_file(path: &Path) -> Result<BufWriter<File>, Failure> {
    let what = format!("{} cannot be written", path.display());
    let file = create_new(path, Access::Append);
    let file = file.or_exit(
        Exit::Usage,
        what,
        "name a new file in a folder that exists with --output; no file is replaced",
    )?;
    Ok(BufWriter::new(file))
}

fn unwritten(path: &Path, why: &io::Error) -> Failure {
    let what = format!("{} could not be written", path.display());
    Failure::new(
        Exit::Failure,
        what,
        why.to_string(),
        "make room, or name another file with --output",
    )
}

fn advice(found: usize) -> String {
    let secrets = match found {
        0 => "no secret was found".to_owned(),
        1 => "1 text had a secret, which is redacted".to_owned(),
        more => format!("{more} texts had secrets, which are redacted"),
    };
    format!(
        "{secrets}. It has all prompts, mail, and what agents read and ran: look through it before you share it"
    )
}

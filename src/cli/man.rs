//! `team man`: manual pages made from the definition of the command line.

use crate::app::context::Context;
use crate::app::output::{exit_after, print};
use crate::error::{Exit, Failure, OrFail};
use crate::os::pidfd::ExitKind;
use crate::os::terminal::foreground;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write the page of each command into this folder, which is created if missing
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(super) fn run(
    context: &Context,
    args: Args,
    mut definition: clap::Command,
) -> Result<Exit, Failure> {
    let hint = "give a writable folder";
    let what = "the pages cannot be written";
    if let Some(folder) = &args.out {
        let folder = context.cwd.join(folder);
        let written = std::fs::create_dir_all(&folder)
            .and_then(|()| clap_mangen::generate_to(definition, &folder));
        written.or_fail(what, hint)?;
        return Ok(exit_after(print(&format!("the pages are in {}", folder.display()))));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(definition.clone()).render(&mut page).or_fail(what, hint)?;
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if is_terminal && open(context, &page).is_ok_and(|exit| exit == ExitKind::Code(0)) {
        return Ok(Exit::Ok);
    }
    // Without the program `man`, a person gets the same as plain text.
    let text = if is_terminal {
        definition.render_long_help().to_string()
    } else {
        String::from_utf8_lossy(&page).into_owned()
    };
    Ok(exit_after(print(&text)))
}

/// Shows a page with `man`, until the person leaves it.
fn open(context: &Context, page: &[u8]) -> io::Result<ExitKind> {
    let file = context.temporary_folder().join(format!("team-{}.1", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(&file)?.write_all(page)?;
    let mut man = Command::new("man");
    man.arg("-l").arg(&file);
    let exit = foreground::run(man, |_| ());
    std::fs::remove_file(&file)?;
    exit
}

//! `team man`: manual pages made from the definition of the command line.

use crate::app::context::Context;
use crate::app::output::{exit_after, print};
use crate::error::{Exit, Failure, OrFail};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write the page of each command into this folder, which is created if missing
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(super) fn run(
    context: &Context,
    args: Args,
    definition: clap::Command,
) -> Result<Exit, Failure> {
    let write = || match &args.out {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(definition).render(&mut page)?;
            Ok(String::from_utf8_lossy(&page).into_owned())
        }
        Some(folder) => {
            let folder = context.cwd.join(folder);
            std::fs::create_dir_all(&folder)?;
            clap_mangen::generate_to(definition, &folder)?;
            Ok(format!("the pages are in {}", folder.display()))
        }
    };
    let written: std::io::Result<String> = write();
    let hint = "give a folder that can be written";
    Ok(exit_after(print(&written.or_fail("the pages cannot be written", hint)?)))
}

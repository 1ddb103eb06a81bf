//! `team web`: the team as a page on loopback.

use crate::app::event_loop::{SignalStream, block_on, exit_of};
use crate::app::output::{print, warn};
use crate::app::{context::Context, host_copies::HostCopies, web_control::team_control};
use crate::error::{Exit, Failure, OrFail};
use crate::web::{Broadcaster, Site};
use crate::wire::host_copy::CopyPart;
use std::rc::Rc;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Port on the loopback interface; 0 picks a free one
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// Let the page send messages and stop members
    #[arg(long)]
    control: bool,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let prices = context.settings_or_defaults().prices_in(&context.environment);
    let control = if args.control {
        context.refuse_inside_agent("web --control")?;
        Some(team_control(context.bus(team.clone())))
    } else {
        None
    };
    // They are kept up to date as long as the page is served.
    let shown = HostCopies::of(&team, &[], &[CopyPart::Transcripts, CopyPart::Mail])?;
    let ended = block_on(async {
        let mut signals = SignalStream::begin()?;
        let broadcaster = Rc::new(Broadcaster::of(&team, prices));
        let token = uuid::Uuid::new_v4().simple().to_string();
        let site = Site::open(args.port, token, Rc::clone(&broadcaster), control).await.or_fail(
            format!("the page cannot be served on port {}", args.port),
            "choose another port with --port, or leave it out to take a free one",
        )?;
        if !print(&site.url()) {
            return Ok(Exit::Failure);
        }
        warn("open this address in a browser on this computer; Ctrl-C stops the server");
        tokio::select! {
            () = broadcaster.run() => Ok(Exit::Failure),
            () = site.serve() => Ok(Exit::Failure),
            signal = signals.next() => Ok(exit_of(signal)),
        }
    });
    drop(shown);
    ended?
}

//! `team log`: the history of the team, merged by time.

use super::args::{self, Json, since};
use crate::app::host_copies::HostCopies;
use crate::app::merged_log::{LogFilter, LogLevel, MergedLog};
use crate::app::names::{mailbox_name, unknown_name};
use crate::app::{context::Context, output::print};
use crate::error::{Exit, Failure};
use crate::store::relay::copies;
use crate::store::{TeamDir, roster};
use crate::wire::host_copy::CopyPart;
use crate::wire::message::KINDS;
use crate::wire::{WallTime, nearest::nearest};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Agents whose logs are shown (default: all)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Follow: print new entries as they come
    #[arg(long, short = 'f')]
    follow: bool,
    /// Start at this time: 10m, 2h, 3d (ago), 14:30, 2026-01-31T14:30, RFC 3339, seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<WallTime>,
    /// Only log lines of this level or above
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<LogLevel>,
    /// Show mail of this type instead of log lines; `mail` for all mail, `log` for log lines
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
    /// Print a long log at once, without the pager ($PAGER, else less)
    #[arg(long)]
    no_pager: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let Args { names, follow, since, level, types, no_pager, json } = args;
    let team = context.team_to_view()?;
    let names = names.iter().map(|given| mailbox_name(given)).collect::<Result<Vec<_>, _>>()?;
    let shows_mail = types.iter().any(|kind| kind != "log");
    let all = [CopyPart::Logs, CopyPart::Transcripts];
    let parts = if shows_mail { &all[..] } else { &all[..1] };
    // They are kept up to date as long as the command runs.
    let shown = HostCopies::of(&team, &names, parts)?;
    shown.wait();
    let roster = roster::read(&team)?;
    for name in &names {
        let folder = copies::folder_of(&team, &roster, name);
        let own = [team.log(name), team.old_log(name, 1), team.transcript(name)];
        let mut files = own.into_iter().chain([folder.log(name), folder.transcript(name)]);
        if !files.any(|file| file.exists()) && !follow {
            let why = "no process of that name has run in this team";
            return Err(unknown_name(&team, name, format!("{name} has no log"), why));
        }
    }
    for kind in &types {
        require_known_type(&team, kind)?;
    }
    let mut log = MergedLog::new(team, LogFilter { names, since, level, types });
    let colors = member_colors(log.team());
    let is_paged = !(no_pager || follow || json.json);
    let mut pager = is_paged.then(|| context.pager()).flatten();
    args::follow(follow, Duration::from_millis(200), || {
        let view = context.view();
        log.show_new(|(name, host), item| {
            let color = colors.get(name.as_str()).map(String::as_str).unwrap_or_default();
            let text = if json.json {
                item.json(name, host).to_string()
            } else {
                item.text(name, color, &view)
            };
            match &mut pager {
                Some(pager) => pager.write(&text),
                None => print(&text),
            }
        })
        // The person may leave the pager at any line.
        .map(|is_shown| is_shown || pager.is_some())
    })
}

/// Returns the colour word of each member.
fn member_colors(team: &TeamDir) -> BTreeMap<String, String> {
    let roster = roster::read(team).unwrap_or_default();
    roster.members.iter().map(|member| (member.name.clone(), member.color.clone())).collect()
}

/// Fails for a type that is neither one of the program's nor that of a message in this team.
fn require_known_type(team: &TeamDir, kind: &str) -> Result<(), Failure> {
    let known = || KINDS.iter().copied().chain(["mail", "log"]);
    if known().any(|known| known == kind) {
        return Ok(());
    }
    let filter = LogFilter { types: vec![kind.to_owned()], ..LogFilter::default() };
    let is_absent = MergedLog::new(team.clone(), filter).show_new(|_, _| false)?;
    if !is_absent {
        return Ok(());
    }
    let near = nearest(kind, known()).map(|near| format!("did you mean {near}? "));
    let what = format!("--type {kind:?} shows nothing");
    let why = "no message of that type was delivered in this team";
    let list = known().collect::<Vec<_>>().join(", ");
    let hint = format!("{}the types are {list}", near.unwrap_or_default());
    Err(Failure::new(Exit::Usage, what, why, hint))
}

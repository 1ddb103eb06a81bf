//! `team inbox NAME`.

use super::args::{Json, follow};
use crate::app::inbox_view::{self, InboxFollow};
use crate::app::names::{mailbox_name, unknown_name};
use crate::app::output::{exit_after, print};
use crate::app::{context::Context, own_mailbox::drain};
use crate::error::{Exit, Failure};
use crate::ui::messages;
use crate::wire::message::Message;
use serde_json::Value;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Owner of the inbox
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    name: String,
    /// Take the mail out of the inbox as its owner; refused while that agent runs
    #[arg(long, conflicts_with = "follow")]
    drain: bool,
    /// Follow: print each message once, as it arrives
    #[arg(long, short = 'f')]
    follow: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team()?;
    let name = mailbox_name(&args.name)?;
    if !team.inbox(&name).exists() {
        let why = "no agent of that name belongs to this team";
        return Err(unknown_name(&team, &name, format!("{name} has no inbox"), why));
    }
    let (json, view) = (args.json.json, context.view());
    let line = |message: &Message| messages::message(message, &view);
    if args.drain {
        let mut printed = true;
        drain(context, &team, &name, |mail| {
            printed = printed
                && print(&if json {
                    Value::Object(mail.object()).to_string()
                } else {
                    line(&mail.message)
                });
        })?;
        return Ok(exit_after(printed));
    }
    if args.follow {
        let mut inbox = InboxFollow::new(&team, &name)?;
        let print_new = || {
            Ok(inbox.new_messages()?.into_iter().all(|raw| match Message::read(&raw) {
                _ if json => print(&Value::Object(raw).to_string()),
                Ok(message) => print(&line(&message)),
                Err(_) => true,
            }))
        };
        return follow(true, Duration::from_millis(100), print_new).map(|_| Exit::Ok);
    }
    let items = inbox_view::read(&team, &name)?;
    Ok(exit_after(print(&if json {
        inbox_view::json(&name, items).to_string()
    } else {
        inbox_view::render(&name, items, &view)
    })))
}

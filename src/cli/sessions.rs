//! `team sessions …`: the conversations of the lead, current and earlier ones.

use super::args::Json;
use super::transcript::print_new;
use crate::app::context::Context;
use crate::app::output::{exit_after, print_result};
use crate::app::sessions::{chosen, list_json, list_of, table};
use crate::error::{Exit, Failure};
use crate::os::terminal_size;
use crate::store::tail::Tail;
use crate::ui::transcript::Conversation;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<SessionsVerb>,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, clap::Subcommand)]
enum SessionsVerb {
    /// Print the conversation of a session, as `team transcript` does
    Show(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// Id of the session, or its beginning
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    if let Some(SessionsVerb::Show(One { id, json })) = args.verb {
        let mut tail = Tail::new(chosen(&team, &id)?.path);
        let as_json = json.json || args.json.json;
        let mut conversation = Conversation::new(false);
        let view = context.view();
        let printed = print_new(&mut tail, None, as_json, &mut conversation, &view)?;
        return Ok(exit_after(printed));
    }
    let found = list_of(context, &team)?;
    let text = || table(&found, context.palette(), terminal_size::columns());
    Ok(print_result(args.json.json, || list_json(&found), text))
}

//! `team lead`.

use super::args::{ModelArgs, duration, read_stdin};
use crate::app::context::Context;
use crate::app::lead::{self, ConversationChoice, Front, LeadRequest};
use crate::error::{Exit, Failure};
use crate::ui::headless_output::Format;
use crate::wire::budget::Budget;

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Args {
    /// The first prompt; with -p, `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Resume the last team: the lead and its teammates, each with its conversation. With an ID, resume that session
    /// (`team sessions` lists them)
    #[arg(long, value_name = "ID", num_args = 0..=1, require_equals = true, default_missing_value = LAST)]
    resume: Option<String>,
    /// Start a new session without asking; the last one is kept
    #[arg(long, conflicts_with = "resume")]
    new: bool,
    /// Stop the lead that runs in this folder, then start
    #[arg(long)]
    takeover: bool,
    /// Use plain lines instead of the full interface, for example with a screen reader
    #[arg(long, conflicts_with = "print")]
    plain: bool,
    /// Headless: run until all agents are done, print the last text, stop the team
    #[arg(short = 'p', long = "print")]
    print: bool,
    #[command(flatten)]
    model: ModelArgs,
    /// Output format of a headless run
    #[arg(long, value_enum, default_value_t = Format::Text, requires = "print", value_name = "FORMAT")]
    output: Format,
    /// Stop the team after this time: seconds, or 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<std::time::Duration>,
    /// Stop the team after this many turns of the lead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_turns: Option<u64>,
    /// Stop the team after this many tokens of all members together, input and output
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
}

/// The value of `--resume` without an ID.
const LAST: &str = "";

const EMPTY: &str = "the prompt is empty";

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let prompt = match args.prompt {
        Some(text) if text == "-" && args.print => {
            let text = read_stdin("the prompt")?;
            if text.trim().is_empty() {
                let (why, hint) = ("stdin had no text", "pipe a prompt into the command");
                return Err(Failure::new(Exit::Usage, EMPTY, why, hint));
            }
            Some(text)
        }
        Some(text) if text.trim().is_empty() => {
            let (why, hint) =
                ("its text is blank", "give a prompt; check the variables of the script");
            return Err(Failure::new(Exit::Usage, EMPTY, why, hint));
        }
        None if args.print && args.resume.is_none() && !args.model.plays_record() => {
            let hint =
                "team lead -p \"Spawn alice (coder). Ask her to list the files.\", or - for stdin";
            let (what, why) = ("-p needs a prompt", "no prompt was given");
            return Err(Failure::new(Exit::Usage, what, why, hint));
        }
        prompt => prompt,
    };
    let conversation = match args.resume {
        Some(id) if id == LAST => ConversationChoice::Last,
        Some(id) => ConversationChoice::Chosen(id),
        None if args.new => ConversationChoice::New,
        None => ConversationChoice::Ask,
    };
    let front = if args.print {
        Front::Headless(args.output)
    } else {
        let is_dumb = context.environment.get("TERM").is_none_or(|term| term == "dumb");
        Front::Terminal { is_plain: args.plain || is_dumb }
    };
    let request = LeadRequest {
        prompt,
        front,
        flags: args.model.flags(),
        timeout: args.timeout,
        budget: Budget { tokens: args.max_tokens, turns: args.max_turns, ..Budget::default() },
        conversation,
        takeover: args.takeover,
    };
    lead::run(context, request)
}

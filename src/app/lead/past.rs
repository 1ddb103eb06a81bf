//! The past of a lead: which conversation it begins with, and the question to the person about that.

use super::conversation::{ConversationChoice, TakenUp};
use super::options::{Front, LeadRequest};
use super::returning;
use crate::app::mcp_member::is_of_program;
use crate::app::sessions::{self, chosen};
use crate::app::{context::Context, event_loop::exit_of, output};
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock, read_answer, signals::SignalEvent, terminal_size};
use crate::store::asynchronous::offload;
use crate::store::conversations::{self, Conversation};
use crate::store::{Fsync, Liveness, StoreError, TeamDir, liveness, roster, transcript};
use crate::ui::sessions::{ago, title};
use crate::wire::AgentName;
use crate::wire::price_list::PriceList;
use crate::wire::roster::UsageCount;
use crate::wire::shell_word::quoted_if_needed;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;

/// The maximum width of the title in the question, in columns.
const TITLE_WIDTH: usize = 40;

/// The width of the numbers before a list, in columns.
const NUMBER_WIDTH: usize = 4;

/// The number of columns that a question leaves free for the answer.
const ANSWER_WIDTH: usize = 8;

/// Returns the line that tells the person at a terminal how to come back; `None` if nothing was said yet.
pub(super) fn resume_hint(context: &Context, team: &TeamDir) -> Option<String> {
    let last = conversations::last_place(team, &AgentName::lead()).ok()??;
    let command = command(context, "--resume");
    last.is_current.then(|| format!("To resume: {command}"))
}

/// Returns the command line that starts a lead in this team with an option, from the folder in which this process was
/// started.
fn command(context: &Context, option: &str) -> String {
    let team = &context.team_path;
    if context.is_found_here() {
        return format!("team lead {option}");
    }
    match team.parent().filter(|_| team.file_name().is_some_and(|name| name == ".team")) {
        Some(workspace) => format!("team -C {} lead {option}", quoted(workspace)),
        None => format!("team --dir {} lead {option}", quoted(team)),
    }
}

fn quoted(path: &Path) -> String {
    quoted_if_needed(&path.display().to_string())
}

/// Settles the conversation of a request before anything is changed: asks the person, and checks that what is to be
/// resumed exists. Returns the exit code if the person goes away instead of answering.
pub(super) fn settle(
    context: &Context,
    request: &mut LeadRequest,
) -> Result<Option<Exit>, Failure> {
    match &request.conversation {
        ConversationChoice::New | ConversationChoice::OfProgram => {}
        ConversationChoice::Ask => match ask(context, request)? {
            Ok(choice) => request.conversation = choice,
            Err(left) => {
                // The shell continues on a row of its own.
                output::warn("");
                return Ok(Some(exit_of(left)));
            }
        },
        ConversationChoice::Last => drop(team_to_resume(context)?),
        ConversationChoice::Chosen(id) => {
            let found = chosen(&team_to_resume(context)?, id)?;
            request.conversation = ConversationChoice::Chosen(found.id);
        }
    }
    Ok(None)
}

fn team_to_resume(context: &Context) -> Result<TeamDir, Failure> {
    let team = context.team_to_view()?;
    if team.has_state() {
        return Ok(team);
    }
    let why = format!("no team has run in {}", team.root().display());
    let hint = "start one with `team lead`, or name its folder with --dir or -C";
    Err(Failure::new(Exit::Failure, "there is no team to resume", why, hint))
}

/// The answer of a person, or the signal by which the person left.
type Answer<T> = Result<T, SignalEvent>;

/// Asks the person which conversation to begin with, if there is a past.
fn ask(context: &Context, request: &LeadRequest) -> Result<Answer<ConversationChoice>, Failure> {
    let is_asked = matches!(request.front, Front::Terminal { .. })
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal();
    // A folder that is no team is refused later.
    let team = is_asked.then(|| context.team_to_view().ok()).flatten();
    let Some(team) = team.filter(TeamDir::has_state) else {
        return Ok(Ok(ConversationChoice::New));
    };
    let lead = AgentName::lead();
    let is_running = matches!(liveness::probe(&team, &lead), Ok(Liveness::Alive(_)));
    let last = conversations::last(&team, &lead)?;
    let Some(last) = last.filter(|_| !is_running || request.takeover) else {
        return Ok(Ok(ConversationChoice::New));
    };
    let question = question(context, &team, &last, terminal_size::columns());
    loop {
        let answer = match read_answer(|| output::ask(&question)) {
            Ok(answer) => answer,
            Err(left) => return Ok(Err(left)),
        };
        match answer.trim().to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(Ok(ConversationChoice::Last)),
            "n" | "no" | "new" => {
                let back = command(context, &format!("--resume={}", last.id));
                output::warn(&format!("A new session. The last one is kept: {back}"));
                return Ok(Ok(ConversationChoice::New));
            }
            "l" | "list" => match pick(context, &team)? {
                Ok(Some(choice)) => return Ok(Ok(choice)),
                Ok(None) => {}
                Err(left) => return Ok(Err(left)),
            },
            _ => output::warn("Type y to resume it, n for a new session, or list."),
        }
    }
}

/// Renders the question on one line.
fn question(
    context: &Context,
    team: &TeamDir,
    last: &Conversation,
    columns: Option<usize>,
) -> String {
    let count = returning_count(context, team);
    let teammates = match count {
        0 => String::new(),
        1 => "1 teammate, ".into(),
        more => format!("{more} teammates, "),
    };
    let when = ago(SystemClock.now().since(last.last_used_at));
    let (head, tail) = (format!("Resume ({teammates}{when}: \""), "\")? [Y/n/list] ");
    let room = columns.map_or(TITLE_WIDTH, |columns| {
        columns.saturating_sub(head.len() + tail.len() + ANSWER_WIDTH).min(TITLE_WIDTH)
    });
    format!("{head}{}{tail}", title(&last.title, room))
}

/// Returns the number of teammates that come back with the last conversation.
fn returning_count(context: &Context, team: &TeamDir) -> usize {
    let most = context.settings_or_defaults().max_teammates.value;
    roster::read(team).map_or(0, |roster| returning::count(&roster, most))
}

/// Lists the conversations and reads the number or the id of one. `None` if the person goes back.
fn pick(context: &Context, team: &TeamDir) -> Result<Answer<Option<ConversationChoice>>, Failure> {
    let prices = context.settings_or_defaults().prices_in(&context.environment);
    let list = sessions::list(team, &prices)?;
    let mut text = String::new();
    let width = terminal_size::columns().map(|columns| columns.saturating_sub(NUMBER_WIDTH));
    let rows = sessions::table(&list, context.palette(), width);
    for (number, row) in rows.lines().enumerate() {
        // The first row is the header.
        let number = if number == 0 { String::new() } else { number.to_string() };
        let _infallible = writeln!(text, "{number:<NUMBER_WIDTH$}{row}");
    }
    output::warn(&text);
    loop {
        let ask = || output::ask("Number or id (n: a new session, Enter: back): ");
        let answer = match read_answer(ask) {
            Ok(answer) => answer,
            Err(left) => return Ok(Err(left)),
        };
        let answer = answer.trim().to_lowercase();
        let by_number = || list.get(answer.parse::<usize>().ok()?.checked_sub(1)?).cloned();
        match answer.as_str() {
            "" => return Ok(Ok(None)),
            "n" | "new" => return Ok(Ok(Some(ConversationChoice::New))),
            id => match by_number().map_or_else(|| chosen(team, id), Ok) {
                Ok(found) => return Ok(Ok(Some(ConversationChoice::Chosen(found.id)))),
                Err(why) => output::warn(&format!("{}: {}", why.what, why.why)),
            },
        }
    }
}

/// Takes up the conversation of a lead that holds its life lock: the last one in which something was said becomes the
/// current one. Returns the usage of a conversation that was not the current one, too.
pub(super) async fn take_up(
    team: &TeamDir,
    choice: &ConversationChoice,
    fsync: Fsync,
    prices: PriceList,
) -> Result<(TakenUp, Option<UsageCount>), Failure> {
    let (team, choice) = (team.clone(), choice.clone());
    offload(move || match choice {
        ConversationChoice::Ask | ConversationChoice::New => Ok((TakenUp::New, None)),
        ConversationChoice::OfProgram => {
            let last = transcript::last_model(&team, &AgentName::lead())?;
            let is_current = last.is_some_and(|model| is_of_program(&model));
            Ok((if is_current { TakenUp::Current } else { TakenUp::New }, None))
        }
        ConversationChoice::Last => Ok(take_up_last(&team, fsync, &prices)?),
        ConversationChoice::Chosen(id) => {
            let found = chosen(&team, &id)?;
            if found.is_current {
                return Ok((TakenUp::Current, None));
            }
            let usage = usage(&team, &found.path, &prices)?;
            Ok((TakenUp::Archived(found.path), Some(usage)))
        }
    })
    .await
}

fn take_up_last(
    team: &TeamDir,
    fsync: Fsync,
    prices: &PriceList,
) -> Result<(TakenUp, Option<UsageCount>), StoreError> {
    let lead = AgentName::lead();
    let last = conversations::last_place(team, &lead)?;
    let Some(archived) = last.filter(|last| !last.is_current) else {
        return Ok((TakenUp::Current, None));
    };
    let usage = usage(team, &archived.path, prices)?;
    // Mail that the empty conversation has claimed and not taken in goes to this one.
    conversations::bring_back(team, &lead, &archived.path, fsync)?;
    tracing::info!(id = archived.id, "nothing was said since this conversation: continuing it");
    Ok((TakenUp::Current, Some(usage)))
}

fn usage(team: &TeamDir, path: &Path, prices: &PriceList) -> Result<UsageCount, StoreError> {
    let price = |model: &str| prices.get(model);
    let found = conversations::exactly(team, &AgentName::lead(), path, &price)?;
    Ok(found.map(|found| found.usage).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::conversation::NextSession;
    use super::*;
    use crate::settings::Flags;
    use crate::wire::budget::Budget;

    #[test]
    fn the_session_that_follows_has_its_own_conversation_and_no_prompt() {
        let mut request = LeadRequest {
            prompt: Some("begin".into()),
            front: Front::Terminal { is_plain: false },
            flags: Flags::default(),
            timeout: None,
            budget: Budget::default(),
            conversation: ConversationChoice::Last,
            takeover: true,
        };
        for (next, conversation) in [
            (NextSession::New, ConversationChoice::New),
            (NextSession::Resume("0badcafe".into()), ConversationChoice::Chosen("0badcafe".into())),
        ] {
            request.follow(next);
            assert_eq!((&request.prompt, request.takeover), (&None, false));
            assert_eq!(request.conversation, conversation);
        }
    }
}

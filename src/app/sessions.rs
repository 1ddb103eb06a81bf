//! The conversations of the lead, as a list for people and programs.

use super::context::Context;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock};
use crate::store::TeamDir;
use crate::store::conversations::{self, Conversation, NotFound};
use crate::ui::sessions::{SessionRow, session_table};
use crate::ui::style::Palette;
use crate::wire::AgentName;
use crate::wire::price_list::PriceList;
use serde_json::{Value, json};

/// Lists the conversations of the lead in which something was said, the last used one first.
pub(crate) fn list(team: &TeamDir, prices: &PriceList) -> Result<Vec<Conversation>, Failure> {
    let price = |model: &str| prices.get(model);
    Ok(conversations::list(team, &AgentName::lead(), &price)?)
}

/// Lists the conversations of the lead with the costs at the prices of the settings.
pub(crate) fn list_of(context: &Context, team: &TeamDir) -> Result<Vec<Conversation>, Failure> {
    list(team, &context.settings_or_defaults().prices_in(&context.environment))
}

/// Returns the conversation with this id, or with the only id that begins so.
pub(crate) fn chosen(team: &TeamDir, id: &str) -> Result<Conversation, Failure> {
    let hint = "`team sessions` shows the ids";
    conversations::find(team, &AgentName::lead(), id).map_err(|why| match why {
        NotFound::Store(why) => why.into(),
        NotFound::None => {
            let why = "no session has an id that begins with this";
            Failure::new(Exit::Failure, format!("there is no session {id:?}"), why, hint)
        }
        NotFound::Ambiguous(ids) => {
            let why = format!("these sessions match: {}", ids.join(", "));
            Failure::new(Exit::Failure, format!("session {id:?} is ambiguous"), why, hint)
        }
    })
}

/// Renders the list as a table for a terminal of this width.
pub(crate) fn table(list: &[Conversation], palette: Palette, width: Option<usize>) -> String {
    let now = SystemClock.now();
    let rows = list.iter().map(|it| SessionRow {
        id: &it.id,
        title: &it.title,
        is_last: it.is_last,
        unused_for: now.since(it.last_used_at),
        age: now.since(it.began_at),
        turns: it.usage.turns,
        tokens: it.usage.tokens(),
        cost: it.usage.cost,
        is_exact: it.is_exact,
    });
    let rows: Vec<_> = rows.collect();
    session_table(&rows, palette, width)
}

/// Returns the list for programs.
pub(crate) fn list_json(list: &[Conversation]) -> Value {
    let one = |it: &Conversation| {
        json!({
            "id": it.id,
            "title": it.title,
            "current": it.is_last,
            "began_at": it.began_at,
            "last_used_at": it.last_used_at,
            "prompts": it.prompts,
            "turns": it.usage.turns,
            "input_tokens": it.usage.input_tokens,
            "output_tokens": it.usage.output_tokens,
            "cost": it.usage.cost,
            "bytes": it.bytes,
            "exact": it.is_exact,
            "file": it.path.display().to_string(),
        })
    };
    json!({ "schema": 1, "sessions": list.iter().map(one).collect::<Vec<_>>() })
}

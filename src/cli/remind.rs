//! `team remind`: timers that send a member a reminder.

use super::args::{Json, read_stdin};
use crate::app::context::Context;
use crate::app::output::{print_result, warn};
use crate::app::remind;
use crate::error::{Exit, Failure};
use crate::ui::sanitize::sanitize;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The member to remind, or lead; without it, the open timers are listed
    #[arg(value_name = "NAME", conflicts_with_all = ["list", "cancel"])]
    to: Option<String>,
    /// 30m, 2h, 1d, 14:30, 2031-01-31 09:00, or `every 1h`
    #[arg(value_name = "WHEN", allow_hyphen_values = true)]
    when: Option<String>,
    /// The text; `-` reads it from standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<String>,
    /// The text after a time of two words
    #[arg(hide = true, allow_hyphen_values = true)]
    last: Option<String>,
    /// List the open timers
    #[arg(long)]
    list: bool,
    /// Cancel the timer with this id
    #[arg(long, value_name = "ID", conflicts_with = "list")]
    cancel: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let Args { to, when, text, last, cancel, json: Json { json }, .. } = args;
    if let Some(id) = cancel {
        let cancelled = remind::cancel(context, &id)?;
        let as_json = || json!({ "schema": 1, "cancelled": &cancelled });
        return Ok(print_result(json, as_json, || format!("{} is cancelled", cancelled.id)));
    }
    let Some(to) = to else { return list(context, json) };
    let words = text.into_iter().chain(last).collect();
    let (when, text) = when_and_text(when, words)?;
    let text = if text == "-" { read_stdin("the text")? } else { text };
    let set = remind::set(context, &to, &when, text.trim_end().into())?;
    Ok(print_result(json, || set.json(), || set.text()))
}

/// Returns the time and the text. A time of two words (`every 1h`, a date and a time of day) needs no quotes.
fn when_and_text(when: Option<String>, mut rest: Vec<String>) -> Result<(String, String), Failure> {
    let first = when.unwrap_or_default();
    let is_date = first.len() == 10 && first.matches('-').count() == 2;
    let has_more = rest.first().is_some_and(|word| first == "every" || word.contains(':'));
    let when = if has_more && rest.len() > 1 && (first == "every" || is_date) {
        format!("{first} {}", rest.remove(0))
    } else {
        first
    };
    // A date whose only word is a time of day has no text.
    let is_time =
        |word: &str| word.contains(':') && word.chars().all(|c| c.is_ascii_digit() || c == ':');
    let lacks_text = |text: &str| is_date && is_time(text);
    match <[String; 1]>::try_from(rest) {
        Ok([text]) if !when.is_empty() && !lacks_text(&text) => Ok((when, text)),
        Ok(_) | Err(_) => {
            let hint = "team remind alice 30m \"look at the deployment\"";
            let why = "one is missing, or the text is not in quotes";
            Err(Failure::new(Exit::Usage, "remind needs NAME, WHEN and TEXT", why, hint))
        }
    }
}

fn list(context: &Context, as_json: bool) -> Result<Exit, Failure> {
    let all = remind::list(context)?;
    if !as_json {
        for problem in &all.problems {
            warn(&sanitize(&format!("warning: {}: {}", problem.file, problem.why)));
        }
    }
    let text = || remind::table(&all, context.palette());
    Ok(print_result(as_json, || remind::list_json(&all), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_two_words_needs_no_quotes() {
        let split = |words: &[&str]| {
            let mut words = words.iter().map(|word| (*word).to_owned());
            when_and_text(words.next(), words.collect()).ok()
        };
        for (words, when, text) in [
            (&["30m", "look"][..], "30m", "look"),
            (&["every", "1h", "look"], "every 1h", "look"),
            (&["every 1h", "look"], "every 1h", "look"),
            (&["2031-01-31", "09:00", "look"], "2031-01-31 09:00", "look"),
            (&["2031-01-31", "look: now"], "2031-01-31", "look: now"),
            (&["14:30", "10:00 is too late"], "14:30", "10:00 is too late"),
        ] {
            assert_eq!(split(words), Some((when.into(), text.into())), "{words:?}");
        }
        for words in [&[][..], &["30m"], &["30m", "look", "now"], &["every", "1h"]] {
            let found = split(words);
            assert!(found.is_none_or(|(when, _)| when == "every"), "{words:?}");
        }
    }
}

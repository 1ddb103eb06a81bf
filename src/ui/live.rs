//! The live view of a running agent: [`Progress`] values become rows of text.
//!
//! A model's text comes in pieces; it is printed in whole rows, so that it can appear above a line that is
//! being typed. Pure: neither a terminal nor a clock.

use super::messages::{NAME_WIDTH, in_words};
use super::question::{Asker, ask};
use super::sanitize::{clean, one_line};
use super::style::Palette;
use super::text_width::{columns, wrap};
use super::view::{Extent, View};
use crate::agent::progress::Progress;
use crate::wire::message::{Body, Message, Outcome};
use std::collections::BTreeMap;
use std::time::Duration;

/// The lines of a failed tool's result that are shown.
const ERROR_LINES: usize = 5;
/// The lines of a message that are shown; the inbox view has all of them.
const MAIL_LINES: usize = 12;

/// The part of the output so far that the next row depends on.
#[derive(Debug)]
pub(crate) struct Live {
    palette: Palette,
    colors: BTreeMap<String, String>,
    /// Text without the end of its row.
    pending: String,
    attempt: Attempt,
    turn: Said,
}

/// Whether the text of the running model call is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Unseen,
    Seen,
}

/// Whether the model has produced text in this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Something,
}

impl Live {
    /// A view that has shown nothing yet.
    pub(crate) fn new(palette: Palette) -> Self {
        Self {
            palette,
            colors: BTreeMap::new(),
            pending: String::new(),
            attempt: Attempt::Unseen,
            turn: Said::Nothing,
        }
    }

    /// The colour words of the members.
    pub(super) fn set_colors(&mut self, colors: BTreeMap<String, String>) {
        self.colors = colors;
    }

    /// The rows that `progress` adds, each with a line end; `width` as in [`View`].
    pub(crate) fn rows(&mut self, progress: &Progress, width: Option<usize>) -> String {
        if let Progress::Text(text) = progress {
            self.turn = Said::Something;
            return self.text(text, width);
        }
        let view = View::new(self.palette, width);
        let mut rows = String::new();
        if let Progress::Retry { wait, why } = progress {
            // The pending text belongs to the failed attempt and has not been shown.
            self.pending.clear();
            rows.push_str(&self.retry(*wait, why));
        } else {
            rows.push_str(&self.flush(width));
            rows.push_str(&self.event(progress, &view));
        }
        self.attempt = Attempt::Unseen;
        rows
    }

    fn text(&mut self, text: &str, width: Option<usize>) -> String {
        self.pending.push_str(text);
        let mut rows = String::new();
        while let Some((line, rest)) = self.pending.split_once('\n') {
            rows.push_str(&whole_line(line, width));
            self.pending = rest.to_owned();
        }
        if let Some(width) = width.filter(|width| columns(&self.pending) > *width) {
            let mut wrapped = wrap(&clean(&self.pending), width);
            self.pending = wrapped.pop().unwrap_or_default();
            rows.extend(wrapped.into_iter().map(|row| row + "\n"));
        }
        if !rows.is_empty() {
            self.attempt = Attempt::Seen;
        }
        rows
    }

    /// The pending text as a row.
    fn flush(&mut self, width: Option<usize>) -> String {
        let rest = std::mem::take(&mut self.pending);
        if rest.trim().is_empty() { String::new() } else { whole_line(&rest, width) }
    }

    fn retry(&self, wait: Duration, why: &str) -> String {
        let seconds = wait.as_secs_f64().ceil();
        let void = match self.attempt {
            Attempt::Unseen => "",
            Attempt::Seen => "; its text above is void and comes again",
        };
        let text = format!(
            "(the connection broke, trying again in {seconds} s: {}{void})",
            one_line(why, 200)
        );
        self.palette.warn(&text) + "\n"
    }

    fn event(&mut self, progress: &Progress, view: &View) -> String {
        let palette = self.palette;
        let row_width = view.width.unwrap_or(200);
        match progress {
            Progress::Text(_)
            | Progress::Retry { .. }
            | Progress::ToolEnded { is_error: false, .. }
            | Progress::Idle => String::new(),
            Progress::Mail(message) => self.mail(message, view),
            Progress::Asked(question) => ask(&Asker::own_agent(), question, view),
            Progress::TurnStarted { by_mail } => {
                self.turn = Said::Nothing;
                if *by_mail {
                    palette.dim("(mail arrived, a turn begins)") + "\n"
                } else {
                    String::new()
                }
            }
            Progress::ToolStarted { name, summary } => {
                palette.dim(&one_line(&format!("⏺ {name} {summary}"), row_width)) + "\n"
            }
            Progress::ToolEnded { is_error: true, name, content } => {
                let why = if content.trim().is_empty() {
                    format!("{name} failed")
                } else {
                    content.clone()
                };
                let rows = view.block(&why, "  ", Extent::Lines(ERROR_LINES));
                palette.bad(&rows.join("\n")) + "\n"
            }
            Progress::TurnEnded { outcome, text } => self.turn_end(*outcome, text, view),
            Progress::Warning(text) | Progress::Note(text) => {
                let rows = view.block(text, "", Extent::Whole);
                palette.warn(&rows.join("\n")) + "\n"
            }
        }
    }

    fn turn_end(&self, outcome: Outcome, text: &str, view: &View) -> String {
        let palette = self.palette;
        match outcome {
            Outcome::Done if self.turn == Said::Nothing && !text.trim().is_empty() => {
                view.block(text, "", Extent::Whole).join("\n") + "\n\n"
            }
            Outcome::Done => "\n".into(),
            Outcome::Interrupted => palette.warn("(interrupted)") + "\n\n",
            Outcome::Failed => {
                let rows = view.block(&format!("✗ {text}"), "", Extent::Whole);
                let advice = "  Say it again to try again; /log lead tells more.";
                format!("{}\n{}\n\n", palette.bad(&rows.join("\n")), palette.dim(advice))
            }
        }
    }

    fn mail(&self, message: &Message, view: &View) -> String {
        let from = one_line(&message.from, NAME_WIDTH);
        let color = self.colors.get(&from).map_or("", String::as_str);
        let said = in_words(message);
        // Changes of status and questions are shown elsewhere.
        let quiet = matches!(
            message.body,
            Body::IdleNotification { .. }
                | Body::PermissionRequest { .. }
                | Body::SandboxPermissionRequest { .. }
        );
        if quiet {
            return String::new();
        }
        let rows = view.block(&format!("✉ {from}: {said}"), "  ", Extent::Lines(MAIL_LINES));
        let head = format!("✉ {from}");
        let painted = self.palette.member(color, &head);
        rows.join("\n").trim_start().replacen(&head, &painted, 1) + "\n"
    }
}

/// One sanitized line as rows. Blank lines stay: they separate paragraphs.
fn whole_line(line: &str, width: Option<usize>) -> String {
    let cleaned = clean(line.strip_suffix('\r').unwrap_or(line));
    let lines = cleaned.split('\n');
    let rows = lines.flat_map(|line| match width {
        Some(width) => wrap(line.trim_end(), width),
        None => vec![line.trim_end().to_owned()],
    });
    rows.map(|row| row + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::super::style::ColorChoice;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const DONE: Progress = Progress::TurnEnded { outcome: Outcome::Done, text: String::new() };

    fn show(events: &[Progress], width: usize) -> String {
        let mut live = Live::new(Palette::plain());
        events.iter().map(|event| live.rows(event, Some(width))).collect()
    }

    fn text(text: &str) -> Progress {
        Progress::Text(text.into())
    }

    fn mail(value: &serde_json::Value) -> Progress {
        Progress::Mail(Box::new(Message::read(value.as_object().unwrap()).unwrap()))
    }

    #[test]
    fn text_is_printed_in_whole_rows_and_the_rest_at_the_end() {
        let mut live = Live::new(Palette::plain());
        let mut push = |piece: &str| live.rows(&text(piece), Some(12));
        assert_eq!(push("Hello "), "");
        assert_eq!(push("wor"), "");
        assert_eq!(push("ld, it's"), "Hello world,\n");
        assert_eq!(push(" me\n\nand"), "it's me\n\n");
        assert_eq!(live.rows(&DONE, Some(12)), "and\n\n");
    }

    #[test]
    fn a_tool_call_is_one_row_and_its_error_a_few() {
        let started = Progress::ToolStarted { name: "bash".into(), summary: "cargo\n test".into() };
        let failed = Progress::ToolEnded {
            name: "bash".into(),
            is_error: true,
            content: "1\n2\n3\n4\n5\n6\n7".into(),
        };
        let shown = show(&[text("Trying."), started, failed], 40);
        let wanted = "Trying.\n⏺ bash cargo test\n  1\n  2\n  3\n  4\n  5\n  … 2 more lines\n";
        assert_eq!(shown, wanted);
    }

    #[test]
    fn a_failed_attempt_is_marked_and_its_pending_text_dropped() {
        let retry = Progress::Retry { wait: Duration::from_millis(1500), why: "reset".into() };
        let unseen = show(&[text("half a li"), retry.clone(), text("whole\n"), DONE], 80);
        assert_eq!(unseen, "(the connection broke, trying again in 2 s: reset)\nwhole\n\n");
        let seen = show(&[text("one\ntw"), retry, text("one\ntwo"), DONE], 80);
        let wanted = "one\n(the connection broke, trying again in 2 s: reset; its text above is \
                      void and comes again)\none\ntwo\n\n";
        assert_eq!(seen, wanted);
    }

    #[test]
    fn a_failed_turn_shows_its_hint() {
        let failed = Progress::TurnEnded { outcome: Outcome::Failed, text: "no model".into() };
        let shown = show(&[failed], 80);
        assert_eq!(shown, "✗ no model\n  Say it again to try again; /log lead tells more.\n\n");
    }

    #[test]
    fn text_that_was_never_streamed_is_shown_at_the_end() {
        let end = Progress::TurnEnded { outcome: Outcome::Done, text: "All done.".into() };
        assert_eq!(show(std::slice::from_ref(&end), 80), "All done.\n\n");
        assert_eq!(show(&[text("All done."), end], 80), "All done.\n\n");
    }

    #[test]
    fn mail_has_the_colour_of_its_sender() {
        let mut live = Live::new(Palette::new(ColorChoice::Always, true));
        live.set_colors([("alice".to_owned(), "blue".to_owned())].into());
        let hello = mail(&json!({"from":"alice","content":"a\nb"}));
        let shown = live.rows(&hello, Some(40));
        assert_eq!(shown, "\x1b[34m✉ alice\x1b[0m: a\n  b\n");
    }

    #[test]
    fn idle_notifications_are_hidden_and_names_are_sanitized() {
        let idle = mail(&json!({"type":"idle_notification","from":"bob","content":"",
            "reason":"available"}));
        assert_eq!(show(&[idle], 40), "");
        let hostile = mail(&json!({"from":"\u{1b}[2Jx\n","content":"\u{1b}]0;y\u{7}"}));
        assert_eq!(show(&[hostile], 40), "✉ x: 0;y\n");
    }

    proptest! {
        #[test]
        fn any_split_of_the_text_shows_the_same_words(
            words in "[a-z \n]{0,120}", cuts in proptest::collection::vec(0usize..120, 0..8),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(words.len())).collect();
            cuts.extend([0, words.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| text(&words[pair[0]..pair[1]])).collect();
            let messages = |text: &str| text.split_whitespace().collect::<String>();
            let shown = show(&[pieces, vec![DONE]].concat(), 20);
            prop_assert_eq!(messages(&shown), messages(&words));
            prop_assert!(shown.lines().all(|row| columns(row) <= 20), "{}", shown);
        }
    }
}

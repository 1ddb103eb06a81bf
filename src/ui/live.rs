//! The live view of a running agent: [`Progress`] values become rows of text.
//!
//! A model's text arrives in pieces. It is printed in whole rows, so that it can appear above a line that is being
//! typed. Pure: it uses neither a terminal nor a clock.
//!
//! On a screen with a pane, a tool call is one row once it has ended, and long mail is folded; a key opens what was
//! folded last.

use super::diff::diff;
use super::markdown::{self, MarkdownStream};
use super::messages::{NAME_WIDTH, in_words};
use super::question::ask;
use super::roster::age;
use super::sanitize::{columns, fit, one_line, sanitize};
use super::style::Palette;
use super::tool_line;
use super::view::View;
use crate::agent::progress::{CallEnd, EndedCall, Progress};
use crate::wire::AgentName;
use crate::wire::message::{Body, Message, Outcome};
use crate::wire::text_change::TextChange;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The number of lines of a failed tool's result that are shown.
const ERROR_LINES: usize = 5;
/// The number of lines of a message that are shown; the inbox view has all of them.
const MAIL_LINES: usize = 12;
/// The number of columns of a reason for which a model call is tried again.
const WHY_COLUMNS: usize = 300;
/// The number of rows of a change that are shown.
const CHANGE_ROWS: usize = 16;
const CHANGE_INDENT: &str = "  ";
/// The number of columns of a call where the width is not known.
const CALL_COLUMNS: usize = 200;
/// The number of folded parts that can still be opened.
const FOLDED: usize = 50;
/// The pause between two attempts from which on its length is shown.
const SHORT_WAIT: Duration = Duration::from_secs(10);

/// The state of the output on which the next rows depend.
#[derive(Debug, Default)]
pub(crate) struct Live {
    palette: Palette,
    pub(super) colors: BTreeMap<String, String>,
    /// The model's text, of which the last part is not complete yet.
    text: MarkdownStream,
    /// Whether text of the running model call is on the screen.
    is_attempt_seen: bool,
    /// Whether the model has produced text in this turn.
    has_spoken: bool,
    /// The reason, shown last, for which the running model call is late or is tried again.
    late: Option<String>,
    /// The running calls: the id of each, its row, and the time of its start.
    calls: Vec<(String, String, Instant)>,
    /// The folded parts, oldest first.
    folded: VecDeque<Folded>,
    /// Rows that wait for the end of the text, which they would tear apart.
    held: String,
}

/// A text of which one row is shown, until a key opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoldedText {
    /// The row in place of the text, plain.
    pub(crate) row: String,
    /// The text, as a view of this layer has rendered it.
    pub(crate) text: String,
}

/// A part of which one row is on the screen.
#[derive(Debug)]
struct Folded {
    /// The row, plain.
    title: String,
    content: FoldedContent,
}

#[derive(Debug)]
enum FoldedContent {
    Text(String),
    /// Rows with styles.
    Rows(String),
}

impl Live {
    pub(crate) fn new(palette: Palette) -> Self {
        Self { palette, text: MarkdownStream::new(palette), ..Self::default() }
    }

    /// Returns the rows of the text that is not complete yet.
    pub(crate) fn preview(&self, width: Option<usize>) -> String {
        if self.text.is_empty() { String::new() } else { self.text.preview(width) }
    }

    /// Returns the rest of the text, because other rows follow.
    pub(crate) fn finish_text(&mut self, width: Option<usize>) -> String {
        let rest = if self.text.is_empty() { String::new() } else { self.text.finish(width) };
        rest + &std::mem::take(&mut self.held)
    }

    /// Returns the newest folded part in full, and the one before it at the next call; `None` if none is left.
    pub(crate) fn open_folded(&mut self, width: Option<usize>) -> Option<String> {
        let Folded { title, content } = self.folded.pop_back()?;
        let rows = match content {
            FoldedContent::Text(text) => {
                View::new(self.palette, width).block(&text, "  ", None).join("\n")
            }
            FoldedContent::Rows(rows) => rows,
        };
        let rest = self.finish_text(width);
        Some(format!("{rest}{}\n{rows}\n", self.palette.bold(&title)))
    }

    /// Returns the row that stands for a rendered text, once the text that arrives is complete. With a pane, a key opens it.
    pub(super) fn folded_rows(
        &mut self,
        folded: FoldedText,
        width: Option<usize>,
        has_pane: bool,
    ) -> String {
        let FoldedText { row, text } = folded;
        let end = if has_pane { " (Ctrl-O)" } else { "" };
        let room = width.unwrap_or(CALL_COLUMNS).saturating_sub(end.len() + 1);
        let shown = fit(&one_line(&row, CALL_COLUMNS), room).into_owned();
        if has_pane {
            self.fold(&row, FoldedContent::Rows(text));
        }
        self.held.extend([&*shown, &self.palette.dim(end), "\n"]);
        if self.text.is_empty() { std::mem::take(&mut self.held) } else { String::new() }
    }

    fn fold(&mut self, title: &str, content: FoldedContent) {
        if self.folded.len() >= FOLDED {
            self.folded.pop_front();
        }
        self.folded.push_back(Folded { title: title.to_owned(), content });
    }

    /// Returns the rows that `progress` adds, each with a line end; `width` is as in [`View`].
    pub(crate) fn rows(&mut self, progress: &Progress, width: Option<usize>) -> String {
        self.rows_of(progress, width, None)
    }

    /// Returns the rows that `progress` adds at this time above a pane, which shows what goes on.
    pub(super) fn rows_above_pane(
        &mut self,
        progress: &Progress,
        width: Option<usize>,
        now: Instant,
    ) -> String {
        self.rows_of(progress, width, Some(now))
    }

    fn rows_of(
        &mut self,
        progress: &Progress,
        width: Option<usize>,
        above_pane: Option<Instant>,
    ) -> String {
        if let Progress::Text(text) = progress {
            self.has_spoken = true;
            let rows = self.text.push(text, width);
            self.is_attempt_seen |= !rows.is_empty();
            return rows;
        }
        if let Progress::ToolOutput(_)
        | Progress::CallDraft(_)
        | Progress::PromptsTaken(_)
        | Progress::PromptsDropped
        | Progress::Thought(_)
        | Progress::ContextUsed { .. } = progress
        {
            return String::new();
        }
        if matches!(progress, Progress::Retry { .. }) {
            // This text belongs to the failed attempt and has not been shown.
            self.text.discard();
        }
        let rest = self.finish_text(width);
        let view = View::new(self.palette, width);
        let short = above_pane.and_then(|now| self.event_above_pane(progress, &view, now));
        let rows = rest + &short.unwrap_or_else(|| self.event(progress, &view));
        self.is_attempt_seen = false;
        rows
    }

    /// Returns the rows for an event that has another form where a pane shows what goes on; `None` for all others.
    fn event_above_pane(
        &mut self,
        progress: &Progress,
        view: &View,
        now: Instant,
    ) -> Option<String> {
        match progress {
            Progress::TurnStarted { .. } => {
                self.has_spoken = false;
                self.calls.clear();
                Some(String::new())
            }
            Progress::ToolStarted { id, name, summary, .. } => {
                let row = tool_line::line(name, summary, CALL_COLUMNS);
                self.calls.push((id.clone(), row, now));
                Some(String::new())
            }
            Progress::ToolEnded(ended) => {
                let at = self.calls.iter().position(|(id, ..)| *id == ended.id);
                let known = at.map(|at| self.calls.remove(at));
                let (_, call, began) =
                    known.unwrap_or_else(|| (String::new(), ended.name.clone(), now));
                Some(self.call_rows(&call, ended, now.duration_since(began), view))
            }
            Progress::Mail(message)
                if message.to.as_deref() != Some(AgentName::user().as_str()) =>
            {
                Some(self.folded_mail(message, view))
            }
            Progress::Text(_)
            | Progress::PromptsTaken(_)
            | Progress::PromptsDropped
            | Progress::Thought(_)
            | Progress::ToolOutput(_)
            | Progress::CallDraft(_)
            | Progress::Subagent { .. }
            | Progress::ContextUsed { .. }
            | Progress::Mail(_)
            | Progress::Retry { .. }
            | Progress::Silent { .. }
            | Progress::Answers
            | Progress::MemberRetry { .. }
            | Progress::Asked(_)
            | Progress::TurnEnded { .. }
            | Progress::Idle
            | Progress::Warning(_)
            | Progress::Note(_) => None,
        }
    }

    /// Returns the row of a call that has ended. The first lines of the reason follow if it failed, and the beginning of
    /// its change of a file.
    fn call_rows(&mut self, call: &str, ended: &EndedCall, took: Duration, view: &View) -> String {
        let EndedCall { end: call_end, content, changes, .. } = ended;
        let is_error = *call_end != CallEnd::Succeeded;
        let palette = self.palette;
        let took = if took < Duration::from_millis(100) {
            String::new()
        } else if took < Duration::from_secs(60) {
            format!(" {:.1} s", took.as_secs_f64())
        } else {
            format!(" {}m {}s", took.as_secs() / 60, took.as_secs() % 60)
        };
        let mark = if is_error { "✗" } else { "✓" };
        let end = format!("   {mark}{took}");
        let room = view.width.unwrap_or(200).saturating_sub(columns(&end) + 3);
        let call = fit(call, room).into_owned();
        let change = Change::of(changes, view);
        let folded = match &change {
            Some(change) => FoldedContent::Rows(change.rows.join("\n")),
            None => FoldedContent::Text(content.clone()),
        };
        self.fold(&format!("⏺ {call}"), folded);
        let end = if is_error { palette.bad(&end) } else { palette.dim(&end) };
        let mut rows = format!("⏺ {}{end}\n", palette.dim(&call));
        // The end of the turn tells of the interrupt.
        if *call_end == CallEnd::Failed && !content.trim().is_empty() {
            let why = view.block(content, "  ", Some(ERROR_LINES)).join("\n");
            rows.push_str(&(palette.bad(&why) + "\n"));
        }
        rows + &change.map(|change| change.beginning(" (Ctrl-O)", palette)).unwrap_or_default()
    }

    /// Returns the first line of a message between agents; the rest is folded.
    fn folded_mail(&mut self, message: &Message, view: &View) -> String {
        if let Body::PlanApprovalRequest { .. } | Body::ShutdownResponse { approve: true, .. } =
            message.body
        {
            // A question, and the end of a member, are shown as such.
            return String::new();
        }
        let full = self.mail(message, view);
        let mut lines = full.lines();
        let Some(first) = lines.next() else { return full };
        let more = lines.filter(|line| !line.trim().is_empty()).count();
        if more == 0 {
            return full;
        }
        let from = one_line(&message.from, NAME_WIDTH);
        self.fold(&format!("✉ {from}"), FoldedContent::Text(in_words(message)));
        let end = format!("  … {more} more (Ctrl-O)");
        let room = view.width.unwrap_or(200).saturating_sub(columns(&end));
        if columns(&sanitize(first)) <= room {
            return format!("{first}{}\n", self.palette.dim(&end));
        }
        format!("{first}\n{}\n", self.palette.dim(&end))
    }

    fn event(&mut self, progress: &Progress, view: &View) -> String {
        let palette = self.palette;
        let row = match progress {
            Progress::Text(_)
            | Progress::PromptsTaken(_)
            | Progress::PromptsDropped
            | Progress::Thought(_)
            | Progress::ToolOutput(_)
            | Progress::CallDraft(_)
            | Progress::Subagent { .. }
            | Progress::ContextUsed { .. }
            | Progress::Idle => return String::new(),
            Progress::ToolEnded(EndedCall { end: CallEnd::Succeeded, changes, .. })
                if changes.is_empty() =>
            {
                return String::new();
            }
            Progress::Mail(message) => return self.mail(message, view),
            Progress::Asked(question) => return ask("the agent", "", 0, question, view),
            Progress::TurnStarted { by_mail } => {
                self.has_spoken = false;
                if !by_mail {
                    return String::new();
                }
                palette.dim("(mail arrived, a turn starts)")
            }
            Progress::Retry { wait, left, why } => {
                let void = "; ignore its text above, it is sent again";
                let void = if self.is_attempt_seen { void } else { "" };
                let when = if *wait < SHORT_WAIT { "" } else { &format!(" in {}", age(*wait)) };
                let what = format!("trying again{when}, for up to {}{void}", age(*left));
                return self.delay(why, &what, !void.is_empty());
            }
            Progress::Silent { left, why } => {
                return self.delay(why, &format!("waiting up to {} longer", age(*left)), false);
            }
            Progress::Answers if self.late.take().is_none() => return String::new(),
            Progress::Answers => palette.dim("(the endpoint answers again)"),
            Progress::MemberRetry { name, why } => {
                let name = one_line(name, NAME_WIDTH);
                palette.warn(&format!("{name}: {}; trying again", one_line(why, WHY_COLUMNS)))
            }
            Progress::ToolStarted { name, summary, .. } => {
                let width = view.width.unwrap_or(CALL_COLUMNS).saturating_sub(2);
                palette.dim(&format!("⏺ {}", tool_line::line(name, summary, width)))
            }
            Progress::ToolEnded(EndedCall { name, content, changes, .. }) => {
                if let Some(change) = Change::of(changes, view) {
                    return change.beginning("", palette);
                }
                let failed = format!("{name} failed");
                let why = if content.trim().is_empty() { &failed } else { content };
                palette.bad(&view.block(why, "  ", Some(ERROR_LINES)).join("\n"))
            }
            Progress::TurnEnded { outcome, text } => {
                self.late = None;
                self.turn_end(*outcome, text, view)
            }
            Progress::Warning(text) | Progress::Note(text) => {
                palette.warn(&view.block(text, "", None).join("\n"))
            }
        };
        row + "\n"
    }

    /// Returns the row for a late or failed attempt; none if the attempts before failed in the same way. The first row
    /// of a call also says what the person can do.
    fn delay(&mut self, why: &str, what: &str, has_void_text: bool) -> String {
        if self.late.as_deref() == Some(why) && !has_void_text {
            return String::new();
        }
        let advice = "; Ctrl-C to stop; `team doctor` checks the endpoint";
        let advice = if self.late.is_none() { advice } else { "" };
        self.late = Some(why.to_owned());
        let why = one_line(why, WHY_COLUMNS);
        self.palette.warn(&format!("({why}; {what}{advice})")) + "\n"
    }

    fn turn_end(&self, outcome: Outcome, text: &str, view: &View) -> String {
        match outcome {
            Outcome::Done if self.has_spoken || text.trim().is_empty() => String::new(),
            Outcome::Done => markdown::render(text, self.palette, view.width),
            Outcome::Interrupted => self.palette.warn("(interrupted)") + "\n",
            Outcome::Failed => {
                let rows = view.block(&format!("✗ {text}"), "", None).join("\n");
                let advice = "  Send it again to retry; /log lead says more.";
                format!("{}\n{}\n", self.palette.bad(&rows), self.palette.dim(advice))
            }
        }
    }

    fn mail(&self, message: &Message, view: &View) -> String {
        // Status changes and questions are shown elsewhere.
        if let Body::IdleNotification { .. }
        | Body::PermissionRequest { .. }
        | Body::SandboxPermissionRequest { .. } = message.body
        {
            return String::new();
        }
        let from = one_line(&message.from, NAME_WIDTH);
        let color = self.colors.get(&from).map_or("", String::as_str);
        let head = format!("✉ {from}");
        let mark = if message.is_verified() { "" } else { " (not verified)" };
        let rows = format!("{head}{mark}: {}", in_words(message));
        let rows = view.block(&rows, "  ", Some(MAIL_LINES)).join("\n");
        rows.trim_start().replacen(&head, &self.palette.member(color, &head), 1) + "\n"
    }
}

/// The rows of the changes of a call.
struct Change {
    rows: Vec<String>,
}

impl Change {
    /// Returns the rows of changes; `None` if there are none. With several files, each has a row with its path.
    fn of(changes: &[TextChange], view: &View) -> Option<Self> {
        let room = view.width.map(|width| width.saturating_sub(CHANGE_INDENT.len()));
        let view = View { width: room, ..view.clone() };
        let mut rows = Vec::new();
        for TextChange { path, before, after } in changes {
            if changes.len() > 1 {
                rows.push(view.palette.dim(&one_line(path, view.width.unwrap_or(CALL_COLUMNS))));
            }
            rows.extend(diff(before.as_deref().unwrap_or_default(), after, &view).rows);
        }
        let rows = rows.into_iter().map(|row| format!("{CHANGE_INDENT}{row}")).collect();
        (!changes.is_empty()).then_some(Self { rows })
    }

    /// Returns the first rows, each with a line end, and the number of the others with the key that shows them.
    fn beginning(&self, key: &str, palette: Palette) -> String {
        let excerpt = self.rows.iter().take(CHANGE_ROWS).map(|row| format!("{row}\n"));
        let more = self.rows.len().saturating_sub(CHANGE_ROWS);
        let more = match more {
            0 => String::new(),
            more => palette.dim(&format!("{CHANGE_INDENT}… {more} more{key}")) + "\n",
        };
        excerpt.collect::<String>() + &more
    }
}

#[cfg(test)]
mod tests {
    use super::super::style::ColorChoice;
    use super::*;
    use crate::wire::seal::Verification;
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
        let message = Message::read(value.as_object().unwrap()).unwrap();
        Progress::Mail(Box::new(Message { verification: Verification::Control, ..message }))
    }

    #[test]
    fn text_is_printed_in_whole_rows_and_the_rest_at_the_end() {
        let mut live = Live::new(Palette::plain());
        let mut push = |piece: &str| live.rows(&text(piece), Some(12));
        assert_eq!(push("Hello "), "");
        assert_eq!(push("wor"), "");
        assert_eq!(push("ld, it's"), "");
        assert_eq!(push(" me\n\nand"), "Hello world,\nit's me\n");
        assert_eq!(live.rows(&DONE, Some(12)), "\nand\n\n");
    }

    #[test]
    fn events_are_shown_in_rows() {
        let started = Progress::ToolStarted {
            id: "t".into(),
            name: "bash".into(),
            input: serde_json::Value::Null,
            summary: "cargo\n test".into(),
        };
        let (name, content) = ("bash".into(), "1\n2\n3\n4\n5\n6\n7".into());
        let end = CallEnd::Failed;
        let broken = Progress::ToolEnded(EndedCall {
            id: "t".into(),
            name,
            end,
            content,
            changes: Vec::new(),
        });
        let seconds = Duration::from_secs;
        let retry = |wait| {
            let (wait, left) = (seconds(wait), seconds(40));
            Progress::Retry { wait, left, why: "reset".into() }
        };
        let late = Progress::Silent { left: seconds(240), why: "no byte".into() };
        let failed = Progress::TurnEnded { outcome: Outcome::Failed, text: "no model".into() };
        let said = Progress::TurnEnded { outcome: Outcome::Done, text: "All done.".into() };
        let idle = json!({"type":"idle_notification","from":"bob","reason":"available"});
        let hostile = json!({"from":"\u{1b}[2Jx\n","content":"\u{1b}]0;y\u{7}"});
        for (what, events, wanted) in [
            (
                "a tool call is one row and its error a few",
                vec![text("Trying."), started, broken],
                "Trying.\n⏺ bash  cargo test\n  1\n  2\n  3\n  4\n  5\n  … 2 more lines\n",
            ),
            (
                "the pending text of a failed attempt is dropped",
                vec![text("half a li"), retry(2), text("whole\n"), DONE],
                "(reset; trying again, for up to 40s; Ctrl-C to stop; `team doctor` checks the endpoint)\n\
                 whole\n\n",
            ),
            (
                "the text of a failed attempt on the screen is void",
                vec![text("one\n\ntw"), retry(30), text("one\n\ntwo"), DONE],
                "one\n(reset; trying again in 30s, for up to 40s; ignore its text above, it is sent again; \
                 Ctrl-C to stop; `team doctor` checks the endpoint)\none\n\ntwo\n\n",
            ),
            (
                "attempts that fail in the same way are one row, and so is the end of it",
                vec![retry(1), retry(2), late.clone(), late, retry(1), Progress::Answers, DONE],
                "(reset; trying again, for up to 40s; Ctrl-C to stop; `team doctor` checks the endpoint)\n\
                 (no byte; waiting up to 4m longer)\n(reset; trying again, for up to 40s)\n\
                 (the endpoint answers again)\n\n",
            ),
            (
                "a teammate whose model call fails is named",
                vec![Progress::MemberRetry { name: "alice".into(), why: "reset".into() }],
                "alice: reset; trying again\n",
            ),
            (
                "a failed turn has its hint",
                vec![failed],
                "✗ no model\n  Send it again to retry; /log lead says more.\n\n",
            ),
            ("text was never streamed", vec![said.clone()], "All done.\n\n"),
            ("text was streamed", vec![text("All done."), said], "All done.\n\n"),
            ("an idle notification is hidden", vec![mail(&idle)], ""),
            ("mail is sanitized", vec![mail(&hostile)], "✉ x: 0;y\n"),
        ] {
            assert_eq!(show(&events, 80), wanted, "{what}");
        }
    }

    #[test]
    fn a_folded_row_does_not_tear_the_text_that_arrives() {
        let mut live = Live::new(Palette::plain());
        let folded = || FoldedText { row: "± bob: a +1 −0".into(), text: "1 + new".into() };
        assert_eq!(live.rows(&text("alice (result):"), Some(80)), "");
        assert_eq!(live.folded_rows(folded(), Some(80), false), "");
        assert_eq!(live.rows(&text(" Wrote it."), Some(80)), "");
        let rest = "alice (result): Wrote it.\n± bob: a +1 −0\n\n";
        assert_eq!(live.rows(&DONE, Some(80)), rest);
        assert_eq!(live.folded_rows(folded(), Some(80), true), "± bob: a +1 −0 (Ctrl-O)\n");
        assert_eq!(live.open_folded(Some(80)).as_deref(), Some("± bob: a +1 −0\n1 + new\n"));
    }

    #[test]
    fn mail_has_the_colour_of_its_sender() {
        let mut live = Live::new(Palette::new(ColorChoice::Always, true));
        live.colors.insert("alice".into(), "blue".into());
        let hello = mail(&json!({"from":"alice","content":"a\nb"}));
        assert_eq!(live.rows(&hello, Some(40)), "\x1b[34m✉ alice\x1b[0m: a\n  b\n");
        let Progress::Mail(mut forged) = hello else { panic!() };
        forged.verification = Verification::None;
        let shown = live.rows(&Progress::Mail(forged), Some(40));
        assert_eq!(shown, "\x1b[34m✉ alice\x1b[0m (not verified): a\n  b\n");
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

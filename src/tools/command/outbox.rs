//! Sends the mail that a walled command has put into its outbox, in the name of its agent.
//!
//! *Invariant:* no line gives an order: only its recipient and its text are used. A line has the same id each time it is
//! sent, so an agent that is killed between two lines delivers each of them once.

use crate::bus::Outgoing;
use crate::os::wall::outbox::Outbox;
use crate::store::asynchronous::offload;
use crate::store::unsent_mail::{self, OutboxLine};
use crate::tools::call::ToolError;
use crate::tools::mail::ask_to_send;
use crate::tools::team_context::TeamContext;
use crate::wire::message::{VIA, VIA_COMMAND};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::sync::Arc;

/// The maximum number of characters of a report to the model.
const REPORT_CHARS: usize = 2000;

/// The maximum number of lines that a report names because they were not sent.
const REFUSED_SHOWN: usize = 8;

/// The part of a line that counts. All other fields are ignored: a command sends as its agent.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: Option<Value>,
    to: String,
    content: String,
}

/// The outcome for the lines of an outbox.
#[derive(Debug, Default)]
pub(super) struct OutboxReport {
    /// The recipients of the lines that were sent.
    sent: Vec<String>,
    /// The reasons for the others.
    refused: Vec<String>,
}

impl OutboxReport {
    /// Whether a line was sent.
    pub(super) fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Adds the reason for which lines are missing, before those of single lines.
    fn add_problem(&mut self, problem: String) {
        self.refused.insert(0, problem);
    }

    /// Returns the report as a line below the output of the command.
    pub(super) fn below_output(&self) -> String {
        self.in_words().map(|report| format!("\n[outbox: {report}]")).unwrap_or_default()
    }

    /// Returns the report in one line; `None` if there was nothing to send.
    fn in_words(&self) -> Option<String> {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for to in &self.sent {
            match counts.iter_mut().find(|(name, _)| name == to) {
                Some((_, count)) => *count += 1,
                None => counts.push((to, 1)),
            }
        }
        let name = |(name, count): (&str, usize)| match count {
            1 => name.to_owned(),
            count => format!("{name} ({count})"),
        };
        let names: Vec<String> = counts.into_iter().map(name).collect();
        let sent = (!names.is_empty()).then(|| format!("sent to {}", names.join(", ")));
        let shown = self.refused.iter().take(REFUSED_SHOWN);
        let refused = shown.map(|why| format!("NOT sent: {why}"));
        let more = self.refused.len().saturating_sub(REFUSED_SHOWN);
        let more = (more > 0).then(|| format!("and {more} more lines"));
        let parts: Vec<String> = sent.into_iter().chain(refused).chain(more).collect();
        let line = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = parts.join("; ").chars().map(line).take(REPORT_CHARS).collect();
        (!text.is_empty()).then_some(text)
    }
}

/// Sends the mail in the outbox of a command that has ended, then removes the file.
pub(super) async fn send_all(
    outbox: Outbox,
    team: &TeamContext,
) -> Result<OutboxReport, ToolError> {
    let (text, outbox) = offload(move || (outbox.read(), outbox)).await;
    let mut report = send(OutboxLine::all(&text).collect(), team).await?;
    if let Some(problem) = text.problem {
        report.add_problem(problem);
    }
    offload(move || drop(outbox)).await;
    Ok(report)
}

/// Sends lines in order. Each counts as a send of the model. The error is fatal: the team is gone.
async fn send(lines: Vec<OutboxLine>, team: &TeamContext) -> Result<OutboxReport, ToolError> {
    let mut report = OutboxReport::default();
    for OutboxLine { id, line } in lines {
        let number = id.rsplit_once(':').map_or("?", |(_, number)| number).to_owned();
        let outcome = match parse(&line) {
            Ok(Line { to, content, .. }) => {
                let outcome = send_one(id, &to, content, team).await;
                outcome
                    .map(|()| to.clone())
                    .map_err(|why| (format!("line {number} to {to:?}"), why))
            }
            Err(why) => Err((format!("line {number}"), ToolError::Reply(why))),
        };
        match outcome {
            Ok(to) => report.sent.push(to),
            Err((_, fatal @ ToolError::Fatal(_))) => return Err(fatal),
            Err((subject, ToolError::Reply(why))) => {
                report.refused.push(format!("{subject}: {why}"));
            }
        }
    }
    Ok(report)
}

fn parse(line: &str) -> Result<Line, String> {
    let line: Line =
        serde_json::from_str(line).map_err(|why| format!("it is not a message: {why}"))?;
    match &line.kind {
        None => Ok(line),
        Some(kind) if kind == "message" => Ok(line),
        Some(_) => Err("a command can send the type message only".into()),
    }
}

async fn send_one(
    id: String,
    to: &str,
    content: String,
    team: &TeamContext,
) -> Result<(), ToolError> {
    ask_to_send(team, 1, to, &content, &[]).await?;
    let (bus, me, to) = (Arc::clone(&team.bus), team.me.clone(), to.to_owned());
    let mut outgoing = Outgoing { id: Some(format!("{me}:{id}")), ..Outgoing::text(content) };
    outgoing.extra.insert(VIA.into(), VIA_COMMAND.into());
    offload(move || bus.send(&me, &to, outgoing)).await?;
    Ok(())
}

/// Sends the mail that the commands of a killed process of this agent have left. Returns a report for the model.
pub(crate) async fn send_left(team: &TeamContext) -> Option<String> {
    let (dir, me) = (team.bus.dir().clone(), team.me.clone());
    let files = offload(move || unsent_mail::files(&dir, &me)).await;
    let files = files.inspect_err(|why| tracing::warn!(%why, "unsent mail cannot be listed"));
    let mut parts = Vec::new();
    for path in files.unwrap_or_default() {
        let found = path.clone();
        let sent = match offload(move || unsent_mail::read(&found)).await {
            Ok(lines) => send(lines, team).await.map_err(|why| why.to_string()),
            Err(why) => Err(why.to_string()),
        };
        match sent {
            Ok(report) => {
                if let Err(why) = offload(move || fs::remove_file(path)).await {
                    tracing::warn!(%why, "mail that was sent cannot be removed");
                }
                parts.extend(report.in_words());
            }
            Err(why) => tracing::warn!(why, "mail that a command had left was not sent"),
        }
    }
    let text = parts.join("; ");
    (!text.is_empty()).then(|| {
        tracing::info!(text, "mail that a command had left");
        format!("Mail that your last command had put into its outbox: {text}.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_for_a_recipient_is_a_line() {
        for (line, why) in [
            ("", "not a message"),
            ("[]", "not a message"),
            ("{\"to\":\"bob\"}", "content"),
            ("{\"content\":\"x\"}", "to"),
            ("{\"to\":[\"bob\"],\"content\":\"x\"}", "not a message"),
            ("{\"type\":\"shutdown_request\",\"to\":\"bob\",\"content\":\"x\"}", "type message"),
            ("{\"type\":7,\"to\":\"bob\",\"content\":\"x\"}", "type message"),
        ] {
            let refused = parse(line).err().unwrap();
            assert!(refused.contains(why), "{line}: {refused}");
        }
        let line =
            parse("{\"from\":\"lead\",\"to\":\"bob\",\"content\":\"x\",\"id\":\"y\"}").unwrap();
        assert_eq!((line.to.as_str(), line.content.as_str()), ("bob", "x"));
    }

    #[test]
    fn a_report_is_one_short_line() {
        let mut report = OutboxReport::default();
        assert_eq!(report.in_words(), None);
        report.sent = ["bob", "lead", "bob"].map(ToOwned::to_owned).into();
        report.refused = (4..20).map(|number| format!("line {number}:\nx")).collect();
        report.add_problem("too long".into());
        let text = report.in_words().unwrap();
        let begin = "sent to bob (2), lead; NOT sent: too long; NOT sent: line 4: x; ";
        assert!(
            text.starts_with(begin) && text.ends_with("line 10: x; and 9 more lines"),
            "{text}"
        );
        report.add_problem("y".repeat(9000));
        assert_eq!(report.in_words().unwrap().chars().count(), REPORT_CHARS);
    }
}

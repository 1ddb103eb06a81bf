//! The background commands of all agents, as the session shows them.

use crate::os::{Clock, SystemClock};
use crate::store::{TeamDir, background, roster};
use crate::ui::roster::age;
use crate::ui::sanitize::one_line;
use crate::wire::AgentName;
use crate::wire::background::CommandState;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of characters of a line of output in the list.
const LINE_CHARS: usize = 160;

/// Lists the commands that run in the background, each with its last line of output.
pub(super) fn list(team: &TeamDir) -> String {
    let now = SystemClock.now();
    let mut lines = Vec::new();
    for name in agents(team) {
        for command in background::running(team, &name) {
            let since = age(now.since(command.since));
            lines.push(one_line(&format!("{name}  {}  {since}", command.title()), LINE_CHARS));
            let last = background::last_line(team, &name, &command.id);
            lines
                .extend((!last.is_empty()).then(|| format!("    {}", one_line(&last, LINE_CHARS))));
        }
    }
    if lines.is_empty() { "No command runs in the background".into() } else { lines.join("\n") }
}

/// Returns the agents of the roster.
fn agents(team: &TeamDir) -> Vec<AgentName> {
    let members = roster::read(team).map(|roster| roster.members.clone()).unwrap_or_default();
    let members = members.iter().filter_map(|member| AgentName::member(&member.name).ok());
    std::iter::once(AgentName::lead()).chain(members).collect()
}

/// Follows the commands of teammates, to tell the person of their ends.
#[derive(Default)]
pub(super) struct EndedCommands {
    /// The ids of the commands that ran at the last look, by agent.
    running: BTreeMap<String, BTreeSet<String>>,
}

impl EndedCommands {
    /// Returns a line for each command of a teammate that has ended since the last look.
    pub(super) fn look(&mut self, team: &TeamDir, name: &str) -> Vec<String> {
        let list = AgentName::member(name).map(|name| background::read(team, &name));
        let Ok(Ok(list)) = list else { return Vec::new() };
        let commands = || list.commands.iter();
        let running = commands().filter(|it| it.is_running()).map(|it| it.id.clone()).collect();
        let before = self.running.insert(name.to_owned(), running).unwrap_or_default();
        let ended = commands().filter(|it| it.state == CommandState::Ended);
        let ended = ended.filter(|it| before.contains(&it.id));
        ended.map(|it| format!("{}: {}", it.title(), it.end)).collect()
    }
}

//! The background commands of each agent, in `run/.state/NAME.commands`, and their output in `log/.out/NAME-ID.txt`.
//! Only that agent writes them.
//!
//! *Invariant:* no process is found by this file. A command whose agent has ended has ended as well.

use super::file::atomic::{Fsync, json, replace};
use super::file::read::{names_in, open_if_there, read_json};
use super::{StoreError, TeamDir, liveness};
use crate::os::file::{At, FileError};
use crate::wire::AgentName;
use crate::wire::background::{BackgroundCommand, CommandList};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// The size of the end of an output in which a view looks for its last line, in bytes.
const LINE_BYTES: u64 = 4096;

/// The maximum size of a list that is read, in bytes.
const MOST_BYTES: u64 = 1024 * 1024;

/// Reads the commands of an agent; none if there is no file. A record with an id that this program does not give is left
/// out, since the id is part of a path. Fails if the file cannot be read or understood.
pub(crate) fn read(dir: &TeamDir, name: &AgentName) -> Result<CommandList, FileError> {
    let mut list: CommandList = read_json(&dir.background(name), MOST_BYTES)?.unwrap_or_default();
    list.commands.retain(BackgroundCommand::has_own_id);
    Ok(list)
}

/// Replaces the commands of an agent.
pub(crate) fn write(
    dir: &TeamDir,
    name: &AgentName,
    list: &CommandList,
    fsync: Fsync,
) -> Result<(), StoreError> {
    dir.is_still_there()?;
    let path = dir.background(name);
    Ok(replace(&path, &json(list, &path)?, fsync)?)
}

/// Returns the commands that an agent runs; none if it is not alive, or if its file cannot be read.
pub(crate) fn running(dir: &TeamDir, name: &AgentName) -> Vec<BackgroundCommand> {
    let mut list = read(dir, name).unwrap_or_default();
    list.commands.retain(BackgroundCommand::is_running);
    let is_alive = || liveness::probe(dir, name).is_ok_and(|known| known.is_alive());
    if list.commands.is_empty() || !is_alive() { Vec::new() } else { list.commands }
}

/// Returns the end of the stored output of a command, at most `most` bytes, and the size of all of it.
pub(crate) fn output_end(
    dir: &TeamDir,
    name: &AgentName,
    id: &str,
    most: u64,
) -> Result<(String, u64), FileError> {
    let path = dir.command_output(name, id);
    let Some((mut file, known)) = open_if_there(&path)? else { return Ok((String::new(), 0)) };
    let size = known.len();
    file.seek(SeekFrom::Start(size.saturating_sub(most))).at(&path)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).at(&path)?;
    // The first character may be torn.
    let begin = bytes.iter().take(4).position(|byte| byte & 0xc0 != 0x80).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes.get(begin..).unwrap_or_default()).into_owned();
    Ok((text, size))
}

/// Returns the last line of the output of a command; empty if there is none.
pub(crate) fn last_line(dir: &TeamDir, name: &AgentName, id: &str) -> String {
    let (text, _) = output_end(dir, name, id, LINE_BYTES).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}

/// Returns the files with output of commands of an agent.
pub(super) fn outputs(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, FileError> {
    let prefix = format!("{name}-c");
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let mut names = names_in(&dir.kept_results())?;
    names.retain(|file| {
        let id = file.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".txt"));
        id.is_some_and(is_number)
    });
    Ok(names.into_iter().map(|file| dir.kept_results().join(file)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::output_spill::OutputSpill;
    use crate::store::{LifeLock, LifeRecord, test_team};
    use crate::wire::background::CommandState;

    #[test]
    fn the_list_is_read_back_and_a_command_of_a_dead_agent_does_not_run() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        assert_eq!(read(&dir, &alice).unwrap(), CommandList::default());
        let command = BackgroundCommand {
            id: "c1".into(),
            call: "t".into(),
            command: "sleep 1".into(),
            folder: "/w".into(),
            since: 1.0.into(),
            timeout: None,
            state: CommandState::Running,
            end: String::new(),
            report: String::new(),
            seen: 3,
            look: None,
            told: false,
        };
        let list = CommandList { last: 1, commands: vec![command] };
        write(&dir, &alice, &list, Fsync::Never).unwrap();
        assert_eq!(read(&dir, &alice).unwrap(), list);
        assert_eq!(running(&dir, &alice), []);
        let lock = LifeLock::take(&dir, &alice, LifeRecord::of_this_process()).unwrap();
        assert_eq!(running(&dir, &alice), list.commands);
        drop(lock);
    }

    #[test]
    fn the_end_of_an_output_has_whole_characters() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let mut spill = OutputSpill::of_command(&dir, &alice, "c1").unwrap();
        spill.push("one\nä\n\n").unwrap();
        assert_eq!(output_end(&dir, &alice, "c1", 3).unwrap(), ("\n\n".into(), 8));
        assert_eq!(last_line(&dir, &alice, "c1"), "ä");
        assert_eq!(last_line(&dir, &alice, "c2"), "");
        assert_eq!(outputs(&dir, &alice).unwrap(), [dir.command_output(&alice, "c1")]);
    }

    #[test]
    fn a_long_list_is_read_whole_and_an_id_that_leads_elsewhere_is_left_out() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let command = |id: &str| BackgroundCommand {
            id: id.into(),
            call: "call".into(),
            command: "x".repeat(2000),
            folder: PathBuf::new(),
            since: crate::wire::WallTime::from_secs(1.0),
            timeout: Some(5),
            state: CommandState::Running,
            end: String::new(),
            report: String::new(),
            seen: 0,
            look: None,
            told: false,
        };
        let mut commands: Vec<_> = (1..=16).map(|number| command(&format!("c{number}"))).collect();
        let whole = commands.clone();
        commands.extend(["/../../victim", "c", "c1/..", "d1"].map(command));
        let list = CommandList { last: u64::MAX, commands };
        write(&dir, &alice, &list, Fsync::Never).unwrap();
        assert_eq!(read(&dir, &alice).unwrap().commands, whole);
    }
}

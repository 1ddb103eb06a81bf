//! The entry of one member in the text of the roster, which is changed without parsing the entries of the others.

use super::reading::MOST_BYTES;
use crate::os::file::At;
use crate::store::StoreError;
use crate::store::file::read::{open_if_there, whole};
use crate::wire::roster::{Member, member_text};
use crate::wire::{AgentName, FORMAT_VERSION, WithUnknownFields};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The text of a roster, and the entry of a member in it.
#[derive(Debug)]
pub(super) struct FoundEntry {
    pub(super) entry: WithUnknownFields<Member>,
    text: Vec<u8>,
    /// The place of the entry in the text.
    range: Range<usize>,
}

#[derive(Deserialize)]
struct RosterText<'a> {
    #[serde(default)]
    version: u32,
    #[serde(borrow)]
    members: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct NameOnly {
    name: String,
}

impl FoundEntry {
    /// Reads the entry. `None` if the roster has none of this name, or is not one that this version may change.
    pub(super) fn load(path: &Path, name: &AgentName) -> Result<Option<Self>, StoreError> {
        let Some((file, known)) = open_if_there(path)? else { return Ok(None) };
        let Some(text) = whole(&file, &known, MOST_BYTES).at(path)? else { return Ok(None) };
        Ok(Self::find(text, name))
    }

    fn find(text: Vec<u8>, name: &AgentName) -> Option<Self> {
        let RosterText { version, members } = serde_json::from_slice(&text).ok()?;
        if version > FORMAT_VERSION {
            return None;
        }
        let finder = memmem::Finder::new(name.as_str());
        let is_its = |entry: &&&RawValue| {
            let is_near = finder.find(entry.get().as_bytes()).is_some();
            is_near
                && serde_json::from_str(entry.get())
                    .is_ok_and(|it: NameOnly| it.name == name.as_str())
        };
        let found = members.iter().find(is_its)?.get();
        let entry = serde_json::from_str(found).ok()?;
        let begin = found.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        let range = begin..begin + found.len();
        Some(Self { entry, text, range })
    }

    /// Returns the text of the roster before and after the changes of the entry.
    pub(super) fn texts(self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let Self { entry, text, range } = self;
        let entry = member_text(&entry)?;
        let (before, rest) = text.split_at(range.start);
        let after = rest.get(range.len()..).unwrap_or_default();
        let changed = [before, entry.as_bytes(), after].concat();
        Ok((text, changed))
    }
}

#[cfg(test)]
mod tests {
    use crate::store::file::atomic::replace;
    use crate::store::roster::{update, update_member};
    use crate::store::{Fsync, StoreError, TeamDir, test_team};
    use crate::wire::activity::Activity;
    use crate::wire::roster::{Member, Status};
    use crate::wire::{AgentName, WithUnknownFields};
    use serde_json::{Value, json};
    use std::fs;

    fn bob() -> AgentName {
        AgentName::member("bob").unwrap()
    }

    fn work(member: Option<&mut WithUnknownFields<Member>>) -> Option<Status> {
        let member = member?;
        let before = member.status;
        member.activity = Some(Activity::Tool("\"bob\"\nruns".into()));
        member.status = Status::Working;
        Some(before)
    }

    fn end(member: Option<&mut WithUnknownFields<Member>>) -> Option<Status> {
        member.map(|member| std::mem::replace(&mut member.status, Status::Shutdown))
    }

    fn read(dir: &TeamDir) -> (String, Option<String>) {
        let copy = fs::read_to_string(dir.config().with_extension("json.bak")).ok();
        (fs::read_to_string(dir.config()).unwrap(), copy)
    }

    /// Two teams with this roster.
    fn twins(roster: &Value) -> [(tempfile::TempDir, TeamDir); 2] {
        [(); 2].map(|()| {
            let (folder, dir) = test_team();
            replace(&dir.config(), roster.to_string().as_bytes(), Fsync::Never).unwrap();
            update(&dir, Fsync::Never, |roster| roster.created_at = 5.0.into()).unwrap();
            (folder, dir)
        })
    }

    #[test]
    fn the_change_of_one_entry_gives_the_same_files_as_that_of_the_whole_roster() {
        let alice = json!({"name": "alice", "role": "bob", "mood": {"name": "bob"}});
        let other = json!({"name": "carol", "host": "gpu1", "mood": ["bob"]});
        let bob_here =
            json!({"name": "bob", "role": "coder", "cwd": "/a\"b", "mood": {"a": [1, {}]}});
        let bob_there = json!({"name": "bob", "host": "gpu1", "alive": true, "mood": 1});
        let second = json!({"name": "bob", "role": "second"});
        for members in [
            vec![],
            vec![&alice, &other],
            vec![&bob_here],
            vec![&alice, &bob_here, &other, &second],
            vec![&other, &bob_there, &alice],
        ] {
            let roster = json!({"lead": {"role": "bob"}, "later": {"members": [second]}, "members": members});
            let [(_one, one), (_whole, whole)] = twins(&roster);
            for change in [work, work, end, work] {
                let found = update_member(&one, &bob(), Fsync::Never, change).unwrap();
                let expected =
                    update(&whole, Fsync::Never, |roster| change(roster.member_mut("bob")))
                        .unwrap();
                assert_eq!(found, expected);
                assert_eq!(read(&one), read(&whole));
            }
        }
    }

    #[test]
    fn an_entry_in_a_roster_of_another_form_is_changed_and_the_rest_left() {
        let (_folder, dir) = test_team();
        let text =
            r#"{"later":1, "members":[{"role":"x","name":"bob"} ,{"name":"alice","mood":1}]}"#;
        replace(&dir.config(), text.as_bytes(), Fsync::Never).unwrap();
        update_member(&dir, &bob(), Fsync::Never, work).unwrap();
        let (now, _) = read(&dir);
        assert!(now.starts_with(r#"{"later":1, "members":[{"#), "{now}");
        assert!(now.ends_with(r#" ,{"name":"alice","mood":1}]}"#), "{now}");
        let now: Value = serde_json::from_str(&now).unwrap();
        assert_eq!(
            (&now["members"][0]["role"], &now["members"][0]["status"]),
            (&json!("x"), &json!("working"))
        );
    }

    #[test]
    fn a_roster_that_is_damaged_or_newer_is_treated_as_by_a_change_of_the_whole() {
        let (_folder, dir) = test_team();
        update(&dir, Fsync::Never, |roster| drop(roster.enter("bob", 1.0).name.clone())).unwrap();
        replace(&dir.config(), br#"{"members":[{"name":"bob"}"#, Fsync::Never).unwrap();
        assert_eq!(
            update_member(&dir, &bob(), Fsync::Never, work).unwrap(),
            Some(Status::Starting)
        );
        assert!(read(&dir).0.contains("working"), "from the copy");
        let newer = r#"{"version":99,"members":[{"name":"bob"}]}"#;
        replace(&dir.config(), newer.as_bytes(), Fsync::Never).unwrap();
        let refused = update_member(&dir, &bob(), Fsync::Never, work);
        assert!(matches!(refused, Err(StoreError::Newer { .. })));
        assert_eq!(read(&dir).0, newer);
    }
}

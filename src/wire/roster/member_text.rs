//! The text of a member's entry in `config.json`. Entries of other hosts, of whom there may be thousands, are written in short: a
//! line each, without the fields that have their defaults.

use super::Member;
use crate::wire::WithUnknownFields;
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// The indentation of an entry within the roster.
const INDENTED_LINE: &str = "\n    ";

/// The entry of a member that has only its name.
static BARE_MEMBER: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let bare = serde_json::to_value(Member::default());
    bare.ok().and_then(|bare| bare.as_object().cloned()).unwrap_or_default()
});

pub(super) fn serialize_members<S: Serializer>(
    members: &[WithUnknownFields<Member>],
    out: S,
) -> Result<S::Ok, S::Error> {
    out.collect_seq(members.iter().map(MemberText))
}

/// Returns the text of an entry as it stands in the roster.
pub(crate) fn member_text(entry: &WithUnknownFields<Member>) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&MemberText(entry))?.replace('\n', INDENTED_LINE))
}

struct MemberText<'a>(&'a WithUnknownFields<Member>);

impl Serialize for MemberText<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        if self.0.host.is_none() {
            return self.0.serialize(out);
        }
        let mut entry = serde_json::to_value(self.0).map_err(S::Error::custom)?;
        if let Value::Object(fields) = &mut entry {
            fields.retain(|key, value| BARE_MEMBER.get(key) != Some(value));
        }
        let line = serde_json::to_string(&entry).and_then(RawValue::from_string);
        line.map_err(S::Error::custom)?.serialize(out)
    }
}

//! Names of tools and ids of calls as the APIs accept them. Pure.
//!
//! A model may have called a tool that does not exist, and another provider may have made the id of a call. An API that
//! refuses such a name or id would refuse every later request of the conversation. Valid ones stay unchanged.

use std::borrow::Cow;

/// The maximum length of a tool's name.
const LONGEST_NAME: usize = 64;

/// The name of a call that came without one.
const UNKNOWN: &str = "unknown";

/// The characters of a hash, with the `-` before it.
const HASH: usize = 17;

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Returns a tool's name of at most 64 letters, digits, `_` and `-`.
pub(super) fn plain_name(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return UNKNOWN.into();
    }
    if name.len() <= LONGEST_NAME && name.chars().all(is_plain) {
        return name.into();
    }
    name.chars().take(LONGEST_NAME).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// Returns the id of a call in letters, digits, `_` and `-`, in the same way each time. Different ids stay different.
pub(super) fn plain_id(id: &str) -> Cow<'_, str> {
    if !id.is_empty() && id.chars().all(is_plain) {
        return id.into();
    }
    let plain: String = id.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("{plain}-{:016x}", hash(id)).into()
}

/// Returns the id of a call in at most `longest` bytes, in the same way each time. Different ids stay different.
pub(super) fn short_id(id: &str, longest: usize) -> Cow<'_, str> {
    if id.len() <= longest {
        return id.into();
    }
    let start = id.floor_char_boundary(longest.saturating_sub(HASH));
    format!("{}-{:016x}", id.get(..start).unwrap_or_default(), hash(id)).into()
}

/// Returns the FNV-1a hash, which is the same in every version of this program.
fn hash(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_an_api_would_refuse_are_changed() {
        let long = "x y".repeat(40);
        let cut = long.replace(' ', "_")[..64].to_owned();
        for (name, sent) in [
            ("bash", "bash"),
            ("mcp__a-b__c", "mcp__a-b__c"),
            ("multi_tool_use.parallel", "multi_tool_use_parallel"),
            ("do it.now", "do_it_now"),
            ("\u{e4}", "_"),
            ("", UNKNOWN),
            (&long, &cut),
        ] {
            assert_eq!(plain_name(name), sent);
        }
    }

    #[test]
    fn ids_that_an_api_would_refuse_are_changed_and_stay_different() {
        let odd = ["functions.bash:0", "functions:bash.0", "functions_bash_0", "", "\u{e4}", "_"];
        let sent = odd.map(plain_id);
        for (at, id) in sent.iter().enumerate() {
            assert!(!id.is_empty() && id.chars().all(is_plain), "{id}");
            assert!(!sent[..at].contains(id), "{id} is there twice");
        }
        assert_eq!((sent[2].as_ref(), sent[5].as_ref()), (odd[2], odd[5]));
    }
}

//! The names of agents. Only this file decides which strings may become part of a path.
//!
//! *Invariant:* a string reaches a path under the team folder only as an [`AgentName`].

use serde::{Deserialize, Serialize};
use std::fmt;

/// The names that no member may take.
pub const RESERVED: [&str; 7] = ["lead", "user", "team", "all", "system", "self", "broadcast"];

/// The rule for names, in words for people and models.
pub const NAME_RULE: &str = "a name is 1 to 32 characters: a lower-case letter first, then lower-case letters, digits, '_' or '-'";

/// The name of a member, `lead`, `user` or `system`. It always matches `^[a-z][a-z0-9_-]{0,31}$`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct AgentName(String);

/// The reason that a string is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", self.what(), self.why())]
pub struct NameError {
    /// The string, cut to 64 characters.
    pub given: String,
    /// Whether the name is well-formed but reserved.
    pub reserved: bool,
    /// A valid name similar to the string, if there is one.
    pub suggestion: Option<String>,
}

impl AgentName {
    /// Returns the name of the lead.
    pub fn lead() -> Self {
        Self("lead".into())
    }

    /// Returns the name of the person.
    pub fn user() -> Self {
        Self("user".into())
    }

    /// Returns the name of the program itself as a sender.
    pub fn system() -> Self {
        Self("system".into())
    }

    /// Parses the name of a member (teammate).
    ///
    /// # Errors
    /// The string breaks [`NAME_RULE`] or is one of [`RESERVED`].
    pub fn member(given: &str) -> Result<Self, NameError> {
        let reserved = RESERVED.contains(&given);
        if is_well_formed(given) && !reserved {
            return Ok(Self(given.into()));
        }
        let suggestion = suggest(given).filter(|name| name != given);
        Err(NameError { given: given.chars().take(64).collect(), reserved, suggestion })
    }

    /// Parses the name of a recipient: a member, `lead` or `user`.
    ///
    /// # Errors
    /// As [`AgentName::member`], but `lead` and `user` are accepted.
    pub fn mailbox(given: &str) -> Result<Self, NameError> {
        match given {
            "lead" | "user" => Ok(Self(given.into())),
            other => Self::member(other),
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the lead.
    pub fn is_lead(&self) -> bool {
        self.0 == "lead"
    }

    /// Whether this is the person.
    pub fn is_user(&self) -> bool {
        self.0 == "user"
    }
}

impl TryFrom<String> for AgentName {
    type Error = NameError;

    fn try_from(given: String) -> Result<Self, NameError> {
        Self::mailbox(&given)
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

impl NameError {
    /// Returns the problem, in words.
    pub fn what(&self) -> String {
        // Debug formatting escapes control characters and bidi marks of a hostile name.
        match &self.given {
            given if self.reserved => format!("the name {given:?} is reserved"),
            given => format!("{given:?} is not a valid name"),
        }
    }

    /// Returns the rule that the name breaks, in words.
    pub fn why(&self) -> String {
        let reserved = || format!("reserved are {}", RESERVED.join(", "));
        if self.reserved { reserved() } else { NAME_RULE.into() }
    }

    /// Returns advice, in words.
    pub fn hint(&self) -> String {
        match &self.suggestion {
            Some(name) => format!("try {name:?}"),
            None => "choose a name such as \"alice\" or \"db-expert\"".into(),
        }
    }
}

fn is_well_formed(given: &str) -> bool {
    let mut bytes = given.bytes();
    given.len() <= 32
        && bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// Returns the nearest valid member name: lower case, other characters as '-', cut to length.
fn suggest(given: &str) -> Option<String> {
    // A path, or letters of another alphabet, were not meant as a name.
    let is_near = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
    if !given.trim().chars().all(is_near) {
        return None;
    }
    let fold = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || c == '_' => c,
        _ => '-',
    };
    let folded = given.trim().chars().take(256).map(fold);
    let name: String = folded.skip_while(|c| !c.is_ascii_lowercase()).take(32).collect();
    let name = name.trim_end_matches(['-', '_']).to_owned();
    let name = if RESERVED.contains(&name.as_str()) { format!("{name}-1") } else { name };
    // A suggestion that keeps less than half of the typed characters would confuse.
    let kept = name.chars().filter(char::is_ascii_alphanumeric).count();
    (is_well_formed(&name) && kept * 2 >= given.trim().chars().count()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_names_are_refused_with_a_suggestion_and_reserved_ones_for_members() {
        for good in ["a", "alice", "db-expert", "x_1", &"a".repeat(32)] {
            assert_eq!(AgentName::member(good).unwrap().as_str(), good);
        }
        for (bad, suggestion) in [
            ("Alice", "alice"),
            ("my agent", "my-agent"),
            ("lead", "lead-1"),
            ("../x", ""),
            ("", ""),
            ("1bob", "bob"),
            ("аlice", ""),
            ("../etc/passwd", ""),
        ] {
            let error = AgentName::member(bad).unwrap_err();
            assert_eq!(error.suggestion.unwrap_or_default(), suggestion, "for {bad:?}");
        }
        for name in ["lead", "user"] {
            assert!(AgentName::mailbox(name).is_ok());
            assert!(AgentName::member(name).unwrap_err().reserved);
        }
        assert!(AgentName::mailbox("all").unwrap_err().reserved);
    }

    proptest! {
        #[test]
        fn a_suggestion_is_a_valid_name_and_no_accepted_name_leaves_its_folder(given in any::<String>()) {
            if let Err(NameError { suggestion: Some(name), .. }) = AgentName::member(&given) {
                prop_assert!(AgentName::member(&name).is_ok());
            }
            if let Ok(name) = AgentName::mailbox(&given) {
                prop_assert!(!name.as_str().contains(['/', '.', '\0']));
            }
        }
    }
}

//! Keys of models, as one host of a team sends them to another one. They go over connections and sockets, never into a file, an
//! argument or the environment of a process.

use crate::wire::host_order::OrderId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The line by which a lead asks the relay that it has started to end. It gives the relay its keys in the same way.
pub const END_LINE: &str = "end\n";

/// Keys, by the names of their variables, such as `ANTHROPIC_API_KEY`. `Debug` shows the names alone.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModelKeys(BTreeMap<String, String>);

impl ModelKeys {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Adds keys. One of a variable that has a key takes the place of that.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the variables with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, key)| (name.as_str(), key.as_str()))
    }
}

/// The keys of one order, as they go from the relay to the supervisor of a host.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeysOfOrder {
    /// The order.
    pub order: OrderId,
    /// The keys.
    pub keys: ModelKeys,
}

impl FromIterator<(String, String)> for ModelKeys {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(keys: T) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl fmt::Debug for ModelKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        let keys: ModelKeys =
            [("OPENAI_API_KEY".to_owned(), "canary".to_owned())].into_iter().collect();
        assert_eq!(format!("{keys:?}"), r#"{"OPENAI_API_KEY"}"#);
        assert_eq!(keys.get("OPENAI_API_KEY"), Some("canary"));
        assert_eq!(serde_json::to_string(&keys).unwrap(), r#"{"OPENAI_API_KEY":"canary"}"#);
    }
}

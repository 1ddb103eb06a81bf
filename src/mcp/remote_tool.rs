//! The tools of a server, as it lists them.

use crate::wire::file_view::ContentHash;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteTool {
    /// The server's own name of it.
    pub(crate) name: String,
    pub(crate) description: String,
    /// The JSON schema of its arguments, an object.
    pub(crate) input_schema: Value,
    /// Whether the server says that it changes nothing.
    pub(crate) is_read_only: bool,
}

impl RemoteTool {
    /// Returns the digest of everything that a model sees of the tool.
    pub(crate) fn digest(&self) -> String {
        let Self { name, description, input_schema, is_read_only } = self;
        let seen = json!([name, description, input_schema, is_read_only]);
        ContentHash::of(seen.to_string().as_bytes()).as_str().to_owned()
    }

    /// Reads an entry of a server's list; `None` if it has no name or no schema.
    pub(super) fn of(listed: &Value) -> Option<Self> {
        let text = |key: &str| listed.get(key).and_then(Value::as_str);
        let hint = listed.pointer("/annotations/readOnlyHint");
        Some(Self {
            name: text("name").filter(|name| !name.is_empty())?.to_owned(),
            description: text("description").or(text("title")).unwrap_or_default().to_owned(),
            input_schema: listed.get("inputSchema").filter(|schema| schema.is_object())?.clone(),
            is_read_only: hint == Some(&Value::Bool(true)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_covers_everything_that_a_model_sees() {
        let one = RemoteTool {
            name: "log".into(),
            description: "Logs.".into(),
            input_schema: json!({ "type": "object" }),
            is_read_only: true,
        };
        let others = [
            RemoteTool { name: "log2".into(), ..one.clone() },
            RemoteTool { description: "Logs!".into(), ..one.clone() },
            RemoteTool { input_schema: Value::Null, ..one.clone() },
            RemoteTool { is_read_only: false, ..one.clone() },
        ];
        assert!(others.iter().all(|other| other.digest() != one.digest()));
    }

    #[test]
    fn an_entry_needs_a_name_and_a_schema_and_may_have_unknown_fields() {
        let schema = json!({ "type": "object" });
        let listed = json!({ "name": "log", "title": "Logs.", "inputSchema": schema,
            "annotations": { "readOnlyHint": true, "later": 1 }, "icons": 7 });
        let tool = RemoteTool::of(&listed).unwrap();
        assert!(tool.is_read_only && tool.description == "Logs." && tool.input_schema == schema);
        for (wrong, value) in [("name", json!(1)), ("name", json!("")), ("inputSchema", json!(1))] {
            let mut entry = listed.clone();
            entry[wrong] = value;
            assert_eq!(RemoteTool::of(&entry), None, "{entry}");
        }
    }
}

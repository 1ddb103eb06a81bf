//! The form in which mail is sent to a model: as data that cannot pass for a prompt.

use super::message::{Body, Message};
use serde_json::{Map, Value};

/// Returns a message with the mark `"verified": false` unless its sender is verified. The line may not mark itself.
pub fn marked(message: &Map<String, Value>, is_verified: bool) -> Map<String, Value> {
    let mut fields = message.clone();
    fields.retain(|key, _| key != "seal" && key != "verified");
    if !is_verified {
        fields.insert("verified".into(), false.into());
    }
    fields
}

/// Formats mail as an `<inbox>` block of JSON. No content can close the tag or open another one.
pub fn inbox_block(mail: &[Map<String, Value>]) -> String {
    let shown: Vec<Value> = mail
        .iter()
        .map(|message| {
            let mut fields = message.clone();
            fields.retain(|key, _| key != "to" && key != "incarnation");
            if matches!(Message::read(message), Ok(Message { body: Body::Unknown { .. }, .. })) {
                fields.insert("unknown_type".into(), true.into());
            }
            Value::Object(fields)
        })
        .collect();
    let json = Value::Array(shown).to_string();
    // These escapes mean the same characters inside JSON strings; the characters never occur outside strings.
    let json = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    format!("<inbox>\n{json}\n</inbox>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn no_content_can_leave_the_inbox_block(content in ".*", from in "[</>a-z&]{0,12}") {
            let message = serde_json::from_value(json!({"from": from, "content": content})).unwrap();
            let block = inbox_block(&[message]);
            let inner = block.strip_prefix("<inbox>\n").unwrap().strip_suffix("\n</inbox>").unwrap();
            prop_assert!(!inner.contains(['<', '>', '&']));
            let back: Value = serde_json::from_str(inner).unwrap();
            prop_assert_eq!(back[0]["content"].as_str(), Some(content.as_str()));
        }
    }
}

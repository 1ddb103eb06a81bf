//! A record that keeps unknown fields, so that a rewrite by this version never destroys the data of a newer one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::{Deref, DerefMut};

/// A `T`, which must serialize to an object, and all other fields of its JSON object.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WithUnknownFields<T> {
    #[serde(flatten)]
    known: T,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

impl<T> From<T> for WithUnknownFields<T> {
    fn from(known: T) -> Self {
        Self { known, unknown: Map::new() }
    }
}

impl<T> Deref for WithUnknownFields<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.known
    }
}

impl<T> DerefMut for WithUnknownFields<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Default, Serialize, Deserialize)]
    struct Point {
        x: i32,
    }

    #[test]
    fn unknown_fields_survive_a_rewrite_in_each_nested_record() {
        #[derive(Debug, PartialEq, Default, Serialize, Deserialize)]
        #[serde(default)]
        struct Path {
            first: Option<WithUnknownFields<Point>>,
            rest: Vec<WithUnknownFields<Point>>,
        }
        let text = r#"{"first":{"x":1,"a":null},"rest":[{"x":2,"b":"c"},{"x":3}],"y":0.5}"#;
        let mut path: WithUnknownFields<Path> = serde_json::from_str(text).unwrap();
        assert_eq!(path.rest.iter().map(|point| point.x).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(serde_json::to_string(&path).unwrap(), text);
        path.rest[0].x = 5;
        assert_eq!(serde_json::to_string(&path).unwrap(), text.replace("\"x\":2", "\"x\":5"));
        assert!(serde_json::from_str::<WithUnknownFields<Point>>("[1]").is_err());
        let none: WithUnknownFields<Path> = serde_json::from_str(r#"{"first":null}"#).unwrap();
        assert_eq!(none, WithUnknownFields::default());
    }
}

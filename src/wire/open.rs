//! A record that keeps the fields it does not know, so that a rewrite by this version never destroys
//! what a newer one stored.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::ops::{Deref, DerefMut};

/// `T` plus whatever other fields stood beside it in the JSON object.
///
/// `T` must serialize to an object in which each of its fields is always present.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Open<T> {
    known: T,
    unknown: Map<String, Value>,
}

impl<T> From<T> for Open<T> {
    fn from(known: T) -> Self {
        Self { known, unknown: Map::new() }
    }
}

impl<T> Deref for Open<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.known
    }
}

impl<T> DerefMut for Open<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.known
    }
}

impl<T: Serialize> Serialize for Open<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.unknown.is_empty() {
            return self.known.serialize(serializer);
        }
        let mut object = object_of(&self.known).map_err(serde::ser::Error::custom)?;
        object.extend(self.unknown.clone());
        object.serialize(serializer)
    }
}

impl<'de, T: Serialize + DeserializeOwned + Default> Deserialize<'de> for Open<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::Object(Map::deserialize(deserializer)?);
        let known = T::deserialize(&object).map_err(|why| D::Error::custom(why.to_string()))?;
        // The fields of any `T`, the emptiest of which is the cheapest to ask.
        let fields = object_of(&T::default()).map_err(D::Error::custom)?;
        let Value::Object(mut unknown) = object else { return Ok(known.into()) };
        unknown.retain(|field, _| !fields.contains_key(field));
        Ok(Self { known, unknown })
    }
}

fn object_of<T: Serialize>(value: &T) -> Result<Map<String, Value>, String> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(format!("expected an object, got {other}")),
        Err(why) => Err(why.to_string()),
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
    fn unknown_fields_survive_a_rewrite() {
        let mut point: Open<Point> =
            serde_json::from_str(r#"{"x":1,"later":{"deep":[2]}}"#).unwrap();
        point.x = 5;
        let text = serde_json::to_string(&point).unwrap();
        assert_eq!(text, r#"{"x":5,"later":{"deep":[2]}}"#);
    }
}

//! A record that keeps unknown fields, so that a rewrite by this version never destroys the data of a newer one.

use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};
use serde_json::{Map, Value};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A `T`, which must be a record without flattened fields, and all other fields of its JSON object.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct WithUnknownFields<T> {
    #[serde(flatten)]
    known: T,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// Reads the fields of `T` where they stand, and keeps those that it ignores. A flattened field would have the whole record
/// kept as values first, several times over in a roster.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for WithUnknownFields<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RecordVisitor(PhantomData))
    }
}

struct RecordVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for RecordVisitor<T> {
    type Value = WithUnknownFields<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        let mut unknown = Map::new();
        let known =
            T::deserialize(Fields { rest: fields, name: String::new(), unknown: &mut unknown })?;
        Ok(WithUnknownFields { known, unknown })
    }
}

/// The fields of a record while they are read.
struct Fields<'a, A> {
    rest: A,
    /// The name of the field whose value comes next.
    name: String,
    unknown: &'a mut Map<String, Value>,
}

impl<'de, A: MapAccess<'de>> Deserializer<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.rest.next_key::<String>()? else { return Ok(None) };
        self.name = name;
        seed.deserialize(self.name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let field = Field { of: seed, name: &mut self.name, unknown: self.unknown };
        self.rest.next_value_seed(field)
    }
}

/// The value of a field, or the seed for it.
struct Field<'a, D> {
    of: D,
    name: &'a mut String,
    unknown: &'a mut Map<String, Value>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Field<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.of.deserialize(Field { of: deserializer, name: self.name, unknown: self.unknown })
    }
}

/// Passes calls on to the deserializer of the value.
macro_rules! pass_on {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.of.$method($($argument,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Field<'_, D> {
    type Error = D::Error;

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let value = Value::deserialize(self.of)?;
        self.unknown.insert(std::mem::take(self.name), value);
        visitor.visit_unit()
    }

    pass_on! {
        deserialize_any() deserialize_bool() deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64()
        deserialize_i128() deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_char() deserialize_str() deserialize_string()
        deserialize_bytes() deserialize_byte_buf() deserialize_option() deserialize_unit()
        deserialize_unit_struct(name: &'static str) deserialize_newtype_struct(name: &'static str)
        deserialize_seq() deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize) deserialize_map()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) deserialize_identifier()
    }

    fn is_human_readable(&self) -> bool {
        self.of.is_human_readable()
    }
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

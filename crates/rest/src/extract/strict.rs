//! JSON as this interface takes it: what has fields is an object, never a list of their values in order, and no field is
//! given twice.

use serde::{
    Deserialize, Deserializer, de,
    de::{
        DeserializeOwned, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};
use std::fmt;

/// 2⁵³: larger whole numbers are not all exact as floating point.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Why a body is not as required.
#[derive(Debug)]
pub(super) enum Error {
    /// It is no JSON.
    Syntax(String),
    /// It is JSON of another form.
    Data(String),
}

/// Reads a body.
pub(super) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let Once(value) = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Error::Data(error.to_string()),
        _ => Error::Syntax(error.to_string()),
    })?;
    T::deserialize(Strict(value)).map_err(|error| Error::Data(error.to_string()))
}

/// A value in which no object has a field twice.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnceVisitor).map(Self)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // A whole number may be written with a fraction of zero; up to this limit every one of them is exact.
        if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
            Ok((value as i64).into())
        } else {
            Ok(value.into())
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Once(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Once(value))) = fields.next_entry::<String, Once>()? {
            if object.contains_key(&name) {
                return Err(de::Error::custom(format!("the field `{name}` is given twice")));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// A value that is read as it is written: no list stands for an object.
struct Strict(Value);

impl<'de> Deserializer<'de> for Strict {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.into_iter().map(Strict));
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| (name, Strict(value)));
                let mut fields = MapDeserializer::new(fields);
                let value = visitor.visit_map(&mut fields)?;
                fields.end()?;
                Ok(value)
            }
            single => single.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Object(_) => self.deserialize_any(visitor),
            Value::Array(_) => Err(de::Error::invalid_type(Unexpected::Seq, &"an object")),
            // The message does not repeat the value: it may be a secret.
            _ => Err(de::Error::invalid_type(Unexpected::Other("single value"), &"an object")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

impl IntoDeserializer<'_, serde_json::Error> for Strict {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_api::{ChapSet, GroupMember, ScheduleCreate, VolumeCreate};

    fn why<T: DeserializeOwned>(text: &str) -> String {
        match from_slice::<T>(text.as_bytes()) {
            Err(Error::Data(why)) => why,
            Err(Error::Syntax(why)) => format!("no JSON: {why}"),
            Ok(_) => "taken".to_owned(),
        }
    }

    #[test]
    fn objects_are_taken_as_they_are_written() {
        let volume: VolumeCreate =
            from_slice(br#"{"name":"v1","size_bytes":512,"tags":{"a":"b"},"folder":"x"}"#).unwrap();
        assert_eq!((volume.name.as_str(), volume.size_bytes, volume.tags["a"].as_str()), ("v1", 512, "b"));
        let schedule = br#"{"name":"s","volume":"v1","rules":[{"every":"daily","keep":3}],"retain_s":null}"#;
        assert_eq!(from_slice::<ScheduleCreate>(schedule).unwrap().rules[0].keep, 3);
    }

    #[test]
    fn lists_do_not_stand_for_objects_and_fields_come_once() {
        assert!(why::<GroupMember>(r#"["v1"]"#).contains("expected an object"));
        let inner = r#"{"name":"s","volume":"v1","rules":[["daily",3]]}"#;
        assert!(why::<ScheduleCreate>(inner).contains("expected an object"));
        let chap = why::<ChapSet>(r#"{"host":["user","secret-of-many"]}"#);
        assert!(chap.contains("expected an object") && !chap.contains("secret-of"), "{chap}");
        assert!(why::<GroupMember>(r#"{"volume":"a","volume":"b"}"#).contains("`volume` is given twice"));
        assert!(why::<GroupMember>(r#"{"volumes":"a"}"#).contains("unknown field `volumes`"));
        assert!(why::<GroupMember>("{}").contains("missing field `volume`"));
        assert!(why::<GroupMember>("null").contains("expected an object"));
        assert!(why::<GroupMember>("{").starts_with("no JSON"));
    }
}

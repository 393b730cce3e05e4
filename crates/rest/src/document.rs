//! The OpenAPI 3.1 document: made from the handlers, and completed by what all of them have in common.

mod rules;

use crate::{failure::problem_schema, routes};
use quoin_api::BASE_PATH;
use serde_json::Value;
use utoipa::{
    OpenApi,
    openapi::{
        OpenApi as Document, SecurityRequirement,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

#[derive(OpenApi)]
#[openapi(info(
    title = "Quoin",
    description = "Management of a Quoin storage array. Sizes are bytes, times milliseconds since the Unix epoch. \
                   Refusals are RFC 9457 problems that say what, which object, why and what next. Bodies are JSON \
                   objects; unknown fields are refused."
))]
struct Base;

/// The document of every resource, as `/api/v1/openapi.json` serves it.
pub fn document() -> Value {
    let mut document = Document::default();
    document.info = Base::openapi().info;
    let mut document = document.nest(BASE_PATH, routes::all().into_openapi());
    let components = document.components.get_or_insert_default();
    let (name, schema) = problem_schema();
    components.schemas.insert(name, schema);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.security_schemes.insert("token".to_owned(), SecurityScheme::Http(bearer).into());
    document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    let mut document = serde_json::to_value(document).unwrap_or_default();
    rules::complete(&mut document);
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs, path::Path};

    /// `UPDATE=1 cargo test -p quoin-rest` writes the document that is checked in.
    #[test]
    fn the_document_checked_in_is_the_one_served() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let served = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if env::var_os("UPDATE").is_some() {
            fs::write(&path, &served).unwrap();
        }
        let checked_in = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            checked_in == served,
            "docs/openapi.json differs from what is served; run UPDATE=1 cargo test -p quoin-rest"
        );
    }

    /// What a format allows and a larger maximum does not mean to forbid, a client cannot know.
    #[test]
    fn no_integer_may_be_larger_than_its_format() {
        fn visit(value: &Value, place: &str, wrong: &mut Vec<String>) {
            let largest = match value["format"].as_str() {
                Some("int32") => i32::MAX as u64,
                Some("int64") => quoin_api::MAX_INTEGER,
                _ => u64::MAX,
            };
            if value["maximum"].as_u64().is_some_and(|maximum| maximum > largest) {
                wrong.push(place.to_owned());
            }
            match value {
                Value::Object(fields) => {
                    fields.iter().for_each(|(name, field)| visit(field, &format!("{place}/{name}"), wrong));
                }
                Value::Array(items) => items.iter().for_each(|item| visit(item, place, wrong)),
                _ => {}
            }
        }
        let mut wrong = Vec::new();
        visit(&document(), "", &mut wrong);
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

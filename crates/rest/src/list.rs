//! Lists: their filters, and the pages that clients read them in.
//!
//! A cursor names the last item of a page: the next page begins behind that item in the list as it is then. Items
//! created or deleted meanwhile do not shift pages. If the named item itself is gone, the cursor is refused, so that no
//! client misses items unnoticed.

use crate::{extract::query, failure::Failure};
use axum::{
    extract::{FromRequestParts, OriginalUri},
    http::{HeaderValue, header::LINK, request::Parts},
    response::{AppendHeaders, IntoResponse, Json, Response},
};
use quoin_api::{Problem, ProblemKind};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Write;
use utoipa::IntoParams;

/// The most items of a page.
const LIMIT_MAX: usize = 10_000;

/// Which part of a list is shown; every list takes these beside its filters.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "for the document; `Page` is what is read")]
pub(crate) struct PageParameters {
    /// The most items in the answer. If there are more, the header `Link` with `rel="next"` leads to the rest.
    #[param(minimum = 1, maximum = 10000, example = 100)]
    limit: Option<u32>,
    /// Where the page begins; taken from `Link`.
    #[param(pattern = "^([0-9a-f]{2})+$", max_length = 1024)]
    cursor: Option<String>,
}

/// A request for a list: its filters, and its page.
pub(crate) struct List<F> {
    pub(crate) filters: F,
    pub(crate) page: Page,
}

/// Which part of a list is wanted.
pub(crate) struct Page {
    limit: Option<usize>,
    after: Option<Vec<u8>>,
    /// The path and the filters, for the link to the next page.
    base: String,
}

impl<F: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for List<F> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let text = parts.uri.query().unwrap_or_default();
        let path = match parts.extensions.get::<OriginalUri>() {
            Some(OriginalUri(uri)) => uri.path(),
            None => parts.uri.path(),
        };
        // The page is taken out of the query; what is left are the filters of the list.
        let (mut limit, mut cursor, mut filters) = (None, None, Vec::new());
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (place, value) = match pair.split_once('=') {
                Some(("limit", value)) => (&mut limit, value),
                Some(("cursor", value)) => (&mut cursor, value),
                _ => {
                    filters.push(pair);
                    continue;
                }
            };
            if place.replace(value).is_some() {
                return Err(Failure::query("limit and cursor are given once each"));
            }
        }
        let filters = filters.join("&");
        let page = Page {
            limit: limit.map(limit_of).transpose()?,
            after: cursor.map(key_of).transpose()?,
            base: format!("{path}?{filters}{}", if filters.is_empty() { "" } else { "&" }),
        };
        Ok(Self { filters: query(&filters)?, page })
    }
}

fn limit_of(text: &str) -> Result<usize, Failure> {
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| Failure::query(&format!("limit: {text:?} is not a number from 1 to {LIMIT_MAX}")))
}

/// The item's key that a cursor holds, as hexadecimal digits.
fn key_of(cursor: &str) -> Result<Vec<u8>, Failure> {
    let bytes = (cursor.len().is_multiple_of(2) && cursor.is_ascii()).then(|| {
        let pairs = (0..cursor.len()).step_by(2).map(|at| u8::from_str_radix(&cursor[at..at + 2], 16).ok());
        pairs.collect::<Option<Vec<u8>>>()
    });
    let key = bytes.flatten().filter(|key| !key.is_empty());
    key.ok_or_else(|| Failure::query("cursor: it is none that a list has given"))
}

fn cursor_of(key: &str) -> String {
    key.bytes().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a name fits a pattern, if there is one.
pub(crate) fn fits(pattern: &Option<String>, name: &str) -> bool {
    pattern.as_ref().is_none_or(|pattern| quoin_array::matches(pattern, name))
}

impl Page {
    /// The same page, with this limit if the request gave none.
    pub(crate) fn or_limit(self, limit: usize) -> Self {
        Self { limit: self.limit.or(Some(limit)), ..self }
    }

    /// The part of `items` that is wanted. `key` is what identifies an item for life.
    pub(crate) fn of<T: Serialize>(
        &self,
        mut items: Vec<T>,
        key: impl Fn(&T) -> String,
    ) -> Result<Response, Failure> {
        if let Some(after) = &self.after {
            let at = items.iter().position(|item| key(item).as_bytes() == after).ok_or_else(gone)?;
            items.drain(..=at);
        }
        let limit = self.limit.unwrap_or(usize::MAX);
        if items.len() <= limit {
            return Ok(Json(items).into_response());
        }
        items.truncate(limit);
        let last = items.last().map(&key).unwrap_or_default();
        let link = format!("<{}limit={limit}&cursor={}>; rel=\"next\"", self.base, cursor_of(&last));
        match HeaderValue::from_str(&link) {
            Ok(link) => Ok((AppendHeaders([(LINK, link)]), Json(items)).into_response()),
            Err(_) => Err(Failure::query("it has characters that do not belong there")),
        }
    }
}

fn gone() -> Failure {
    Failure::new(Problem::new(
        ProblemKind::CursorGone,
        "page not shown",
        "the cursor",
        "the item that the page before ended with is no longer in the list",
        "read the list from its beginning, without cursor",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(limit: Option<usize>, after: Option<&str>) -> Page {
        Page { limit, after: after.map(|after| after.as_bytes().to_vec()), base: "/x?".to_owned() }
    }

    fn link(response: &Response) -> Option<&str> {
        response.headers().get(LINK).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn a_page_leads_to_the_next_until_the_last() {
        let items = || vec!["a", "b/c", "d"];
        let key = |item: &&str| (*item).to_owned();
        let first = page(Some(2), None).of(items(), key).unwrap();
        let cursor = cursor_of("b/c");
        assert_eq!(link(&first), Some(format!("</x?limit=2&cursor={cursor}>; rel=\"next\"").as_str()));
        assert_eq!(key_of(&cursor).unwrap(), b"b/c");
        assert_eq!(link(&page(Some(2), Some("b/c")).of(items(), key).unwrap()), None);
        assert_eq!(link(&page(None, None).of(items(), key).unwrap()), None);
        assert!(page(Some(2), Some("gone")).of(items(), key).is_err());
        for bad in ["", "0", "zz", "a", "ä"] {
            assert!(key_of(bad).is_err(), "{bad}");
        }
        for bad in ["0", "-1", "10001", "x"] {
            assert!(limit_of(bad).is_err(), "{bad}");
        }
    }
}

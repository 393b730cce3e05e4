//! The bearer tokens (RFC 6750): one grants all rights, the other grants access to metrics only.

use crate::{failure::Failure, server::Server};
use axum::{
    extract::{ConnectInfo, Request, State},
    http::{Method, header::AUTHORIZATION},
    middleware::Next,
    response::{IntoResponse, Response},
};
use quoin_api::{Actor, COMMAND_HEADER, Problem, ProblemKind, USER_HEADER};
use quoin_array::{Refusal, acting};
use sha2::{Digest, Sha256};
use std::{fmt, hint::black_box, net::SocketAddr, sync::Arc};

/// What the event log calls the token that grants all rights.
const ADMIN: &str = "admin";

/// The secret that clients show. Never printed.
pub struct Token(String);

impl Token {
    /// A token; blanks around it do not count.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Identifies a token without disclosing it: the first 8 hexadecimal digits of its SHA-256.
    pub(crate) fn fingerprint(&self) -> String {
        Sha256::digest(self.0.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }

    /// True if `shown` is the token. Takes the same time whatever the first difference is.
    fn matches(&self, shown: &str) -> bool {
        let (own, shown) = (self.0.as_bytes(), shown.as_bytes());
        let differing = own.iter().zip(shown).fold(0, |bits, (a, b)| black_box(bits | (a ^ b)));
        !own.is_empty() && own.len() == shown.len() && differing == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

pub(crate) async fn require_token(State(server): State<Server>, request: Request, next: Next) -> Response {
    match shown(&request) {
        Some(shown) if server.token.matches(shown) => {
            // Requests that only read are not recorded, and need no actor.
            let reads = [Method::GET, Method::HEAD].contains(request.method());
            let actor = (!reads).then(|| {
                Arc::new(Actor { token: Some(ADMIN.to_owned()), ..actor_of(&request, Some(&server.token)) })
            });
            acting(actor, next.run(request)).await
        }
        shown => {
            let why = why_refused(shown);
            refused(&server, &request, why);
            refuse(why)
        }
    }
}

/// Admits requests for metrics with the metrics token or with the token that grants all rights.
pub(crate) async fn require_metrics_token(
    State(server): State<Server>,
    request: Request,
    next: Next,
) -> Response {
    match shown(&request) {
        Some(shown) if server.metrics_token.matches(shown) || server.token.matches(shown) => {
            next.run(request).await
        }
        shown => {
            let why = why_refused(shown);
            refused(&server, &request, why);
            refuse_metrics(why)
        }
    }
}

fn why_refused(shown: Option<&str>) -> &'static str {
    match shown {
        Some(_) => "the token shown is not this array's",
        None => "the request has no bearer token",
    }
}

/// Records that a request without a valid token was refused.
fn refused(server: &Server, request: &Request, why: &str) {
    let (object, actor) = ("management interface".to_owned(), actor_of(request, None));
    server.array.refused(Refusal { protocol: "rest", object, why: why.to_owned(), detail: None, actor });
}

/// Who sent a request, as far as the request says.
fn actor_of(request: &Request, token: Option<&Token>) -> Actor {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let stated = |name: &str| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
    Actor {
        fingerprint: token.map(Token::fingerprint),
        address: peer.map(|ConnectInfo(address)| address.to_string()),
        request: Some(format!("{} {}", request.method(), request.uri())),
        command: stated(COMMAND_HEADER),
        user: stated(USER_HEADER),
        ..Actor::default()
    }
}

fn shown(request: &Request) -> Option<&str> {
    request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer)
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn refuse_metrics(why: &str) -> Response {
    unauthorized(
        why,
        "send Authorization: Bearer with the content of the file metrics_token in the array's data directory: in \
         Prometheus, authorization with credentials_file",
    )
}

fn refuse(why: &str) -> Response {
    unauthorized(
        why,
        "send Authorization: Bearer with the content of the file token in the array's data directory; the CLI \
         finds it by --data or QUOIN_TOKEN_FILE",
    )
}

fn unauthorized(why: &str, next: &str) -> Response {
    Failure::new(Problem::new(
        ProblemKind::Unauthorized,
        "not allowed",
        "the Authorization header",
        why,
        next,
    ))
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_token_matches() {
        let token = Token::new("secret\n");
        assert!(token.matches("secret"));
        for wrong in ["", "secreT", "secret1", "secre"] {
            assert!(!token.matches(wrong), "{wrong}");
        }
        assert!(!Token::new("").matches(""));
        assert_eq!(bearer("bearer  x"), Some("x"));
        assert_eq!(bearer("Basic x"), None);
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(Token::new("test").fingerprint(), "9f86d081");
    }
}

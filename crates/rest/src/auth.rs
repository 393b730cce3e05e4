//! The bearer tokens (RFC 6750): one grants all rights, the other grants access to metrics only.

use crate::{Token, failure::Failure, server::Server};
use axum::{
    extract::{ConnectInfo, Request, State},
    http::{Method, header::AUTHORIZATION},
    middleware::Next,
    response::{IntoResponse, Response},
};
use quoin_api::{Actor, COMMAND_HEADER, Problem, ProblemKind, USER_HEADER};
use quoin_array::{Refusal, acting};
use std::{net::SocketAddr, sync::Arc};

/// What the event log calls the token that grants all rights.
const ADMIN: &str = "admin";

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
    fn only_bearer_tokens_are_read() {
        assert_eq!(bearer("bearer  x"), Some("x"));
        assert_eq!(bearer("Basic x"), None);
    }
}

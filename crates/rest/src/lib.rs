//! The management interface over HTTP: `/api/v1`, its OpenAPI document and its bearer token; and `/metrics`, for
//! Prometheus, with a token of its own.
//!
//! Promises: every request but the one for the document needs the token; every refusal is an RFC 9457 problem
//! that says what, which object, why and what next; a request that began is finished even if its client goes
//! away. The OpenAPI document is made from the handlers themselves. Decides nothing: the array does. Assumes a
//! tokio runtime that is not one of the array's threads.

mod auth;
mod body;
mod connections;
mod document;
mod extract;
mod failure;
mod health;
mod list;
mod metrics;
mod pipeline;
mod router;
mod routes;
mod server;
mod serving;
mod token;

pub use connections::Limits;
pub use document::document;
pub use metrics::{CutOff, FrontEnd, Memory};
pub use server::Server;
pub use serving::serve;
pub use token::Token;

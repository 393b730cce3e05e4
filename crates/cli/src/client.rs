//! Requests to the management interface.

use crate::{Failure, global::Global, stated::Stated};
use quoin_api::{BASE_PATH, COMMAND_HEADER, Problem, USER_HEADER};
use serde::{Serialize, de::DeserializeOwned};
use std::{env, fmt::Write, fs, path::PathBuf, time::Duration};
use ureq::{
    Agent, Body, Error, RequestBuilder,
    http::{Response, StatusCode},
};

/// Where a running array writes the address of its management interface, in its data directory.
pub const API_FILE: &str = "run/api";
/// Where the token is, in the data directory.
pub const TOKEN_FILE: &str = "token";

const TIMEOUT: Duration = Duration::from_secs(120);

/// A client of one array.
pub struct Client {
    agent: Agent,
    base: String,
    token: String,
    stated: Stated,
}

impl Client {
    /// Finds the array: by `QUOIN_API` and `QUOIN_TOKEN_FILE`, or through the data directory.
    ///
    /// # Errors
    /// A usage failure if neither `--data` nor the environment names an array; a failure if the file with the
    /// address or the token cannot be read.
    pub fn new(global: &Global) -> Result<Self, Failure> {
        Self::with_timeout(global, TIMEOUT)
    }

    /// The same; an answer that takes longer than `timeout` is none.
    pub(crate) fn with_timeout(global: &Global, timeout: Duration) -> Result<Self, Failure> {
        let address = match env::var("QUOIN_API") {
            Ok(address) => address,
            Err(_) => {
                let path = in_data(global, API_FILE, "QUOIN_API")?;
                fs::read_to_string(&path).map_err(|error| {
                    Failure::new(
                        "array not reached",
                        path.display().to_string(),
                        format!("cannot read {}, which a running array writes: {error}", path.display()),
                        "start the array: quoin serve --data DIR; or check the directory given by --data",
                    )
                })?
            }
        };
        // The token, which is in a file of its own.
        let path = match env::var_os("QUOIN_TOKEN_FILE") {
            Some(path) => PathBuf::from(path),
            None => in_data(global, TOKEN_FILE, "QUOIN_TOKEN_FILE")?,
        };
        let token = fs::read_to_string(&path).map_err(|error| {
            Failure::new(
                "token not found",
                path.display().to_string(),
                format!("cannot read {}: {error}", path.display()),
                "run this as the user who ran quoin init, or name the file in QUOIN_TOKEN_FILE",
            )
        })?;
        // The file may end with a newline, and an address may have a scheme.
        let address = address.trim().trim_end_matches('/');
        let scheme = if address.contains("://") { "" } else { "http://" };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            .proxy(None)
            .user_agent(concat!("quoin/", env!("CARGO_PKG_VERSION")));
        Ok(Self {
            agent: config.build().into(),
            base: format!("{scheme}{address}{BASE_PATH}"),
            token: format!("Bearer {}", token.trim()),
            stated: Stated::now(),
        })
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// The problem that the array answered; a failure of its own if the array cannot be reached or its answer
    /// makes no sense.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let request = self.signed(self.agent.get(format!("{}{path}", self.base)));
        self.decode(self.checked(request.call())?)
    }

    /// Creates something.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let request = self.signed(self.agent.post(format!("{}{path}", self.base)));
        self.decode(self.checked(request.send_json(body))?)
    }

    /// Sets something.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let request = self.signed(self.agent.put(format!("{}{path}", self.base)));
        self.decode(self.checked(request.send_json(body))?)
    }

    /// Changes something.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let request = self.signed(self.agent.patch(format!("{}{path}", self.base)));
        self.decode(self.checked(request.send_json(body))?)
    }

    /// Deletes something.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, path: &str) -> Result<(), Failure> {
        let request = self.signed(self.agent.delete(format!("{}{path}", self.base)));
        self.checked(request.call()).map(drop)
    }

    /// Adds the token, and for the event log the command and the user.
    fn signed<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        request
            .header("Authorization", &self.token)
            .header(COMMAND_HEADER, &self.stated.command)
            .header(USER_HEADER, &self.stated.user)
    }

    fn checked(&self, outcome: Result<Response<Body>, Error>) -> Result<Response<Body>, Failure> {
        let mut response = outcome.map_err(|error| self.unreachable(&error))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(match response.body_mut().read_json::<Problem>() {
                Ok(problem) => problem.into(),
                Err(_) => self.strange(&format!("{} answered {status}", self.base), status),
            }),
        }
    }

    fn decode<T: DeserializeOwned>(&self, mut response: Response<Body>) -> Result<T, Failure> {
        let status = response.status();
        response.body_mut().read_json().map_err(|error| {
            self.strange(&format!("cannot parse the answer of {}: {error}", self.base), status)
        })
    }

    fn unreachable(&self, error: &Error) -> Failure {
        let why = format!("{} does not answer: {error}", self.base);
        Failure::new(
            "array not reached",
            &self.base,
            why,
            "check that the array runs (quoin serve) and listens there; QUOIN_API overrides the address",
        )
    }

    fn strange(&self, why: &str, status: StatusCode) -> Failure {
        let next = "check that a Quoin array of this version listens there";
        Failure::new(format!("unexpected answer (HTTP {})", status.as_u16()), &self.base, why, next)
    }
}

fn in_data(global: &Global, file: &str, variable: &str) -> Result<PathBuf, Failure> {
    match &global.data {
        Some(data) => Ok(data.join(file)),
        None => Err(Failure::usage(
            "no array named",
            "neither --data nor an environment variable selects an array",
            format!("give --data DIR, or set {variable}"),
        )),
    }
}

/// A name as one segment of a path (RFC 3986 §3.3).
pub(crate) fn segment(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(byte.into()),
            b'.' if name.bytes().any(|b| b != b'.') => out.push('.'),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_segment() {
        assert_eq!(segment("v1.data-x_y"), "v1.data-x_y");
        assert_eq!(segment("a/b?c ä"), "a%2Fb%3Fc%20%C3%A4");
        assert_eq!(segment(".."), "%2E%2E");
    }
}

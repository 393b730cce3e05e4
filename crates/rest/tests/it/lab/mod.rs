//! An array with its management interface on a free port.

use quoin_array::{Array, ArrayOptions, SpacePercents};
use quoin_base::MIB;
use quoin_drive::Roles;
use quoin_pool::{FormatOptions, PoolOptions};
use quoin_rest::{CutOff, FrontEnd, Limits, Memory, Server, Token, serve};
use quoin_target::{SessionMemory, SessionShare, Target};
use quoin_world::{OneShot, Thread};
use quoin_world_linux::{LinuxWorld, OpenOptions, block_on, open_disk};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    future,
    net::TcpListener,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use ureq::{Agent, http::Request};

pub(crate) const TOKEN: &str = "secret";
pub(crate) const METRICS_TOKEN: &str = "scraper";

/// Few connections and little time, so that tests reach the limits soon.
pub(crate) const LIMITS: Limits = Limits {
    total: 8,
    of_address: 8,
    head_within: Duration::from_secs(2),
    body_within: Duration::from_secs(1),
    taken_within: Duration::from_secs(5),
};

/// What two front ends would tell.
fn front_ends() -> Vec<FrontEnd> {
    let iscsi = FrontEnd {
        protocol: "iscsi",
        logins: 3,
        cut_off: Some(CutOff { silent: 2, stalled: 5 }),
        ..FrontEnd::default()
    };
    vec![iscsi, FrontEnd { protocol: "nbd", ..FrontEnd::default() }]
}

pub(crate) struct Lab {
    base: String,
    agent: Agent,
    world: Arc<LinuxWorld>,
    array: Arc<Array>,
    run: Option<OneShot<()>>,
    _session: SessionShare,
    _directory: TempDir,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl Answer {
    /// A header; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.get(name).cloned().unwrap_or_default()
    }
}

impl Lab {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("drive");
        let world = LinuxWorld::start(1).unwrap();
        let disk = open_disk(&path, OpenOptions { create_len: Some(512 * MIB) }).unwrap();
        let bay = Box::new(vec![disk.clone()]);
        let (inner, roles) = (world.clone(), Roles { journal: true, data: true });
        let options = FormatOptions { slab_bytes: 4 * MIB as u32, ..FormatOptions::default() };
        let made = world.run_on(Thread::Data(0), async move {
            quoin_pool::format(&*inner, vec![quoin_pool::NewDrive::alone(disk, roles)], options)
                .await
                .unwrap()
        });
        let iqn = "iqn.2026-11.io.quoin:lab".to_owned();
        let options = ArrayOptions {
            name: "lab".into(),
            pool: block_on(made).unwrap(),
            iqn: iqn.clone(),
            version: "0".into(),
            nbd: Vec::new(),
            pool_options: PoolOptions::default(),
            space: SpacePercents::default(),
            spare_domains: 0,
        };
        let array = Array::new(world.clone(), bay, Target::new(&iqn), options);
        let run = world.run_on(Thread::Background, array.clone().run());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !array.status().ready {
            assert!(Instant::now() < deadline, "{:?}", array.status());
            thread::sleep(Duration::from_millis(10));
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let sessions = SessionMemory::new(1 << 20);
        let mut session = sessions.share();
        session.hold(4096);
        let server = Server {
            array: array.clone(),
            world: world.clone(),
            token: Arc::new(Token::new(TOKEN)),
            metrics_token: Arc::new(Token::new(METRICS_TOKEN)),
            memory: Memory { limit_bytes: 3 << 30, sessions: sessions.clone() },
            front_ends: Arc::new(front_ends),
        };
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(listener, server, LIMITS, future::pending())).unwrap();
        });
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_idle_connections(0)
            .build()
            .into();
        Self { base, agent, world, array, run: Some(run), _session: session, _directory: directory }
    }

    /// Where the interface is served.
    pub(crate) fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None, None)
    }

    /// The text at a path, with this token.
    pub(crate) fn text(&self, path: &str, token: &str) -> (u16, String, String) {
        let request = Request::builder().uri(format!("{}{path}", self.base));
        let request = request.header("authorization", format!("Bearer {token}")).body(()).unwrap();
        let mut response = self.agent.run(request).unwrap();
        let header = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), header.unwrap_or_default(), text)
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, None, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(&body.to_string()), Some("application/json"))
    }

    /// A request with the token.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&str>, content: Option<&str>) -> Answer {
        self.request(method, path, body, content, Some(&format!("Bearer {TOKEN}")))
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        content_type: Option<&str>,
        authorization: Option<&str>,
    ) -> Answer {
        let headers = [("content-type", content_type), ("authorization", authorization)];
        let headers: Vec<_> = headers.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        self.with_headers(method, path, body, &headers)
    }

    /// A request with these headers and no others.
    pub(crate) fn with_headers(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = match body {
            Some(body) => self.agent.run(request.body(body.to_owned()).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        };
        let mut response = response.unwrap();
        let headers: BTreeMap<String, String> = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        Answer {
            status: response.status().as_u16(),
            content_type: headers.get("content-type").cloned().unwrap_or_default(),
            headers,
            body: response.body_mut().read_json().unwrap_or_default(),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.array.stop();
        self.run.take().map(block_on);
        self.world.shutdown();
    }
}

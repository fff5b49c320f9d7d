//! Clients that `cargo xtask fetch` has downloaded into `.cache/clients`, by their path there.

use std::path::PathBuf;

use crate::kubectl::repository;

/// The path of a downloaded file: `1.24/kubectl`, `node/node_modules`. Panics if it does not exist,
/// because a test that needs a tool fails without it.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let path = repository().join(".cache/clients").join(name);
    assert!(path.exists(), "there is no {name}: `cargo xtask fetch --all` downloads it");
    path
}

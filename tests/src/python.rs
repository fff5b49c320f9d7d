//! Running scripts of `tests/python` with the official Kubernetes client.

use std::path::PathBuf;

use crate::kubectl::repository;

/// Python with the client: `POSTERN_TEST_PYTHON`, or the environment that `cargo xtask fetch` made.
#[must_use]
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("POSTERN_TEST_PYTHON") {
        return PathBuf::from(path);
    }
    let path = repository().join(".cache/venv/bin/python3");
    assert!(path.exists(), "there is no Python client: `cargo xtask fetch` downloads it");
    path
}

/// The path of a script.
#[must_use]
pub fn script(name: &str) -> PathBuf {
    repository().join("tests/python").join(name)
}

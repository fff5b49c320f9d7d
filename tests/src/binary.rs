//! Finding the binary under test, and building it when it is not built yet.
//!
//! Cargo gives a test only the binaries of the test's own package. So the harness runs cargo
//! itself: once for each test run, however many processes the run has.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The path of `postern`: `POSTERN_TEST_BIN`, or the binary that cargo builds now.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("POSTERN_TEST_BIN") {
        Some(path) => PathBuf::from(path),
        None => build_once(),
    })
}

/// Builds under a lock. Nextest runs each test in its own process and gives all of them the id of
/// the run: the first process builds, and writes the path and this id to a file for the others.
fn build_once() -> PathBuf {
    let Some(run) = std::env::var_os("NEXTEST_RUN_ID") else {
        return build();
    };
    let directory = Profile::of_this_test().target.join("postern-tests");
    std::fs::create_dir_all(&directory).unwrap();
    let lock = File::create(directory.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let note = directory.join("built-for-run");
    let mut wanted = run.to_string_lossy().into_owned();
    wanted.push('\n');
    if let Some(path) = std::fs::read_to_string(&note).ok().as_deref().and_then(|text| {
        let path = text.strip_prefix(&wanted)?;
        Some(PathBuf::from(path))
    }) {
        return path;
    }
    let path = build();
    std::fs::write(&note, format!("{wanted}{}", path.display())).unwrap();
    path
}

/// The target directory and the profile of this test. The binary is built with the same ones.
struct Profile {
    target: PathBuf,
    name: OsString,
}

impl Profile {
    /// Reads both from the path of the running test: `<target>/<profile>/deps/<test>`.
    fn of_this_test() -> Self {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).expect("a test is in deps/");
        let target = profile.parent().expect("a profile is in the target directory");
        let name = profile.file_name().expect("a profile has a name");
        let name = if name == "debug" { "dev".into() } else { name.to_owned() };
        Self { target: target.to_path_buf(), name }
    }
}

/// The directory of the workspace. Cargo and nextest pass the directory of a test's package at
/// run time. The directory at build time can be wrong when two checkouts share a target directory.
pub(crate) fn workspace() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR");
    let own = PathBuf::from(own.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()));
    own.parent().expect("the tests are in the workspace").to_path_buf()
}

/// The path of an example of the package `postern`, which is built now.
pub fn example(name: &str) -> PathBuf {
    cargo_build(&["--workspace", "--example", name], name)
}

/// Builds the binary with `--workspace`: it gets the same features as in the build of the tests, and
/// its dependencies are not compiled a second time.
fn build() -> PathBuf {
    cargo_build(&["--workspace", "--bin", "postern"], "postern")
}

fn cargo_build(what: &[&str], target: &str) -> PathBuf {
    let profile = Profile::of_this_test();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(workspace())
        .args(["build", "--quiet"])
        .args(what)
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--profile")
        .arg(&profile.name)
        .arg("--target-dir")
        .arg(&profile.target)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "{target} does not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    let path = messages.lines().find_map(|message| executable_of(message, target));
    path.expect("cargo named no executable")
}

/// The path in one of cargo's messages, if the message is about the target.
fn executable_of(message: &str, target: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    (message["target"]["name"] == target)
        .then(|| message["executable"].as_str().map(PathBuf::from))
        .flatten()
}

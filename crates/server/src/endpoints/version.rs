//! `/version`, which clients check before they do anything else.

use std::sync::OnceLock;

use serde_json::{Value, json};

/// The Kubernetes API level whose clients are served unmodified. Clients compare it with their
/// own version, so it is not Postern's.
const KUBERNETES_MAJOR: &str = "1";
const KUBERNETES_MINOR: &str = "36";

/// The sources that the program was built from. Empty where that is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Build {
    /// The commit, in hex.
    pub commit: &'static str,
    /// When it was committed, in RFC 3339 and UTC.
    pub commit_date: &'static str,
}

/// The same for all servers of a process.
static BUILD: OnceLock<Build> = OnceLock::new();

/// Sets what the process was built from. The first call counts.
pub(crate) fn set_build(build: Build) {
    BUILD.get_or_init(|| build);
}

/// The version that the platform's clients are told.
static ADVERTISED: OnceLock<String> = OnceLock::new();

/// Sets the version that the platform's clients are told, if there is one. The first call counts.
pub(crate) fn advertise(version: Option<String>) {
    if let Some(version) = version {
        ADVERTISED.get_or_init(|| version);
    }
}

/// The major and the minor part of a version such as `v3.4.8`.
fn parts(version: &str) -> Option<(&str, &str)> {
    let mut numbers = version.trim_start_matches('v').split(['.', '-', '+']);
    let (major, minor) = (numbers.next()?, numbers.next()?);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(major) && is_number(minor)).then_some((major, minor))
}

/// The document for the platform's clients, which ask at the root of the server: the version that they are
/// told, in all fields that they compare with their own.
pub(crate) fn document_at_root() -> Value {
    let mut document = document();
    if let Some((major, minor)) = ADVERTISED.get().and_then(|version| parts(version)) {
        document["major"] = major.into();
        document["minor"] = minor.into();
    }
    document
}

/// The document. Go's fields are in it because clients decode them; they are empty, or say
/// that there is none, where nothing is known.
pub(crate) fn document() -> Value {
    let postern = env!("CARGO_PKG_VERSION");
    let Build { commit, commit_date } = BUILD.get().copied().unwrap_or_default();
    let date = if commit_date.is_empty() { "1970-01-01T00:00:00Z" } else { commit_date };
    let version = ADVERTISED.get().cloned().unwrap_or_else(|| format!("v{postern}"));
    json!({
        "version": version,
        "major": KUBERNETES_MAJOR,
        "minor": KUBERNETES_MINOR,
        "gitVersion": format!("v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.0+postern-{postern}"),
        "gitCommit": commit,
        "gitTreeState": "",
        // The commit's date, so that the same sources make the same program.
        "buildDate": date,
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
    })
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

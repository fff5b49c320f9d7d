//! `/version`, which clients request first.

use std::sync::OnceLock;

use serde_json::{Value, json};

/// The Kubernetes version of the supported clients. Clients compare it with their own version, so
/// it is not Postern's version.
const KUBERNETES_MAJOR: &str = "1";
const KUBERNETES_MINOR: &str = "36";

/// The sources of a build. The fields are empty if they are unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Build {
    /// The commit, in hex.
    pub commit: &'static str,
    /// When it was committed, in RFC 3339 and UTC.
    pub commit_date: &'static str,
}

/// The build of the process, for all its servers.
static BUILD: OnceLock<Build> = OnceLock::new();

/// Sets the build of the process. Only the first call has an effect.
pub(crate) fn set_build(build: Build) {
    BUILD.get_or_init(|| build);
}

/// The version for the platform's clients.
static ADVERTISED: OnceLock<String> = OnceLock::new();

/// Sets the version for the platform's clients, if there is one. Only the first call has an effect.
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

/// The document for the platform's clients, which request it at the root of the server. The advertised version is in
/// all fields that they compare with their own version.
pub(crate) fn document_at_root() -> Value {
    let mut document = document();
    if let Some((major, minor)) = ADVERTISED.get().and_then(|version| parts(version)) {
        document["major"] = major.into();
        document["minor"] = minor.into();
    }
    document
}

/// The document. It has the fields about Go, because clients decode them.
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
        // The date is that of the commit, so that builds of the same sources are equal.
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

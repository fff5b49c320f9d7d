//! `/version`, which clients check before they do anything else.

use serde_json::{Value, json};

/// The Kubernetes API level whose clients are served unmodified. Clients compare it with their
/// own version, so it is not Postern's.
const KUBERNETES_MAJOR: &str = "1";
const KUBERNETES_MINOR: &str = "36";

/// Returns the document. Go's fields are in it because clients decode them; they are empty, or say
/// that there is none.
pub(crate) fn document() -> Value {
    let postern = env!("CARGO_PKG_VERSION");
    json!({
        "major": KUBERNETES_MAJOR,
        "minor": KUBERNETES_MINOR,
        "gitVersion": format!("v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.0+postern-{postern}"),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
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

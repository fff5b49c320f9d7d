//! A test of the lines in the server's log. No request that a client can repeat writes its own line
//! outside the audit log. A line that a request can cause is written by `log_limited!`, which this
//! test does not count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The calls of `tracing::info!`, `warn!` and `error!` that need no limit: the file, their number, and why no request
/// repeats them.
const WITHOUT_LIMIT: &[(&str, usize, &str)] = &[
    ("flow/src/large.rs", 2, "at the start, and once a minute"),
    ("flow/src/queued.rs", 1, "once"),
    ("listen/src/accept.rs", 3, "twice once a minute, and at the end"),
    (
        "registry/src/cache/mod.rs",
        8,
        "the state of the connection to the store, and corrupt values at their load",
    ),
    ("registry/src/controllers/compaction.rs", 2, "a task, once in its interval"),
    ("registry/src/controllers/signing_keys.rs", 2, "a task, once in its interval"),
    ("registry/src/default_namespaces.rs", 2, "at the start, and repairs"),
    ("registry/src/default_roles.rs", 6, "at the start, and repairs"),
    ("registry/src/registry/start/first_start.rs", 1, "at the start"),
    ("registry/src/registry/start/format.rs", 1, "a change of the format"),
    ("registry/src/signing_keys/mod.rs", 2, "changes of the signing keys"),
    ("registry/src/signing_keys/stored.rs", 1, "a corrupt record at its load"),
    ("server/src/admin/socket.rs", 4, "commands of the server's own user and of root"),
    ("server/src/admin/storage.rs", 1, "a command of the administrator"),
    ("audit/src/file.rs", 3, "at the start, and rotations of a file"),
    ("audit/src/log.rs", 3, "the first failure of the disk, and its end"),
    ("audit/src/audit.rs", 2, "a reload by the operator"),
    ("server/src/members.rs", 8, "changes of keys and of the other servers"),
    ("sso/src/refresh.rs", 1, "a task, once in a pause"),
    ("server/src/start.rs", 7, "the start and the end"),
    ("server/src/supervise.rs", 5, "tasks that ended, with pauses"),
    ("server/src/tls.rs", 2, "a renewal of the certificate"),
    ("telemetry/src/log.rs", 2, "tests"),
    ("telemetry/src/no_export.rs", 1, "at the start"),
    ("telemetry/src/otlp.rs", 1, "at the end"),
];

/// The crates through which requests go.
const CRATES: [&str; 13] = [
    "server",
    "http",
    "audit",
    "gateway",
    "sso",
    "listen",
    "flow",
    "telemetry",
    "auth",
    "oidc",
    "proxy",
    "tunnel",
    "registry",
];

fn sources(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        match path.extension() {
            _ if path.is_dir() => files.extend(sources(&path)?),
            Some(extension) if extension == "rs" => files.push(path),
            _ => {}
        }
    }
    Ok(files)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test reads the sources")]
fn a_line_that_a_request_can_cause_has_a_limit() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::new();
    for path in CRATES.iter().flat_map(|name| sources(&crates.join(name).join("src")).unwrap()) {
        let text = std::fs::read_to_string(&path).unwrap();
        let calls = ["info", "warn", "error"]
            .map(|level| text.matches(&format!("tracing::{level}!")).count());
        let name = path.strip_prefix(crates).unwrap().to_string_lossy().into_owned();
        if calls.iter().sum::<usize>() > 0 {
            found.insert(name, calls.iter().sum());
        }
    }
    let allowed = WITHOUT_LIMIT.iter().map(|(name, count, _)| ((*name).to_owned(), *count));
    let allowed: BTreeMap<String, usize> = allowed.collect();
    assert_eq!(
        found, allowed,
        "write a line that a request can cause by log_limited!, and list any other one here"
    );
}

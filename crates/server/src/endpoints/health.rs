//! `/livez`, `/readyz`, `/healthz`: plain text in kube-apiserver's format.

use http::{Response, StatusCode};

use postern_http::wire::body::Body;
use postern_http::wire::respond;

/// The current condition of the server.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each check, which is passed or not")]
pub(crate) struct Condition {
    /// Whether storage works.
    pub(crate) storage: bool,
    /// Whether the audit log can be written.
    pub(crate) audit: bool,
    /// Whether the cache is current with the store.
    pub(crate) cache: bool,
    /// Whether the clock agrees with those of the other servers.
    pub(crate) clock: bool,
    /// Whether a shutdown has started.
    pub(crate) draining: bool,
    /// Whether other servers share the store, so that it is on other machines.
    pub(crate) shared_store: bool,
}

/// A named check and whether it passes.
pub(crate) type Check = (&'static str, bool);

/// How many of the checks a server has to pass that is alive. A restart repairs no store on other machines.
const LIVENESS_CHECKS: usize = 2;
const LIVENESS_CHECKS_WITH_SHARED_STORE: usize = 1;

impl Condition {
    /// The checks of `/readyz`. The first ones are also those of `/livez`.
    pub(crate) fn readiness(self) -> [Check; 6] {
        let Self { storage, audit, cache, clock, draining, shared_store: _ } = self;
        [
            ("ping", true),
            ("storage", storage),
            // A restart would repair none of these: such a server is alive, but not ready.
            ("audit", audit),
            ("cache", cache),
            ("clock", clock),
            ("shutdown", !draining),
        ]
    }
}

/// The names of the checks of `/readyz` that fail.
pub(crate) fn failed_checks(condition: Condition) -> Vec<&'static str> {
    let checks = condition.readiness().into_iter();
    checks.filter(|(_, passed)| !passed).map(|(name, _)| name).collect()
}

/// The response to a health path; `None` for other paths. Every request passes here, so the condition is read only
/// for health paths.
pub(crate) fn response(
    path: &str,
    query: &str,
    condition: impl FnOnce() -> Condition,
) -> Option<Response<Body>> {
    let path = path.strip_prefix('/')?;
    let (endpoint, single) = match path.split_once('/') {
        Some((endpoint, single)) => (endpoint, Some(single)),
        None => (path, None),
    };
    if !matches!(endpoint, "readyz" | "livez" | "healthz") {
        return None;
    }
    let condition = condition();
    let checks = condition.readiness();
    let checks = match endpoint {
        "readyz" => &checks[..],
        _ if condition.shared_store => &checks[..LIVENESS_CHECKS_WITH_SHARED_STORE],
        _ => &checks[..LIVENESS_CHECKS],
    };
    match single {
        None => Some(all(endpoint, checks, query)),
        Some(name) => {
            let passed = checks.iter().find(|(known, _)| *known == name)?.1;
            Some(report(endpoint, &[], &[], passed))
        }
    }
}

fn all(endpoint: &str, checks: &[Check], query: &str) -> Response<Body> {
    let parameters = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let excluded: Vec<&str> =
        parameters().filter(|(name, _)| *name == "exclude").map(|(_, value)| value).collect();
    let verbose = parameters().any(|(name, _)| name == "verbose");
    let included: Vec<Check> =
        checks.iter().filter(|(name, _)| !excluded.contains(name)).copied().collect();
    let passed = included.iter().all(|(_, passed)| *passed);
    if verbose || !passed {
        report(endpoint, checks, &excluded, passed)
    } else {
        report(endpoint, &[], &[], true)
    }
}

fn report(endpoint: &str, checks: &[Check], excluded: &[&str], passed: bool) -> Response<Body> {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (name, passed) in checks {
        let _ = if excluded.contains(name) {
            writeln!(text, "[+]{name} excluded: ok")
        } else if *passed {
            writeln!(text, "[+]{name} ok")
        } else {
            writeln!(text, "[-]{name} failed: reason withheld")
        };
    }
    let (code, verdict) = if passed {
        (StatusCode::OK, "passed")
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, "failed")
    };
    if checks.is_empty() && passed {
        text.push_str("ok");
    } else {
        let _ = writeln!(text, "{endpoint} check {verdict}");
    }
    respond::text(code, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(storage: bool, draining: bool) -> Condition {
        Condition { storage, audit: true, cache: true, clock: true, draining, shared_store: false }
    }

    fn checked(path: &str, query: &str, storage: bool, draining: bool) -> Option<(u16, String)> {
        let response = response(path, query, || condition(storage, draining))?;
        let code = response.status().as_u16();
        let Body::Whole(Some(bytes)) = response.into_body() else { return None };
        Some((code, String::from_utf8(bytes.to_vec()).unwrap()))
    }

    #[test]
    fn the_checks_that_fail_are_named() {
        let of = |storage, draining| failed_checks(condition(storage, draining));
        assert!(of(true, false).is_empty());
        assert_eq!(of(false, true), ["storage", "shutdown"]);
    }

    #[test]
    fn health_paths_and_their_responses() {
        let text = |code, text: &str| Some((code, text.to_owned()));
        assert_eq!(checked("/readyz", "", true, false), text(200, "ok"));
        assert_eq!(
            checked("/readyz", "verbose", true, false),
            text(
                200,
                "[+]ping ok\n[+]storage ok\n[+]audit ok\n[+]cache ok\n[+]clock ok\n[+]shutdown ok\nreadyz check passed\n"
            )
        );
        assert_eq!(
            checked("/readyz", "", true, true),
            text(
                500,
                "[+]ping ok\n[+]storage ok\n[+]audit ok\n[+]cache ok\n[+]clock ok\n[-]shutdown failed: reason withheld\n\
                 readyz check failed\n"
            )
        );
        assert_eq!(checked("/livez", "", true, true), text(200, "ok"));
        assert_eq!(checked("/readyz", "exclude=shutdown", true, true), text(200, "ok"));
        assert_eq!(checked("/readyz/storage", "", true, true), text(200, "ok"));
        assert_eq!(checked("/readyz/storage", "", false, false).unwrap().0, 500);
        assert_eq!(checked("/readyz/nothing", "", true, false), None);
        assert_eq!(checked("/elsewhere", "", true, false), None);
        // A restart helps a store in a file, and not one on other machines.
        for (shared_store, code) in [(false, 500), (true, 200)] {
            let condition = Condition { shared_store, ..condition(false, false) };
            let live = response("/livez", "", || condition).unwrap();
            assert_eq!(live.status().as_u16(), code);
            let ready = response("/readyz", "", || condition).unwrap();
            assert_eq!(ready.status().as_u16(), 500);
        }
    }
}

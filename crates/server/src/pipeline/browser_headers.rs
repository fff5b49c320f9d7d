//! The response headers for browsers. They restrict the use of a response. So content from a
//! connected cluster or from another client never runs with the session of the console.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Request};
use postern_auth::gateway_path;

use crate::endpoints::console;
use postern_http::stages::session_cookie;

/// The prefix of the paths for logins.
pub(super) const AUTH_PREFIX: &str = "/auth/";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The content that the console may load and run: its own files, and the API of its own server.
/// Text becomes HTML or a script only through the policies at the end: Svelte's templates, and the
/// URL of the console's own worker.
const CONSOLE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; worker-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types svelte-trusted-html postern-worker";

/// The headers that a response needs in addition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BrowserHeaders {
    /// None: the client is no browser with a session.
    None,
    /// Those of the paths for logins.
    Login,
    /// Those of the console's files.
    Console,
    /// Those of a response of the API to a browser with a session.
    Api,
    /// Those of a response of a connected cluster, or of the gateway, to a browser with a session.
    Gateway,
}

impl BrowserHeaders {
    /// The headers for the response to a request.
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        let path = request.uri().path();
        if path.starts_with(AUTH_PREFIX) {
            return Self::Login;
        }
        if console::is_below(path) {
            return Self::Console;
        }
        match session_cookie::is_sent(request.headers()) {
            true if gateway_path::at_server(path).is_some() => Self::Gateway,
            true => Self::Api,
            false => Self::None,
        }
    }

    /// Adds them.
    pub(super) fn add_to(self, headers: &mut HeaderMap) {
        if self == Self::None {
            return;
        }
        let fixed = HeaderValue::from_static;
        headers.insert(X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
        match self {
            Self::None | Self::Api => {}
            // A second policy narrows the policy of the cluster.
            Self::Gateway => {
                headers.append(CONTENT_SECURITY_POLICY, fixed("sandbox"));
            }
            Self::Login | Self::Console => {
                headers.insert(REFERRER_POLICY, fixed("no-referrer"));
                headers.insert(OPENER_POLICY, fixed("same-origin"));
                headers.insert(RESOURCE_POLICY, fixed("same-origin"));
                if self == Self::Console {
                    headers.insert(CONTENT_SECURITY_POLICY, fixed(CONSOLE_POLICY));
                    return;
                }
                let policy = "default-src 'none'; frame-ancestors 'none'";
                headers.insert(CONTENT_SECURITY_POLICY, fixed(policy));
                headers.insert(CACHE_CONTROL, fixed("no-store"));
            }
        }
    }
}

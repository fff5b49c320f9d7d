//! Connectors of a server under test to an identity provider.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::Server;
use crate::http::Client;
use crate::objects::make;

/// The client that every server under test is.
pub const CLIENT_ID: &str = "postern";

/// The secret of the client. Some of its characters are escaped in a header and in a form.
pub const CLIENT_SECRET: &str = "client-secret-canary+/=";

/// The name of the connector of most tests.
pub const NAME: &str = "corp";

/// The settings of a connector to a provider with this issuer, and with this certificate in PEM.
#[must_use]
pub fn connector_to(issuer: &str, authority: &str) -> Value {
    json!({
        "issuer": issuer,
        "clientId": CLIENT_ID,
        "clientSecret": { "secretName": NAME, "secretNamespace": "platform" },
        "caData": BASE64_STANDARD.encode(authority),
        "groupsClaim": "groups",
        "allow": { "everyone": true },
    })
}

/// Creates the connector `corp`, and its Secret with a client secret.
pub async fn make_connector(admin: &Client, spec: Value, client_secret: &str) {
    let data = json!({ "clientSecret": BASE64_STANDARD.encode(client_secret) });
    let secret = json!({ "metadata": { "name": NAME }, "data": data });
    let secrets = "/kubernetes/management/api/v1/namespaces/platform/secrets";
    admin.post(secrets).json(&secret).send().await.expect(201);
    make(admin, "connectors", NAME, spec).await;
}

/// Checks that the log and the audit log have no token, no code and no state of a login, and not the client secret.
pub fn check_secrecy(server: &Server) {
    let logs = format!("{}{:?}", server.home().logged(), server.home().records());
    assert!(logs.contains("platform.sh/login-by"), "logins are recorded");
    for secret in ["eyJ", "code=", "state=", "canary"] {
        assert!(!logs.contains(secret), "{secret}");
    }
}

//! nanoidp, an identity provider for tests, on loopback, with TLS in front. `cargo xtask fetch` brings it.
//!
//! Its issuer is at `localhost`, and servers under test are at 127.0.0.1. For a browser, these are two sites.

use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use crate::connectors::{CLIENT_ID, NAME, connector_to, make_connector};
use crate::{Home, Server, TlsServer, browser, python, wait};

/// The users, and the groups of each.
const USERS: [(&str, &[&str]); 3] =
    [("ada", &["developers"]), ("bob", &["developers", "operators"]), ("tim", &["operators"])];

/// The password of each user.
const PASSWORD: &str = "password-canary";

/// The secret of the client. nanoidp compares it with the header as it is, without the escapes of RFC 6749 section 2.3.1.
/// So nothing in it is escaped.
const CLIENT_SECRET: &str = "client-secret-canary";

/// A nanoidp. Dropping it ends it.
#[derive(Debug)]
pub struct NanoIdp {
    child: Child,
    home: Home,
    front: TlsServer,
}

impl NanoIdp {
    /// Starts one with the server as its client, if the package was fetched. Without it, the test says so and does
    /// nothing; with `CI=true` it fails.
    pub async fn start(server: &Server) -> Option<Self> {
        if !python::program().with_file_name("nanoidp").exists() {
            browser::skip("logins at nanoidp", "nanoidp, which cargo xtask fetch brings");
            return None;
        }
        // The port is free until nanoidp takes it.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let front = TlsServer::start(move |mut outer| async move {
            let Ok(mut inner) = TcpStream::connect(("127.0.0.1", port)).await else { return };
            // An end of either side is passed on.
            drop(copy_bidirectional(&mut outer, &mut inner).await);
        })
        .await;
        let home = Home::new();
        let write = |name: &str, text: &Value| {
            std::fs::write(home.path().join(name), text.to_string()).unwrap();
        };
        // JSON is YAML.
        write("settings.yaml", &settings(&home, &issuer_of(&front), port, server));
        write("users.yaml", &users());
        let log = File::create(home.path().join("log")).unwrap();
        let child = Command::new(python::program())
            .args(["-m", "nanoidp", "--config"])
            .arg(home.path())
            .current_dir(home.path())
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("nanoidp can be started");
        let mut provider = Self { child, home, front };
        wait::until("nanoidp to listen", async || {
            if let Some(status) = provider.child.try_wait().unwrap() {
                panic!("nanoidp ended with {status}: {}", provider.logged());
            }
            TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop)
        })
        .await;
        Some(provider)
    }

    /// Its issuer.
    #[must_use]
    pub fn issuer(&self) -> String {
        issuer_of(&self.front)
    }

    /// Creates the connector `corp` to it. All claims about a user are at its UserInfo endpoint alone.
    pub async fn make_connector(&self, server: &Server) {
        let mut spec = connector_to(&self.issuer(), self.front.authority());
        spec["displayName"] = json!("Corporate login");
        spec["groupsFrom"] = json!("UserInfo");
        make_connector(&server.client(), spec, CLIENT_SECRET).await;
    }

    /// Its configuration for a script of `tests/python/console`.
    #[must_use]
    pub fn script_config(&self) -> Value {
        json!({
            "provider": "nanoidp", "issuer": self.issuer(),
            "issuer_authority": self.front.authority(), "password": PASSWORD,
        })
    }

    /// The content of its log.
    #[must_use]
    pub fn logged(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for NanoIdp {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

fn issuer_of(front: &TlsServer) -> String {
    format!("https://localhost:{}", front.address().port())
}

/// The settings, with the strictest rules that it has: PKCE with S256, and registered redirect URIs only.
fn settings(home: &Home, issuer: &str, port: u16, server: &Server) -> Value {
    let server = server.kubeconfig().authority_of_server();
    json!({
        "config_version": 1,
        "config_validation": "strict",
        "security_profile": "oauth21",
        "server": { "host": "127.0.0.1", "port": port },
        "jwt": { "keys_dir": home.path().join("keys") },
        "oauth": {
            "issuer": issuer,
            "audience": "resources",
            "refresh_token_rotation": true,
            "clients": [{
                "client_id": CLIENT_ID,
                "client_secret": CLIENT_SECRET,
                "redirect_uris": [format!("https://{server}/auth/oidc/{NAME}/callback")],
            }],
        },
    })
}

fn users() -> Value {
    let user = |(name, groups): &(&str, &[&str])| {
        let email = format!("{name}@example.com");
        ((*name).to_owned(), json!({ "password": PASSWORD, "email": email, "groups": groups }))
    };
    let users: serde_json::Map<String, Value> = USERS.iter().map(user).collect();
    json!({ "config_version": 1, "users": users })
}

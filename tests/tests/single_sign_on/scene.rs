//! A server with a connector to a provider, and browsers that log in.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering};

use postern_tests::connectors::make_connector;
use postern_tests::http::{Client, Response};
use postern_tests::identity_provider::{CLIENT_SECRET, IdentityProvider};
use postern_tests::objects::collection;
use postern_tests::rights::path;
use postern_tests::watching::Watch;
use postern_tests::{Home, Server, Setup};
use serde_json::Value;

/// The cookie of a session.
const SESSION: &str = "__Host-postern";

/// A server and a provider, with the connector `corp`.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) admin: Client,
    pub(crate) provider: IdentityProvider,
    last_address: AtomicU8,
}

/// A browser: its address and its cookies.
pub(crate) struct Browser {
    pub(crate) client: Client,
    pub(crate) cookies: Vec<(String, String)>,
}

/// Starts a server that may reach providers on loopback.
pub(crate) async fn start_server() -> Server {
    Setup::on(&Home::new()).argument("--allow-local-upstreams").start().await
}

impl Scene {
    pub(crate) async fn start() -> Self {
        Self::of(start_server().await).await
    }

    /// A scene with this server, which may reach providers on loopback.
    pub(crate) async fn of(server: Server) -> Self {
        let (admin, provider) = (server.client(), IdentityProvider::start().await);
        make_connector(&admin, provider.connector(), CLIENT_SECRET).await;
        Self { server, admin, provider, last_address: AtomicU8::new(1) }
    }

    /// A browser at a separate address, because logins are limited by address.
    pub(crate) fn browser(&self) -> Browser {
        let last = self.last_address.fetch_add(1, Ordering::Relaxed);
        Browser::at(&self.admin, Ipv4Addr::new(127, 0, 1, last).into())
    }

    /// Logs in through `corp` with a new browser.
    pub(crate) async fn log_in(&self) -> (Browser, Response) {
        let mut browser = self.browser();
        let response = browser.log_in(&self.provider).await;
        (browser, response)
    }

    pub(crate) async fn user(&self, name: &str) -> Value {
        self.admin.get(&path("users", name)).send().await.expect(200)
    }

    /// The names of all users.
    pub(crate) async fn users(&self) -> Vec<String> {
        names(&self.admin, "users").await
    }

    /// How many access keys logins have made.
    pub(crate) async fn sessions(&self) -> usize {
        let keys = self.admin.get(&collection("ownedaccesskeys")).send().await.expect(200);
        let keys = keys["items"].as_array().unwrap();
        keys.iter().filter(|key| key["spec"]["type"] == "Login").count()
    }
}

/// The names of all objects of a kind.
pub(crate) async fn names(admin: &Client, plural: &str) -> Vec<String> {
    let list = admin.get(&collection(plural)).send().await.expect(200);
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

impl Browser {
    pub(crate) fn at(client: &Client, address: IpAddr) -> Self {
        Self { client: client.from_address(address), cookies: Vec::new() }
    }

    /// A GET of a page: with the cookies, and without anything of the console.
    pub(crate) async fn visit(&mut self, path: &str) -> Response {
        let mut request = self.client.get(path).without("authorization");
        if !self.cookies.is_empty() {
            request = request.header("cookie", &self.cookie());
        }
        let response = request.send().await;
        self.keep_cookies(&response);
        response
    }

    /// The header `Cookie`.
    pub(crate) fn cookie(&self) -> String {
        let pairs = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("; ")
    }

    fn keep_cookies(&mut self, response: &Response) {
        for line in response.headers.get_all("set-cookie") {
            let line = line.to_str().unwrap();
            let (pair, attributes) = line.split_once("; ").unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            assert!(attributes.contains("Secure; HttpOnly"), "{attributes}");
            self.cookies.retain(|(known, _)| known != name);
            if !attributes.ends_with("Max-Age=0") {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    /// Begins a login, and returns the address at the provider.
    pub(crate) async fn begin(&mut self, path: &str) -> String {
        let response = self.visit(path).await;
        assert_eq!(response.status, 303, "{}", response.text());
        response.header("location").unwrap().to_owned()
    }

    /// A whole login through `corp`.
    pub(crate) async fn log_in(&mut self, provider: &IdentityProvider) -> Response {
        let begun = self.visit("/auth/oidc/corp/start").await;
        if begun.status != 303 {
            return begun;
        }
        let callback = provider.log_in(begun.header("location").unwrap());
        self.visit(&callback).await
    }

    /// Whether it has a session cookie.
    pub(crate) fn has_session(&self) -> bool {
        self.cookies.iter().any(|(name, _)| name == SESSION)
    }

    /// A GET as the console sends it.
    pub(crate) async fn get(&self, path: &str) -> Response {
        let request = self.client.get(path).without("authorization");
        request.header("cookie", &self.cookie()).header("x-postern-console", "1").send().await
    }

    /// A DELETE as the console sends it.
    pub(crate) async fn delete(&self, path: &str) -> Response {
        let request = self.client.delete(path).without("authorization");
        request.header("cookie", &self.cookie()).header("x-postern-console", "1").send().await
    }

    /// A POST as the console sends it.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        let request = self.client.post(path).without("authorization").json(body);
        request.header("cookie", &self.cookie()).header("x-postern-console", "1").send().await
    }

    /// The answer of the person to a login of the command line, as the console sends it.
    pub(crate) async fn consent(&self, body: &Value) -> Response {
        self.post("/auth/authorize", body).await
    }

    /// A watch as the console opens it.
    pub(crate) async fn watch(&self, collection: &str) -> Watch {
        let path = format!("{collection}?watch=true");
        let request = self.client.get(&path).without("authorization");
        let request = request.header("cookie", &self.cookie()).header("x-postern-console", "1");
        Watch::new(request.stream().await)
    }

    /// The caller, as the server knows it.
    pub(crate) async fn me(&self) -> Value {
        self.get(&collection("selves/me")).await.expect(200)
    }
}

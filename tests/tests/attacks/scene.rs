//! Where an attack takes place: a server, its administrator, and ordinary users.

use std::net::{IpAddr, Ipv4Addr};

use postern_tests::http::Client;
use postern_tests::objects::make;
use postern_tests::{Home, Server, Setup};
use serde_json::json;

use crate::form::Form;

/// Where attackers come from.
pub(crate) const ATTACKERS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Where everybody else comes from.
pub(crate) const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The access keys, as a resource: the one kind that an ordinary user may write.
pub(crate) const KEYS: &str = "ownedaccesskeys";

/// A server under attack.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) form: Form,
    /// The administrator, over HTTP/1.1.
    pub(crate) admin: Client,
}

impl Scene {
    /// Starts a server with these arguments, and the usual ones.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let mut setup = Setup::on(&Home::new());
        for argument in arguments {
            setup = setup.argument(argument);
        }
        let server = setup.start().await;
        let admin = server.client().from_address(OTHERS);
        Self { server, form: Form::of_this_run(), admin }
    }

    /// Makes an ordinary user with an access key `NAME-key`. Returns the key's value.
    pub(crate) async fn user(&self, name: &str) -> String {
        make(&self.admin, "users", name, json!({})).await;
        let key = make(&self.admin, KEYS, &format!("{name}-key"), json!({ "user": name })).await;
        key["spec"]["key"].as_str().expect("a new key is returned once").to_owned()
    }

    /// Returns a client of an attacker over HTTP/1.1.
    pub(crate) fn attacker(&self, token: &str) -> Client {
        self.server.client().from_address(ATTACKERS).with_token(token)
    }

    /// Returns the same over HTTP/2.
    pub(crate) fn attacker_http2(&self, token: &str) -> Client {
        Client::http2(self.server.kubeconfig()).from_address(ATTACKERS).with_token(token)
    }
}

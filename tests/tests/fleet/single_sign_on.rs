//! Logins on two servers with one store.

use postern_tests::etcd::Etcd;
use postern_tests::http::Client;
use postern_tests::identity_provider::{CLIENT_ID, IdentityProvider};
use postern_tests::objects::{collection, make};
use postern_tests::{Server, Setup};
use serde_json::json;

use super::{copy_of, init, on};

/// A GET of a browser, with a cookie.
async fn visit(client: &Client, path: &str, cookie: &str) -> postern_tests::http::Response {
    client.get(path).without("authorization").header("cookie", cookie).send().await
}

#[tokio::test]
async fn a_login_begins_on_one_server_and_ends_on_another() {
    let (etcd, provider) = (Etcd::start().await, IdentityProvider::start().await);
    let store = etcd.store("/fleet");
    let first = init(&store).await;
    let mut servers: Vec<Server> = Vec::new();
    for home in [copy_of(&first), first] {
        let setup = on(Setup::on(&home), &store).argument("--allow-local-upstreams");
        let setup = setup.argument("--external-url").argument("https://postern.example.com");
        servers.push(setup.start().await);
    }
    let clients: Vec<Client> = servers.iter().map(Server::client).collect();
    let spec = json!({
        "issuer": provider.issuer(), "clientId": CLIENT_ID, "caData": provider.ca_data(),
        "groupsClaim": "groups", "allow": { "everyone": true },
    });
    make(&clients[0], "connectors", "corp", spec).await;
    for (begins, ends) in [(0, 1), (1, 0)] {
        let begun = visit(&clients[begins], "/auth/oidc/corp/start", "a=b").await;
        assert_eq!(begun.status, 303, "{}", begun.text());
        let pair = begun.header("set-cookie").unwrap().split_once(';').unwrap().0.to_owned();
        let callback = provider.log_in(begun.header("location").unwrap());
        let done = visit(&clients[ends], &callback, &pair).await;
        assert_eq!((done.status, done.header("location")), (303, Some("/ui/")), "{}", done.text());
        let cookies = done.headers.get_all("set-cookie").iter();
        let mut cookies = cookies.map(|line| line.to_str().unwrap().split_once(';').unwrap().0);
        let session = cookies.find(|pair| pair.starts_with("__Host-postern=")).unwrap().to_owned();
        // The session is good on both.
        for client in &clients {
            let me = client.get(&collection("selves/me")).without("authorization");
            let me = me.header("cookie", &session).header("x-postern-console", "1").send().await;
            assert_eq!(me.expect(200)["status"]["user"]["name"], "ada");
        }
    }
}

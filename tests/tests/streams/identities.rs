//! The largest identities that the server accepts, by the ways to a cluster through the central server.

use postern_tests::http::Client;
use postern_tests::objects::make;
use postern_tests::rights::{path, set, with_key};
use postern_tests::{Home, Kubeconfig, wait};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::scene::Scene;
use super::upstream::{ANSWER, ENDS_ABRUPTLY, Upstream, last_bytes};

const GROUPS: usize = 500;
const GROUP_BYTES: usize = 256;
const TEAMS: usize = 150;
const SCOPE_ENTRIES: usize = 1000;

#[tokio::test]
async fn the_largest_identity_gets_through_the_gateway_and_the_agent() {
    let (upstream, home) = (Upstream::start().await, Home::new());
    let kubeconfig = upstream.kubeconfig(&home);
    let scene = Scene::new(home, &kubeconfig).await;
    let admin = scene.central.client();
    let groups: Vec<String> = (0..GROUPS)
        .map(|number| {
            let name = format!("CN=group-{number:03};OU=");
            name.clone() + &"x".repeat(GROUP_BYTES - name.len())
        })
        .collect();
    set(&admin, &path("users", "ada"), json!({ "groups": groups })).await;
    for number in 0..TEAMS {
        make(&admin, "teams", &format!("team-{number}"), json!({ "users": ["ada"] })).await;
    }
    // Rules and resources are entries, too.
    let names: Vec<String> =
        (0..SCOPE_ENTRIES - 10).map(|number| format!("pod-{number}")).collect();
    let of_pods = json!([{ "resources": ["pods"] }]);
    let rules = json!([
        { "cluster": "far" },
        { "cluster": "near" },
        { "resources": of_pods, "resourceNames": names },
    ]);
    let spec = json!({ "user": "ada", "scope": { "rules": rules } });
    let ada = with_key(&admin, "large", spec).await;
    // The agent is reached through its tunnels, and then at its endpoint.
    for (cluster, connection) in [("near", "Auto"), ("far", "Auto"), ("far", "Endpoint")] {
        set(&admin, &path("clusters", "far"), json!({ "connection": connection })).await;
        let client = Client::new(&Kubeconfig {
            server: format!("https://{}", ada.address()),
            token: ada.token().to_owned(),
            ..scene.central.kubeconfig().clone()
        });
        let prefix = format!("/kubernetes/cluster/{cluster}");
        let reply = client.get(&format!("{prefix}{ANSWER}good")).send().await;
        assert_eq!(reply.expect_text(201), "took 0", "{cluster} {connection}");

        // A stream has its own token.
        let mut stream = client.raw().await.unwrap();
        let head = format!(
            "POST {prefix}{ENDS_ABRUPTLY} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\n\
             Upgrade: SPDY/3.1\r\nContent-Length: 0\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n",
            client.address(),
            client.token()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        let _ = wait::within("the end", stream.read_to_end(&mut read)).await;
        let text = String::from_utf8_lossy(&read);
        assert!(read.starts_with(b"HTTP/1.1 101"), "{cluster} {connection}: {text}");
        assert!(read.ends_with(&last_bytes()), "{cluster} {connection}");
    }
}

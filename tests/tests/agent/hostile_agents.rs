//! Messages that an agent may send in its tunnel and that are no response. The callers of the
//! agent's cluster get an error in time. Callers of other clusters, and all other callers, get
//! nothing of it.

use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::rights::{allow, rule_on};
use postern_tests::wait;
use postern_tests::websocket::RawTunnel;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent::scene::Central;

/// A word that no honest answer has.
const CANARY: &str = "from-mallory";

/// The longest that a request may take, with some seconds for a busy machine.
const LONGEST_HANG: Duration = Duration::from_secs(30);

/// When the agent speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// Before there is a request.
    Early,
    /// After the head of the request.
    Asked,
}

/// The message of the agent.
enum Said {
    Bytes(Vec<u8>),
    Text,
    /// These bytes again and again, until the server closes the tunnel.
    Endless(&'static [u8]),
}

fn answer(more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{more}\r\n{CANARY}", CANARY.len())
        .into_bytes()
}

/// An agent that reports a rejected token. The error then names the clocks, because a server with a
/// wrong clock issues tokens that no agent accepts.
const REJECTED: &str = "a rejected token";

/// A message of the agent, its moment, and the statuses that its own caller may get.
type Hostile = (&'static str, When, Said, &'static [u16]);

fn hostile() -> Vec<Hostile> {
    use Said::{Bytes, Endless, Text};
    use When::{Asked, Early};
    let head = |text: &str| Bytes(text.as_bytes().to_vec());
    vec![
        ("no HTTP", Asked, head("garbage\r\n\r\n"), &[503]),
        ("a request to the server", Asked, head("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"), &[503]),
        ("HTTP/2", Asked, head("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), &[503]),
        (
            "a head without an end",
            Asked,
            Endless(b"X-More: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"),
            &[503],
        ),
        ("two lengths", Asked, Bytes(answer("Content-Length: 3\r\n")), &[503]),
        (
            "a switch that was not asked for",
            Asked,
            head("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
            &[502, 503],
        ),
        (
            "a redirect",
            Asked,
            head(
                "HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n",
            ),
            &[502],
        ),
        (REJECTED, Asked, head("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"), &[502]),
        ("a text message", Asked, Text, &[503]),
        ("a message that is too long", Asked, Bytes(vec![b'x'; 65 * 1024]), &[503]),
        ("an end in place of an answer", Asked, Bytes(Vec::new()), &[503]),
        ("an answer before its request", Early, Bytes(answer("")), &[503]),
        (
            "a request before any request",
            Early,
            head("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"),
            &[503],
        ),
        ("garbage before any request", Early, head("\0\0\0\0"), &[503]),
    ]
}

async fn say(tunnel: &mut RawTunnel, said: &Said) {
    match said {
        Said::Bytes(bytes) => {
            tunnel.send(bytes.clone()).await;
        }
        Said::Text => {
            tunnel.send_text(CANARY).await;
        }
        Said::Endless(first) => {
            let chunk = first.repeat(200);
            if tunnel.send(b"HTTP/1.1 200 OK\r\n".to_vec()).await {
                while tunnel.send(chunk.clone()).await {}
            }
        }
    }
}

/// Sends a request of ada to a cluster, and returns the status and the text.
async fn ask(client: &Client, cluster: &str) -> (u16, String) {
    let path = format!("/kubernetes/cluster/{cluster}/version");
    let reply = wait::within("an answer", client.get(&path).try_send()).await;
    reply.map_or((0, String::new()), |reply| (reply.status, reply.text()))
}

/// An agent of the cluster `other` that answers each request with its own word.
async fn answer_honestly(mut tunnel: RawTunnel) {
    while tunnel.request().await.is_some() {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhonest";
        if !tunnel.send(answer.as_bytes().to_vec()).await {
            return;
        }
    }
}

/// Waits for the request of a client. Probes of the server, which may come first, are answered.
async fn request_of_client(tunnel: &mut RawTunnel) -> bool {
    while let Some(request) = tunnel.request().await {
        if !request.contains("postern-probe") {
            return true;
        }
        let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        if !tunnel.send(answer).await {
            return false;
        }
    }
    false
}

/// One hostile agent in front of a separate cluster, and one request to that cluster.
async fn trial(
    ada: Client,
    (mallory, cluster): (Client, String),
    (what, when, said, wanted): Hostile,
) {
    let mut tunnel = mallory.tunnel(&cluster, "mallory").await.unwrap();
    // An answer that is not passed on need not end the tunnel.
    let ends = wanted != [502];
    if when == When::Early {
        say(&mut tunnel, &said).await;
    }
    let start = Instant::now();
    let hostile = async {
        if when == When::Asked && request_of_client(&mut tunnel).await {
            say(&mut tunnel, &said).await;
        }
        if ends {
            while tunnel.bytes().await.is_some() {}
        }
    };
    let ((status, text), ()) = tokio::join!(ask(&ada, &cluster), wait::within(what, hostile));
    assert!(wanted.contains(&status), "{what}: {status} {text}");
    assert!(!text.contains(CANARY), "{what}: {text}");
    assert!(what != REJECTED || text.contains("check that the clocks"), "{text}");
    assert!(start.elapsed() < LONGEST_HANG, "{what}: {:?}", start.elapsed());
}

#[tokio::test]
async fn what_is_no_answer_ends_the_tunnel_and_reaches_no_other_caller() {
    let central = Central::new().await;
    let admin = central.admin();
    let other = admin.with_token(&central.agent_key);
    let mut agents = JoinSet::new();
    for name in ["one", "two"] {
        agents.spawn(answer_honestly(other.tunnel("member", name).await.unwrap()));
    }
    let mut trials = JoinSet::new();
    for (number, hostile) in hostile().into_iter().enumerate() {
        let cluster = format!("hostile{number}");
        let mallory = admin.with_token(&central.create_cluster(&cluster).await);
        let rules = json!([rule_on("clusters", &[&cluster], &["use"])]);
        allow(&admin, &cluster, None, rules, "platform:user:ada").await;
        trials.spawn(trial(central.ada.clone(), (mallory, cluster), hostile));
    }
    // Meanwhile, the callers of another cluster get its own answers.
    let honest = (200, "honest".to_owned());
    assert_eq!(ask(&central.ada, "member").await, honest);
    while let Some(trial) = trials.join_next().await {
        trial.unwrap();
        assert_eq!(ask(&central.ada, "member").await, honest);
    }
    assert_eq!(ask(&central.eve, "member").await.0, 403);
    agents.shutdown().await;
}

//! Agents that open as many tunnels as they can, and agents that answer byte by byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::rights::{allow, rule_on};
use postern_tests::websocket::RawTunnel;
use serde_json::json;
use tokio::task::JoinSet;

use crate::attacks::load::repeat;
use crate::attacks::scene::{Scene, pass};
use crate::attacks::trial::hold;
use crate::attacks::victims::Victims;

/// File descriptors of the server: one cluster may have a sixteenth of them as tunnels.
const DESCRIPTORS: usize = 2_048;
const MAX_OF_CLUSTER: usize = DESCRIPTORS / 16;

/// How much slower others may get: their p99, to their usual one.
const SLOWDOWN_BY_AN_AGENT: f64 = 2.0;

/// How much longer than the timeout of an answer a request may take.
const ANSWER_MAX: Duration = Duration::from_secs(70);

/// Creates a cluster that the user `mallory` may use, and returns a client with the key of its agent.
async fn cluster(scene: &Scene, name: &str) -> Client {
    let user =
        CliUser::new().with("KUBECONFIG", scene.server.home().kubeconfig().to_str().unwrap());
    let key = user.ok(&["create", "cluster", name]).await.trim().to_owned();
    let rules = json!([rule_on("clusters", &[name], &["use"])]);
    allow(&scene.admin, name, None, rules, "platform:user:mallory").await;
    scene.attacker(&key)
}

/// The agent's end of a tunnel, with an answer to each request.
async fn answer(mut tunnel: RawTunnel) {
    while tunnel.request().await.is_some() {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        if !tunnel.send(answer.as_bytes().to_vec()).await {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_without_end() {
    let scene = Scene::with_descriptors(DESCRIPTORS).await;
    let victims = Victims::new(&scene).await;
    let mallory = scene.attacker(&scene.user("mallory").await);
    let (flooded, other) = (cluster(&scene, "flooded").await, cluster(&scene, "other").await);
    let most = Arc::new(AtomicUsize::new(0));
    let attack = async {
        // Open tunnels stay open.
        let mut held = Vec::new();
        for number in 0..=MAX_OF_CLUSTER {
            match flooded.tunnel("flooded", &format!("agent-{}", number % 50)).await {
                Ok(tunnel) => held.push(tunnel),
                Err(error) => {
                    assert!(error.contains("429"), "{error}");
                    break;
                }
            }
        }
        most.store(held.len(), Ordering::Relaxed);
        // The agent of another cluster still gets its tunnels, and its callers are served.
        let mut agents = JoinSet::new();
        for _ in 0..8 {
            agents.spawn(answer(other.tunnel("other", "agent").await.expect("a tunnel")));
        }
        repeat(8, scene.lasting(), move |_| {
            let flooded = flooded.clone();
            async move { drop(flooded.tunnel("flooded", "agent-1").await) }
        })
        .await;
        mallory.get("/kubernetes/cluster/other/version").send().await.expect_text(200);
        drop(held);
        agents.shutdown().await;
    };
    hold("a flood of tunnels", &scene, &victims, SLOWDOWN_BY_AN_AGENT, attack).await;
    assert_eq!(most.load(Ordering::Relaxed), MAX_OF_CLUSTER);
}

/// The same with a head that comes byte by byte, and never ends.
async fn dribble(mut tunnel: RawTunnel) {
    if tunnel.request().await.is_none() || !tunnel.send(&b"HTTP/1.1 200 OK\r\nX-Slow: "[..]).await {
        return;
    }
    while tunnel.send(&b"x"[..]).await {
        pass(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_answers_byte_by_byte() {
    let scene = Scene::start(&[]).await;
    let victims = Victims::new(&scene).await;
    let mallory = scene.attacker(&scene.user("mallory").await);
    let slow = cluster(&scene, "slow").await;
    let attack = async {
        let mut agents = JoinSet::new();
        for _ in 0..scene.form.pick(20, 200) {
            agents.spawn(dribble(slow.tunnel("slow", "agent").await.expect("a tunnel")));
        }
        let mut callers = JoinSet::new();
        for _ in 0..scene.form.pick(20, 200) {
            let mallory = mallory.clone();
            callers.spawn(async move {
                let mut connection = mallory.connect().await.expect("a connection");
                let asked = mallory.get("/kubernetes/cluster/slow/version");
                let reply = asked.try_send_on(&mut connection);
                let reply =
                    tokio::time::timeout(ANSWER_MAX, reply).await.expect("an error in time");
                assert!(matches!(reply.expect("an answer").status, 429 | 503));
            });
        }
        pass(scene.holding()).await;
        // In the full form, each has got its error.
        if scene.form.pick(false, true) {
            pass(Duration::from_secs(20)).await;
            while let Some(caller) = callers.join_next().await {
                caller.expect("an error in time");
            }
        }
        callers.shutdown().await;
        agents.shutdown().await;
    };
    hold("an agent that answers byte by byte", &scene, &victims, SLOWDOWN_BY_AN_AGENT, attack)
        .await;
}

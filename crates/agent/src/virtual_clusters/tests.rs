//! The routes to virtual clusters, with a cluster that responds as the test sets; callers have a
//! JWT. The black-box tests show that requests reach virtual clusters over TLS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use postern_kinds::agent_config::{ClusterLocation, Instance, Spec, Use, UseSubject};
use serde_json::json;
use tokio::time::{advance, pause, resume};

use super::*;
use crate::testing::{NOW, Scene, claims, read, spec_with};

const AT: &str = "/kubernetes/project/p/virtualcluster/v/api/v1/pods";
const SECRET: &str = "/api/v1/namespaces/ns/secrets/vc-v";

fn place() -> VirtualClusterRef {
    VirtualClusterRef { namespace: "ns".to_owned(), name: "v".to_owned() }
}

fn kubeconfig(server: &str) -> String {
    json!({
        "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x" } }],
        "clusters": [{ "name": "x", "cluster": { "server": server, "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "x", "user": { "token": "hunter2" } }],
    })
    .to_string()
}

/// The cluster's answer when its Secret has this kubeconfig.
fn secret(kubeconfig: &str) -> (StatusCode, String) {
    let object = json!({ "data": { "config": STANDARD.encode(kubeconfig) } });
    (StatusCode::OK, object.to_string())
}

/// Lets as much time pass as it takes until the Secret is read again.
async fn time_passes() {
    pause();
    advance(LONGER_READ_INTERVAL).await;
    resume();
}

/// Waits until `is_it` holds for the route, or for the error if there is none.
async fn until(
    scene: &Scene,
    is_it: impl Fn(&Result<VirtualClusterRoute, ApiError>) -> bool,
) -> Result<VirtualClusterRoute, ApiError> {
    loop {
        let reached = scene.agent.virtual_clusters.route_to(&place()).await;
        if is_it(&reached) {
            return reached;
        }
        drop(reached);
        time_passes().await;
        tokio::task::yield_now().await;
    }
}

fn address(reached: &Result<VirtualClusterRoute, ApiError>) -> Option<&str> {
    reached.as_ref().ok().map(|reached| reached.upstream().address())
}

#[tokio::test]
async fn the_way_follows_the_secret() {
    let scene = Scene::new().await;
    let says = |answer: (StatusCode, String)| *scene.answer.lock() = answer;
    says((StatusCode::NOT_FOUND, "{}".to_owned()));
    let none = scene.agent.virtual_clusters.route_to(&place()).await.err().unwrap();
    assert_eq!((none.code(), none.retry_after_seconds()), (503, None));
    let message = &none.status().message;
    assert!(message.contains("\"vc-v\"") && message.contains("does not exist"), "{message}");

    says(secret(&kubeconfig("https://localhost:1")));
    let first = until(&scene, Result::is_ok).await;
    assert_eq!(address(&first), Some("localhost:1"));
    // An error of the cluster does not remove a known route. A Secret with the same content does
    // not either.
    for answer in [
        (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        (StatusCode::OK, "no Secret".to_owned()),
        secret(&kubeconfig("https://localhost:1")),
    ] {
        says(answer);
        time_passes().await;
    }
    says(secret(&kubeconfig("https://localhost:2")));
    let first = first.ok().unwrap();
    let second = until(&scene, |reached| address(reached) == Some("localhost:2"));
    let (second, ()) = tokio::join!(second, first.changed());
    drop(second);

    for (answer, words) in [
        ((StatusCode::FORBIDDEN, String::new()), "--upstream needs the verb get"),
        ((StatusCode::OK, "{\"data\":{}}".to_owned()), "has no key \"config\""),
        (secret(&kubeconfig("https://10.0.0.1")), "names another server than a Service"),
        (secret(&kubeconfig("https://x").replace("token", "tokenFile")), "tokenFile is refused"),
    ] {
        says(answer);
        let has_words = |reached: &Result<VirtualClusterRoute, ApiError>| {
            reached.as_ref().is_err_and(|error| error.status().message.contains(words))
        };
        let error = until(&scene, has_words).await.err().unwrap();
        assert!(!error.status().message.contains("hunter2"));
    }
}

#[tokio::test]
async fn a_virtual_cluster_is_followed_while_it_is_in_use_and_so_many_are() {
    let scene = Scene::new().await;
    *scene.answer.lock() = secret(&kubeconfig("https://localhost:1"));
    let all = &scene.agent.virtual_clusters;
    let reached = all.route_to(&place()).await.ok().unwrap();
    let passes = async |time: Duration| {
        pause();
        advance(time).await;
        resume();
    };
    passes(IDLE_TIMEOUT).await;
    for _ in 0..3 {
        time_passes().await;
        tokio::task::yield_now().await;
    }
    assert_eq!(all.tracked(), 1, "a request goes on");
    drop(reached);
    while all.tracked() > 0 {
        time_passes().await;
        tokio::task::yield_now().await;
    }
    for index in 0..=MAX_TRACKED {
        drop(all.track(&VirtualClusterRef { name: format!("v{index}"), ..place() }));
    }
    assert_eq!(all.tracked(), MAX_TRACKED);
}

/// The configuration in which ada may use the virtual cluster `v` of the project `p`.
fn spec_of(scene: &Scene) -> Spec {
    let ada = UseSubject { user: "ada".to_owned(), ..UseSubject::default() };
    let (namespace, virtual_cluster) = ("ns".to_owned(), "v".to_owned());
    let mut spec = spec_with(&scene.key);
    spec.instances.push(Instance {
        kind: "VirtualClusterInstance".to_owned(),
        project: "p".to_owned(),
        namespace: "p-p".to_owned(),
        name: "v".to_owned(),
        uid: "uid-v".to_owned(),
        cluster_ref: ClusterLocation { namespace, virtual_cluster },
    });
    spec.uses.push(Use {
        resource: "virtualclusterinstances".to_owned(),
        namespace: "p-p".to_owned(),
        name: "v".to_owned(),
        subjects: vec![ada],
    });
    spec
}

#[tokio::test]
async fn who_may_not_use_a_virtual_cluster_has_no_secret_read_and_who_may_learns_what_is_missing() {
    let mut scene = Scene::new().await;
    scene.agent.state.apply_config(spec_of(&scene), NOW);
    let mut client = scene.client().await;
    let mut eve = claims();
    "eve".clone_into(&mut eve.sub);
    let refused = client.send_request(scene.request_of(&eve, "GET", AT)).await.unwrap();
    let (code, _, body) = read(refused).await;
    assert_eq!(code, 403, "{body}");
    assert!(scene.arrived.try_recv().is_err(), "nothing was asked of the cluster");
    *scene.answer.lock() = (StatusCode::NOT_FOUND, "{}".to_owned());
    for _ in 0..2 {
        let none = client.send_request(scene.request("GET", AT)).await.unwrap();
        let (code, retry_after, body) = read(none).await;
        assert_eq!((code, retry_after), (503, None), "{body}");
        assert!(body.contains("vc-v") && body.contains("does not exist"), "{body}");
    }
    assert_eq!(scene.arrived.recv().await.as_deref(), Some(SECRET));
    assert!(scene.arrived.try_recv().is_err(), "a Secret is read once a second at most");
    // A virtual cluster without a place is not usable.
    let mut nowhere = spec_of(&scene);
    nowhere.instances[0].cluster_ref.virtual_cluster.clear();
    scene.agent.state.apply_config(nowhere, NOW);
    let none = client.send_request(scene.request("GET", AT)).await.unwrap();
    assert_eq!(read(none).await.0, 503);
}

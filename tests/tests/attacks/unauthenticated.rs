//! Clients without a valid key that never stop sending requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use postern_tests::objects::{collection, secrets};

use crate::attacks::load::{Load, hammer, repeat};
use crate::attacks::scene::{KEYS, Scene};
use crate::attacks::trial::{SLOWDOWN, hold};
use crate::attacks::victims::Victims;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_credentials_on_many_connections() {
    let scene = Scene::start(&[]).await;
    let victims = Victims::new(&scene).await;
    let stranger = scene.attacker("pst_nobody");
    let number = Arc::new(AtomicUsize::new(0));
    let load = Load { connections: 100, streams: 1, lasting: scene.lasting() };
    let attack = hammer(&stranger, load, move |client| {
        let token = format!("pst_{:060}", number.fetch_add(1, Ordering::Relaxed));
        let request = client.get(&collection(KEYS)).without("authorization");
        request.header("authorization", &format!("Bearer {token}"))
    });
    let statuses = hold("bad credentials, 100 clients", &scene, &victims, SLOWDOWN, attack).await;
    assert!(!statuses.contains_key(&200), "no client is let in: {statuses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_credentials_on_many_new_connections() {
    let scene = Scene::start(&[]).await;
    let victims = Victims::new(&scene).await;
    let stranger = scene.attacker("pst_nobody");
    let attack = repeat(50, scene.lasting(), move |_| {
        let client = stranger.clone();
        async move {
            let sent = client.get(&collection(KEYS)).try_send().await;
            // Refusing the connection is as good.
            assert!(sent.is_err() || sent.is_ok_and(|reply| [401, 429].contains(&reply.status)));
        }
    });
    hold("bad credentials, new connections", &scene, &victims, SLOWDOWN, attack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_with_bad_credentials() {
    let scene = Scene::start(&[]).await;
    let victims = Victims::new(&scene).await;
    let stranger = scene.attacker_http2("pst_nobody");
    let body = Bytes::from(vec![b' '; 3 * 1024 * 1024]);
    let load = Load { connections: 8, streams: 20, lasting: scene.lasting() };
    let attack = hammer(&stranger, load, move |client| {
        client.post(&secrets("platform")).body("application/json", body.clone())
    });
    hold("large bodies, unauthenticated", &scene, &victims, SLOWDOWN, attack).await;
}

//! Requests to an agent, and what they are answered with.

use postern_kinds::agent_config::{Revocation, Spec};

use crate::testing::{NOW, Scene, read, spec_with};

const POD: &str = "/kubernetes/cluster/api/v1/namespaces/own/pods/x";
const WATCH: &str = "/kubernetes/cluster/api/v1/pods?watch=1";

#[tokio::test]
async fn a_request_under_way_gets_the_answer_of_a_new_one_when_its_right_ends() {
    let mut scene = Scene::new().await;
    let state = scene.agent.state.clone();
    let revocations = vec![Revocation { uid: "uid-k".to_owned(), generation: 11 }];
    let revoked = Spec { revocations, ..spec_with(&scene.key) };
    let unused = Spec { uses: Vec::new(), ..spec_with(&scene.key) };
    for (said, code, word) in [(revoked, 401, "Unauthorized"), (unused, 403, "cannot use")] {
        for path in [POD.to_owned(), WATCH.to_owned()] {
            state.hear(spec_with(&scene.key), NOW);
            scene.holds.send_replace(true);
            let mut client = scene.client().await;
            let request = scene.request("GET", &path);
            let end = async {
                scene.arrived.recv().await.unwrap();
                state.hear(said.clone(), NOW);
            };
            let (answer, ()) = tokio::join!(client.send_request(request), end);
            let (found, retry_after, body) = read(answer.unwrap()).await;
            assert_eq!((found, retry_after), (code, None), "{path}: {body}");
            assert!(body.contains(word), "{body}");
        }
    }
    scene.holds.send_replace(false);
    state.hear(spec_with(&scene.key), NOW);
    let mut client = scene.client().await;
    let answer = client.send_request(scene.request("GET", POD)).await.unwrap();
    assert_eq!(read(answer).await, (200, None, "{}".to_owned()));
}

#[tokio::test]
async fn a_caller_with_too_many_requests_under_way_gets_429_and_others_are_served() {
    let mut scene = Scene::new().await;
    scene.holds.send_replace(true);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(scene.client().await);
    }
    let (requests, watch) =
        ([scene.request("GET", POD), scene.request("GET", POD)], scene.request("GET", WATCH));
    let [one, two, three] = &mut clients[..] else { unreachable!() };
    let [first, second] = requests;
    let held = async { tokio::join!(one.send_request(first), two.send_request(second)) };
    let meanwhile = async {
        scene.arrived.recv().await.unwrap();
        scene.arrived.recv().await.unwrap();
        let third = three.send_request(scene.request("GET", POD)).await.unwrap();
        let (code, retry_after, body) = read(third).await;
        assert_eq!((code, retry_after.as_deref()), (429, Some("1")), "{body}");
        // A watch is counted apart, and so is another caller.
        let others = async {
            scene.arrived.recv().await.unwrap();
            scene.holds.send_replace(false);
        };
        let (answer, ()) = tokio::join!(three.send_request(watch), others);
        assert_eq!(read(answer.unwrap()).await.0, 200);
    };
    let ((first, second), ()) = tokio::join!(held, meanwhile);
    assert_eq!((read(first.unwrap()).await.0, read(second.unwrap()).await.0), (200, 200));
    let under_way = scene.agent.flow.under_way();
    assert_eq!((under_way.requests, under_way.long_requests), (0, 0));
}

//! Requests to an agent, and what they are answered with.

use postern_kinds::agent_config::{Revocation, Spec};

use crate::testing::{NOW, Scene, read, spec_with};

const POD: &str = "/kubernetes/cluster/api/v1/namespaces/own/pods/x";

#[tokio::test]
async fn a_request_under_way_gets_the_answer_of_a_new_one_when_its_right_ends() {
    let mut scene = Scene::new().await;
    let state = scene.agent.state.clone();
    let revocations = vec![Revocation { uid: "uid-k".to_owned(), generation: 11 }];
    let revoked = Spec { revocations, ..spec_with(&scene.key) };
    let unused = Spec { uses: Vec::new(), ..spec_with(&scene.key) };
    for (said, code, word) in [(revoked, 401, "Unauthorized"), (unused, 403, "cannot use")] {
        for path in [POD.to_owned(), "/kubernetes/cluster/api/v1/pods?watch=1".to_owned()] {
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

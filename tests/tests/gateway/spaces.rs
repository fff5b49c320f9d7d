//! A space's key reaches no other namespace: by no path, no selector, no body.

use postern_tests::objects::secret;
use postern_tests::rights::path;
use serde_json::json;

use crate::gateway::scene::{Central, MEMBER, Member, SECRETS, make_space};

const SPACE: &str = "/kubernetes/project/p/space/s";

#[tokio::test]
async fn through_a_space_only_its_namespace_is_reached() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    make_space(&central.admin).await;
    let scope = json!({ "spaces": [{ "project": "p", "space": "s" }] });
    let key = central.scoped("of-space", scope).await;
    let group = "/apis/management.platform.sh/v1";
    for who in [&central.ada, &key] {
        let get = async |path: &str| {
            who.get(&format!("{SPACE}{path}")).header("user-agent", "inside").send().await
        };
        for path in [SECRETS, "/api/v1/namespaces/platform", "/apis", "/version", "/openapi/v3"] {
            get(path).await.expect_text(200);
        }
        for path in [
            "/api/v1/namespaces/default",
            "/api/v1/namespaces",
            "/api/v1/namespaces?fieldSelector=metadata.name%3Dplatform",
            &format!("{group}/namespaces/default/sharedsecrets"),
            &format!("{group}/sharedsecrets"),
            &format!("{group}/sharedsecrets?fieldSelector=metadata.namespace%3Dplatform"),
            &format!("{group}/watch/sharedsecrets"),
            &format!("{group}/users"),
            "/metrics",
            "/api/v1/namespaces/platform/status",
        ] {
            let answer = who.get(&format!("{SPACE}{path}")).header("user-agent", "outside");
            let refused = answer.send().await.expect_text(403);
            assert!(refused.contains("space"), "{path}: {refused}");
        }
    }
    // The namespace in the body does not count: the target refuses it, since the path has another one.
    let mut other = secret("s1", "v");
    other["metadata"]["namespace"] = "default".into();
    let create = format!("{SPACE}{SECRETS}");
    central.ada.post(&create).json(&other).send().await.expect(400);
    central.ada.post(&create).json(&secret("s1", "v")).send().await.expect(201);
    for elsewhere in [MEMBER, "/kubernetes/project/p/space/t", "/kubernetes/cluster/other"] {
        key.get(&format!("{elsewhere}{SECRETS}"))
            .header("user-agent", "outside")
            .send()
            .await
            .expect(403);
    }
    assert_eq!(member.arrived("outside").await.len(), 0);
    assert_eq!(member.arrived("inside").await.len(), 2 * 2, "the log has no records of discovery");
    let space = format!("{}/namespaces/p-p/spaceinstances/s", postern_tests::objects::GROUP);
    let mut open = key.get(&format!("{create}?watch=1")).stream().await;
    assert!(open.next().await.unwrap().unwrap().contains("\"s1\""));
    central.admin.delete(&space).send().await.expect(200);
    assert_eq!(open.next().await, Ok(None), "a space that is gone is not reached");
    central.ada.get(&create).send().await.expect(404);
    central.admin.get(&path("clusters", "member")).send().await.expect(200);
}

//! Access reviews through the gateway combine the target's decision with the scope of the key.

use postern_tests::http::Client;
use serde_json::{Value, json};

use crate::gateway::scene::{Central, MEMBER, Member, make_space};

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

async fn can(who: &Client, at: &str, verb: &str, namespace: &str) -> Value {
    let group = "management.platform.sh";
    let asked = json!({ "verb": verb, "group": group, "resource": "sharedsecrets", "namespace": namespace });
    let review = json!({ "spec": { "resourceAttributes": asked } });
    let path = format!("{at}{AUTHORIZATION}/selfsubjectaccessreviews");
    let answer =
        who.post(&path).header("user-agent", "review").json(&review).send().await.expect(201);
    answer["status"].clone()
}

async fn rules(who: &Client, at: &str, namespace: &str) -> Value {
    let review = json!({ "spec": { "namespace": namespace } });
    let path = format!("{at}{AUTHORIZATION}/selfsubjectrulesreviews");
    who.post(&path).json(&review).send().await.expect(201)["status"].clone()
}

#[tokio::test]
async fn what_the_scope_refuses_is_not_allowed_and_the_target_is_not_asked() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    make_space(&central.admin).await;
    let rule = json!({
        "verbs": ["get"], "requestTargets": ["Cluster"], "cluster": "member",
        "resources": [{ "group": "management.platform.sh", "resources": ["sharedsecrets"] }],
    });
    let reader = central.scoped("reader", json!({ "rules": [rule] })).await;
    assert_eq!(can(&central.ada, MEMBER, "delete", "platform").await["allowed"], true);
    assert_eq!(can(&reader, MEMBER, "get", "platform").await["allowed"], true);
    let before = member.arrived("review").await.len();
    let refused = can(&reader, MEMBER, "delete", "platform").await;
    assert_eq!(refused["allowed"], false);
    assert!(refused["reason"].as_str().unwrap().contains("scope"), "{refused}");
    let space = "/kubernetes/project/p/space/s";
    let outside = can(&central.ada, space, "get", "default").await;
    assert!(outside["reason"].as_str().unwrap().contains("space"), "{outside}");
    assert_eq!(member.arrived("review").await.len(), before, "the target was not asked");
    assert_eq!(can(&central.ada, space, "get", "platform").await["allowed"], true);
    let path = format!("{MEMBER}{AUTHORIZATION}/selfsubjectaccessreviews");
    let twice = r#"{"spec":{"resourceAttributes":{"verb":"get"}},"spec":{}}"#;
    reader.post(&path).body("application/json", twice).send().await.expect(400);
    reader.post(&path).body("text/x", "x").send().await.expect(415);
    let wrong = json!({ "spec": { "resourceAttributes": { "verb": null } } });
    reader.post(&path).json(&wrong).send().await.expect(400);
}

/// A field of a protobuf message that has a value with a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    [&[number << 3 | 2, length][..], value].concat()
}

#[tokio::test]
async fn reviews_in_protobuf_are_read_too() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    let group = "management.platform.sh";
    let rule = json!({ "verbs": ["get"], "resources": [{ "group": group, "resources": ["sharedsecrets"] }] });
    let reader = central.scoped("reader", json!({ "rules": [rule] })).await;
    let path = format!("{MEMBER}{AUTHORIZATION}/selfsubjectaccessreviews");
    for (verb, allowed) in [("get", true), ("delete", false)] {
        let asked = [
            field(1, b"platform"),
            field(2, verb.as_bytes()),
            field(3, group.as_bytes()),
            field(5, b"sharedsecrets"),
        ];
        let review = [field(1, b""), field(2, &field(1, &asked.concat()))].concat();
        let of =
            [field(1, b"authorization.k8s.io/v1"), field(2, b"SelfSubjectAccessReview")].concat();
        let body = [b"k8s\0".to_vec(), field(1, &of), field(2, &review)].concat();
        let sent = reader.post(&path).body("application/vnd.kubernetes.protobuf", body);
        let answer = sent.send().await.expect(201);
        assert_eq!(answer["status"]["allowed"], allowed, "{verb}: {answer}");
    }
}

#[tokio::test]
async fn rules_are_cut_to_the_scope() {
    let member = Member::new().await;
    let central = Central::new(&member.kubeconfig()).await;
    make_space(&central.admin).await;
    let resources = [json!({ "group": "", "resources": ["namespaces"] })];
    let rule = json!({ "verbs": ["get"], "requestTargets": ["Cluster"], "resources": resources });
    let reader = central.scoped("reader", json!({ "rules": [rule] })).await;
    let has = |rules: &Value, resource: &str| {
        let all = rules["resourceRules"].as_array().unwrap();
        all.iter().any(|rule| rule["resources"].as_array().unwrap().contains(&json!(resource)))
    };
    let all = rules(&central.ada, MEMBER, "platform").await;
    assert!(has(&all, "sharedsecrets") && has(&all, "namespaces"), "{all}");
    let cut = rules(&reader, MEMBER, "platform").await;
    assert!(!has(&cut, "sharedsecrets") && has(&cut, "namespaces"), "{cut}");
    assert_eq!(cut["incomplete"], true);
    let namespaces = cut["resourceRules"].as_array().unwrap().iter();
    let mut namespaces = namespaces.filter(|rule| rule["resources"][0] == "namespaces");
    assert!(namespaces.all(|rule| rule["verbs"] == json!(["get"])), "{cut}");
    let space = "/kubernetes/project/p/space/s";
    assert!(has(&rules(&central.ada, space, "platform").await, "sharedsecrets"));
    assert_eq!(rules(&central.ada, space, "default").await["resourceRules"], json!([]));
}

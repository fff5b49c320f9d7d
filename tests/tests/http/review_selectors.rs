//! Selectors in the `resourceAttributes` of reviews, as newer clients send them. The server accepts
//! and repeats them, and they do not change the decision, as in Kubernetes with roles: selected
//! objects are a part of all objects.

use postern_tests::Server;
use postern_tests::rights::{allow, user};
use serde_json::{Value, json};

const REVIEWS: &str =
    "/kubernetes/management/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

#[tokio::test]
async fn selectors_are_taken_and_change_no_decision() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let group = "coordination.k8s.io";
    let rules = json!([{ "apiGroups": [group], "resources": ["leases"], "verbs": ["list"] }]);
    allow(&admin, "lists", None, rules, "platform:user:ada").await;
    let requirement = json!({ "key": "metadata.name", "operator": "In", "values": ["x"] });
    for selectors in [
        json!({}),
        json!({ "fieldSelector": { "requirements": [requirement] } }),
        json!({ "fieldSelector": { "rawSelector": "metadata.name=x" } }),
        json!({ "labelSelector": { "rawSelector": "app=x" } }),
        json!({ "labelSelector": { "requirements": [requirement] } }),
    ] {
        for (resource, allowed) in [("leases", true), ("others", false)] {
            let mut asked = json!({ "verb": "list", "group": group, "resource": resource });
            let fields = selectors.as_object().unwrap().clone();
            asked.as_object_mut().unwrap().extend(fields);
            let review = json!({ "spec": { "resourceAttributes": asked } });
            let path = format!("{REVIEWS}?fieldValidation=Strict");
            let answer: Value = ada.post(&path).json(&review).send().await.expect(201);
            assert_eq!(answer["status"]["allowed"], allowed, "{answer}");
            assert_eq!(answer["spec"]["resourceAttributes"], asked, "what was asked is repeated");
        }
    }
}

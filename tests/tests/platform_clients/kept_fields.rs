//! References to kubeconfigs are kept when a client that does not know the field writes the whole object.

use postern_tests::http::{Client, Response};
use postern_tests::rights::path;
use serde_json::{Value, json};

use crate::platform_clients::scene::{Platform, assert_reaches};

/// An object, and its reference to a kubeconfig.
struct Holder<'a> {
    client: &'a Client,
    path: String,
    config: Value,
}

impl Holder<'_> {
    async fn read(&self) -> Value {
        self.client.get(&self.path).send().await.expect(200)
    }

    async fn put(&self, change: impl FnOnce(&mut Value)) -> Response {
        let mut object = self.read().await;
        change(&mut object["spec"]);
        self.client.put(&self.path).json(&object).send().await
    }

    async fn check(&self) {
        let leave_out = |spec: &mut Value| {
            spec.as_object_mut().unwrap().remove("config");
            spec["displayName"] = "One".into();
        };
        let kept = self.put(leave_out).await;
        let warnings = kept.warnings();
        let answer = kept.expect(200);
        assert_eq!(answer["spec"]["config"], self.config, "what is left out is kept");
        assert_eq!(answer["spec"]["displayName"], "One");
        let tells = warnings.iter().any(|text| text.contains("spec.config"));
        assert!(tells, "{}: {warnings:?}", self.path);
        let empty = self.put(|spec| spec["config"] = json!({})).await.expect(200);
        assert_eq!(
            empty["spec"]["config"], self.config,
            "an empty structure is as one that is left out"
        );
        let same = self.put(|spec| spec["displayName"] = "Two".into()).await;
        assert_eq!(same.warnings(), Vec::<String>::new(), "a client that sends it is not warned");
        same.expect(200);
        let null = self.put(|spec| spec["config"] = Value::Null).await.expect(200);
        assert!(null["spec"].get("config").is_none(), "null removes it: {null}");
        let patch = json!({ "spec": { "config": self.config } });
        let patched = self.client.patch(&self.path, "merge-patch", &patch).send().await.expect(200);
        assert_eq!(patched["spec"]["config"], self.config);
        let patch = json!({ "spec": { "config": null } });
        let patched = self.client.patch(&self.path, "merge-patch", &patch).send().await.expect(200);
        assert!(patched["spec"].get("config").is_none(), "{patched}");
    }
}

#[tokio::test]
async fn a_reference_to_a_kubeconfig_is_removed_by_null_alone() {
    let platform = Platform::start(&[]).await;
    platform.when_ready().await;
    let web = "/kubernetes/project/shop/virtualcluster/web";
    assert_reaches(&platform.ada, web).await;
    let instance = format!("{}/web", platform.collection("virtualclusterinstances"));
    for path in [instance, path("clusters", "member")] {
        let client = &platform.admin;
        let config = client.get(&path).send().await.expect(200)["spec"]["config"].clone();
        assert!(config["secretName"].is_string(), "{config}");
        Holder { client, path, config }.check().await;
    }
}

#[tokio::test]
async fn an_empty_reference_is_none() {
    let platform = Platform::start(&[]).await;
    let made =
        postern_tests::objects::make(&platform.admin, "clusters", "c", json!({ "config": {} }));
    assert!(made.await["spec"].get("config").is_none());
    let at = json!({ "cluster": "member", "namespace": "n", "virtualCluster": "other" });
    let object =
        json!({ "metadata": { "name": "other" }, "spec": { "clusterRef": at, "config": {} } });
    let instances = platform.collection("virtualclusterinstances");
    let made = platform.admin.post(&instances).json(&object).send().await.expect(201);
    assert!(made["spec"].get("config").is_none(), "{made}");
}

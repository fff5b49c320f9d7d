//! The exact bodies of failures: programs use the reason and the details, people read the message.

use insta::assert_snapshot;
use postern_tests::Server;
use postern_tests::objects::{GROUP, secret, secret_path, secrets};
use postern_tests::status::failure;
use serde_json::json;

#[tokio::test]
async fn what_does_not_exist_is_404() {
    let server = Server::start().await;
    let client = server.client();
    assert_snapshot!(failure(&client.get(&secret_path("s1")).send().await), @r#"
    404 NotFound
    sharedsecrets.management.platform.sh "s1" not found
    {"group":"management.platform.sh","kind":"sharedsecrets","name":"s1"}
    "#);
    let nowhere = client.post(&secrets("nowhere")).json(&secret("s1", "v")).send().await;
    assert_snapshot!(failure(&nowhere), @r#"
    404 NotFound
    namespaces "nowhere" not found
    {"kind":"namespaces","name":"nowhere"}
    "#);
    for path in [
        format!("{GROUP}/namespaces/platform/widgets"),
        format!("{GROUP}/sharedsecrets/s1/nothing"),
        "/kubernetes/management/apis/other.example.com/v1".to_owned(),
        "/kubernetes/management/nothing".to_owned(),
        // Two letters are swapped. This misprint is not served.
        GROUP.replace("kubernetes", "kuberentes") + "/namespaces/platform/sharedsecrets",
    ] {
        let reply = client.get(&path).send().await;
        let text = failure(&reply);
        let expected = "404 NotFound\nthe server could not find the requested resource";
        assert!(text.starts_with(expected), "{path}: {text}");
    }
}

#[tokio::test]
async fn what_exists_already_is_409() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let again = client.post(&secrets("platform")).json(&secret("s1", "v")).send().await;
    assert_snapshot!(failure(&again), @r#"
    409 AlreadyExists
    sharedsecrets.management.platform.sh "s1" already exists
    {"group":"management.platform.sh","kind":"sharedsecrets","name":"s1"}
    "#);
}

#[tokio::test]
async fn a_stale_version_is_409() {
    let server = Server::start().await;
    let client = server.client();
    let read = client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let mut newer = read.clone();
    newer["spec"]["displayName"] = "newer".into();
    client.put(&secret_path("s1")).json(&newer).send().await.expect(200);
    let mut stale = read.clone();
    stale["spec"]["displayName"] = "stale".into();
    assert_snapshot!(failure(&client.put(&secret_path("s1")).json(&stale).send().await), @r#"
    409 Conflict
    Operation cannot be fulfilled on sharedsecrets.management.platform.sh "s1": the object has been modified; please apply your changes to the latest version and try again
    {"group":"management.platform.sh","kind":"sharedsecrets","name":"s1"}
    "#);
    let version = &read["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"displayName": "p"}});
    let patched = client.patch(&secret_path("s1"), "merge-patch", &patch).send().await;
    assert!(failure(&patched).starts_with("409 Conflict\nOperation cannot be fulfilled on "));
}

#[tokio::test]
async fn what_is_invalid_is_422_with_every_cause() {
    let server = Server::start().await;
    let client = server.client();
    let mut bad = secret("s1", "v");
    bad["spec"]["data"] = json!({"a b": "djE="});
    assert_snapshot!(failure(&client.post(&secrets("platform")).json(&bad).send().await), @r#"
    422 Invalid
    SharedSecret.management.platform.sh "s1" is invalid: spec.data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
    {"causes":[{"field":"spec.data[a b]","message":"Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')","reason":"FieldValueInvalid"}],"group":"management.platform.sh","kind":"SharedSecret","name":"s1"}
    "#);
    let upper = client.post(&secrets("platform")).json(&secret("Upper", "v")).send().await;
    assert_snapshot!(failure(&upper), @r#"
    422 Invalid
    SharedSecret.management.platform.sh "Upper" is invalid: metadata.name: Invalid value: "Upper": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
    {"causes":[{"field":"metadata.name","message":"Invalid value: \"Upper\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')","reason":"FieldValueInvalid"}],"group":"management.platform.sh","kind":"SharedSecret","name":"Upper"}
    "#);
    bad["metadata"]["name"] = "Upper".into();
    let both = client.post(&secrets("platform")).json(&bad).send().await.expect(422);
    let message = both["message"].as_str().unwrap();
    let begin = r#"SharedSecret.management.platform.sh "Upper" is invalid: [metadata.name: "#;
    assert!(message.starts_with(begin) && message.ends_with(']'), "{message}");
    assert!(message.contains(", spec.data[a b]: "), "{message}");
    assert_eq!(both["details"]["causes"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_name_is_required() {
    let server = Server::start().await;
    let client = server.client();
    let mut nameless = secret("", "v");
    nameless["metadata"].as_object_mut().unwrap().clear();
    let reply = client.post(&secrets("platform")).json(&nameless).send().await;
    assert_snapshot!(failure(&reply), @r#"
    422 Invalid
    SharedSecret.management.platform.sh "" is invalid: metadata.name: Required value: name or generateName is required
    {"causes":[{"field":"metadata.name","message":"Required value: name or generateName is required","reason":"FieldValueRequired"}],"group":"management.platform.sh","kind":"SharedSecret"}
    "#);
}

#[tokio::test]
async fn an_update_needs_a_version() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let blind = client.put(&secret_path("s1")).json(&secret("s1", "w")).send().await;
    assert_snapshot!(failure(&blind), @r#"
    422 Invalid
    SharedSecret.management.platform.sh "s1" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update
    {"causes":[{"field":"metadata.resourceVersion","message":"Invalid value: 0: must be specified for an update","reason":"FieldValueInvalid"}],"group":"management.platform.sh","kind":"SharedSecret","name":"s1"}
    "#);
}

#[tokio::test]
async fn a_body_that_contradicts_the_url_is_400() {
    let server = Server::start().await;
    let client = server.client();
    let read = client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let mut other = read.clone();
    other["metadata"]["name"] = "s2".into();
    assert_snapshot!(failure(&client.put(&secret_path("s1")).json(&other).send().await), @"
    400 BadRequest
    the name of the object (s2) does not match the name on the URL (s1)
    ");
    let mut other = secret("s2", "v");
    other["metadata"]["namespace"] = "default".into();
    assert_snapshot!(failure(&client.post(&secrets("platform")).json(&other).send().await), @"
    400 BadRequest
    the namespace of the provided object does not match the namespace sent on the request
    ");
    let mut other = secret("s2", "v");
    other["apiVersion"] = "management.platform.sh/v2".into();
    assert_snapshot!(failure(&client.post(&secrets("platform")).json(&other).send().await), @"
    400 BadRequest
    the API version in the data (management.platform.sh/v2) does not match the expected API version (management.platform.sh/v1)
    ");
    let mut other = secret("s2", "v");
    other["kind"] = "Widget".into();
    let reply = client.post(&secrets("platform")).json(&other).send().await;
    assert!(failure(&reply).starts_with("400 BadRequest\n"), "{}", reply.text());
    let mut other = secret("s2", "v");
    other["metadata"]["resourceVersion"] = "5".into();
    assert_snapshot!(failure(&client.post(&secrets("platform")).json(&other).send().await), @"
    400 BadRequest
    resourceVersion should not be set on objects to be created
    ");
}

#[tokio::test]
async fn a_verb_that_a_resource_lacks_is_405() {
    let server = Server::start().await;
    let client = server.client();
    let reply = client.put(&secrets("platform")).json(&secret("s1", "v")).send().await;
    assert_snapshot!(failure(&reply), @r#"
    405 MethodNotAllowed
    update is not supported on resources of kind "sharedsecrets.management.platform.sh"
    {"group":"management.platform.sh","kind":"sharedsecrets"}
    "#);
    for (method, path) in [
        ("PATCH", secrets("platform")),
        ("POST", secret_path("s1")),
        ("BREW", secret_path("s1")),
        ("POST", GROUP.to_owned()),
    ] {
        let reply = client.request(method, &path).json(&secret("s1", "v")).send().await;
        let text = failure(&reply);
        assert!(text.starts_with("405 MethodNotAllowed\n"), "{method} {path}: {text}");
    }
}

#[tokio::test]
async fn an_unknown_format_is_406_or_415() {
    let server = Server::start().await;
    let client = server.client();
    let reply = client.get(&secrets("platform")).accept("image/png").send().await;
    let text = failure(&reply);
    let expected = "406 NotAcceptable\nonly the following media types are accepted: \
                    application/json, application/yaml";
    assert!(text.starts_with(expected), "{text}");
    let reply = client.post(&secrets("platform")).body("text/plain", "hello").send().await;
    let text = failure(&reply);
    let expected = "415 UnsupportedMediaType\nthe body of the request was in an unknown format - \
                    accepted media types include: application/json, application/yaml";
    assert!(text.starts_with(expected), "{text}");
    let reply = client.request("PATCH", &secret_path("s1")).json(&json!({})).send().await;
    let text = failure(&reply);
    let expected = "415 UnsupportedMediaType\nthe body of the request was in an unknown format - \
                    accepted media types include: application/json-patch+json";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("application/merge-patch+json"), "{text}");
}

#[tokio::test]
async fn invalid_options_are_422_and_unreadable_ones_400() {
    let server = Server::start().await;
    let client = server.client();
    let collection = secrets("platform");
    let dry = client.post(&format!("{collection}?dryRun=Some")).json(&secret("s", "v"));
    assert_snapshot!(failure(&dry.send().await), @r#"
    422 Invalid
    CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: []string{"Some"}: supported values: "All"
    {"causes":[{"field":"dryRun","message":"Unsupported value: []string{\"Some\"}: supported values: \"All\"","reason":"FieldValueNotSupported"}],"group":"meta.k8s.io","kind":"CreateOptions"}
    "#);
    for (query, code) in [
        ("limit=ten", 400),
        ("resourceVersion=abc", 400),
        ("watch=true&resourceVersion=abc", 400),
        ("watch=maybe", 400),
        ("timeoutSeconds=soon", 400),
        ("export=true", 400),
        ("continue=garbage", 400),
        ("labelSelector=a%20in%20(", 400),
        ("fieldSelector=spec.nothing%3Dx", 400),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersionMatch=NotOlderThan", 422),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422),
        ("resourceVersionMatch=Sometimes&resourceVersion=1", 422),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 422),
        ("watch=true&sendInitialEvents=true", 422),
        ("watch=true&sendInitialEvents=true&resourceVersionMatch=Exact", 422),
    ] {
        let reply = client.get(&format!("{collection}?{query}")).send().await;
        let text = failure(&reply);
        assert!(text.starts_with(&code.to_string()), "{query}: {text}");
        if code == 422 {
            assert!(text.contains("\nListOptions.meta.k8s.io \"\" is invalid: "), "{text}");
        }
    }
    let list = client.get(&format!("{collection}?unknown=1&timeout=32s&pretty=false")).send().await;
    list.expect(200);
}

//! Requests that are wrong, and the exact answer to each: media types, parameters, selectors, continue
//! tokens, addresses. None is a 500, and none is served as if it were right.

use postern_tests::Server;
use postern_tests::http::{Client, Request};
use postern_tests::objects::{GROUP, secret, secret_path, secrets};
use postern_tests::status::failure;
use serde_json::json;

use crate::selectors::escaped;

/// A request, and the code, reason and beginning of the message of its answer.
type Row<'a> = (Request<'a>, &'a str);

async fn all_refused(rows: Vec<Row<'_>>) {
    let mut wrong = Vec::new();
    for (number, (request, expected)) in rows.into_iter().enumerate() {
        let reply = request.send().await;
        if reply.status < 400 {
            wrong.push(format!("{number}: {expected}: {}", reply.text()));
            continue;
        }
        let text = failure(&reply);
        if !text.starts_with(expected) {
            wrong.push(format!("{number}: {expected}\n   {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn with_one() -> (Server, Client) {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    (server, client)
}

#[tokio::test]
async fn media_types_that_are_not_served() {
    let (_server, client) = with_one().await;
    let list = secrets("platform");
    let one = secret_path("s1");
    let get = |accept: &str| client.get(&one).accept(accept);
    let send = |content_type: &str| client.post(&list).body(content_type, "{}");
    let patch = |content_type: &str| client.request("PATCH", &one).body(content_type, "{}");
    let only = "406 NotAcceptable\nonly the following media types are accepted: application/json, application/yaml";
    let unknown = "415 UnsupportedMediaType\nthe body of the request was in an unknown format - accepted media types include: ";
    all_refused(vec![
        (get("text/html"), only),
        (get("application/cbor"), only),
        (get("application/vnd.kubernetes.protobuf"), only),
        (get("application/json;q=0"), only),
        (get("application/json;as=Table;v=v2;g=meta.k8s.io"), only),
        (get("application/json;as=Nothing;v=v1;g=meta.k8s.io"), only),
        (
            client
                .get(&list)
                .accept("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
            only,
        ),
        (get("nonsense"), only),
        (send("text/plain"), unknown),
        (send("application/cbor"), unknown),
        (send("application/json, application/yaml"), unknown),
        (send("application/merge-patch+json"), unknown),
        (send("/"), unknown),
        (patch("application/json"), unknown),
        (patch("application/cbor"), unknown),
        (patch("application/apply-patch+cbor"), unknown),
        (patch("text/plain"), unknown),
    ])
    .await;
}

#[tokio::test]
async fn parameters_of_reads_that_make_no_sense() {
    let (_server, client) = with_one().await;
    let list = |query: &str| client.get(&format!("{}?{query}", secrets("platform")));
    let get = |query: &str| client.get(&format!("{}?{query}", secret_path("s1")));
    let invalid_list = "422 Invalid\nListOptions.meta.k8s.io \"\" is invalid: ";
    all_refused(vec![
        (list("limit=x"), "400 BadRequest\n"),
        (list("limit=-1"), "400 BadRequest\nquery parameter limit must be a whole number"),
        (list("watch=maybe"), "400 BadRequest\n"),
        (list("watch=1&limit=x"), "400 BadRequest\n"),
        (list("timeoutSeconds=x"), "400 BadRequest\n"),
        (list("watch=1&timeoutSeconds=1.5"), "400 BadRequest\n"),
        (list("timeout=soon"), "400 BadRequest\n"),
        (list("allowWatchBookmarks=2&watch=1"), "400 BadRequest\n"),
        (list("resourceVersion=x"), "400 BadRequest\ninvalid resource version"),
        (list("resourceVersion=-1"), "400 BadRequest\ninvalid resource version"),
        (get("resourceVersion=x"), "400 BadRequest\ninvalid resource version"),
        (list("watch=1&resourceVersion=x"), "400 BadRequest\ninvalid resource version"),
        (list("resourceVersionMatch=Exact"), invalid_list),
        (list("resourceVersionMatch=NotOlderThan"), invalid_list),
        (list("resourceVersionMatch=Exact&resourceVersion=0"), invalid_list),
        (list("resourceVersionMatch=Newest&resourceVersion=1"), invalid_list),
        (list("sendInitialEvents=true"), invalid_list),
        (list("watch=1&sendInitialEvents=true"), invalid_list),
        (
            list("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1"),
            invalid_list,
        ),
        (
            list("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x"),
            "422 Invalid\nListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided\n",
        ),
        (
            list("includeObject=All").accept("application/json;as=Table;v=v1;g=meta.k8s.io"),
            "400 BadRequest\nUnable to convert to Table as requested: ",
        ),
        (
            list("export=true"),
            "400 BadRequest\nthe export parameter, deprecated since v1.14, is no longer supported",
        ),
    ])
    .await;
}

#[tokio::test]
async fn parameters_of_writes_that_make_no_sense() {
    let (_server, client) = with_one().await;
    let create = |query: &str| {
        client.post(&format!("{}?{query}", secrets("platform"))).json(&secret("s2", "v"))
    };
    let delete = |query: &str| client.delete(&format!("{}?{query}", secret_path("s1")));
    all_refused(vec![
        (create("dryRun=Some"), "422 Invalid\nCreateOptions.meta.k8s.io \"\" is invalid: dryRun"),
        (create("dryRun="), "422 Invalid\nCreateOptions.meta.k8s.io \"\" is invalid: dryRun"),
        (create("dryRun=All&dryRun=None"), "4"),
        (
            create("fieldValidation=strict"),
            "422 Invalid\nCreateOptions.meta.k8s.io \"\" is invalid: fieldValidation",
        ),
        (
            create("fieldManager=%E2%80%8B"),
            "422 Invalid\nCreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: should only contain printable characters\n",
        ),
        (
            create("fieldManager=a%C2%A0b"),
            "422 Invalid\nCreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: should only contain printable characters\n",
        ),
        (
            create("fieldManager=%07"),
            "422 Invalid\nCreateOptions.meta.k8s.io \"\" is invalid: fieldManager",
        ),
        (
            create(&format!("fieldManager={}", "m".repeat(129))),
            "422 Invalid\nCreateOptions.meta.k8s.io \"\" is invalid: fieldManager",
        ),
        (create("pretty=perhaps"), "400 BadRequest\n"),
        (
            client.patch(&format!("{}?force=true", secret_path("s1")), "merge-patch", &json!({})),
            "422 Invalid\nPatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden",
        ),
        (delete("gracePeriodSeconds=x"), "400 BadRequest\n"),
        (
            delete("propagationPolicy=Sideways"),
            "422 Invalid\nDeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy",
        ),
        (
            delete("orphanDependents=true&propagationPolicy=Orphan"),
            "422 Invalid\nDeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy",
        ),
        (delete("orphanDependents=perhaps"), "400 BadRequest\n"),
        (delete("dryRun=all"), "422 Invalid\nDeleteOptions.meta.k8s.io \"\" is invalid: dryRun"),
    ])
    .await;
    client.get(&secret_path("s1")).send().await.expect(200);
    client.get(&secret_path("s2")).send().await.expect(404);
}

#[tokio::test]
async fn selectors_that_cannot_be_read() {
    let (_server, client) = with_one().await;
    let bad = "400 BadRequest\nunable to parse requirement: ";
    let mut rows = Vec::new();
    for selector in [
        "a in b",
        "a in (b",
        "a=b,,c",
        "=b",
        "!",
        "a b",
        "a notin b)",
        "-a=b",
        "a=b c",
        "a>x",
        "a gt 1",
        "a lt 1",
        "a in ()c",
    ] {
        for watch in ["", "watch=1&"] {
            let path =
                format!("{}?{watch}labelSelector={}", secrets("platform"), escaped(selector));
            rows.push((client.get(&path), bad));
        }
    }
    for (selector, expected) in [
        ("spec.data=x", "400 BadRequest\nfield label not supported: spec.data"),
        ("status.phase=x", "400 BadRequest\nfield label not supported: status.phase"),
        ("metadata.name", "400 BadRequest\ninvalid selector: "),
        ("metadata.name=a\\", "400 BadRequest\n"),
        ("metadata.name>a", "400 BadRequest\n"),
    ] {
        for watch in ["", "watch=1&"] {
            let path =
                format!("{}?{watch}fieldSelector={}", secrets("platform"), escaped(selector));
            rows.push((client.get(&path), expected));
        }
    }
    all_refused(rows).await;
}

#[tokio::test]
async fn continue_tokens_of_others() {
    let (_server, client) = with_one().await;
    client.post(&secrets("platform")).json(&secret("s2", "v")).send().await.expect(201);
    let first = client.get(&format!("{}?limit=1", secrets("platform"))).send().await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let list = |query: &str| client.get(&format!("{}?{query}", secrets("platform")));
    let invalid = "400 BadRequest\ncontinue key is not valid: ";
    all_refused(vec![
        (list("limit=1&continue=x"), invalid),
        (list("limit=1&continue=%2e%2e%2f"), invalid),
        // {"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets"}
        (list("limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi9zZWNyZXRzIn0"), invalid),
        (list(&format!("limit=1&continue={token}x")), invalid),
        (list(&format!("limit=1&continue={token}&resourceVersion=1")),
            "400 BadRequest\nspecifying resource version is not allowed when using continue"),
        (list(&format!("limit=1&continue={token}&resourceVersionMatch=Exact")), "422 Invalid\n"),
    ])
    .await;
}

fn in_namespace(mut object: serde_json::Value, namespace: &str) -> serde_json::Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

fn at_version(mut object: serde_json::Value, version: &str) -> serde_json::Value {
    object["metadata"]["resourceVersion"] = version.into();
    object
}

#[tokio::test]
async fn bodies_and_addresses_that_contradict() {
    let (_server, client) = with_one().await;
    let (list, one) = (secrets("platform"), secret_path("s1"));
    let unversioned = "422 Invalid\nSharedSecret.management.platform.sh \"s1\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update\n";
    let post = |body: &str| client.post(&list).body("application/json", body.to_owned());
    let put = |value: serde_json::Value| client.put(&one).json(&value);
    let deleting =
        |body: &str| client.request("DELETE", &one).body("application/json", body.to_owned());
    all_refused(vec![
        (post(""), "400 BadRequest\n"),
        (post("{"), "400 BadRequest\n"),
        (post("[]"), "400 BadRequest\n"),
        (post("null"), "400 BadRequest\n"),
        (post("{\"kind\":\"Team\"}"), "400 BadRequest\n"),
        (post("{\"apiVersion\":\"v1\"}"), "400 BadRequest\nthe API version in the data (v1) does not match the expected API version (management.platform.sh/v1)"),
        (post("{\"metadata\":{\"name\":7}}"), "400 BadRequest\n"),
        (post("{\"metadata\":{\"name\":\"x\",\"namespace\":\"default\"}}"),
            "400 BadRequest\nthe namespace of the provided object does not match the namespace sent on the request"),
        (post("{\"metadata\":{}}"), "422 Invalid\n"),
        (post("{\"metadata\":{\"name\":\"a/b\"}}"), "422 Invalid\n"),
        (put(in_namespace(secret("s1", "v"), "default")),
            "400 BadRequest\nthe namespace of the provided object does not match the namespace sent on the request"),
        (client.patch(&one, "merge-patch", &json!({"metadata": {"namespace": "default"}})),
            "400 BadRequest\nthe namespace of the provided object does not match the namespace sent on the request"),
        (put(secret("other", "v")), "400 BadRequest\nthe name of the object (other) does not match the name on the URL (s1)"),
        (put(secret("s1", "v")), unversioned),
        (put(at_version(secret("s1", "v"), "0")), unversioned),
        (client.patch(&one, "merge-patch", &json!({"metadata": {"resourceVersion": "0"}})), unversioned),
        (put(at_version(secret("s1", "v"), "x")),
            "400 BadRequest\ninvalid resource version: it must be a number\n"),
        (deleting("{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}"), "400 BadRequest\n"),
        (deleting("{\"propagationPolicy\":7}"), "400 BadRequest\n"),
        (deleting("{\"preconditions\":{\"uid\":\"other\"}}"), "409 Conflict\n"),
        (client.post(&one).json(&secret("s1", "v")), "405 MethodNotAllowed\n"),
        (client.put(&list).json(&secret("s1", "v")), "405 MethodNotAllowed\n"),
        (client.request("OPTIONS", &list), "405 MethodNotAllowed\n"),
        (client.get(&format!("{one}/status")), "404 NotFound\nthe server could not find the requested resource"),
        (client.get(&format!("{GROUP}/nothings")), "404 NotFound\nthe server could not find the requested resource"),
    ])
    .await;
}

//! Leaks of information through an answer, a log, or the difference between two answers.

use postern_tests::http::{Client, Response};
use postern_tests::objects::{collection, make, secret, secret_path, secrets};
use postern_tests::rights::{allow, path, rule, user, with_key};
use postern_tests::{Home, Server, Setup};
use serde_json::json;

use crate::access::scene::{make_project, make_secret, make_shared, to_user};

/// A value that must not be where it is not asked for, and its base64.
const CANARY: &str = "canary-7f3a91c2e5";
const CANARY_BASE64: &str = "Y2FuYXJ5LTdmM2E5MWMyZTU=";

fn assert_no_canary(what: &str, text: &str) {
    for one in [CANARY, CANARY_BASE64, "Y2FuYXJ5LTdmM2E5MW"] {
        assert!(!text.contains(one), "{what}: {text}");
    }
}

/// Sends the same requests about a name.
async fn all_about(client: &Client, collection: &str, name: &str) -> Vec<(String, Response)> {
    let one = format!("{collection}/{name}");
    let body = json!({ "spec": { "displayName": "x" } });
    let test = json!([{ "op": "test", "path": "/metadata/name", "value": name }]);
    let put = json!({ "metadata": { "name": name, "resourceVersion": "1" }, "spec": {} });
    let mut replies = Vec::new();
    for query in ["", "?dryRun=All"] {
        let at = format!("{one}{query}");
        for (what, request) in [
            ("GET", client.get(&one)),
            ("as a table", client.get(&one).accept("application/json;as=Table;v=v1;g=meta.k8s.io")),
            ("PUT", client.put(&at).json(&put)),
            ("merge patch", client.patch(&at, "merge-patch", &body)),
            ("JSON Patch", client.patch(&at, "json-patch", &test)),
            ("a patch that is none", client.patch(&at, "json-patch", &json!(7))),
            ("DELETE", client.delete(&at)),
            (
                "DELETE of a version",
                client.delete(&at).json(&json!({
                "preconditions": { "resourceVersion": "1" } })),
            ),
            ("status", client.get(&format!("{one}/status"))),
        ] {
            replies.push((format!("{what}{query}"), request.send().await));
        }
    }
    replies
}

/// An answer without the name that it is about, and without its id.
fn without_name(reply: &Response, name: &str) -> (u16, String, usize) {
    let headers = reply.headers.keys().filter(|name| *name != "date").count();
    (reply.status, reply.text().replace(name, "NAME"), headers)
}

async fn assert_indistinguishable(client: &Client, collection: &str, names: [&str; 2], code: u16) {
    let [there, absent] = names;
    let of_there = all_about(client, collection, there).await;
    let of_absent = all_about(client, collection, absent).await;
    for ((what, one), (_, other)) in of_there.iter().zip(&of_absent) {
        assert_eq!(without_name(one, there), without_name(other, absent), "{what}");
        if what == "GET" {
            assert_eq!(one.status, code, "{what}: {}", one.text());
        }
    }
}

#[tokio::test]
async fn cve_2022_41354_no_answer_tells_whether_a_secret_exists() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    make_secret(&admin, "there").await;
    let all = secrets("platform");
    make(&admin, "teams", "red", json!({})).await;
    let robot = with_key(&admin, "robot", json!({ "team": "red" })).await;
    assert_indistinguishable(&robot, &all, ["there", "never"], 403).await;
    assert_indistinguishable(&ada, &all, ["there", "never"], 404).await;
    make_shared(&admin, "of-bob", json!([to_user("bob", &["get"])])).await;
    assert_indistinguishable(&bob, &all, ["there", "never"], 404).await;
    let makes = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some("platform"), makes, "platform:user:ada").await;
    assert_indistinguishable(&ada, &all, ["there", "never"], 404).await;
    // Once there was one: its tombstones say nothing, either.
    make_secret(&admin, "gone").await;
    admin.delete(&secret_path("gone")).send().await.expect(200);
    assert_indistinguishable(&ada, &all, ["gone", "never"], 404).await;
    let taken = ada.post(&all).json(&secret("there", "x")).send().await;
    assert_eq!(taken.status, 409, "who may create there learns it, as in Kubernetes");
}

#[tokio::test]
async fn cve_2022_41354_no_answer_tells_whether_a_user_or_project_exists() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, _) = (user(&admin, "ada").await, user(&admin, "bob").await);
    make(&admin, "teams", "red", json!({ "users": ["ada"] })).await;
    make(&admin, "teams", "blue", json!({})).await;
    make(&admin, "projects", "shop", json!({})).await;
    make(&admin, "clusters", "c1", json!({})).await;
    for (resource, names, code) in [
        ("users", ["bob", "nix"], 404),
        ("teams", ["blue", "cyan"], 404),
        ("projects", ["shop", "none"], 403),
        ("clusters", ["c1", "c9"], 403),
    ] {
        assert_indistinguishable(&ada, &collection(resource), names, code).await;
    }
}

#[tokio::test]
async fn vault_cve_2025_6011_counts_and_continue_tokens_tell_nothing() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    for number in 0..8 {
        make_secret(&admin, &format!("hidden-{number}")).await;
        if number % 4 == 0 {
            make_shared(&admin, &format!("own-{number}"), json!([to_user("ada", &["get"])])).await;
        }
    }
    let page = ada.get(&format!("{}?limit=1", secrets("platform"))).send().await;
    let list = page.expect(200);
    assert_eq!(crate::access::scene::names(&list), ["own-0"], "pages are filled after filtering");
    assert!(list["metadata"].get("remainingItemCount").is_none(), "{list}");
    let token = list["metadata"]["continue"].as_str().expect("there is another page");
    assert!(!token.contains("hidden"), "{token}");
    let next = format!("{}?limit=1&continue={token}", secrets("platform"));
    let list = ada.get(&next).send().await.expect(200);
    assert_eq!(crate::access::scene::names(&list), ["own-4"]);
    assert!(list["metadata"].get("continue").is_none(), "nothing is left for them: {list}");
    assert!(!page.text().contains("hidden") && !list.to_string().contains("hidden"));
    // With the token of another caller, a caller sees only its own objects.
    let all = admin.get(&format!("{}?limit=1", secrets("platform"))).send().await.expect(200);
    let token = all["metadata"]["continue"].as_str().unwrap();
    let next = format!("{}?limit=50&continue={token}", secrets("platform"));
    assert!(!ada.get(&next).send().await.text().contains("hidden"));
}

#[tokio::test]
async fn cve_2025_55190_no_answer_of_another_kind_has_a_credential() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let mut object = secret("s1", CANARY);
    object["spec"]["access"] = json!([to_user("ada", &["list", "watch", "patch", "delete"])]);
    admin.post(&secrets("platform")).json(&object).send().await.expect(201);
    make(
        &admin,
        "ownedaccesskeys",
        "k",
        json!({ "user": "ada", "key": format!("{CANARY}-{CANARY}-{CANARY}") }),
    )
    .await;
    let members = json!([{ "kind": "User", "name": "ada" }]);
    make_project(&admin, "shop", members).await;
    let object =
        json!({ "metadata": { "name": "ps" }, "spec": { "data": { "a": CANARY_BASE64 } } });
    admin
        .post(&collection("namespaces/p-shop/projectsecrets"))
        .json(&object)
        .send()
        .await
        .expect(201);
    for client in [&admin, &ada] {
        for what in [
            "users",
            "users/ada",
            "users/ada/accesskeys",
            "ownedaccesskeys",
            "ownedaccesskeys/k",
            "projects",
            "projects/shop",
            "projects/shop/members",
            "projects/shop/clusters",
            "clusters",
            "selves/me",
            "namespaces/p-shop/spaceinstances",
        ] {
            let reply = client.get(&collection(what)).send().await;
            assert_no_canary(what, &reply.text());
        }
        for what in ["role", "rolebinding"] {
            let at = postern_tests::rights::rbac(Some("platform"), what);
            assert_no_canary(what, &client.get(&at).send().await.text());
        }
        let ask = json!({ "spec": { "accessKey": "k" } });
        let reply = client.post(&collection("selves")).json(&ask).send().await;
        assert_no_canary("Self", &reply.text());
    }
    // Rights to list or watch are none to get.
    for at in [secret_path("s1"), secrets("platform"), collection("sharedsecrets")] {
        assert_no_canary(&at, &ada.get(&at).send().await.text());
    }
    let watched = format!("{}?watch=true&timeoutSeconds=1", secrets("platform"));
    assert_no_canary("a watch", &ada.get(&watched).send().await.text());
}

#[tokio::test]
async fn cve_2025_23216_and_2024_58269_malformed_bodies_leave_no_value_anywhere() {
    let home = Home::new();
    let server = Setup::on(&home).argument("--log").argument("trace").start().await;
    // Over HTTP/2, because its library logs the most.
    let admin = Client::http2(server.kubeconfig());
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["patch", "update"])])).await;
    let one = secret_path("s1");
    let bodies: Vec<String> = vec![
        format!(r#"{{"spec":{{"data":{{"a":"{CANARY}"}}}}}}"#),
        format!(r#"{{"spec":{{"data":{{"a":["{CANARY}"]}}}}}}"#),
        format!(r#"{{"spec":{{"data":"{CANARY}"}}}}"#),
        format!(r#"{{"spec":{{"data":{{"a":"{CANARY_BASE64}"}}"#),
        format!(r#"{{"spec":{{"data":{{"a":"{CANARY_BASE64}!"}}}}}}"#),
        format!(r#"{{"spec":{{"{CANARY} is no field":1}}}}"#).replace(CANARY, "x"),
        format!(r#"[{{"op":"test","path":"/spec/data/value","value":"{CANARY_BASE64}"}}]"#),
        format!(r#"[{{"op":"replace","path":"/spec/data/value","value":{{"x":"{CANARY}"}}}}]"#),
        format!(r#"[{{"op":"add","path":"/spec/data/a","value":"{CANARY}"}}]"#),
        format!("\u{1}{CANARY}"),
    ];
    for client in [&admin, &ada] {
        for body in &bodies {
            for kind in [
                "merge-patch+json",
                "json-patch+json",
                "strategic-merge-patch+json",
                "apply-patch+yaml",
            ] {
                let request = client.request("PATCH", &format!("{one}?fieldManager=x"));
                let request = request.body(&format!("application/{kind}"), body.clone());
                let reply = request.send().await;
                assert_ne!(reply.status, 500, "{body}: {}", reply.text());
                if reply.status != 200 {
                    assert_no_canary(&format!("{kind} {body}"), &reply.text());
                }
            }
            for kind in [
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
                "text/plain",
            ] {
                let reply = client.post(&secrets("platform")).body(kind, body.clone()).send().await;
                assert_no_canary(&format!("{kind} {body}"), &reply.text());
                let reply = client.put(&one).body(kind, body.clone()).send().await;
                assert_no_canary(&format!("{kind} {body}"), &reply.text());
            }
        }
    }
    server.stop().await;
    let audit = std::fs::read_to_string(home.audit_log()).unwrap();
    assert!(home.logged().contains("TRACE"), "the log is as verbose as can be");
    assert!(audit.contains("sharedsecrets"), "{} bytes", audit.len());
    assert_no_canary("the log", &home.logged());
    assert_no_canary("the audit log", &audit);
}

#[tokio::test]
async fn cve_2022_41354_no_subresource_tells_whether_an_object_exists() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    make(&admin, "teams", "blue", json!({})).await;
    make(&admin, "projects", "shop", json!({})).await;
    let reads = json!([rule(&["projects"], &["create"])]);
    allow(&admin, "makers", None, reads, "platform:user:ada").await;
    for (resource, there, sub) in [
        ("users", "bob", "accesskeys"),
        ("teams", "blue", "accesskeys"),
        ("projects", "shop", "members"),
        ("projects", "shop", "clusters"),
        ("projects", "shop", "status"),
    ] {
        let mut replies = Vec::new();
        for name in [there, "never"] {
            let reply = ada.get(&format!("{}/{sub}", path(resource, name))).send().await;
            replies.push((reply.status, reply.text().replace(name, "NAME")));
        }
        assert_eq!(replies[0], replies[1], "{resource}/{sub}");
    }
}

//! Impersonation: it gives the rights of the impersonated user and no others. It needs the right to
//! impersonate.

use postern_tests::Server;
use postern_tests::http::{Client, Request};
use postern_tests::objects::{CORE, collection, make, secret, secret_path, secrets};
use postern_tests::rights::{allow, disallow, rule, user};
use postern_tests::status::failure;
use serde_json::{Value, json};

const KEYS: &str = "ownedaccesskeys";

/// Creates the user bob, a member of the team red, and returns a client with bob's key.
async fn bob(server: &Server) -> Client {
    let admin = server.client();
    make(&admin, "users", "bob", json!({ "groups": ["ops"] })).await;
    make(&admin, "teams", "red", json!({ "users": ["bob"], "groups": ["deployers"] })).await;
    let key = make(&admin, KEYS, "bob-key", json!({ "user": "bob" })).await;
    admin.with_token(key["spec"]["key"].as_str().unwrap())
}

fn who(client: &Client) -> Request<'_> {
    client.post(&collection("selves")).json(&json!({}))
}

async fn status(request: Request<'_>) -> Value {
    request.send().await.expect(201)["status"].clone()
}

#[tokio::test]
async fn the_caller_becomes_the_impersonated_user_with_only_those_rights() {
    let server = Server::start().await;
    let (bob, admin) = (bob(&server).await, server.client());
    let mut wanted = status(who(&bob)).await;
    // Everything except the access key, which is the one in the request.
    wanted["accessKey"] = "admin".into();
    assert_eq!(status(who(&admin).header("impersonate-user", "bob")).await, wanted);
    assert_eq!(wanted["user"]["teams"][0]["name"], "red");
    let as_bob = |path: &str| admin.get(path).header("impersonate-user", "bob");
    admin.post(&secrets("platform")).json(&secret("s1", "one")).send().await.expect(201);
    let text = failure(&as_bob(&format!("{CORE}/namespaces/platform/secrets/s1")).send().await);
    assert!(text.contains("User \"bob\" cannot get resource \"secrets\""), "{text}");
    as_bob(&secret_path("s1")).send().await.expect(404);
    let count = |list: Value| list["items"].as_array().unwrap().len();
    assert_eq!(count(as_bob(&secrets("platform")).send().await.expect(200)), 0);
    assert_eq!(count(admin.get(&secrets("platform")).send().await.expect(200)), 1);
    // Own keys are listed, and a new key belongs to the impersonated user.
    assert_eq!(count(as_bob(&collection(KEYS)).send().await.expect(200)), 1);
    let made = admin.post(&collection(KEYS)).header("impersonate-user", "bob");
    let made = made.json(&json!({ "metadata": { "name": "second" } })).send().await.expect(201);
    assert_eq!(made["spec"]["user"], "bob");
}

#[tokio::test]
async fn groups_uid_and_extra_fields_are_used_as_sent() {
    let server = Server::start().await;
    let (_, admin) = (bob(&server).await, server.client());
    let as_carol = || {
        let request = who(&admin).header("Impersonate-User", "carol");
        request.header("Impersonate-Uid", "u-7").header("Impersonate-Extra-Example.com%2fWhy", "x")
    };
    let identity = status(as_carol()).await;
    let everyone = ["platform:authenticated", "system:authenticated"];
    assert_eq!((&identity["subject"], &identity["uid"]), (&json!("carol"), &json!("u-7")));
    assert_eq!(identity["groups"], json!(everyone));
    let with_groups = as_carol().header("impersonate-group", "a").header("impersonate-group", "b");
    let groups = [&["a", "b"][..], &everyone].concat();
    assert_eq!(status(with_groups).await["groups"], json!(groups));
    // With explicit groups, bob has only those, and not the groups of the team.
    let bob = who(&admin).header("impersonate-user", "bob").header("impersonate-group", "a");
    assert_eq!(status(bob).await["groups"], json!([&["a"][..], &everyone].concat()));
    let master = admin.get(&secrets("platform")).header("impersonate-user", "carol");
    assert_eq!(master.header("impersonate-group", "system:masters").send().await.status, 200);
    let nobody = who(&admin).header("impersonate-user", "system:anonymous");
    assert_eq!(nobody.send().await.status, 403, "an anonymous user may do nothing");
}

#[tokio::test]
async fn a_refusal_has_the_same_text_as_upstream() {
    let server = Server::start().await;
    let bob = bob(&server).await;
    for (name, value, resource, group) in [
        ("impersonate-user", "admin", "users", ""),
        ("impersonate-user", "bob", "users", ""),
        ("impersonate-user", "system:serviceaccount:ci:robot", "serviceaccounts", ""),
    ] {
        let text = failure(&who(&bob).header(name, value).send().await);
        let wanted = format!("cannot impersonate resource \"{resource}\" in API group \"{group}\"");
        assert!(text.starts_with("403 Forbidden") && text.contains(&wanted), "{text}");
    }
}

#[tokio::test]
async fn impersonation_never_widens_a_scope() {
    let server = Server::start().await;
    bob(&server).await;
    let admin = server.client();
    admin.post(&secrets("platform")).json(&secret("s1", "one")).send().await.expect(201);
    // The scope limits the right to impersonate, and the rights of the impersonated user.
    for (name, rules, impersonates, reads) in [
        ("all", json!([{}]), 201, 200),
        ("none", json!([]), 403, 403),
        ("reading", json!([{ "verbs": ["get", "list"] }]), 403, 403),
        ("acting", json!([{ "verbs": ["impersonate"] }]), 201, 404),
        ("both", json!([{ "verbs": ["impersonate", "get"] }]), 201, 200),
    ] {
        let key = make(&admin, KEYS, name, json!({ "scope": { "rules": rules } })).await;
        let scoped = admin.with_token(key["spec"]["key"].as_str().unwrap());
        assert_eq!(who(&scoped).send().await.status, 201, "{name}");
        for user in ["bob", "admin"] {
            let reply = who(&scoped).header("impersonate-user", user).send().await;
            assert_eq!(reply.status, impersonates, "{name} as {user}: {}", reply.text());
        }
        let read = scoped.get(&secret_path("s1")).header("impersonate-user", "admin").send().await;
        assert_eq!(read.status, reads, "{name}: {}", read.text());
        let made = scoped.post(&secrets("platform")).header("impersonate-user", "admin");
        let made = made.json(&secret(&format!("by-{name}"), "x")).send().await;
        let wanted = if name == "all" { 201 } else { 403 };
        assert_eq!(made.status, wanted, "{name}: {}", made.text());
    }
}

#[tokio::test]
async fn invalid_headers_are_refused_and_not_ignored() {
    let server = Server::start().await;
    let admin = server.client();
    for (headers, wanted) in [
        (&[("impersonate-group", "g")][..], "without impersonating a user"),
        (&[("impersonate-uid", "u")], "without impersonating a user"),
        (&[("impersonate-extra-a", "x")], "without impersonating a user"),
        (&[("impersonate-user", "a"), ("impersonate-user", "b")], "only once"),
        (&[("impersonate-user", "")], "Impersonate-user: must not be empty"),
        (&[("impersonate-user", "a\u{202e}b")], "Impersonate-user: must not contain"),
        (&[("impersonate-users", "bob")], "unknown header Impersonate-users"),
        (&[("impersonate-user", "a"), ("impersonate-extra-", "x")], "unknown header"),
    ] {
        let mut request = who(&admin);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let text = failure(&request.send().await);
        assert!(text.starts_with("400 BadRequest") && text.contains(wanted), "{headers:?}: {text}");
    }
    let token = &server.kubeconfig().token;
    let text = failure(&who(&admin).header("impersonate-user", token).send().await);
    assert!(text.starts_with("400") && !text.contains(token), "{text}");
}

#[tokio::test]
async fn a_watch_ends_when_the_right_to_impersonate_is_lost() {
    let server = Server::start().await;
    let (_, admin) = (bob(&server).await, server.client());
    let master = json!({ "groups": ["system:masters"] });
    make(&admin, "users", "carol", master).await;
    let key = make(&admin, KEYS, "carol-key", json!({ "user": "carol" })).await;
    let carol = admin.with_token(key["spec"]["key"].as_str().unwrap());
    let watched = format!("{}?watch=true", collection(KEYS));
    let request = carol.get(&watched).header("impersonate-user", "bob");
    let mut watch = postern_tests::watching::Watch::new(request.stream().await);
    assert_eq!(watch.next().await.unwrap().summary(), "ADDED bob-key");
    let user = format!("{}/carol", collection("users"));
    let change = json!({ "spec": { "groups": [] } });
    admin.patch(&user, "merge-patch", &change).send().await.expect(200);
    let rest = watch.rest().await;
    assert_eq!(rest.last().unwrap().object["code"], 410);
    let again = carol.get(&watched).header("impersonate-user", "bob").send().await;
    assert_eq!(again.status, 403);
}

/// CVE-2023-40025: a watch must not outlive the right that opened it.
#[tokio::test]
async fn cve_2023_40025_a_watch_ends_when_a_role_to_impersonate_is_taken_away() {
    let server = Server::start().await;
    let (_, admin) = (bob(&server).await, server.client());
    let ops = user(&admin, "ops").await;
    let rule =
        json!({ "apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"] });
    let watched = format!("{}?watch=true", collection(KEYS));
    for (name, group) in [("acting", None), ("all", Some("system:masters"))] {
        allow(&admin, name, None, json!([rule]), "platform:user:ops").await;
        let as_bob = || {
            let request = ops.get(&watched).header("impersonate-user", "bob");
            group
                .into_iter()
                .fold(request, |request, group| request.header("impersonate-group", group))
        };
        let mut watch = postern_tests::watching::Watch::new(as_bob().stream().await);
        watch.next().await.unwrap();
        disallow(&admin, name, None).await;
        let rest = watch.rest().await;
        assert_eq!(rest.last().unwrap().object["code"], 410, "{group:?}");
        as_bob().send().await.expect(403);
    }
}

#[tokio::test]
async fn a_watch_ends_when_the_impersonated_user_changes() {
    let server = Server::start().await;
    let (_, admin) = (bob(&server).await, server.client());
    let watched = format!("{}?watch=true", collection(KEYS));
    let as_bob = || admin.get(&watched).header("impersonate-user", "bob");
    let mut watch = postern_tests::watching::Watch::new(as_bob().stream().await);
    assert_eq!(watch.next().await.unwrap().summary(), "ADDED bob-key");
    let team = format!("{}/red", collection("teams"));
    let groups = async |groups: Value| {
        let change = json!({ "spec": { "groups": groups } });
        admin.patch(&team, "merge-patch", &change).send().await.expect(200);
    };
    // Other groups that give nothing leave the watch alone.
    groups(json!(["others"])).await;
    make(&admin, KEYS, "bob-second", json!({ "user": "bob" })).await;
    assert_eq!(watch.next().await.unwrap().summary(), "ADDED bob-second");
    allow(&admin, "readers", None, json!([rule(&[KEYS], &["get"])]), "readers").await;
    groups(json!(["readers"])).await;
    let rest = watch.rest().await;
    let last = rest.last().unwrap();
    assert_eq!(last.object["code"], 410, "{}", last.object);
    // A disabled user may do nothing, also when impersonated.
    let user = format!("{}/bob", collection("users"));
    let change = json!({ "spec": { "disabled": true } });
    admin.patch(&user, "merge-patch", &change).send().await.expect(200);
    let text = failure(&as_bob().send().await);
    assert!(text.contains("the user is disabled"), "{text}");
}

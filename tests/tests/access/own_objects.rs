//! Watchers that create objects: their own rights change with it, and their watch goes on.

use postern_tests::Server;
use postern_tests::objects::{make, secret, secret_path, secrets};
use postern_tests::rights::{allow, path, rule, set, user};
use serde_json::json;

use crate::access::scene::{code, make_secret, make_shared, share, to_user, visible, watch};

#[tokio::test]
async fn own_objects_come_and_go_in_an_open_watch() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    let makers = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some("platform"), makers, "platform:user:*").await;
    let mut open = watch(&ada).await;
    let mut of_bob = watch(&bob).await;
    for name in ["first", "second"] {
        make_secret(&ada, name).await;
        assert_eq!(open.next().await.unwrap().summary(), format!("ADDED {name}"));
        set(&ada, &secret_path(name), json!({ "displayName": "changed" })).await;
        assert_eq!(open.next().await.unwrap().summary(), format!("MODIFIED {name}"));
        ada.delete(&secret_path(name)).send().await.expect(200);
        assert_eq!(open.next().await.unwrap().summary(), format!("DELETED {name}"));
    }
    make_secret(&bob, "third").await;
    assert_eq!(of_bob.next().await.unwrap().summary(), "ADDED third", "and nothing of ada's");
}

#[tokio::test]
async fn a_watch_may_be_resumed_while_nothing_has_changed_for_its_caller() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get"])])).await;
    let list = ada.get(&secrets("platform")).send().await.expect(200);
    let since =
        format!("&resourceVersion={}", list["metadata"]["resourceVersion"].as_str().unwrap());
    make_secret(&admin, "of-admin").await;
    set(&admin, &secret_path("s1"), json!({ "displayName": "changed" })).await;
    let mut resumed = ada.watch(&secrets("platform"), &since).await;
    assert_eq!(resumed.next().await.unwrap().summary(), "MODIFIED s1");
    // Meanwhile ada got another share, so the earlier list is not complete.
    make_shared(&admin, "s2", json!([to_user("ada", &["get"])])).await;
    let mut too_old = ada.watch(&secrets("platform"), &since).await;
    assert_eq!(crate::access::scene::end_of(&mut too_old).await, 410);
    assert_eq!(visible(&ada).await, ["s1", "s2"]);
}

#[tokio::test]
async fn a_share_and_its_object_appear_together() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let mut object = postern_tests::objects::secret("shared", "one");
    object["spec"]["access"] = json!([to_user("ada", &["get", "update"])]);
    admin.post(&secrets("platform")).json(&object).send().await.expect(201);
    assert_eq!(code(&ada, "shared").await, 200, "from the moment of the answer");
}

#[tokio::test]
async fn a_continue_token_shows_nothing_that_has_been_taken_back() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    for name in ["a", "b", "c"] {
        make_shared(&admin, name, json!([to_user("ada", &["get"])])).await;
    }
    let page = ada.get(&format!("{}?limit=1", secrets("platform"))).send().await.expect(200);
    let token = page["metadata"]["continue"].as_str().unwrap();
    share(&admin, "b", json!([])).await;
    let next = format!("{}?limit=5&continue={token}", secrets("platform"));
    let reply = ada.get(&next).send().await;
    assert!(!reply.text().contains("\"b\""), "{}", reply.text());
}

/// An annotation that clients may write as any other one. The server keeps the uid of the owner next to the object.
const OWNER_UID: &str = "platform.sh/owner-uid";

/// A patch of the annotation, as a JSON Patch has it.
fn patch_of_annotation(op: &str, value: &str) -> serde_json::Value {
    let path = format!("/metadata/annotations/{}", OWNER_UID.replace('/', "~1"));
    match op {
        "remove" => json!([{ "op": op, "path": path }]),
        _ => json!([{ "op": op, "path": path, "value": value }]),
    }
}

#[tokio::test]
async fn nobody_becomes_the_owner_by_writing_the_uid_of_one() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    let makers = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some("platform"), makers, "platform:user:*").await;
    let uid_of = async |name: &str| {
        let user = admin.get(&path("users", name)).send().await.expect(200);
        user["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let (uid, uid_of_bob) = (uid_of("ada").await, uid_of("bob").await);
    let one = secret_path("s1");
    let check = async |what: &str| {
        let found = ada.get(&one).send().await.expect(200);
        assert!(!found.to_string().contains(&uid), "{what}: {found}");
        assert_eq!(code(&bob, "s1").await, 404, "{what}");
        found
    };
    let mut new = secret("s1", "one");
    new["metadata"]["annotations"] = json!({ OWNER_UID: uid_of_bob, "theirs": "1" });
    ada.post(&secrets("platform")).json(&new).send().await.expect(201);
    let first = check("create").await;
    assert_eq!(first["metadata"]["annotations"], new["metadata"]["annotations"]);
    for (what, annotations) in [
        ("PUT with another", json!({ OWNER_UID: uid_of_bob, "theirs": "1" })),
        ("PUT without it", json!({ "theirs": "1" })),
        ("PUT without any", json!({})),
        ("PUT with another again", json!({ OWNER_UID: uid_of_bob })),
    ] {
        let mut put = check(what).await;
        put["metadata"]["annotations"] = annotations;
        ada.put(&one).json(&put).send().await.expect(200);
        check(what).await;
    }
    for patch in [
        patch_of_annotation("remove", ""),
        json!([{ "op": "add", "path": "/metadata/annotations", "value": {} }]),
        patch_of_annotation("add", &uid_of_bob),
        patch_of_annotation("replace", &uid_of_bob),
        json!([{ "op": "remove", "path": "/metadata/annotations" }]),
    ] {
        ada.patch(&one, "json-patch", &patch).send().await.expect(200);
        check("JSON Patch").await;
    }
    for annotations in [json!({ OWNER_UID: uid_of_bob }), json!({ OWNER_UID: null }), json!(null)] {
        let patch = json!({ "metadata": { "annotations": annotations } });
        ada.patch(&one, "merge-patch", &patch).send().await.expect(200);
        check("merge patch").await;
    }
    let last = check("at last").await;
    assert_eq!(last["metadata"]["generation"], first["metadata"]["generation"]);
}

/// Diffs, applies and copies of an object showed the uid of its owner as an annotation of the client.
#[tokio::test]
async fn the_uid_of_the_owner_is_in_no_answer_and_a_copy_has_its_own_owner() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    let makers = json!([rule(&["sharedsecrets"], &["create", "patch"])]);
    allow(&admin, "makers", Some("platform"), makers, "platform:user:*").await;
    let uid = admin.get(&path("users", "ada")).send().await.expect(200);
    let uid = uid["metadata"]["uid"].as_str().unwrap().to_owned();
    let made = ada.post(&secrets("platform")).json(&secret("s1", "one")).send().await.expect(201);
    let mut watch = ada.watch(&secrets("platform"), "&resourceVersion=0").await;
    let event = watch.take(1).await.remove(0);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = ada.get(&secrets("platform")).header("accept", table).send().await.expect(200);
    let listed = ada.get(&secrets("platform")).send().await.expect(200);
    let configuration = json!({
        "apiVersion": made["apiVersion"], "kind": made["kind"],
        "metadata": { "name": "s1" }, "spec": { "displayName": "One" },
    });
    let apply = format!("{}?fieldManager=m&force=true", secret_path("s1"));
    let applying = ada.request("PATCH", &apply);
    let applying = applying.body("application/apply-patch+yaml", configuration.to_string());
    let applied = applying.send().await.expect(200);
    for (what, answer) in [
        ("create", &made),
        ("watch", &event.object),
        ("table", &table),
        ("list", &listed),
        ("apply", &applied),
    ] {
        assert!(!answer.to_string().contains(&uid), "{what}: {answer}");
    }
    assert!(applied["metadata"].get("annotations").is_none(), "{applied}");
    let mut copy = applied.clone();
    copy["metadata"] = json!({ "name": "copy" });
    copy["spec"].as_object_mut().unwrap().remove("owner");
    bob.post(&secrets("platform")).json(&copy).send().await.expect(201);
    assert_eq!((code(&bob, "copy").await, code(&ada, "copy").await), (200, 404));
    assert_eq!((code(&bob, "s1").await, code(&ada, "s1").await), (404, 200));
}

#[tokio::test]
async fn an_owner_holds_every_verb_and_so_do_the_members_of_a_team() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    make(&admin, "teams", "red", json!({ "users": ["ada"] })).await;
    for (resource, name) in [("projects", "one"), ("clusters", "east")] {
        make(&admin, resource, name, json!({ "owner": { "team": "red" } })).await;
        let one = path(resource, name);
        set(&ada, &one, json!({ "displayName": "Red" })).await;
        assert_eq!(bob.get(&one).send().await.status, 403, "{resource}");
        let names = ada.get(&postern_tests::objects::collection(resource)).send().await.expect(200);
        assert_eq!(names["items"].as_array().unwrap().len(), 1, "{resource}");
        assert_eq!(ada.delete(&path(resource, "other")).send().await.status, 404, "{resource}");
    }
    set(&admin, &path("teams", "red"), json!({ "users": ["bob"] })).await;
    for (resource, name) in [("projects", "one"), ("clusters", "east")] {
        assert_eq!(ada.get(&path(resource, name)).send().await.status, 403, "{resource}");
        bob.delete(&path(resource, name)).send().await.expect(200);
        assert_eq!(
            bob.get(&path(resource, name)).send().await.status,
            403,
            "it is gone, and bob has none"
        );
    }
}

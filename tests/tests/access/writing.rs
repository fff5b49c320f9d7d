//! Writing without reading: a pipeline can set values that it cannot read, and learns nothing by
//! it.

use postern_tests::Server;
use postern_tests::objects::{secret, secret_path, secrets, value_of, version_of};
use postern_tests::rights::{allow, merge, rule, rule_on, user, with_key};
use serde_json::{Value, json};

use crate::access::scene::{
    assert_refused, code, make_secret, make_shared, to_user, visible, watch,
};

/// "one", and "two", in base64.
const ONE: &str = "b25l";
const TWO: &str = "dHdv";

fn assert_no_data(answer: &Value) {
    assert!(answer["spec"].get("data").is_none(), "{answer}");
    assert!(!answer.to_string().contains(ONE) && !answer.to_string().contains(TWO), "{answer}");
}

#[tokio::test]
async fn who_may_patch_and_not_get_sees_no_data() {
    let server = Server::start().await;
    let admin = server.client();
    let ci = user(&admin, "ci").await;
    make_shared(&admin, "s1", json!([to_user("ci", &["patch", "update"])])).await;
    let one = secret_path("s1");
    let set_two = json!({ "spec": { "data": { "value": TWO } } });
    let add = json!([{ "op": "add", "path": "/spec/data/value", "value": TWO }]);
    for query in ["?dryRun=All", ""] {
        let at = format!("{one}{query}");
        assert_no_data(&merge(&ci, &at, set_two.clone()).await.expect(200));
        assert_no_data(&ci.patch(&at, "json-patch", &add).send().await.expect(200));
        let strategic = ci.patch(&at, "strategic-merge-patch", &set_two).send().await;
        let apply =
            format!("{at}{}fieldManager=ci&force=true", if query.is_empty() { "?" } else { "&" });
        let apply = ci.request("PATCH", &apply);
        let object = json!({ "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
            "spec": { "data": { "value": TWO } } });
        let applied = apply.body("application/apply-patch+yaml", object.to_string()).send().await;
        for reply in [strategic, applied] {
            assert_no_data(&reply.expect(200));
        }
        let current = admin.get(&one).send().await.expect(200);
        let mut put = secret("s1", "two");
        put["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        put["spec"]["access"] = current["spec"]["access"].clone();
        put["spec"]["owner"] = current["spec"]["owner"].clone();
        assert_no_data(&ci.put(&at).json(&put).send().await.expect(200));
        for format in ["application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
            let reply = ci.patch(&at, "merge-patch", &set_two).accept(format).send().await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert!(!reply.text().contains(TWO), "{}", reply.text());
        }
    }
    assert_eq!(value_of(&admin.get(&one).send().await.expect(200)), "two", "it was written");
    // Each of these operations would reveal the stored value.
    for operation in [
        json!({ "op": "test", "path": "/spec/data/value", "value": ONE }),
        json!({ "op": "test", "path": "/spec/data/value", "value": TWO }),
        json!({ "op": "copy", "from": "/spec/data/value", "path": "/metadata/labels/x" }),
        json!({ "op": "move", "from": "/spec/data/value", "path": "/spec/description" }),
        json!({ "op": "copy", "from": "/spec/data/value", "path": "/spec/displayName" }),
    ] {
        for query in ["", "?dryRun=All"] {
            let at = format!("{one}{query}");
            let reply = ci.patch(&at, "json-patch", &json!([operation])).send().await;
            assert_eq!(reply.status, 403, "{operation}: {}", reply.text());
            assert!(!reply.text().contains(TWO), "{}", reply.text());
        }
    }
    // An apply conflicts where a value is another one: without force it would say which is stored.
    for value in [ONE, TWO] {
        let object = json!({ "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
            "metadata": { "name": "s1" }, "spec": { "data": { "value": value } } });
        for query in ["", "&dryRun=All", "&force=false"] {
            let apply = ci.request("PATCH", &format!("{one}?fieldManager=other{query}"));
            let reply = apply.body("application/apply-patch+yaml", object.to_string()).send().await;
            assert_eq!(reply.status, 403, "{}", reply.text());
            assert!(
                reply.text().contains("needs the permission to get the object"),
                "{}",
                reply.text()
            );
        }
    }
    assert_eq!(code(&ci, "s1").await, 404, "it is not there for them");
    assert!(visible(&ci).await.is_empty());
}

#[tokio::test]
async fn who_may_create_and_not_get_sees_no_data_of_others() {
    let server = Server::start().await;
    let admin = server.client();
    let makes = json!([rule(&["sharedsecrets"], &["create", "delete", "deletecollection"])]);
    allow(&admin, "makers", Some("platform"), makes, "makers").await;
    // A subject owns nothing, so it may not even get the objects that it has created.
    let robot = json!({ "subject": "robot", "groups": ["makers"] });
    let robot = with_key(&admin, "robot", robot).await;
    for query in ["?dryRun=All", ""] {
        let at = format!("{}{query}", secrets("platform"));
        let made = robot.post(&at).json(&secret("made", "two")).send().await.expect(201);
        assert_no_data(&made);
    }
    let mut open = watch(&robot).await;
    make_secret(&admin, "s1").await;
    let again = robot.post(&secrets("platform")).json(&secret("s1", "two")).send().await;
    assert_eq!(again.status, 409, "who may create learns that a name is taken");
    assert!(!again.text().contains(ONE) && !again.text().contains(TWO));
    // The response to a deletion contains the object if a finalizer keeps it.
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    merge(&admin, &secret_path("s1"), held).await.expect(200);
    let deleted = robot.delete(&secret_path("s1")).send().await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert!(!deleted.text().contains(ONE), "{}", deleted.text());
    // Nothing of all this was an event for them.
    allow(&admin, "readers", None, json!([rule_on("sharedsecrets", &["x"], &["get"])]), "makers")
        .await;
    let events = open.rest().await;
    assert!(events.iter().all(|event| event.kind == "ERROR"), "{events:?}");
}

#[tokio::test]
async fn owner_references_need_the_right_to_delete() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get", "patch", "update"])])).await;
    let owner = make_secret(&admin, "owner").await;
    let reference = |uid: &Value| {
        json!([{ "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
            "name": "owner", "uid": uid }])
    };
    let dead = json!("11111111-2222-3333-4444-555555555555");
    let one = secret_path("s1");
    let before = admin.get(&one).send().await.expect(200);
    for uid in [&dead, &owner["metadata"]["uid"]] {
        let change = json!({ "metadata": { "ownerReferences": reference(uid) } });
        assert_refused(&merge(&ada, &one, change).await, &["cannot delete resource"]);
        let add =
            json!([{ "op": "add", "path": "/metadata/ownerReferences", "value": reference(uid) }]);
        let reply = ada.patch(&one, "json-patch", &add).send().await;
        assert_refused(&reply, &["cannot delete resource"]);
        let mut put = before.clone();
        put["metadata"]["ownerReferences"] = reference(uid);
        assert_refused(&ada.put(&one).json(&put).send().await, &["cannot delete resource"]);
    }
    let after = admin.get(&one).send().await.expect(200);
    assert_eq!(version_of(&after), version_of(&before));
    crate::access::scene::share(&admin, "s1", json!([to_user("ada", &["get", "patch", "delete"])]))
        .await;
    let change = json!({ "metadata": { "ownerReferences": reference(&owner["metadata"]["uid"]) } });
    merge(&ada, &one, change).await.expect(200);
}

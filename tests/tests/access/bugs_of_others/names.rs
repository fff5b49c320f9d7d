//! Names that are another spelling of a guarded one, or that lead somewhere else.

use postern_tests::Server;
use postern_tests::objects::{CORE, GROUP, collection, make, secret, secrets};
use postern_tests::rights::{allow, merge, path, rule, user};
use serde_json::json;

use crate::access::scene::{make_project, make_secret, make_shared, to_user};

#[tokio::test]
async fn cve_2019_11247_no_cluster_scoped_object_is_served_under_a_namespace() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    allow(&admin, "everything", Some("platform"), all, "platform:user:ada").await;
    let inside = format!("{GROUP}/namespaces/platform");
    for what in
        ["users", "users/admin", "ownedaccesskeys", "ownedaccesskeys/admin", "projects", "clusters"]
    {
        for method in ["GET", "POST", "DELETE"] {
            let at = format!("{inside}/{what}");
            let reply = ada.request(method, &at).json(&json!({})).send().await;
            assert!([403, 404].contains(&reply.status), "{method} {what}: {}", reply.text());
            assert_eq!(admin.request(method, &at).json(&json!({})).send().await.status, 404);
        }
    }
    // A role in a namespace says nothing about the cluster.
    for what in ["users/admin", "ownedaccesskeys/admin", "clusters/c", "projects/p"] {
        let reply = ada.get(&collection(what)).send().await;
        assert!([403, 404].contains(&reply.status), "{what}: {}", reply.text());
        assert_eq!(ada.delete(&collection(what)).send().await.status, reply.status, "{what}");
    }
    let roles = format!("{}/clusterroles", postern_tests::rights::RBAC);
    assert_eq!(ada.get(&roles).send().await.status, 403);
}

#[tokio::test]
async fn cve_2022_3162_no_name_leads_out_of_its_kind_or_namespace() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let reads = json!([rule(&["sharedsecrets"], &["*"])]);
    allow(&admin, "readers", Some("default"), reads, "platform:user:ada").await;
    make_secret(&admin, "s1").await;
    let of_default = secrets("default");
    for name in [
        "../../platform/sharedsecrets/s1",
        "..%2f..%2fplatform%2fsharedsecrets%2fs1",
        "..%2Fs1",
        "%2e%2e/%2e%2e/platform/sharedsecrets/s1",
        "..",
        ".",
        "%2e%2e",
        "s1%00",
        "s1%2f",
        "..%5cs1",
        "..;/s1",
    ] {
        for method in ["GET", "DELETE", "PATCH"] {
            let request = ada.request(method, &format!("{of_default}/{name}"));
            let reply = request.body("application/merge-patch+json", "{}").send().await;
            assert!([400, 403, 404].contains(&reply.status), "{method} {name}: {}", reply.text());
            assert!(!reply.text().contains("b25l"), "{method} {name}: {}", reply.text());
        }
    }
    for field in ["metadata.name%3D..%2Fs1", "metadata.namespace%3Dplatform"] {
        let reply = ada.get(&format!("{of_default}?fieldSelector={field}")).send().await;
        assert!(!reply.text().contains("\"s1\""), "{field}: {}", reply.text());
    }
    admin.get(&postern_tests::objects::secret_path("s1")).send().await.expect(200);
}

#[tokio::test]
async fn cve_2026_55775_no_spelling_of_a_namespace_is_another_one() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let all = json!([rule(&["*"], &["*"])]);
    make_secret(&admin, "s1").await;
    for name in ["root", "p", "platform-x"] {
        let object = json!({ "metadata": { "name": name } });
        admin.post(&format!("{CORE}/namespaces")).json(&object).send().await.expect(201);
        allow(&admin, "all", Some(name), all.clone(), "platform:user:ada").await;
    }
    for namespace in [
        "root",
        "p",
        "platform-x",
        "..",
        ".",
        "%2e",
        "Platform",
        "platform%20",
        "platform%00",
        "*",
        "root%2f..%2fplatform",
        "",
    ] {
        let at = format!("{GROUP}/namespaces/{namespace}/sharedsecrets");
        for at in [at.clone(), format!("{at}/s1")] {
            let reply = ada.get(&at).send().await;
            assert!([200, 400, 403, 404].contains(&reply.status), "{at}: {}", reply.text());
            assert!(!reply.text().contains("b25l"), "{at}: {}", reply.text());
        }
    }
    for name in ["..", ".", "Root", "root ", "", "a/b", "*"] {
        let object = json!({ "metadata": { "name": name } });
        let reply = admin.post(&format!("{CORE}/namespaces")).json(&object).send().await;
        assert_eq!(reply.status, 422, "{name:?}: {}", reply.text());
    }
}

#[tokio::test]
async fn cve_2025_5999_no_spelling_of_a_guarded_group_has_its_rights() {
    let server = Server::start().await;
    let admin = server.client();
    make_secret(&admin, "s1").await;
    for (index, group) in [
        "System:masters",
        "SYSTEM:MASTERS",
        "system:Masters",
        " system:masters",
        "system:masters ",
        "system:masters\u{200b}",
        "ѕystem:masters",
        "system:masters,",
        "system：masters",
        "system:masters\t",
        "masters",
        "root",
        "admin",
        "platform-admin",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("u{index}");
        let object = json!({ "metadata": { "name": name }, "spec": { "groups": [group] } });
        let made = admin.post(&collection("users")).json(&object).send().await;
        assert!([201, 422].contains(&made.status), "{group:?}: {}", made.text());
        if made.status == 201 {
            let key = json!({ "user": name });
            let caller = postern_tests::rights::with_key(&admin, &name, key).await;
            assert_eq!(crate::access::scene::code(&caller, "s1").await, 404, "{group:?}");
            assert_eq!(caller.get(&path("users", "admin")).send().await.status, 404, "{group:?}");
        }
    }
}

#[tokio::test]
async fn cve_2025_6004_no_spelling_of_a_name_is_somebody_else() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["get"])])).await;
    for name in ["Ada", "ADA", "ada ", " ada", "ada\u{301}", "ada\u{200b}", "a%64a", "ada\0"] {
        let object = json!({ "metadata": { "name": name } });
        let reply = admin.post(&collection("users")).json(&object).send().await;
        assert_eq!(reply.status, 422, "{name:?}: {}", reply.text());
        let spec = json!({ "subject": name });
        let object = json!({ "metadata": { "name": "other" }, "spec": spec });
        let reply = admin.post(&collection("users")).json(&object).send().await;
        if reply.status == 201 {
            let key = json!({ "user": "other" });
            let caller = postern_tests::rights::with_key(&admin, "other", key).await;
            assert_eq!(crate::access::scene::code(&caller, "s1").await, 404, "{name:?}");
            admin.delete(&path("users", "other")).send().await.expect(200);
            let check = async || {
                let key = admin.get(&path("ownedaccesskeys", "other")).send().await;
                (key.status == 404).then_some(())
            };
            postern_tests::wait::until("the key to be deleted", check).await;
        }
    }
    assert_eq!(crate::access::scene::code(&ada, "s1").await, 200);
}

#[tokio::test]
async fn cve_2024_58260_nobody_takes_the_name_of_somebody_else() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make(&admin, "users", "bob", json!({ "subject": "oidc|7", "username": "bobby" })).await;
    // Users cannot take the name themselves, and a manager of users cannot give it to them.
    for spec in [
        json!({ "username": "admin" }),
        json!({ "subject": "admin" }),
        json!({ "displayName": "admin" }),
    ] {
        let reply = merge(&ada, &path("users", "ada"), json!({ "spec": spec })).await;
        assert_eq!(reply.status, 403, "{spec}: {}", reply.text());
    }
    for spec in [
        json!({ "username": "admin" }),
        json!({ "subject": "admin" }),
        json!({ "subject": "oidc|7" }),
        json!({ "username": "oidc|7" }),
        json!({ "username": "bobby" }),
        json!({ "subject": "bobby" }),
        json!({ "subject": "bob" }),
    ] {
        let reply = merge(&admin, &path("users", "ada"), json!({ "spec": spec })).await;
        assert_eq!(reply.status, 422, "{spec}: {}", reply.text());
        let object = json!({ "metadata": { "name": "new" }, "spec": spec });
        let reply = admin.post(&collection("users")).json(&object).send().await;
        assert_eq!(reply.status, 422, "{spec}: {}", reply.text());
    }
    let named = json!({ "metadata": { "name": "bobby" } });
    let reply = admin.post(&collection("users")).json(&named).send().await;
    assert_eq!(reply.status, 422, "a name that is a username: {}", reply.text());
}

#[tokio::test]
async fn cve_2024_22031_no_project_is_named_like_anothers_namespace() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let members =
        json!([{ "kind": "User", "name": "ada", "clusterRole": "platform-project-admin" }]);
    make_project(&admin, "shop", members).await;
    make(&admin, "projects", "p-shop", json!({})).await;
    let at = secrets("p-p-shop");
    admin.post(&at).json(&secret("inside", "one")).send().await.expect(201);
    let reply = ada.get(&format!("{at}/inside")).send().await;
    assert!([403, 404].contains(&reply.status), "{}", reply.text());
    ada.post(&secrets("p-shop")).json(&secret("own", "one")).send().await.expect(201);
    // A namespace of a project is made by its project alone, and a project takes no namespace over.
    for name in ["p-later", "p-", "p-shop2"] {
        let object = json!({ "metadata": { "name": name } });
        let reply = admin.post(&format!("{CORE}/namespaces")).json(&object).send().await;
        assert!([403, 422].contains(&reply.status), "{name}: {}", reply.text());
    }
}

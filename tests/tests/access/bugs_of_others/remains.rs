//! Bindings, keys and data that must not remain after their owner is deleted.

use postern_tests::http::Client;
use postern_tests::objects::{CORE, collection, make, secret, secret_path, secrets};
use postern_tests::rights::{path, rbac, set, user, with_key};
use postern_tests::{Home, Server, Setup, wait};
use serde_json::json;

use crate::access::scene::{
    code, make_project, make_secret, make_shared, names, to_team, to_user, visible,
};

async fn gone(admin: &Client, at: &str) {
    let check = async || (admin.get(at).send().await.status == 404).then_some(());
    wait::until(&format!("{at} to be gone"), check).await;
}

#[tokio::test]
async fn cve_2021_36775_no_binding_outlives_its_project_role_or_membership() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let members =
        json!([{ "kind": "User", "name": "ada", "clusterRole": "platform-project-admin" }]);
    let at = make_project(&admin, "shop", members.clone()).await;
    ada.post(&at).json(&secret("s1", "one")).send().await.expect(201);
    admin.delete(&path("projects", "shop")).send().await.expect(200);
    gone(&admin, &path("projects", "shop")).await;
    gone(&admin, &format!("{CORE}/namespaces/p-shop")).await;
    make(&admin, "projects", "shop", json!({})).await;
    assert_ne!(ada.get(&format!("{at}/s1")).send().await.status, 200);
    admin.post(&at).json(&secret("s2", "one")).send().await.expect(201);
    assert_eq!(ada.get(&format!("{at}/s2")).send().await.status, 404);
    let left = admin.get(&rbac(Some("p-shop"), "rolebinding")).send().await.expect(200);
    assert!(names(&left).iter().all(|name| !name.starts_with("platform:members")), "{left}");
    let list = admin.get(&at).send().await.expect(200);
    assert_eq!(names(&list), ["s2"]);
    // A membership is by uid, as a share is.
    set(&admin, &path("projects", "shop"), json!({ "members": members })).await;
    ada.get(&format!("{at}/s2")).send().await.expect(200);
    admin.delete(&path("users", "ada")).send().await.expect(200);
    gone(&admin, &path("ownedaccesskeys", "ada-key")).await;
    let ada = user(&admin, "ada").await;
    assert_eq!(ada.get(&format!("{at}/s2")).send().await.status, 404);
}

#[tokio::test]
async fn cve_2023_32199_no_membership_outlives_the_team() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make(&admin, "teams", "red", json!({ "users": ["ada"], "groups": ["ops"] })).await;
    let robot = with_key(&admin, "of-red", json!({ "team": "red" })).await;
    make_shared(&admin, "s1", json!([to_team("red", &["get"])])).await;
    assert_eq!([code(&ada, "s1").await, code(&robot, "s1").await], [200, 200]);
    admin.delete(&path("teams", "red")).send().await.expect(200);
    assert_eq!([code(&ada, "s1").await, code(&robot, "s1").await], [404, 401]);
    make(&admin, "teams", "red", json!({ "users": ["ada"] })).await;
    assert_eq!([code(&ada, "s1").await, code(&robot, "s1").await], [404, 401]);
}

#[tokio::test]
async fn cve_2023_22650_no_key_outlives_its_user() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let child = with_key(&ada, "second", json!({})).await;
    admin.delete(&path("users", "ada")).send().await.expect(200);
    make(&admin, "users", "ada", json!({})).await;
    let old = [ada, child];
    for one in &old {
        assert_eq!(code(one, "s1").await, 401);
    }
    server.stop().await;
    let server = Setup::on(&home).start().await;
    for one in &old {
        let now = server.client().with_token(one.token());
        assert_eq!(code(&now, "s1").await, 401, "after a restart");
    }
}

#[tokio::test]
async fn cve_2026_42186_a_deleted_namespace_leaves_nothing_behind() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let object = json!({ "metadata": { "name": "short-lived" } });
    let spaces = format!("{CORE}/namespaces");
    admin.post(&spaces).json(&object).send().await.expect(201);
    let at = secrets("short-lived");
    let mut shared = secret("s1", "one");
    shared["spec"]["access"] = json!([to_user("ada", &["*"])]);
    admin.post(&at).json(&shared).send().await.expect(201);
    ada.get(&format!("{at}/s1")).send().await.expect(200);
    admin.delete(&format!("{spaces}/short-lived")).send().await.expect(200);
    gone(&admin, &format!("{spaces}/short-lived")).await;
    assert_eq!(ada.get(&format!("{at}/s1")).send().await.status, 404);
    admin.post(&spaces).json(&object).send().await.expect(201);
    for list in
        [at.clone(), rbac(Some("short-lived"), "role"), rbac(Some("short-lived"), "rolebinding")]
    {
        let left = admin.get(&list).send().await.expect(200);
        assert!(names(&left).is_empty(), "{list}: {left}");
    }
    admin.post(&at).json(&secret("s1", "two")).send().await.expect(201);
    assert_eq!(ada.get(&format!("{at}/s1")).send().await.status, 404);
}

#[tokio::test]
async fn rancher_cve_2019_6287_no_share_outlives_its_secret() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make_shared(&admin, "s1", json!([to_user("ada", &["*"])])).await;
    let roles = rbac(Some("platform"), "role");
    admin.delete(&secret_path("s1")).send().await.expect(200);
    assert!(names(&admin.get(&roles).send().await.expect(200)).is_empty());
    make_secret(&admin, "s1").await;
    assert_eq!(code(&ada, "s1").await, 404);
    assert!(visible(&ada).await.is_empty());
    assert!(names(&ada.get(&collection("sharedsecrets")).send().await.expect(200)).is_empty());
}

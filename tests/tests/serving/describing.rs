//! Versions, as clients and their caches see them: of the program, of stored objects, and of the
//! documents that never change.

use postern_tests::Server;
use postern_tests::objects::based;
use serde_json::Value;

#[tokio::test]
async fn the_version_tells_the_commit_and_its_date() {
    let server = Server::start().await;
    let version = server.client().get("/version").without("authorization").send().await;
    let version = version.expect(200);
    let commit = version["gitCommit"].as_str().unwrap();
    let date = version["buildDate"].as_str().unwrap();
    assert_eq!(date.len(), "2006-01-02T15:04:05Z".len(), "{version}");
    // Both are known, or neither: without git there is nothing to tell.
    if commit.is_empty() {
        assert!(date.starts_with("1970"), "{version}");
    } else {
        let hex = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(commit.len() == 40 && hex && !date.starts_with("1970"), "{version}");
    }
}

#[tokio::test]
async fn what_is_stored_has_a_version_hash() {
    let server = Server::start().await;
    let client = server.client();
    let core = client.get(&based("/api/v1")).send().await.expect(200);
    let namespaces = core["resources"].as_array().unwrap().iter();
    let mut namespaces = namespaces.filter(|one| one["name"] == "namespaces");
    // The same hash as in kube-apiserver, which derives it from group, version and kind alone.
    assert_eq!(namespaces.next().unwrap()["storageVersionHash"], "Q3oi5N2YM8M=");
    let ours = client.get(&based("/apis/management.platform.sh/v1")).send().await.expect(200);
    let mut hashes: Vec<&str> = Vec::new();
    for resource in ours["resources"].as_array().unwrap() {
        let verbs = resource["verbs"].as_array().unwrap();
        let stored = verbs.contains(&Value::from("list"));
        let subresource = resource["name"].as_str().unwrap().contains('/');
        let hash = resource.get("storageVersionHash").map(|hash| hash.as_str().unwrap());
        assert_eq!(hash.is_some(), stored && !subresource, "{resource}");
        hashes.extend(hash);
    }
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count, "each kind has its own");
}

#[tokio::test]
async fn documents_that_never_change_say_until_when() {
    let server = Server::start().await;
    let client = server.client();
    let index = client.get(&based("/openapi/v3")).send().await.expect(200);
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
    let reply = client.get(&based(url)).send().await;
    assert!(reply.header("cache-control").unwrap().contains("immutable"));
    let expires = reply.header("expires").expect("for caches that know nothing newer");
    assert!(expires.ends_with(" GMT") && expires.len() == "Sun, 06 Nov 1994 08:49:37 GMT".len());
    let plain = client.get(&based("/openapi/v3/api/v1")).send().await;
    assert_eq!(plain.header("expires"), None, "this one may change");
}

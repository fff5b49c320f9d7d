//! Deleting, with and without finalizers, one and many.

use postern_tests::{Server, wait};

#[tokio::test]
async fn delete_waits_until_it_is_gone() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "-f", "examples/sharedsecret.yaml"]).await;
    kubectl.ok(&["create", "-f", "examples/sharedsecret.json"]).await;
    let output = kubectl.ok(&["delete", "-f", "examples/sharedsecret.yaml"]).await;
    assert!(
        output.starts_with("sharedsecret.management.platform.sh \"db.password\" deleted"),
        "{output}"
    );
    let output = kubectl.fails(&["delete", "-f", "examples/sharedsecret.yaml"]).await;
    assert!(output.contains("(NotFound)"), "{output}");
    kubectl.ok(&["delete", "-f", "examples/sharedsecret.yaml", "--ignore-not-found"]).await;
    kubectl.ok(&["delete", "ss", "--all"]).await;
    assert_eq!(kubectl.ok(&["get", "ss", "-o", "name"]).await, "");
}

#[tokio::test]
async fn a_finalizer_makes_delete_wait() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "-f", "examples/sharedsecret-finalizer.yaml"]).await;
    let mut deleting = kubectl.command(&["delete", "ss", "guarded"]).spawn().unwrap();
    wait::until("the object to be marked", async || {
        let object = kubectl.json(&["get", "ss", "guarded"]).await;
        object["metadata"]["deletionTimestamp"].is_string().then_some(())
    })
    .await;
    assert!(deleting.try_wait().unwrap().is_none(), "kubectl waits for the finalizer");
    let file = ["--patch-file", "examples/remove-finalizers.json"];
    kubectl.ok(&[["patch", "ss", "guarded", "--type=json"].as_slice(), &file].concat()).await;
    let ended = wait::within("kubectl delete to end", deleting.wait()).await.unwrap();
    assert!(ended.success());
    kubectl.fails(&["get", "ss", "guarded"]).await;
}

#[tokio::test]
async fn policies_and_grace_periods_are_accepted() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    for extra in [
        ["--cascade=background", "--wait"],
        ["--cascade=orphan", "--wait"],
        ["--cascade=foreground", "--wait"],
        ["--grace-period=1", "--wait"],
        ["--now", "--wait"],
        ["--force", "--wait"],
    ] {
        kubectl.ok(&["create", "-f", "examples/sharedsecret.yaml"]).await;
        kubectl.ok(&[["delete", "ss", "db.password"].as_slice(), &extra].concat()).await;
        kubectl.fails(&["get", "ss", "db.password"]).await;
    }
}

//! `postern wait` and `postern describe`.

use postern_tests::Server;
use postern_tests::objects::{collection, secret, secrets};
use serde_json::{Value, json};

use crate::cli::admin;
use crate::cli::running::Running;

async fn patch(server: &Server, path: &str, change: Value) {
    let path = collection(path);
    server.client().patch(&path, "merge-patch", &change).send().await.expect(200);
}

#[tokio::test]
async fn what_holds_already_is_not_waited_for() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada", "--display-name", "Ada"]).await;
    admin.ok(&["create", "team", "red"]).await;
    for arguments in [
        &["user/ada", "--for=create"][..],
        &["user", "ada", "--for=jsonpath={.spec.displayName}=Ada"],
        &["user", "ada", "--for", "jsonpath={.spec.displayName}"],
        &["namespace", "default", "--for=jsonpath={.status.phase}=Active", "--timeout=0"],
        &["user", "absent", "--for=delete", "--timeout=0s"],
        &["users", "-l", "none=none", "--for=delete"],
        &["teams", "--all", "--for=create", "--timeout=-1s"],
    ] {
        let output = admin.run(&[&["wait"], arguments].concat()).await;
        assert_eq!((output.code, output.text()), (0, ""), "{arguments:?}: {}", output.err);
    }
}

#[tokio::test]
async fn waiting_ends_with_the_change() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada"]).await;
    // `--debug` prints the request of the watch: from then on the command waits.
    let start = async |arguments: &[&str]| {
        let mut running =
            Running::start(&admin, &[&["wait", "--debug", "--timeout=1h"], arguments].concat());
        running.error_line("WATCH").await;
        running
    };
    let value = start(&["user", "ada", "--for=jsonpath={.spec.displayName}=Ada"]).await;
    patch(&server, "users/ada", json!({ "spec": { "displayName": "other" } })).await;
    patch(&server, "users/ada", json!({ "spec": { "displayName": "Ada" } })).await;
    let (status, err) = value.ended().await;
    assert!(status.success() && err.contains("user ada: condition met"), "{err}");
    let deleted = start(&["user/ada", "--for=delete"]).await;
    let met = start(&["user/ada", "--for=jsonpath={.spec.email}=x"]).await;
    let created = start(&["user/bob", "--for=create"]).await;
    admin.ok(&["delete", "user", "ada"]).await;
    assert!(deleted.ended().await.0.success());
    let (status, err) = met.ended().await;
    assert!(status.code() == Some(1) && err.contains("user ada was deleted meanwhile"), "{err}");
    admin.ok(&["create", "user", "bob"]).await;
    assert!(created.ended().await.0.success());
}

#[tokio::test]
async fn a_condition_of_the_status_is_waited_for() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "cluster", "east"]).await;
    let arguments = ["wait", "cluster/east", "--for=condition=Checked", "--timeout=1h", "--debug"];
    let mut waiting = Running::start(&admin, &arguments);
    waiting.error_line("WATCH").await;
    for status in ["False", "True"] {
        let condition = json!({
            "type": "Checked", "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        patch(&server, "clusters/east/status", json!({ "status": { "conditions": [condition] } }))
            .await;
    }
    let (status, err) = waiting.ended().await;
    assert!(status.success(), "{err}");
    let said = admin
        .fails(1, &["wait", "cluster/east", "--for=condition=Checked=False", "--timeout=0"])
        .await;
    assert!(said.contains("timed out waiting for the condition on cluster east"), "{said}");
}

#[tokio::test]
async fn an_object_that_the_caller_may_not_read_is_not_deleted() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "bob"]).await;
    admin.ok(&["set", "secret", "db.password", "hush"]).await;
    for wait in [
        &["secret/db", "--for=delete"][..],
        &["secret/db", "--for=create"],
        &["secret/absent", "--for=create", "--timeout=1h"],
    ] {
        let said = admin.fails(1, &[&["wait", "--as", "bob"], wait].concat()).await;
        assert!(said.contains("forbidden"), "{wait:?}: {said}");
    }
    admin.ok(&["share", "secret", "db", "--user", "bob"]).await;
    let wait = ["wait", "--as", "bob", "--debug", "secret/db", "--for=delete", "--timeout=1h"];
    let mut waiting = Running::start(&admin, &wait);
    waiting.error_line("WATCH").await;
    admin.ok(&["unshare", "secret", "db", "--user", "bob"]).await;
    let (status, err) = waiting.ended().await;
    assert!(status.code() == Some(1) && err.contains("forbidden"), "{err}");
}

#[tokio::test]
async fn what_cannot_be_waited_for_fails() {
    let server = Server::start().await;
    let admin = admin(&server);
    let said = admin.fails(1, &["wait", "user/admn", "--for=condition=Ready"]).await;
    assert!(said.contains("not found") && said.contains("did you mean admin?"), "{said}");
    let said = admin.fails(1, &["wait", "user/admin", "--for=delete", "--timeout=1s"]).await;
    assert!(said.contains("timed out") && said.contains("--timeout"), "{said}");
    let said = admin.fails(1, &["wait", "teams", "--all", "--for=condition=Ready"]).await;
    assert!(said.contains("no teams match"), "{said}");
    for (arguments, wanted) in [
        (&["wait", "user/admin"][..], "--for"),
        (&["wait", "users", "--for=delete"], "--all"),
        (&["wait", "user/a", "-l", "a=b", "--for=delete"], "cannot be used together"),
        (&["wait", "user/a", "--for=gone"], "condition=TYPE"),
        (&["wait", "user/a", "--for=delete", "--timeout=soon"], "720h"),
    ] {
        let said = admin.fails(2, arguments).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn objects_are_described_without_secret_values() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada", "--display-name", "Ada"]).await;
    let text = admin.ok(&["describe", "user", "ada"]).await;
    for wanted in [
        "Name:          ada\n",
        "Kind:          User\n",
        "s ago)\n",
        "  Display Name:  Ada\n",
        "Events:",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let mut object = secret("db", "hush");
    object["metadata"]["labels"] = json!({ "team": "red" });
    server.client().post(&secrets("platform")).json(&object).send().await.expect(201);
    let text = admin.ok(&["describe", "secrets", "-l", "team=red"]).await;
    assert!(text.contains("value:  4 bytes") || text.contains("Value:  4 bytes"), "{text}");
    assert!(!text.contains("hush") && !text.contains("aHVz"), "{text}");
    let event = json!({
        "metadata": { "name": "db.1", "namespace": "platform" },
        "involvedObject": {
            "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret", "name": "db", "namespace": "platform",
            "uid": server.client().get(&format!("{}/db", secrets("platform"))).send().await.expect(200)["metadata"]["uid"],
        },
        "reason": "Odd", "message": "it is odd", "type": "Warning", "count": 3,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    });
    let events = postern_tests::objects::based("/api/v1/namespaces/platform/events");
    server.client().post(&events).json(&event).send().await.expect(201);
    let text = admin.ok(&["describe", "secret/db"]).await;
    assert!(text.contains("Warning   Odd") && text.contains("it is odd"), "{text}");
    let output = admin.run(&["describe", "user", "absent", "ada"]).await;
    assert_eq!(output.code, 1);
    assert!(output.text().contains("ada") && output.err.contains("not found"), "{}", output.err);
}

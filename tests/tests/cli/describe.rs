//! `postern describe`.

use postern_tests::Server;
use postern_tests::objects::{secret, secrets};
use serde_json::json;

use crate::cli::admin;

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

//! What a person looks up first: the own login, and what others reach.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use serde_json::Value;

use crate::cli::admin;

#[tokio::test]
async fn the_status_says_until_when_the_key_is_valid_and_what_is_wrong() {
    let server = Server::start().await;
    let admin = admin(&server);
    let text = admin.ok(&["status"]).await;
    for wanted in ["admin", "has no end", "Problems:", "none"] {
        assert!(text.contains(wanted), "{text}");
    }
    let key = admin.ok(&["create", "accesskey", "short", "--ttl", "1h", "--project", "web"]).await;
    let short = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    let text = short.ok(&["status"]).await;
    // The scope does not allow the key to read itself.
    assert!(text.contains("only project web") && text.contains("unknown: "), "{text}");
    let key = admin.ok(&["create", "accesskey", "hour", "--ttl", "1h"]).await;
    let hour = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    let output = hour.run(&["status", "-o", "json"]).await;
    let json: Value = serde_json::from_str(output.text()).unwrap();
    assert_eq!(output.code, 0, "{json}");
    assert!(json["accessKeyExpires"].as_str().unwrap().ends_with('Z'), "{json}");
    assert!(output.err.contains("the access key ends soon"), "{}", output.err);

    admin.ok(&["disable", "accesskey", "hour"]).await;
    let output = hour.run(&["status", "-o", "json"]).await;
    let json: Value = serde_json::from_str(output.text()).unwrap();
    assert_eq!(output.code, 1, "{json}");
    assert_eq!(json["problems"][0], "access key disabled", "{json}");
    assert!(output.err.contains("enable accesskey"), "{}", output.err);
    let away = admin.clone().with("POSTERN_ACCESS_KEY", "pst_none");
    let output = away.run(&["status", "--server", "https://127.0.0.1:1"]).await;
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(output.text().contains("Problems:") && output.err.contains("hint: "), "{}", output.err);
    assert!(CliUser::new().fails(1, &["status"]).await.contains("postern login"));
}

#[tokio::test]
async fn a_variable_chooses_the_context() {
    let server = Server::start().await;
    let admin = admin(&server);
    let named = |name: &str| admin.clone().with("POSTERN_CONTEXT", name);
    assert!(named("postern").ok(&["whoami"]).await.contains("admin"));
    let said = named("posten").fails(1, &["whoami"]).await;
    assert!(
        said.contains("no context \"posten\"") && said.contains("did you mean postern"),
        "{said}"
    );
    named("posten").ok(&["whoami", "--context", "postern"]).await;
}

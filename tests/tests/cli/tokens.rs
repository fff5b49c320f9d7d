//! `postern token`: on the command line, and as kubectl's credential plugin.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postern_tests::cli::CliUser;
use postern_tests::objects::make;
use postern_tests::{Server, binary};
use serde_json::{Value, json};

use super::admin;

fn says(token: &str) -> Value {
    let payload = token.trim().split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

fn lives(token: &str) -> i64 {
    let said = says(token);
    said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap()
}

#[tokio::test]
async fn a_token_is_printed_alone_or_with_its_object() {
    let server = Server::start().await;
    let user = admin(&server);
    let token = user.ok(&["token"]).await;
    assert_eq!((lives(&token), token.lines().count()), (3600, 1));
    let made: Value =
        serde_json::from_str(&user.ok(&["token", "--ttl", "10m", "-o", "json"]).await).unwrap();
    assert_eq!(made["kind"], "DirectClusterEndpointToken");
    assert_eq!(lives(made["status"]["token"].as_str().unwrap()), 600);
    let cluster = make(&server.client(), "clusters", "east", json!({})).await;
    let uid = cluster["metadata"]["uid"].as_str().unwrap();
    let token = user.ok(&["token", "--cluster", "east"]).await;
    assert_eq!(says(&token)["aud"], json!([format!("platform.sh/cluster:{uid}")]));
    let refused = user.fails(1, &["token", "--ttl", "25h"]).await;
    assert!(refused.contains("--ttl: ") && !refused.contains("spec."), "{refused}");
    let refused = user.fails(1, &["token", "--cluster", "nosuch"]).await;
    assert!(refused.contains("--cluster nosuch") && !refused.contains("spec."), "{refused}");
    let refused = user.fails(1, &["token", "--project", "web", "--space", "dev"]).await;
    assert!(refused.contains("no connected cluster"), "{refused}");
    user.fails(2, &["token", "--space", "dev"]).await;
    user.fails(2, &["token", "--ttl", "0"]).await;
}

/// The credential that the plugin prints for kubectl.
async fn credential(user: &CliUser, arguments: &[&str]) -> Value {
    let arguments = [&["token", "--exec-credential"], arguments].concat();
    serde_json::from_str(&user.ok(&arguments).await).unwrap()
}

#[tokio::test]
async fn kubectl_gets_a_credential_that_is_kept_and_renewed() {
    let server = Server::start().await;
    // Its kubeconfig stays when the server is stopped.
    let _files = server.home().clone();
    // Each call has this test for its parent: as a process that asks again, it gets another token.
    let user = admin(&server);
    let first = credential(&user, &[]).await;
    assert_eq!(first["apiVersion"], "client.authentication.k8s.io/v1beta1");
    assert_eq!(first["kind"], "ExecCredential");
    let token = |credential: &Value| credential["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(lives(&token(&first)), 3600);
    assert!(first["status"]["expirationTimestamp"].as_str().unwrap().ends_with('Z'));
    assert_ne!(token(&credential(&user, &[]).await), token(&first));
    // By a shell in between, each call has another parent.
    let line = format!("'{}' token --exec-credential; exit $?", binary::path().display());
    let home = user.path().to_str().unwrap();
    let shell = admin(&server).with("HOME", home).program("/bin/sh".into());
    let by_shell =
        async || -> Value { serde_json::from_str(&shell.ok(&["-c", &line]).await).unwrap() };
    let kept = by_shell().await;
    assert_eq!(by_shell().await, kept);
    // A stored token can be used while the server is away, but only for the same request.
    server.stop().await;
    assert_eq!(by_shell().await, kept);
    assert_eq!(credential(&user, &[]).await, kept);
    user.fails(1, &["token", "--exec-credential", "--ttl", "5m"]).await;
}

#[tokio::test]
async fn kubectl_says_which_version_it_wants() {
    let server = Server::start().await;
    let asking = |version: &str| {
        let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": {} });
        admin(&server).with("KUBERNETES_EXEC_INFO", &info.to_string())
    };
    let beta = "client.authentication.k8s.io/v1beta1";
    let given: Value = serde_json::from_str(&asking(beta).ok(&["token"]).await).unwrap();
    assert_eq!(given["apiVersion"], beta);
    let refused = asking("client.authentication.k8s.io/v2").fails(1, &["token"]).await;
    assert!(refused.contains("client.authentication.k8s.io/v1"), "{refused}");
}

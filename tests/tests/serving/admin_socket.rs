//! `DIR/admin.sock` and its protocol: one line of JSON is the request, lines of JSON are the response.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;

use postern_tests::http::Client;
use postern_tests::objects::based;
use postern_tests::{Home, Kubeconfig, Server, Setup, wait};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

fn socket(home: &Home) -> PathBuf {
    home.data().join("admin.sock")
}

/// Sends a line, and returns the whole response and its last line.
pub(super) async fn send_command(home: &Home, line: &str) -> (String, Value) {
    let exchange = async {
        // The server can serve requests a moment before it accepts commands.
        let mut stream =
            wait::until("the socket", async || UnixStream::connect(socket(home)).await.ok()).await;
        // The server may close the connection before everything is sent.
        drop(stream.write_all(line.as_bytes()).await);
        let mut text = String::new();
        drop(stream.read_to_string(&mut text).await);
        text
    };
    let text = wait::within("a response on the socket", exchange).await;
    let last = text.lines().last().unwrap_or("null");
    let last = serde_json::from_str(last).unwrap();
    (text, last)
}

async fn status_of(kubeconfig: &Kubeconfig) -> u16 {
    Client::new(kubeconfig).get(&based("/api")).send().await.status
}

#[tokio::test]
async fn a_reset_key_is_valid_at_once() {
    let server = Server::start().await;
    let home = server.home();
    let old = server.kubeconfig().clone();
    let (text, response) = send_command(home, "{\"command\":\"reset-key\"}\n").await;
    let result = &response["answer"]["reset-key"];
    assert_eq!(result["kubeconfig"], home.kubeconfig().to_str().unwrap());
    assert_eq!(result["other_keys"], serde_json::json!(["admin"]));
    let new = Kubeconfig::read(&home.kubeconfig()).unwrap();
    assert_ne!(new.token, old.token);
    assert_eq!((new.server.as_str(), &new.authority), (old.server.as_str(), &old.authority));
    assert_eq!(status_of(&new).await, 200);
    assert_eq!(status_of(&old).await, 200, "other keys stay valid");
    let mode = std::fs::metadata(home.kubeconfig()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let keys = based("/apis/management.platform.sh/v1/ownedaccesskeys");
    let keys: Value = Client::new(&new).get(&keys).send().await.expect(200);
    assert_eq!(keys["items"].as_array().unwrap().len(), 2);
    for output in [text, home.logged(), home.printed(), keys.to_string()] {
        assert!(!output.contains(&new.token), "the key is in an output");
    }
    let home = home.clone();
    server.stop().await;
    let server = Setup::on(&home).start().await;
    assert_eq!(server.kubeconfig().token, new.token);
    assert_eq!(status_of(server.kubeconfig()).await, 200);
}

#[tokio::test]
async fn an_administrator_that_is_being_deleted_is_created_again() {
    let server = Server::start().await;
    let path = based("/apis/management.platform.sh/v1/users/admin");
    let finalizers = serde_json::json!({ "metadata": { "finalizers": ["example.com/held"] } });
    server.client().patch(&path, "merge-patch", &finalizers).send().await.expect(200);
    server.client().delete(&path).send().await.expect(200);
    assert_eq!(status_of(server.kubeconfig()).await, 401, "the old keys are invalid");
    let (text, _) = send_command(server.home(), "{\"command\":\"reset-key\"}\n").await;
    let new = Kubeconfig::read(&server.home().kubeconfig()).unwrap();
    assert_ne!(new.token, server.kubeconfig().token, "{text}");
    assert_eq!(status_of(&new).await, 200);
    assert_eq!(status_of(server.kubeconfig()).await, 401, "the old keys stay invalid");
}

#[tokio::test]
async fn storage_commands_work_while_the_server_runs() {
    let server = Server::start().await;
    let home = server.home();
    let (_, rotated) = send_command(home, "{\"command\":\"rotate-key\"}\n").await;
    assert_eq!(rotated["answer"]["rotate-key"]["all"].as_array().unwrap().len(), 2);
    // The old name of the command still works.
    for command in ["reseal", "rewrap"] {
        let line = format!("{{\"command\":\"{command}\"}}\n");
        let (_, rewrapped) = send_command(home, &line).await;
        assert_eq!(rewrapped["answer"]["rewrap"]["corrupt"], 0, "{command}");
    }
    let (text, checked) = send_command(home, "{\"command\":\"check\"}\n").await;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (_, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|line| line["progress"]["seen"].is_u64()), "{text}");
    assert_eq!(checked["answer"]["check"]["corrupt_total"], 0);
    let home = home.clone();
    server.stop().await;
    let server = Setup::on(&home).start().await;
    assert_eq!(status_of(server.kubeconfig()).await, 200);
}

#[tokio::test]
async fn invalid_commands_get_an_error_and_do_no_harm() {
    let server = Server::start().await;
    let home = server.home();
    for line in ["\n", "nonsense\n", "{\"command\":\"drop-all\"}\n", "{}\n"] {
        let (text, response) = send_command(home, line).await;
        assert!(response["error"].is_string(), "{line}: {text}");
    }
    // No line end, and longer than any command: an error, or a closed connection.
    let (_, response) = send_command(home, &"x".repeat(100_000)).await;
    assert!(response.is_null() || response["error"].is_string());
    let (_, checked) = send_command(home, "{\"command\":\"check\"}\n").await;
    assert!(checked["answer"]["check"].is_object());
}

#[tokio::test]
async fn the_socket_is_private_and_removed_with_the_server() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    // The server is ready a moment before.
    wait::until("the socket", async || socket(&home).exists().then_some(())).await;
    server.kill();
    let left = std::fs::symlink_metadata(socket(&home)).unwrap();
    assert!(left.file_type().is_socket(), "a killed server leaves it behind");
    let server = Setup::on(&home).start().await;
    wait::until("a socket that answers", async || {
        UnixStream::connect(socket(&home)).await.ok().map(drop)
    })
    .await;
    let mode = std::fs::metadata(socket(&home)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    server.stop().await;
    assert!(!socket(&home).exists());
}

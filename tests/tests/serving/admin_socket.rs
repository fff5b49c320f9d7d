//! `DIR/admin.sock`, spoken to as the protocol says: a line of JSON in, lines of JSON out.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;

use postern_tests::http::{Client, based};
use postern_tests::{Home, Kubeconfig, Server, Setup, wait};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

fn socket(home: &Home) -> PathBuf {
    home.data().join("admin.sock")
}

/// What is answered to a line, the last word of it.
pub(super) async fn send_command(home: &Home, line: &str) -> (String, Value) {
    let exchange = async {
        // A server can answer requests a moment before it takes commands.
        let mut stream =
            wait::until("the socket", async || UnixStream::connect(socket(home)).await.ok()).await;
        // A server that has heard enough may close before everything is sent.
        drop(stream.write_all(line.as_bytes()).await);
        let mut text = String::new();
        drop(stream.read_to_string(&mut text).await);
        text
    };
    let text = wait::within("an answer on the socket", exchange).await;
    let last = text.lines().last().unwrap_or("null");
    let last = serde_json::from_str(last).unwrap();
    (text, last)
}

async fn status_of(kubeconfig: &Kubeconfig) -> u16 {
    Client::new(kubeconfig).get(&based("/api")).send().await.status
}

#[tokio::test]
async fn a_reset_key_lets_the_administrator_in_at_once() {
    let server = Server::start().await;
    let home = server.home();
    let old = server.kubeconfig().clone();
    let (text, answer) = send_command(home, "{\"command\":\"reset-key\"}\n").await;
    let answer = &answer["answer"]["reset-key"];
    assert_eq!(answer["kubeconfig"], home.kubeconfig().to_str().unwrap());
    assert_eq!(answer["other_keys"], serde_json::json!(["admin"]));
    let new = Kubeconfig::read(&home.kubeconfig()).unwrap();
    assert_ne!(new.token, old.token);
    assert_eq!((new.server.as_str(), &new.authority), (old.server.as_str(), &old.authority));
    assert_eq!(status_of(&new).await, 200);
    assert_eq!(status_of(&old).await, 200, "other keys go on working");
    let mode = std::fs::metadata(home.kubeconfig()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let keys = based("/apis/management.platform.sh/v1/ownedaccesskeys");
    let keys: Value = Client::new(&new).get(&keys).send().await.expect(200);
    assert_eq!(keys["items"].as_array().unwrap().len(), 2);
    for place in [text, home.logged(), home.printed(), keys.to_string()] {
        assert!(!place.contains(&new.token), "the key is send_command");
    }
    let home = home.clone();
    server.stop().await;
    let server = Setup::on(&home).start().await;
    assert_eq!(server.kubeconfig().token, new.token);
    assert_eq!(status_of(server.kubeconfig()).await, 200);
}

#[tokio::test]
async fn an_administrator_who_is_being_deleted_is_made_anew() {
    let server = Server::start().await;
    let path = based("/apis/management.platform.sh/v1/users/admin");
    let held = serde_json::json!({ "metadata": { "finalizers": ["example.com/held"] } });
    server.client().patch(&path, "merge-patch", &held).send().await.expect(200);
    server.client().delete(&path).send().await.expect(200);
    assert_eq!(status_of(server.kubeconfig()).await, 401, "his keys have stopped");
    let (text, _) = send_command(server.home(), "{\"command\":\"reset-key\"}\n").await;
    let new = Kubeconfig::read(&server.home().kubeconfig()).unwrap();
    assert_ne!(new.token, server.kubeconfig().token, "{text}");
    assert_eq!(status_of(&new).await, 200);
    assert_eq!(status_of(server.kubeconfig()).await, 401, "the old keys stay behind");
}

#[tokio::test]
async fn storage_is_cared_for_while_it_serves() {
    let server = Server::start().await;
    let home = server.home();
    let (_, rotated) = send_command(home, "{\"command\":\"rotate-key\"}\n").await;
    assert_eq!(rotated["answer"]["rotate-key"]["all"].as_array().unwrap().len(), 2);
    let (text, resealed) = send_command(home, "{\"command\":\"reseal\"}\n").await;
    assert_eq!(resealed["answer"]["reseal"]["damaged"], 0);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (_, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|line| line["progress"]["seen"].is_u64()), "{text}");
    let (_, checked) = send_command(home, "{\"command\":\"check\"}\n").await;
    assert_eq!(checked["answer"]["check"]["damaged_total"], 0);
    let home = home.clone();
    server.stop().await;
    let server = Setup::on(&home).start().await;
    assert_eq!(status_of(server.kubeconfig()).await, 200);
}

#[tokio::test]
async fn nonsense_is_answered_and_does_no_harm() {
    let server = Server::start().await;
    let home = server.home();
    for line in ["\n", "nonsense\n", "{\"command\":\"drop-all\"}\n", "{}\n"] {
        let (text, answer) = send_command(home, line).await;
        assert!(answer["error"].is_string(), "{line}: {text}");
    }
    // Without an end, and longer than any command: an error, or the connection's end.
    let (_, answer) = send_command(home, &"x".repeat(100_000)).await;
    assert!(answer.is_null() || answer["error"].is_string());
    let (_, checked) = send_command(home, "{\"command\":\"check\"}\n").await;
    assert!(checked["answer"]["check"].is_object());
}

#[tokio::test]
async fn the_socket_is_private_and_goes_with_the_server() {
    let home = Home::new();
    Setup::on(&home).start().await.kill();
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

//! Text of others on a terminal: it must not control the terminal of the reader.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::objects::secret_path;
use serde_json::json;

use crate::cli::admin;
use crate::cli::terminal::Terminal;

/// Sets the title of the window, clears the screen, and does the same with one character of C1.
const HOSTILE: &str = "a\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{202e}b";

#[tokio::test]
async fn no_format_sends_control_characters_of_objects_to_a_terminal() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "db.A", "1"]).await;
    let annotation = json!({ "metadata": { "annotations": { "note": HOSTILE } } });
    let client = server.client();
    client.patch(&secret_path("db"), "merge-patch", &annotation).send().await.expect(200);
    let template = "jsonpath={.metadata.annotations.note}";
    for arguments in [
        &["get", "sharedsecret/db", "-o", template][..],
        &["get", "secrets", "-o", "jsonpath={.items[*].metadata.annotations}"],
        &["get", "sharedsecret/db", "-o", "json"],
        &["get", "sharedsecret/db", "-o", "yaml"],
        &["get", "secret", "db", "-o", "json"],
        &["get", "secret", "db", "-o", "yaml"],
        &["list", "secrets", "-o", "yaml"],
        &["describe", "sharedsecret/db"],
    ] {
        let (status, screen) = Terminal::start(&admin, arguments).ended().await;
        assert!(status.success(), "{arguments:?}: {screen}");
        for character in ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}'] {
            assert!(!screen.contains(character), "{arguments:?}: {screen:?}");
        }
        assert!(screen.contains("owned"), "{arguments:?}: {screen:?}");
    }
    // A program gets each byte as it is.
    let exact = admin.ok(&["get", "sharedsecret/db", "-o", template]).await;
    assert_eq!(exact, HOSTILE);
}

#[tokio::test]
async fn no_error_sends_control_characters_to_a_terminal() {
    let server = Server::start().await;
    let admin = admin(&server);
    let config = "apiVersion: v1\nkind: Config\ncurrent-context: \"x\\e]0;owned\\a\"\n";
    let config = admin.file("hostile.kubeconfig", config);
    let user = admin.clone().with("KUBECONFIG", &config);
    for arguments in [&["logout"][..], &["get", "users"], &["whoami"]] {
        let (_, screen) = Terminal::start(&user, arguments).ended().await;
        assert!(!screen.contains("\u{1b}]") && !screen.contains('\u{7}'), "{screen:?}");
        assert!(screen.contains("owned"), "{screen:?}");
    }
}

/// The names of files are in the messages of the operator's commands, of the server and of the agent.
#[tokio::test]
async fn no_command_of_the_operator_sends_control_characters_to_a_terminal() {
    let user = CliUser::new();
    let path = user.path().join("x\u{1b}]0;owned\u{7}\u{9b}2J");
    let path = path.to_str().unwrap();
    let (to, flag) = (format!("file:{path}"), format!("--{path}"));
    for arguments in [
        &["admin", "reset-key", "--data-dir", path][..],
        &["admin", "rotate-signing-key", "--data-dir", path],
        &["storage", "check", "--data-dir", path],
        &["storage", "rewrap", "--data-dir", path],
        &["storage", "rotate-key", "--data-dir", path],
        &["storage", "backup", "--data-dir", path, "--to", path],
        &["storage", "restore", path, "--data-dir", path],
        &["storage", "migrate", "--from", &to, "--to", &to],
        &["health", "--data-dir", path],
        &["init", "--config", path],
        &["serve", "--config", path],
        &[
            "agent",
            "--upstream",
            path,
            "--server",
            "https://127.0.0.1:1",
            "--cluster",
            "c",
            "--key-file",
            path,
            "--ca-file",
            path,
        ],
        // Arguments that the parser repeats in its message.
        &["frobnicate", path],
        &["storage", path],
        &["get", "users", &flag],
        &["get", "users", "--kubeconfig", path],
        &["apply", "-f", path],
        &["login", "https://127.0.0.1:1", "--ca-file", path, "--access-key", "x"],
    ] {
        let (_, screen) = Terminal::start(&user, arguments).ended().await;
        for control in ["\u{1b}]", "\u{7}", "\u{9b}"] {
            assert!(!screen.contains(control), "{arguments:?}: {screen:?}");
        }
        assert!(!screen.trim().is_empty(), "{arguments:?}");
    }
}

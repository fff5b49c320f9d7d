//! `postern console`, and the greeting of a server on a terminal: login links.

use std::os::unix::fs::PermissionsExt as _;

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::objects::make;
use postern_tests::rights::{path, set, with_key};
use postern_tests::{Kubeconfig, Server, wait};
use serde_json::json;

use super::terminal::Terminal;
use super::{admin, authority, url};

/// Begins a session with the code of a link, and returns the name of the user.
async fn user_of(client: &Client, link: &str) -> String {
    let (_, code) = link.trim().split_once("/ui/login#code=").unwrap_or_else(|| panic!("{link}"));
    let begun = client.with_token(code).post("/auth/session").send().await;
    begun.expect(201)["status"]["userName"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_link_is_printed_alone_and_logs_in_as_the_owner_of_the_key() {
    let server = Server::start().await;
    let client = server.client();
    let user = admin(&server);
    for arguments in [&["console"][..], &["console", "--print"]] {
        let link = user.ok(arguments).await;
        assert!(link.starts_with(&format!("{}/ui/login#code=", url(&server))), "{link}");
        assert_eq!(link.lines().count(), 1);
        assert_eq!(user_of(&client, &link).await, "admin");
    }
    make(&client, "users", "ada", json!({})).await;
    let key = with_key(&client, "mine", json!({ "user": "ada" })).await;
    let ada = CliUser::new().with("POSTERN_ACCESS_KEY", key.token());
    let file = authority(&ada, &server);
    let arguments = ["console", "--server", &url(&server), "--ca-file", &file];
    assert_eq!(user_of(&client, &ada.ok(&arguments).await).await, "ada");
    let refused = user.fails(1, &["console", "--as", "ada"]).await;
    assert!(refused.contains("impersonation"), "{refused}");
    set(&client, &path("ownedaccesskeys", "mine"), json!({ "disabled": true })).await;
    let refused = ada.fails(1, &arguments).await;
    assert!(refused.contains("disabled"), "{refused}");
}

#[tokio::test]
async fn at_a_terminal_with_a_display_the_browser_gets_the_link() {
    let server = Server::start().await;
    let user = admin(&server);
    let opened = user.path().join("opened");
    let script =
        format!("#!/bin/sh\nprintf '%s' \"$1\" > {0}.new\nmv {0}.new {0}\n", opened.display());
    let program = user.file("xdg-open", script);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let programs = format!("{}:/usr/bin:/bin", user.path().display());
    let user = user.with("PATH", &programs).with("DISPLAY", ":9");
    let (status, screen) = Terminal::start(&user, &["console"]).ended().await;
    assert!(status.success() && !screen.contains("#code="), "{screen}");
    let link = wait::until("the browser", async || std::fs::read_to_string(&opened).ok()).await;
    assert_eq!(user_of(&server.client(), &link).await, "admin");
    std::fs::remove_file(&opened).unwrap();
    // Over SSH, the display may be another machine's. And --print opens nothing.
    let remote = user.clone().with("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22");
    for (user, arguments) in [(&remote, &["console"][..]), (&user, &["console", "--print"])] {
        let (status, screen) = Terminal::start(user, arguments).ended().await;
        assert!(status.success() && screen.contains("/ui/login#code="), "{screen}");
        assert!(!opened.exists());
    }
}

#[tokio::test]
async fn a_server_on_a_terminal_prints_a_link_for_the_administrator() {
    let user = CliUser::new();
    let data = user.path().join("data");
    let data_dir = data.to_str().unwrap();
    for (flags, has_link) in [(&[][..], true), (&["--console=false"], false)] {
        let arguments =
            [&["serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0"], flags].concat();
        let terminal = Terminal::start(&user, &arguments);
        terminal.shows("admin.kubeconfig").await;
        if has_link {
            terminal.shows("/ui/login#code=").await;
            terminal.shows("\n\r\n").await;
            let screen = terminal.screen();
            let (_, link) = screen.split_once("within 60 seconds: ").unwrap();
            let kubeconfig = Kubeconfig::read(&data.join("admin.kubeconfig")).unwrap();
            let link = link.split_whitespace().next().unwrap();
            assert_eq!(user_of(&Client::new(&kubeconfig), link).await, "admin");
        }
        terminal.terminate();
        let (status, screen) = terminal.ended().await;
        assert!(status.success(), "{screen}");
        assert_eq!(screen.contains("#code="), has_link, "{screen}");
    }
}

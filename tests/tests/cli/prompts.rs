//! Questions at a terminal, and output that only a terminal gets.

use postern_tests::Server;
use postern_tests::cli::CliUser;

use crate::cli::terminal::Terminal;
use crate::cli::{admin, authority, url};

#[tokio::test]
async fn a_key_that_is_typed_is_not_on_the_screen() {
    let server = Server::start().await;
    let user = CliUser::new();
    let (url, ca) = (url(&server), authority(&user, &server));
    let login = ["login", &url, "--ca-file", &ca, "--access-key", "-"];
    let mut terminal = Terminal::start(&user, &login);
    terminal.shows("Access key (not shown): ").await;
    terminal.types(&format!("{}\r", server.kubeconfig().token));
    let (status, screen) = terminal.ended().await;
    assert!(status.success(), "{screen}");
    assert!(
        screen.contains("logged in to") && !screen.contains(&server.kubeconfig().token),
        "{screen}"
    );
    assert!(user.ok(&["whoami"]).await.contains("admin"));

    // Ctrl-C ends the question at once, and an empty line is no key.
    for (typed, code, wanted) in [
        ("half\u{3}", 130, "cancelled; nothing was done"),
        ("\r", 1, "the input was empty; nothing was done"),
    ] {
        let mut terminal = Terminal::start(&user, &login);
        terminal.shows("Access key (not shown): ").await;
        terminal.types(typed);
        let (status, screen) = terminal.ended().await;
        assert_eq!(status.code(), Some(code), "{screen}");
        assert!(screen.contains(wanted), "{screen}");
    }
}

#[tokio::test]
async fn a_login_without_a_key_uses_a_browser() {
    let server = Server::start().await;
    let user = CliUser::new();
    let (url, ca) = (url(&server), authority(&user, &server));
    let login = ["login", &url, "--ca-file", &ca];
    let terminal = Terminal::start(&user, &login);
    terminal.shows("in a browser, on any machine").await;
    let terminal = Terminal::start(&user.clone().with("BROWSER", "true"), &login);
    terminal.shows("Allow the login in the browser").await;
    // Without a terminal, a script does not wait for a person.
    assert!(user.fails(2, &login).await.contains("no access key is given"));
}

#[tokio::test]
async fn a_value_that_is_typed_is_not_on_the_screen() {
    let server = Server::start().await;
    let admin = admin(&server);
    let mut terminal = Terminal::start(&admin, &["set", "secret", "db.password"]);
    terminal.shows("Value of db.password (not shown): ").await;
    terminal.types("hush hush\r");
    let (status, screen) = terminal.ended().await;
    assert!(status.success() && !screen.contains("hush"), "{screen}");
    assert_eq!(admin.ok(&["get", "secret", "db.password"]).await, "hush hush");
    // On a terminal, a line break follows the value.
    let (_, screen) = Terminal::start(&admin, &["get", "secret", "db.password"]).ended().await;
    assert_eq!(screen, "hush hush\r\n");
}

#[tokio::test]
async fn nothing_is_deleted_without_a_yes() {
    let server = Server::start().await;
    let admin = admin(&server);
    for name in ["red", "blue"] {
        admin.ok(&["create", "team", name]).await;
    }
    let delete = ["delete", "team", "red", "blue", "--interactive"];
    let said = admin.fails(2, &delete).await;
    assert!(said.contains("no terminal"), "{said}");
    for answer in ["n\r", "\r", "nonsense\r"] {
        let mut terminal = Terminal::start(&admin, &delete);
        terminal.shows("Delete team red, blue? [y/N] ").await;
        terminal.types(answer);
        let (status, screen) = terminal.ended().await;
        assert_eq!(status.code(), Some(1), "{screen}");
        assert!(screen.contains("nothing was done"), "{screen}");
    }
    assert_eq!(admin.ok(&["get", "teams", "--no-headers"]).await.lines().count(), 2);
    let mut terminal = Terminal::start(&admin, &delete);
    terminal.shows("[y/N] ").await;
    terminal.types("YES\r");
    let (status, screen) = terminal.ended().await;
    assert!(status.success() && screen.contains("team red deleted"), "{screen}");
    assert_eq!(admin.ok(&["get", "teams", "-o", "name"]).await, "");
}

#[tokio::test]
async fn colours_are_for_terminals() {
    let server = Server::start().await;
    let admin = admin(&server);
    let failing = ["get", "user", "absent"];
    let (_, screen) = Terminal::start(&admin, &failing).ended().await;
    assert!(screen.contains("\u{1b}[1;31merror:\u{1b}[0m"), "{screen:?}");
    let plain = admin.clone().with("NO_COLOR", "1");
    let (_, screen) = Terminal::start(&plain, &failing).ended().await;
    assert!(screen.contains("error: ") && !screen.contains('\u{1b}'), "{screen:?}");
    assert!(!admin.fails(1, &failing).await.contains('\u{1b}'));
}

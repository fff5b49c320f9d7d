//! The web console in a real browser. The checks are scripts of `tests/python/console`: one file for each group. The
//! commands that it shows are in `commands.rs`.

mod commands;

use postern_tests::connectors::check_secrecy;
use postern_tests::{Home, NanoIdp, Server, Setup, binary, browser};
use serde_json::json;

/// The types that the console is written with.
#[tokio::test]
async fn the_types_of_the_console_are_those_of_the_server() {
    browser::check_types(&Server::start().await).await;
}

/// The login, the first pages, and the requests that the policy blocks.
#[tokio::test]
async fn login_and_first_pages() {
    browser::check(&Server::start().await, "first.py").await;
}

/// Requests of other pages with the cookie.
#[tokio::test]
async fn cross_site_requests() {
    browser::check(&Server::start().await, "cross_site.py").await;
}

/// A login link for another user.
#[tokio::test]
async fn invitations() {
    browser::check(&Server::start().await, "invite.py").await;
}

/// The first hour of an administrator: a user with a role, a cluster with its agent, and a pipeline.
#[tokio::test]
async fn first_hour() {
    let server = start_with_local_upstreams().await;
    let kubeconfig = server.home().kubeconfig();
    let more = json!({ "postern": binary::path(), "kubeconfig": kubeconfig });
    browser::check_with(&server, "first_hour.py", &more).await;
}

/// The pages that ask about a login of the command line.
#[tokio::test]
async fn consent() {
    browser::check(&Server::start().await, "consent.py").await;
}

/// Identities that no provider confirmed, and trusted issuers of clusters.
#[tokio::test]
async fn identities() {
    browser::check(&Server::start().await, "identity.py").await;
}

/// A logout, as every open tab shows it.
#[tokio::test]
async fn logout() {
    browser::check(&Server::start().await, "logout.py").await;
}

/// Deletion, disabling and expiry, as an open tab shows them.
#[tokio::test]
async fn ends_of_sessions() {
    browser::check(&Server::start().await, "ends.py").await;
}

/// Values of secrets in the page and in the audit log.
#[tokio::test]
async fn reveals() {
    browser::check(&Server::start().await, "reveals.py").await;
}

/// Names and values that try to become a page.
#[tokio::test]
async fn planted_names() {
    browser::check(&Server::start().await, "names.py").await;
}

/// axe on every page and dialog, in both themes, magnified and narrow.
#[tokio::test]
async fn accessibility() {
    browser::check(&Server::start().await, "accessibility.py").await;
}

/// The main actions without a pointer.
#[tokio::test]
async fn keyboard_alone() {
    browser::check(&Server::start().await, "keyboard.py").await;
}

/// Buttons of eight identities against the server's decisions.
#[tokio::test]
async fn buttons() {
    browser::check(&Server::start().await, "buttons.py").await;
}

/// Actions that stop the work of people, and what the page says before it sends them.
#[tokio::test]
async fn stopped_work() {
    browser::check(&Server::start().await, "stops.py").await;
}

/// A developer who shares a secret, and a security officer who asks who can read it.
#[tokio::test]
async fn daily_work() {
    browser::check(&Server::start().await, "daily.py").await;
}

/// The scope editor and the migration wizard: their previews match the later results.
#[tokio::test]
async fn previews() {
    browser::check(&Server::start().await, "previews.py").await;
}

/// The delay until an open list shows a change, and its content after a restart of the server.
#[tokio::test]
async fn live_lists() {
    browser::check_with_restarts(Setup::on(&Home::new()), "live.py").await;
}

/// The YAML editor with another writer, and questions about permissions.
#[tokio::test]
async fn merges_and_questions() {
    browser::check(&Server::start().await, "merges.py").await;
}

/// Pages while the server is away, and after it is back.
#[tokio::test]
async fn server_away() {
    browser::check(&Server::start().await, "away.py").await;
}

/// A list with a revision that the server's history no longer contains.
#[tokio::test]
async fn lost_history() {
    let server = Setup::on(&Home::new()).argument("--history").argument("1s").start().await;
    browser::check(&server, "history.py").await;
}

/// A namespace with many secrets.
#[tokio::test]
async fn long_lists() {
    browser::check(&Server::start().await, "scale.py").await;
}

/// A session that ends although its pages watch.
#[tokio::test]
async fn idle_session() {
    let server = Setup::on(&Home::new()).argument("--console-idle").argument("10s").start().await;
    browser::check(&server, "idle.py").await;
}

/// A server that may reach providers and clusters on loopback.
async fn start_with_local_upstreams() -> Server {
    Setup::on(&Home::new()).argument("--allow-local-upstreams").start().await
}

/// Logins at a real identity provider.
#[tokio::test]
async fn single_sign_on() {
    let server = start_with_local_upstreams().await;
    let Some(provider) = NanoIdp::start(&server).await else { return };
    provider.make_connector(&server).await;
    browser::check_with(&server, "sso.py", &provider.script_config()).await;
    check_secrecy(&server);
}

/// Logins of the command line at a real identity provider, with a browser on the same machine and on another one.
#[tokio::test]
async fn single_sign_on_of_the_command_line() {
    let server = start_with_local_upstreams().await;
    let Some(provider) = NanoIdp::start(&server).await else { return };
    provider.make_connector(&server).await;
    browser::check_command_line(&server, provider.script_config()).await;
}

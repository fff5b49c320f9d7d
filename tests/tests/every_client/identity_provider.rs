//! Logins at a certified identity provider, by a browser.

use postern_tests::connectors::check_secrecy;
use postern_tests::{ClaimsAt, Home, OidcProvider, Server, Setup, browser};

async fn start(claims_at: ClaimsAt) -> (Server, OidcProvider) {
    let server = Setup::on(&Home::new()).argument("--allow-local-upstreams").start().await;
    let provider = OidcProvider::start(&server, claims_at).await;
    provider.make_connector(&server).await;
    (server, provider)
}

/// The same checks as with the other provider.
#[tokio::test]
async fn logins() {
    let (server, provider) = start(ClaimsAt::UserInfo).await;
    browser::check_with(&server, "sso.py", &provider.script_config()).await;
    check_secrecy(&server);
}

/// Logins of the command line.
#[tokio::test]
async fn logins_of_the_command_line() {
    let (server, provider) = start(ClaimsAt::UserInfo).await;
    browser::check_command_line(&server, provider.script_config()).await;
}

/// A session after each change at the provider.
#[tokio::test]
async fn changes_at_the_provider() {
    let (server, provider) = start(ClaimsAt::IdToken).await;
    browser::check_with(&server, "sso_changes.py", &provider.script_config()).await;
}

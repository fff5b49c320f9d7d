//! The pages about the command line, and the how-to guides that need one server. Their shell blocks run exactly as they are
//! written.

use postern_tests::Server;
use postern_tests::documents::{Reader, run, shell_of};

/// The end of a page.
const END: &str = "\u{0}";

/// How-to guides, and texts that their commands print. Each page removes what it creates.
const GUIDES: [(&str, &[&str]); 3] = [
    ("onboard-a-team", &["hunter2", "member of", "shop-ci"]),
    ("rotate-an-access-key", &["ci-2", "Team:"]),
    ("revoke-access", &["yes", "bob", "no"]),
];

#[tokio::test]
async fn the_page_on_the_command_line_is_true() {
    let expected = ["hunter2", "NAMESPACE", "user/admin", "shop"];
    check("docs/reference/command-line.md", "# The command line", &expected).await;
}

#[tokio::test]
async fn the_tutorial_on_the_command_line_is_true() {
    check("docs/tutorials/command-line.md", "# First steps", &["hunter2"]).await;
}

async fn check(page: &str, heading: &str, expected: &[&str]) {
    let script = shell_of(page, heading, END);
    assert!(script.contains("postern create accesskey"), "the page shows commands");
    let output = run(&Server::start().await, &script).await;
    assert!(output.ok, "{}\n{}", output.out, output.err);
    for expected in expected {
        assert!(output.out.contains(expected), "{expected}:\n{}\n{}", output.out, output.err);
    }
    // The code of a login link is valid for a minute, and for nothing but a session.
    let mut others = output.out.lines().filter(|line| !line.contains("/ui/login#code="));
    assert!(!others.any(|line| line.contains("pst_")), "no key is on the screen:\n{}", output.out);
}

#[tokio::test]
async fn the_guides_for_one_server_are_true() {
    let server = Server::start().await;
    for (page, expected) in GUIDES {
        let script = shell_of(&format!("docs/how-to/{page}.md"), "# ", END);
        let output = Reader::new(&server, page).run(&script).await;
        assert!(output.ok, "{page}: {}\n{}", output.out, output.err);
        for expected in expected {
            assert!(output.out.contains(expected), "{page}: {expected}:\n{}", output.out);
        }
        assert!(!output.out.contains("pst_"), "{page}: no key is on the screen:\n{}", output.out);
        let left =
            server.kubectl().ok(&["get", "users,teams,projects,ss", "-A", "-o", "name"]).await;
        assert_eq!(left, "user.management.platform.sh/admin\n", "{page} removes its objects");
    }
}

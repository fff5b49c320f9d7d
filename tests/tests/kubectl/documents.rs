//! The commands in the documents for new users run as they are: the first tutorial with kubectl, and
//! `docs/how-to/use-curl.md` with curl.

use postern_tests::documents::{run, shell_of};
use postern_tests::{Server, wait};

#[tokio::test]
async fn the_commands_of_the_tutorial_work() {
    let server = Server::start().await;
    let page = "docs/tutorials/five-minutes-with-kubectl.md";
    let script = shell_of(page, "# Five minutes with kubectl", "\n## Next");
    let output = run(&server, &script).await;
    assert!(output.ok, "{}\n{}", output.out, output.err);
    let left = server.kubectl().ok(&["get", "ss,ns", "-A", "-o", "name"]).await;
    assert_eq!(left, "namespace/default\nnamespace/platform\n", "the script deletes its objects");
}

#[tokio::test]
async fn the_commands_of_the_curl_page_work() {
    let server = Server::start().await;
    let script = shell_of("docs/how-to/use-curl.md", "# Use plain curl", "\n## Next");
    let output = run(&server, &script).await;
    assert!(output.ok, "{}\n{}", output.out, output.err);
    for expected in [
        "readyz check passed",
        "aHVudGVyMg==",
        "kind: SharedSecret\n",
        "Password of the database",
        "\"columnDefinitions\"",
        "\"rotated-by\"",
        "never stored",
        "k8s.io/initial-events-end",
    ] {
        assert!(output.out.contains(expected), "{expected} is not in:\n{}", output.out);
    }
    assert!(!output.out.contains(&server.kubeconfig().token));
}

#[tokio::test]
async fn the_three_commands_of_the_first_start_work() {
    let server = Server::start().await;
    let printed = wait::until("the output of the first start", async || {
        let printed = server.home().printed();
        (commands(&printed).len() == 3).then_some(printed)
    })
    .await;
    assert!(printed.contains(server.home().kubeconfig().to_str().unwrap()), "{printed}");
    assert!(!printed.contains(&server.kubeconfig().token), "the key is never printed");
    let output = run(&server, &commands(&printed).join("\n")).await;
    assert!(output.ok, "{printed}\n{}\n{}", output.out, output.err);
}

fn commands(printed: &str) -> Vec<&str> {
    let is_command =
        |line: &&str| ["export ", "kubectl ", "printf "].iter().any(|word| line.starts_with(word));
    printed.lines().map(str::trim).filter(is_command).collect()
}

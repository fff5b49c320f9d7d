//! Completion in a shell: the script in a real bash, with names from a server.

use std::net::TcpListener;
use std::os::unix::fs::symlink;

use postern_tests::cli::CliUser;
use postern_tests::{Server, binary, wait};

use crate::cli::admin;

/// Completes lines in bash as readline does: the script gets the line, and what is behind the last break of a word.
const BASH: &str = r#"
source <(postern completion bash)
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line} COMP_WORDS=() COMPREPLY=()
    _postern postern "${line##*[ =:]}"
    echo "${COMPREPLY[*]}"
done
"#;

/// How often a line without candidates is completed again.
const ATTEMPTS_MAX: usize = 10;

/// The candidates for each line.
async fn complete(user: &CliUser, lines: &[&str]) -> Vec<String> {
    let directory = user.path().join("bin");
    if !directory.exists() {
        std::fs::create_dir(&directory).unwrap();
        symlink(binary::path(), directory.join("postern")).unwrap();
    }
    let bash = user.clone().program("/bin/bash".into());
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    let typed = lines.join("\n") + "\n";
    let output = bash.with("PATH", &path).run_with(&["-c", BASH], typed.as_bytes()).await;
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.all_output());
    assert!(!output.text().contains("hunter2"), "{}", output.text());
    output.text().lines().map(str::to_owned).collect()
}

/// Checks the candidates. A busy machine may need more than the second that the command waits for an answer, so a line is
/// completed again if it has no candidates.
async fn check(user: &CliUser, cases: &[(&str, &str)]) {
    let lines: Vec<&str> = cases.iter().map(|(line, _)| *line).collect();
    for (first, (line, wanted)) in complete(user, &lines).await.into_iter().zip(cases) {
        let mut found = first;
        for _ in 0..ATTEMPTS_MAX {
            if !found.is_empty() || wanted.is_empty() {
                break;
            }
            found = complete(user, &[line]).await.remove(0);
        }
        assert_eq!(found, *wanted, "{line}");
    }
}

#[tokio::test]
async fn names_come_from_the_server() {
    let server = Server::start().await;
    let admin = admin(&server);
    for command in [
        "create user ada",
        "create user bob",
        "create user eve",
        "create team shop --users ada,bob",
        "create project web --member user/ada:admin",
        "set secret db password=hunter2 user=hunter2",
        "set secret db-2.token hunter2",
        "set secret tls.server --key crt hunter2",
        "set secret api.key hunter2 --project web",
        "share secret db --team shop",
    ] {
        admin.ok(&command.split(' ').collect::<Vec<_>>()).await;
    }
    check(
        &admin,
        &[
            ("postern get ss d", "db db-2"),
            ("postern get secret db.", "db.password db.user"),
            ("postern get secret tls.server.", "tls.server.crt"),
            ("postern get secret db --key u", "user"),
            ("postern get secret a --project w", "web"),
            ("postern get secret --project web a", "api"),
            ("postern run --secret db --only pa", "password"),
            ("postern run --secret db --only user,pa", "user,password"),
            ("postern describe project/w", "project/web"),
            ("postern edit team sh", "shop"),
            ("postern delete user b", "bob"),
            ("postern -n platform delete secret db-", "db-2"),
            ("postern set secret db us", "user="),
            ("postern set secret d", "db db-2"),
            ("postern unset secret db-", "db-2."),
            ("postern share secret/d", "secret/db secret/db-2"),
            ("postern share secret db --user e", "eve"),
            ("postern share secret db --user=e", "eve"),
            ("postern share secret db --team ", "shop"),
            ("postern get ss -n plat", "platform"),
            ("postern offboard ada --transfer-to te", "team/"),
            ("postern offboard ada --transfer-to team/", "team/shop"),
            ("postern grant platform-v", "platform-viewer"),
            ("postern readers secret/db-", "secret/db-2"),
            ("postern can-i get user/ev", "user/eve"),
            ("postern invite e", "eve"),
            ("postern create user e", ""),
        ],
    )
    .await;

    // A user that lists no other users is offered the members of its teams, and sees what is shared.
    let key = admin.ok(&["create", "accesskey", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", key.trim());
    check(
        &ada,
        &[
            ("postern share secret db --user ", "ada bob"),
            ("postern share secret db --team ", "shop"),
            ("postern get secret d", "db"),
            ("postern get secret tls.", ""),
            ("postern get user e", ""),
        ],
    )
    .await;
}

#[tokio::test]
async fn contexts_come_from_the_kubeconfig() {
    let user = CliUser::new();
    let contexts = "{name: work, context: {cluster: c, user: u}}, {name: \"$(id)\", context: {cluster: c, user: u}}";
    let _ = user
        .file(".kube/config", format!("apiVersion: v1\nkind: Config\ncontexts: [{contexts}]\n"));
    let cases = [("postern get users --context ", "work"), ("postern logout --context w", "work")];
    check(&user, &cases).await;
}

#[tokio::test]
async fn without_an_answer_there_are_no_candidates_and_no_messages() {
    // Nothing accepts the connections of this listener, so no answer comes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("https://{}", silent.local_addr().unwrap());
    for server in [silent.as_str(), "https://127.0.0.1:1", "no URL"] {
        let user = CliUser::new().with("POSTERN_SERVER", server);
        let user = user.with("POSTERN_ACCESS_KEY", "pst_x");
        let asked = user.run(&["__complete", "--", "get", "users", ""]);
        let output = wait::within("the candidates", asked).await;
        assert_eq!((output.code, output.text(), output.err.as_str()), (0, ":4\n", ""), "{server}");
    }
    let output = CliUser::new().run(&["__complete", "--", "get", "users", ""]).await;
    assert_eq!((output.code, output.text(), output.err.as_str()), (0, ":4\n", ""));
    // A key on the standard input is the key of the command, and not of its completion.
    let keyed = ["__complete", "--", "get", "--access-key", "-", "users", ""];
    assert_eq!(CliUser::new().run_with(&keyed, b"pst_x").await.text(), ":4\n");
}

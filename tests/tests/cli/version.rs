//! `postern version`: of the program, and of the server.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use serde_json::Value;

const OWN: &str = concat!("Client version: v", env!("CARGO_PKG_VERSION"), "\n");

#[tokio::test]
async fn the_versions_of_the_program_and_of_the_server_are_printed() {
    let server = Server::start().await;
    let admin = crate::cli::admin(&server);
    let said = admin.ok(&["version"]).await;
    let of_server = said.strip_prefix(OWN).and_then(|rest| rest.strip_prefix("Server version: v"));
    assert!(of_server.is_some_and(|version| version.contains("+postern-")), "{said}");

    let printed: Value = serde_json::from_str(&admin.ok(&["version", "-o", "json"]).await).unwrap();
    assert_eq!(printed["clientVersion"]["version"], concat!("v", env!("CARGO_PKG_VERSION")));
    assert_eq!(printed["serverVersion"]["compiler"], "rustc");

    let unknown = admin.with("POSTERN_ACCESS_KEY", "pst_unknown");
    assert_eq!(unknown.ok(&["version"]).await, said, "the path is public");
}

#[tokio::test]
async fn without_a_server_the_version_of_the_program_is_still_printed() {
    let user = CliUser::new();
    assert_eq!(user.ok(&["version", "--client"]).await, OWN);
    let output = user.run(&["version"]).await;
    assert_eq!((output.text(), output.code), (OWN, 1));
    assert!(output.all_output().contains("postern login"), "{}", output.all_output());
}

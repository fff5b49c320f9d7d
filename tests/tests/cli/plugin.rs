//! The program as a plugin of kubectl: `kubectl postern …`.

use std::os::unix::fs::symlink;

use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::kubectl::{Kubectl, repository};
use serde_json::Value;

/// A user with `kubectl` and the plugin on the path.
fn with_plugin(server: &Server) -> CliUser {
    let user = crate::cli::admin(server);
    let binary = user.command(&[]).as_std().get_program().to_owned();
    let bin = user.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    symlink(binary, bin.join("kubectl-postern")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    user.with("PATH", &path).program(Kubectl::program())
}

#[tokio::test]
async fn kubectl_runs_the_plugin() {
    let server = Server::start().await;
    let user = with_plugin(&server);
    assert_eq!(
        user.ok(&["postern", "whoami", "-o", "name"]).await,
        "user.management.platform.sh/admin\n"
    );
    user.ok(&["postern", "set", "secret", "db.A", "hush"]).await;
    assert_eq!(user.ok(&["postern", "get", "secret", "db.A"]).await, "hush");
    let output =
        user.run(&["postern", "run", "--secret", "db", "--", "sh", "-c", "echo $A; exit 9"]).await;
    assert_eq!((output.text(), output.code), ("hush\n", 9));
    assert!(user.ok(&["plugin", "list"]).await.contains("kubectl-postern"));
    let help = user.ok(&["postern", "get", "--help"]).await;
    assert!(help.contains("Usage: kubectl postern get "), "{help}");
    let said = user.fails(2, &["postern", "set", "secret", "db"]).await;
    assert!(said.contains("kubectl postern") || said.contains("db.KEY"), "{said}");
    let said = user.fails(2, &["postern", "frobnicate"]).await;
    assert!(said.contains("Usage: kubectl postern "), "{said}");
    let said = user.fails(1, &["postern", "get", "user", "zzzzzz"]).await;
    assert!(said.contains("`kubectl postern list users`"), "{said}");
}

#[test]
fn the_krew_manifest_describes_this_program() {
    let text = std::fs::read_to_string(repository().join("deploy/krew/postern.yaml")).unwrap();
    let manifest: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!(
        (&manifest["kind"], &manifest["metadata"]["name"]),
        (&"Plugin".into(), &"postern".into())
    );
    let cargo = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let version = cargo.lines().find_map(|line| line.strip_prefix("version = \"")).unwrap();
    let version = format!("v{}", version.trim_end_matches('"'));
    assert_eq!(manifest["spec"]["version"], version.as_str());
    for field in ["shortDescription", "description", "homepage"] {
        assert!(manifest["spec"][field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert!(!platforms.is_empty());
    for platform in platforms {
        let labels = &platform["selector"]["matchLabels"];
        assert_eq!(labels["os"], "linux");
        let uri = platform["uri"].as_str().unwrap();
        assert!(uri.starts_with("https://") && uri.contains(&version[1..]), "{uri}");
        let files = platform["files"].as_array().unwrap();
        // The archive has one directory. krew puts the files that match a pattern into a directory,
        // under their own names.
        for (from, to) in
            [("*/postern", platform["bin"].as_str().unwrap()), ("*/LICENSE", "LICENSE")]
        {
            let file = files.iter().find(|file| file["from"] == from).unwrap();
            assert_eq!((file["to"].as_str().unwrap(), from), (".", &*format!("*/{to}")));
        }
    }
}

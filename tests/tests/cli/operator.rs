//! The operator's commands: `postern admin …` and `postern storage …`.

use postern_tests::cli::CliUser;
use postern_tests::objects::{secret, secret_path, secrets, value_of};
use postern_tests::{Home, Kubeconfig, Setup};

/// A user on the server's machine.
fn operator(home: &Home) -> CliUser {
    CliUser::new().with("POSTERN_DATA_DIR", home.data().to_str().unwrap())
}

#[tokio::test]
async fn a_lost_key_is_replaced_and_stays_secret() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let old = server.kubeconfig().token.clone();
    let output = operator(&home).run(&["admin", "reset-key"]).await;
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.text().trim(), home.kubeconfig().to_str().unwrap());
    let new = Kubeconfig::read(&home.kubeconfig()).unwrap().token;
    assert_ne!(new, old);
    assert!(!output.all_output().contains(&new) && output.err.contains("admin"), "{output:?}");
    let client = server.client().with_token(&new);
    client.get(&secrets("platform")).send().await.expect(200);
    server.client().get(&secrets("platform")).send().await.expect(200);
    server.stop().await;
    let output = operator(&home).fails(1, &["admin", "reset-key"]).await;
    assert!(output.contains("start it"), "{output}");
}

#[tokio::test]
async fn at_rest_keys_are_rotated_and_everything_stays_readable() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let before = secret("before", "old");
    server.client().post(&secrets("platform")).json(&before).send().await.expect(201);
    rotate(&home).await;
    let read = server.client().get(&secret_path("before")).send().await.expect(200);
    assert_eq!(value_of(&read), "old");
    server.stop().await;
    rotate(&home).await;
    let server = Setup::on(&home).start().await;
    let read = server.client().get(&secret_path("before")).send().await.expect(200);
    assert_eq!(value_of(&read), "old");
    server.stop().await;
}

/// Rotates and rewraps; works with a running server and without.
async fn rotate(home: &Home) {
    let operator = operator(home);
    let key = operator.ok(&["storage", "rotate-key"]).await;
    assert!(!key.trim().is_empty());
    let rewrapped = operator.ok(&["storage", "rewrap"]).await;
    assert!(rewrapped.trim().parse::<u64>().unwrap() > 0, "{rewrapped}");
    assert_eq!(operator.ok(&["storage", "reseal"]).await.trim(), "0", "nothing is left");
    assert_eq!(operator.ok(&["storage", "check"]).await, "");
}

#[tokio::test]
async fn a_directory_without_a_database_is_an_error() {
    let nowhere = CliUser::new();
    let missing = nowhere.path().join("missing");
    let directory = missing.to_str().unwrap();
    for command in ["rotate-key", "rewrap", "reseal", "check"] {
        let output = nowhere.fails(1, &["storage", command, "--data-dir", directory]).await;
        assert!(output.contains("missing"), "{output}");
    }
    assert!(!missing.exists(), "a failed check creates nothing");
}

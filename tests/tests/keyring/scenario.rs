//! A server with a source of at-rest keys, from its first start to a restore.

use postern_tests::objects::{secret, secret_path, secrets, value_of};
use postern_tests::{Ended, Home, Server, Setup, wait};

/// The flags of a source.
pub(crate) type Flags = Vec<String>;

/// A command with the flags of a source.
pub(crate) fn with(setup: Setup, flags: &Flags) -> Setup {
    flags.iter().fold(setup, Setup::argument)
}

/// Runs `postern storage COMMAND` on the directory of a server.
pub(crate) async fn run(home: &Home, command: &[&str], flags: &Flags) -> Ended {
    let setup = Setup::bare(home).argument("storage");
    let setup = command.iter().fold(setup, Setup::argument);
    with(setup.argument("--data-dir").argument(home.data()), flags).run_to_end().await
}

/// Runs a command that succeeds, and returns its standard output.
pub(crate) async fn storage(home: &Home, command: &[&str], flags: &Flags) -> String {
    let ended = run(home, command, flags).await;
    assert!(ended.status.success(), "{command:?}: {}", ended.stderr);
    ended.stdout.trim().to_owned()
}

/// Runs a command that fails, and returns its standard error.
pub(crate) async fn refusal(home: &Home, command: &[&str], flags: &Flags) -> String {
    let ended = run(home, command, flags).await;
    assert!(!ended.status.success(), "{command:?}: {}", ended.stdout);
    ended.stderr
}

pub(crate) async fn store(server: &Server, name: &str) {
    server.client().post(&secrets("platform")).json(&secret(name, name)).send().await.expect(201);
}

pub(crate) async fn is_stored(server: &Server, name: &str) {
    let read = server.client().get(&secret_path(name)).send().await.expect(200);
    assert_eq!(value_of(&read), name);
}

/// A first start, a rotation, restarts, a backup and a restore, on a database in a file.
pub(crate) async fn whole_life(flags: &Flags) {
    let home = Home::new();
    let serve = |home: &Home| with(Setup::on(home).argument("--history").argument("1s"), flags);
    let server = serve(&home).start().await;
    assert!(!home.data().join("keys/seal.keys").exists(), "the keys are in the store");
    store(&server, "before").await;
    let new = storage(&home, &["rotate-key"], flags).await;
    store(&server, "after").await;
    let before = home.path().join("before.backup");
    let made = run(&home, &["backup", "--to", before.to_str().unwrap()], flags).await;
    let keys = made.stderr.rsplit("wrapped by it: ").next().unwrap().trim().split(' ');
    let old = keys.filter(|id| **id != new).collect::<Vec<_>>();
    let [old] = old[..] else { panic!("two keys are needed: {}", made.stderr) };
    assert_ne!(storage(&home, &["rewrap"], flags).await, "0");
    let current = refusal(&home, &["drop-key", &new], flags).await;
    assert!(current.contains("is the current one"), "{current}");
    let print = refusal(&home, &["rotate-key", "--print"], flags).await;
    assert!(print.contains("not in a file"), "{print}");
    wait::until("history to be compacted", async || {
        // History ages by writes.
        store(&server, "short").await;
        server.client().delete(&secret_path("short")).send().await.expect(200);
        run(&home, &["drop-key", old], flags).await.status.success().then_some(())
    })
    .await;
    let after = home.path().join("after.backup");
    storage(&home, &["backup", "--to", after.to_str().unwrap()], flags).await;
    server.stop().await;

    storage(&home, &["check"], flags).await;
    let server = serve(&home).start().await;
    is_stored(&server, "before").await;
    is_stored(&server, "after").await;
    server.stop().await;
    let unknown = refusal(&home, &["check"], &Flags::new()).await;
    assert!(unknown.contains("the keyring") && unknown.contains("--keyring"), "{unknown}");

    for file in [before, after] {
        let home = Home::new();
        let file = file.to_str().unwrap().to_owned();
        let keyless = refusal(&home, &["restore", &file], &Flags::new()).await;
        assert!(keyless.contains("pass that KMS in --keyring"), "{keyless}");
        storage(&home, &["restore", &file], flags).await;
        storage(&home, &["check"], flags).await;
    }
}

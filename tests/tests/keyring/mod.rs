//! Where the at-rest keys come from: a mounted file, a plugin of KMS v2, and a transit engine.

mod scenario;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use postern_tests::etcd::Etcd;
use postern_tests::kms::KmsPlugin;
use postern_tests::transit::{TOKEN, TransitEngine};
use postern_tests::{Home, Server, Setup, wait};

use scenario::{Flags, is_stored, refusal, run, storage, store, with};

fn keyring(source: &str) -> Flags {
    vec!["--keyring".to_owned(), source.to_owned()]
}

/// The value of a metric.
async fn metric(server: &Server, name: &str) -> f64 {
    let text = server.client().get("/metrics").send().await.expect_text(200);
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).expect("it is there");
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

async fn until_readable(server: &Server, expected: bool) {
    wait::until("the metric of the keyring", async || {
        let readable = metric(server, "postern_keyring_readable").await > 0.5;
        (readable == expected).then_some(())
    })
    .await;
}

/// The error output of a server that does not start.
async fn fails(setup: Setup) -> String {
    let ended = setup.run_to_end().await;
    assert!(!ended.status.success(), "it ran");
    ended.stderr
}

#[tokio::test]
async fn a_mounted_keyring_is_read_again_and_never_written() {
    let home = Home::new();
    let made = Home::new();
    Setup::on(&made).start().await.stop().await;
    let path = home.path().join("seal.keys");
    std::fs::copy(made.data().join("keys/seal.keys"), &path).unwrap();
    let flags = keyring(&format!("file:{}", path.display()));

    let server = with(Setup::on(&home), &flags).start().await;
    assert!(!home.data().join("keys/seal.keys").exists());
    store(&server, "before").await;
    let refused = refusal(&home, &["rotate-key"], &flags).await;
    assert!(
        refused.contains("never written") && refused.contains("rotate-key --print"),
        "{refused}"
    );
    let printed = storage(&home, &["rotate-key", "--print"], &flags).await;
    let replaced = home.path().join("new");
    std::fs::write(&replaced, format!("{printed}\n")).unwrap();
    std::fs::set_permissions(&replaced, PermissionsExt::from_mode(0o400)).unwrap();
    std::fs::rename(&replaced, &path).unwrap();
    wait::until("the new key to be read", async || {
        (metric(&server, "postern_keyring_keys").await > 1.5).then_some(())
    })
    .await;
    // The old keyring comes back, and lacks the key in use: the server goes on with the keys that
    // it has.
    std::fs::copy(made.data().join("keys/seal.keys"), &replaced).unwrap();
    std::fs::rename(&path, home.path().join("kept")).unwrap();
    std::fs::rename(&replaced, &path).unwrap();
    wait::until("the server to refuse the old keyring", async || {
        server
            .home()
            .logged()
            .contains("lacks the key that this server encrypts with")
            .then_some(())
    })
    .await;
    store(&server, "under-the-key-in-use").await;
    std::fs::rename(home.path().join("kept"), &path).unwrap();
    assert_ne!(storage(&home, &["rewrap"], &flags).await, "0");
    server.stop().await;

    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    let exposed = fails(with(Setup::on(&home), &flags)).await;
    assert!(exposed.contains("0444") && exposed.contains("0600"), "{exposed}");
    std::fs::remove_file(&path).unwrap();
    let missing = fails(with(Setup::on(&home), &flags)).await;
    assert!(missing.contains("is missing"), "{missing}");
    assert!(!path.exists(), "no other keyring is made");
    let empty = fails(with(Setup::on(&Home::new()), &flags)).await;
    assert!(empty.contains("is missing"), "{empty}");
}

#[tokio::test]
async fn a_kms_plugin_wraps_the_keys_of_a_server() {
    let directory = Home::new();
    let plugin = KmsPlugin::start(&directory.path().join("kms.sock"));
    scenario::whole_life(&keyring(&plugin.keyring())).await;
    assert!(plugin.calls("Encrypt") >= 2 && plugin.calls("Decrypt") > 2);
}

#[tokio::test]
async fn a_server_survives_the_loss_of_its_kms_plugin_and_does_not_start_without_it() {
    let home = Home::new();
    let socket = home.path().join("kms.sock");
    let flags = keyring(&format!("kms-v2:unix://{}", socket.display()));
    let serve = || with(Setup::on(&home), &flags);
    let absent = fails(serve()).await;
    assert!(
        absent.contains(&flags[1]) && absent.contains("check that the plugin runs"),
        "{absent}"
    );

    let plugin = KmsPlugin::start(&socket);
    let server = serve().start().await;
    store(&server, "first").await;
    plugin.set(|behaviour| behaviour.health = "the cloud is gone");
    until_readable(&server, false).await;
    server.client().get("/readyz").send().await.expect_text(200);
    drop(plugin);
    store(&server, "second").await;
    let rotate = refusal(&home, &["rotate-key"], &flags).await;
    assert!(rotate.contains("cannot wrap") && rotate.contains("Encrypt failed"), "{rotate}");
    let plugin = KmsPlugin::start(&socket);
    until_readable(&server, true).await;
    server.stop().await;

    plugin.set(|behaviour| behaviour.is_wrong = true);
    let wrong = fails(serve()).await;
    assert!(wrong.contains("returned another seed"), "{wrong}");
    // Its key was rotated: it decrypts with the old one, and encrypts with the new one.
    plugin.set(|behaviour| {
        behaviour.is_wrong = false;
        behaviour.key = 2;
    });
    let server = serve().start().await;
    storage(&home, &["rotate-key"], &flags).await;
    server.stop().await;
    let server = serve().start().await;
    is_stored(&server, "first").await;
    is_stored(&server, "second").await;
    assert!((metric(&server, "postern_keyring_keys").await - 2.0).abs() < f64::EPSILON);
    server.stop().await;
    let file = fails(Setup::on(&home)).await;
    assert!(file.contains("--keyring"), "{file}");
}

#[tokio::test]
async fn a_database_of_a_keyring_file_does_not_open_with_a_kms() {
    let home = Home::new();
    Setup::on(&home).start().await.stop().await;
    let plugin = KmsPlugin::start(&home.path().join("kms.sock"));
    let refused = fails(with(Setup::on(&home), &keyring(&plugin.keyring()))).await;
    assert!(refused.contains("its keys are in a keyring file"), "{refused}");
    assert_eq!(plugin.calls("Encrypt"), 0);
}

/// Flags of a transit engine, with its files in a home.
fn transit(engine: &TransitEngine, home: &Path) -> Flags {
    let [token, authority] = ["token", "ca.pem"].map(|name| home.join(name));
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    std::fs::write(&authority, engine.authority()).unwrap();
    let files = [
        "--transit-token-file",
        token.to_str().unwrap(),
        "--transit-ca-file",
        authority.to_str().unwrap(),
    ];
    let mut flags = keyring(&engine.keyring());
    flags.extend(files.map(str::to_owned));
    flags
}

#[tokio::test]
async fn a_transit_engine_wraps_the_keys_of_a_server() {
    let engine = TransitEngine::start().await;
    let home = Home::new();
    scenario::whole_life(&transit(&engine, home.path())).await;
}

#[tokio::test]
async fn a_token_of_a_transit_engine_can_be_replaced() {
    let engine = TransitEngine::start().await;
    let home = Home::new();
    let flags = transit(&engine, home.path());
    let server = with(Setup::on(&home), &flags).start().await;
    engine.replace_token("another");
    until_readable(&server, false).await;
    let refused = refusal(&home, &["rotate-key"], &flags).await;
    assert!(
        refused.contains("permission denied") && refused.contains("check the token"),
        "{refused}"
    );
    std::fs::write(home.path().join("token"), "another").unwrap();
    until_readable(&server, true).await;
    storage(&home, &["rotate-key"], &flags).await;
    server.stop().await;

    std::fs::write(home.path().join("token"), TOKEN).unwrap();
    let denied = fails(with(Setup::on(&home), &flags)).await;
    assert!(denied.contains("status 403") && denied.contains(&engine.keyring()), "{denied}");
    assert!(!denied.contains(TOKEN), "{denied}");
    std::fs::remove_file(home.path().join("token")).unwrap();
    let missing = fails(with(Setup::on(&home), &flags)).await;
    assert!(missing.contains("--transit-token-file is missing"), "{missing}");
    // The authorities of the system do not vouch for the engine.
    std::fs::write(home.path().join("token"), "another").unwrap();
    let untrusted = fails(with(Setup::on(&home), &flags[..4].to_vec())).await;
    assert!(untrusted.contains("TLS") || untrusted.contains("authorit"), "{untrusted}");
    let other = flags[1].replace("keys/postern", "keys/other");
    let mut wrong = flags.clone();
    wrong[1] = other;
    let unknown = fails(with(Setup::on(&home), &wrong)).await;
    assert!(unknown.contains("status 404") && unknown.contains("has the key other"), "{unknown}");
}

/// Three servers on one etcd with one plugin. No file with keys is copied.
#[tokio::test]
async fn servers_that_share_a_store_get_new_keys_from_it() {
    let etcd = Etcd::start().await;
    let directory = Home::new();
    let plugin = KmsPlugin::start(&directory.path().join("kms.sock"));
    let mut flags = keyring(&plugin.keyring());
    let shared = ["--store", &etcd.store("/kms"), "--allow-old-etcd"].map(str::to_owned);
    let on = |setup: Setup| with(with(setup, &flags), &shared.to_vec());
    let unprepared = fails(on(Setup::on(&Home::new()))).await;
    assert!(unprepared.contains("postern init"), "{unprepared}");

    // Two inits at once: one of them prepares the store, and the other says so.
    let homes = [Home::new(), Home::new(), Home::new()];
    let init = |home: &Home| {
        on(Setup::bare(home).argument("init").argument("--data-dir").argument(home.data()))
            .run_to_end()
    };
    let (one, two) = tokio::join!(init(&homes[0]), init(&homes[1]));
    assert!(one.status.success() != two.status.success(), "{}\n{}", one.stderr, two.stderr);
    let first = usize::from(!one.status.success());
    let loser = [&two, &one][first];
    assert!(loser.stdout.is_empty() && !homes[1 - first].kubeconfig().exists(), "{}", loser.stderr);
    for home in &homes {
        if home.path() != homes[first].path() {
            drop(std::fs::remove_dir_all(home.data()));
            let mut copy = std::process::Command::new("cp");
            let copied = copy.arg("-a").args([homes[first].data(), home.data()]).status();
            assert!(copied.unwrap().success());
        }
    }
    let mut servers = Vec::new();
    for home in &homes {
        servers.push(on(Setup::on(home)).start().await);
    }
    store(&servers[0], "before").await;
    let new = storage(&homes[0], &["rotate-key"], &flags).await;
    let rewrapped = wait::until("the key to become active", async || {
        let rewrapped = run(&homes[1], &["rewrap"], &flags).await;
        (rewrapped.stdout.trim() != "0").then_some(rewrapped)
    })
    .await;
    assert!(rewrapped.stderr.contains(&new), "{}", rewrapped.stderr);
    for (number, server) in servers.iter().enumerate() {
        store(server, &format!("after-{number}")).await;
        is_stored(server, "before").await;
    }
    // A server without the plugin keeps the keys that it has, and cannot get a new one.
    drop(plugin);
    store(&servers[2], "without").await;
    for server in &servers {
        until_readable(server, false).await;
    }
    let last = servers.pop().unwrap();
    last.stop().await;
    flags.truncate(2);
    let refused = fails(with(with(Setup::on(&homes[2]), &flags), &shared.to_vec())).await;
    assert!(refused.contains("check that the plugin runs"), "{refused}");
    for server in servers {
        is_stored(&server, "without").await;
        server.stop().await;
    }
}

#[tokio::test]
async fn a_store_whose_keys_a_kms_wraps_moves_to_etcd_and_back() {
    let (etcd, home) = (Etcd::start().await, Home::new());
    let plugin = KmsPlugin::start(&home.path().join("kms.sock"));
    let flags = keyring(&plugin.keyring());
    let (file, remote) = (format!("file:{}", home.data().display()), etcd.store("/kms"));
    let migrate = async |from: &str, to: &str, flags: &Flags| {
        let setup = Setup::bare(&home).argument("storage").argument("migrate");
        let sides = ["--allow-old-etcd", "--from", from, "--to", to];
        with(sides.iter().fold(setup, Setup::argument), flags).run_to_end().await
    };
    let server = with(Setup::on(&home), &flags).start().await;
    store(&server, "early").await;
    let copied = migrate(&file, &remote, &flags).await;
    assert_eq!(copied.stdout, "copied\n", "{}", copied.stderr);
    store(&server, "late").await;
    storage(&home, &["rotate-key"], &flags).await;
    server.stop().await;

    let keyless = migrate(&file, &remote, &Flags::new()).await;
    assert!(keyless.stderr.contains("--keyring"), "{}", keyless.stderr);
    let moved = migrate(&file, &remote, &flags).await;
    assert_eq!(moved.stdout, "moved\n", "{}", moved.stderr);
    let on_etcd = || {
        let setup = with(Setup::on(&home), &flags);
        setup.argument("--store").argument(&remote).argument("--allow-old-etcd")
    };
    let server = on_etcd().start().await;
    is_stored(&server, "early").await;
    is_stored(&server, "late").await;
    store(&server, "there").await;
    server.stop().await;

    let back = migrate(&remote, &file, &flags).await;
    assert_eq!(back.stdout, "moved\n", "{}", back.stderr);
    let server = with(Setup::on(&home), &flags).start().await;
    for name in ["early", "late", "there"] {
        is_stored(&server, name).await;
    }
}

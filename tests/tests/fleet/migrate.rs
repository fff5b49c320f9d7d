//! The move of a server's data from its directory to etcd, and back: clients get 410 once and go on, and never both
//! stores can be used.

use std::time::Duration;

use postern_tests::cli::{CliUser, CommandOutput};
use postern_tests::etcd::Etcd;
use postern_tests::http::Client;
use postern_tests::objects::{make, name_of, secret, secret_path, secrets, value_of, version_of};
use postern_tests::rights::path;
use postern_tests::{Home, Kubeconfig, Random, Server, Setup};
use serde_json::{Value, json};

use super::{copy_of, init, on};

/// The arguments of a migration between a server's directory and a store.
struct Sides {
    home: Home,
    directory: String,
    store: String,
}

impl Sides {
    fn new(home: &Home, store: &str) -> Self {
        let directory = format!("file:{}", home.data().display());
        Self { home: home.clone(), directory, store: store.to_owned() }
    }

    fn to_etcd(&self) -> [&str; 7] {
        let (from, to) = (&self.directory, &self.store);
        ["storage", "migrate", "--allow-old-etcd", "--from", from, "--to", to]
    }

    fn to_file(&self) -> [&str; 7] {
        let (from, to) = (&self.store, &self.directory);
        ["storage", "migrate", "--allow-old-etcd", "--from", from, "--to", to]
    }

    /// The output of the check of the directory's database, and of the check of the store.
    async fn check(&self) -> [CommandOutput; 2] {
        let data = self.home.data();
        let data_dir = ["storage", "check", "--data-dir", data.to_str().unwrap()];
        let on_etcd = ["--allow-old-etcd", "--store", &self.store];
        let user = CliUser::new();
        [user.run(&data_dir).await, user.run(&[data_dir.as_slice(), &on_etcd].concat()).await]
    }
}

async fn create(client: &Client, name: &str) -> u64 {
    let made = client.post(&secrets("platform")).json(&secret(name, name)).send().await;
    version_of(&made.expect(201))
}

/// Every secret with its resourceVersion, and the version of the list.
async fn listed(client: &Client) -> (Vec<(String, u64)>, u64) {
    let list = client.get(&secrets("platform")).send().await.expect(200);
    let items = list["items"].as_array().unwrap().iter();
    let items = items.map(|item| (name_of(item).to_owned(), version_of(item))).collect();
    (items, version_of(&list))
}

/// A watch from an old version gets 410 once; after a list, it goes on.
async fn expect_410_once(client: &Client, old: u64, name: &str) {
    let from = |version: u64| format!("&resourceVersion={version}");
    let mut watch = client.watch(&secrets("platform"), &from(old)).await;
    let event = watch.next().await.unwrap();
    assert_eq!((event.kind.as_str(), &event.object["code"]), ("ERROR", &json!(410)));
    let (_, version) = listed(client).await;
    assert!(version > old);
    let mut watch = client.watch(&secrets("platform"), &from(version)).await;
    let made = create(client, name).await;
    let event = watch.next().await.unwrap();
    assert_eq!((event.summary(), event.version()), (format!("ADDED {name}"), made));
}

async fn refused(setup: Setup) -> String {
    let ended = setup.run_to_end().await;
    assert!(!ended.status.success());
    ended.stderr
}

/// Updates an object that was read before, with its version of that time.
async fn update(client: &Client, name: &str, read: &Value) {
    let mut changed = read.clone();
    changed["metadata"]["labels"] = json!({ "updated": "yes" });
    client.put(&secret_path(name)).json(&changed).send().await.expect(200);
}

/// The administrator's key can be replaced on the machine of any server, and is valid for all of them.
async fn reset_key(home: &Home, other: &Client) {
    let data = home.data();
    CliUser::new().ok(&["admin", "reset-key", "--data-dir", data.to_str().unwrap()]).await;
    let kubeconfig = Kubeconfig::read(&home.kubeconfig()).unwrap();
    let renewed = other.with_token(&kubeconfig.token);
    renewed.get(&path("users", "ada")).send().await.expect(200);
}

#[tokio::test]
async fn a_server_moves_to_etcd_and_back() {
    let (etcd, home) = (Etcd::start().await, Home::new());
    let store = etcd.store("/moved");
    let (sides, user) = (Sides::new(&home, &store), CliUser::new());
    let server = Setup::on(&home).start().await;
    make(&server.client(), "users", "ada", json!({})).await;
    for name in ["one", "two", "three"] {
        create(&server.client(), name).await;
    }
    // While the server runs: a look, and a copy. The copy is no store yet.
    let planned = user.run(&[sides.to_etcd().as_slice(), &["--dry-run"]].concat()).await;
    assert_eq!((planned.code, planned.text()), (0, "planned\n"), "{planned:?}");
    assert!(planned.err.contains("Nothing was changed"), "{planned:?}");
    let copied = user.run(&sides.to_etcd()).await;
    assert_eq!((copied.code, copied.text()), (0, "copied\n"), "{copied:?}");
    assert!(copied.err.contains("Stop them"), "{copied:?}");
    let second = copy_of(&home);
    let early = refused(on(Setup::on(&second), &store)).await;
    assert!(early.contains("not complete") && early.contains("storage migrate"), "{early}");
    // The server goes on, and so do its clients.
    let client = server.client();
    create(&client, "late").await;
    client.delete(&secret_path("one")).send().await.expect(200);
    let read = client.get(&secret_path("two")).send().await.expect(200);
    let (before, version) = listed(&client).await;
    server.stop().await;

    let moved = user.run(&sides.to_etcd()).await;
    assert_eq!((moved.code, moved.text()), (0, "moved\n"), "{moved:?}");
    let again = user.run(&sides.to_etcd()).await;
    assert_eq!((again.code, again.text()), (0, "moved\n"), "{again:?}");
    let old = refused(Setup::on(&home)).await;
    assert!(old.contains(&format!("moved to {store}")) && old.contains(&sides.directory), "{old}");
    let [in_file, on_etcd] = sides.check().await;
    assert!(in_file.code == 1 && in_file.err.contains("moved to etcd:"), "{in_file:?}");
    assert_eq!(on_etcd.code, 0, "{on_etcd:?}");

    // Two servers go on with it.
    let first = on(Setup::on(&home), &store).start().await;
    let other = on(Setup::on(&second), &store).start().await;
    let (one, two) = (first.client(), other.client());
    assert_eq!(listed(&two).await.0, before);
    assert_eq!(value_of(&two.get(&secret_path("late")).send().await.expect(200)), "late");
    one.get(&path("users", "ada")).send().await.expect(200);
    update(&two, "two", &read).await;
    expect_410_once(&one, version, "on-etcd").await;
    let read = one.get(&secret_path("on-etcd")).send().await.expect(200);
    let (before, version) = listed(&two).await;
    reset_key(&home, &two).await;
    first.stop().await;
    let running = user.run(&sides.to_file()).await;
    assert!(running.code == 1 && running.err.contains("servers run on"), "{running:?}");
    other.kill();

    // Back to the same directory.
    let moved = user.run(&sides.to_file()).await;
    assert_eq!((moved.code, moved.text()), (0, "moved\n"), "{moved:?}");
    let left = refused(on(Setup::on(&second), &store)).await;
    assert!(left.contains("moved to file:"), "{left}");
    let server = Setup::on(&home).start().await;
    let client = server.client();
    assert_eq!(listed(&client).await.0, before);
    update(&client, "on-etcd", &read).await;
    expect_410_once(&client, version, "in-file").await;
    server.stop().await;
}

#[tokio::test]
async fn of_two_migrations_at_once_one_moves_the_data_and_the_other_one_says_so() {
    let (etcd, home) = (Etcd::start().await, Home::new());
    let server = Setup::on(&home).start().await;
    create(&server.client(), "kept").await;
    server.stop().await;
    let (sides, user) = (Sides::new(&home, &etcd.store("/twice")), CliUser::new());
    let arguments = sides.to_etcd();
    let (one, two) = tokio::join!(user.run(&arguments), user.run(&arguments));
    let again = user.run(&arguments).await;
    let mut earlier = 0;
    for ended in [&one, &two, &again] {
        assert_eq!((ended.code, ended.text()), (0, "moved\n"), "{ended:?}");
        earlier += usize::from(ended.err.contains("An earlier run has moved the data"));
    }
    assert_eq!(earlier, 2, "{one:?} {two:?}");
    // The database of the source is still there, and can be used again.
    let directory = home.data().join("db");
    let database = directory.join("postern.redb");
    assert!(!database.exists());
    std::fs::remove_file(directory.join("migration")).unwrap();
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().replace(".moved", "");
        std::fs::rename(&path, directory.join(name)).unwrap();
    }
    let server = Setup::on(&home).start().await;
    let read = server.client().get(&secret_path("kept")).send().await.expect(200);
    assert_eq!(value_of(&read), "kept");
    server.stop().await;
}

#[tokio::test]
async fn a_migration_that_is_killed_goes_on_and_never_leaves_two_stores() {
    let (etcd, home) = (Etcd::start().await, Home::new());
    let server = Setup::on(&home).start().await;
    let client = server.client();
    let large = "x".repeat(20_000);
    for number in 0..120 {
        let object = secret(&format!("s{number}"), &large);
        client.post(&secrets("platform")).json(&object).send().await.expect(201);
    }
    let (expected, _) = listed(&client).await;
    server.stop().await;
    let sides = Sides::new(&home, &etcd.store("/killed"));
    let mut random = Random::new(7);
    for arguments in [sides.to_etcd(), sides.to_file()] {
        // Each attempt may get more time than the one before, so that one of them ends.
        for attempt in 0..20 {
            let mut child = CliUser::new().command(&arguments).spawn().unwrap();
            let most = Duration::from_millis(random.below(25 << attempt));
            let Ok(status) = tokio::time::timeout(most, child.wait()).await else {
                child.kill().await.unwrap();
                let [in_file, on_etcd] = sides.check().await;
                assert!(in_file.code != 0 || on_etcd.code != 0, "{in_file:?} {on_etcd:?}");
                continue;
            };
            assert!(status.unwrap().success());
            break;
        }
        let [in_file, on_etcd] = sides.check().await;
        assert_ne!(in_file.code == 0, on_etcd.code == 0, "{in_file:?} {on_etcd:?}");
    }
    let server: Server = Setup::on(&home).start().await;
    assert_eq!(listed(&server.client()).await.0, expected);
    server.stop().await;
}

#[tokio::test]
async fn a_store_on_etcd_is_backed_up_restored_and_gets_an_epoch_without_a_server() {
    let etcd = Etcd::start().await;
    let (store, other) = (etcd.store("/backed-up"), etcd.store("/restored"));
    let home = init(&store).await;
    let data = home.data();
    let user = CliUser::new().with("POSTERN_DATA_DIR", data.to_str().unwrap());
    let file = user.file("backup", "");
    let server = on(Setup::on(&home), &store).start().await;
    let client = server.client();
    for name in ["one", "two"] {
        create(&client, name).await;
    }
    let (expected, _) = listed(&client).await;
    let backup = ["storage", "backup", "--overwrite", "--to", &file, "--allow-old-etcd", "--store"];
    user.ok(&[backup.as_slice(), &[&store]].concat()).await;
    create(&client, "lost").await;
    let (_, version) = listed(&client).await;
    server.stop().await;

    let restore = ["storage", "restore", &file, "--allow-old-etcd", "--store"];
    let refused = user.run(&[restore.as_slice(), &[&store]].concat()).await;
    assert!(refused.code == 1 && refused.err.contains("in use"), "{refused:?}");
    let restored = user.ok(&[restore.as_slice(), &[&other]].concat()).await;
    assert_eq!(restored.trim(), other);
    let server = on(Setup::on(&home), &other).start().await;
    let client = server.client();
    assert_eq!(listed(&client).await.0, expected);
    expect_410_once(&client, version, "three").await;
    let (_, version) = listed(&client).await;
    let new_epoch = ["storage", "new-epoch", "--allow-old-etcd", "--store", &other];
    let running = user.run(&new_epoch).await;
    assert!(running.code == 1 && running.err.contains("servers run on"), "{running:?}");
    server.stop().await;

    let above = version.to_string();
    let first = user.ok(&[new_epoch.as_slice(), &["--above", &above]].concat()).await;
    let first: u64 = first.trim().parse().unwrap();
    assert!(first > version);
    let server = on(Setup::on(&home), &other).start().await;
    expect_410_once(&server.client(), version, "four").await;
    let (objects, _) = listed(&server.client()).await;
    assert!(objects.iter().any(|(name, version)| name == "four" && *version >= first));
    server.stop().await;
}

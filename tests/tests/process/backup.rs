//! Backups: made while the server runs and without it, and restored to a new database. The tests
//! also check the view of clients of the lost database afterwards.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::objects::{
    collection, make, name_of, secret, secret_path, secrets, value_of, version_of,
};
use postern_tests::watching::{Event, Watch};
use postern_tests::{Home, Kubeconfig, Server, Setup, wait};
use serde_json::{Value, json};

fn operator(home: &Home) -> CliUser {
    CliUser::new().with("POSTERN_DATA_DIR", home.data().to_str().unwrap())
}

fn backup_path(home: &Home) -> PathBuf {
    home.path().join("backup")
}

async fn back_up(home: &Home) -> PathBuf {
    let path = backup_path(home);
    let output = operator(home).run(&["storage", "backup", "--to", path.to_str().unwrap()]).await;
    assert_eq!((output.code, output.text().trim()), (0, path.to_str().unwrap()), "{output:?}");
    path
}

/// Loses the database, and makes a new one from the backup.
async fn restore(home: &Home) {
    std::fs::rename(home.data().join("db"), home.path().join("lost")).unwrap();
    let path = backup_path(home);
    let restored = operator(home).ok(&["storage", "restore", path.to_str().unwrap()]).await;
    assert_eq!(restored.trim(), home.data().join("db/postern.redb").to_str().unwrap());
}

async fn create(server: &Server, name: &str) {
    let object = secret(name, "v");
    server.client().post(&secrets("platform")).json(&object).send().await.expect(201);
}

/// The state of a client of client-go or kube-rs: the objects of a list, and the changes of a watch since.
#[derive(Default)]
struct Informer {
    objects: BTreeMap<String, Value>,
    version: u64,
    lists: usize,
    probes: usize,
}

impl Informer {
    async fn list(&mut self, client: &Client) {
        let list = client.get(&secrets("platform")).send().await.expect(200);
        let items = list["items"].as_array().unwrap().iter();
        self.objects = items.map(|item| (name_of(item).to_owned(), item.clone())).collect();
        self.version = version_of(&list);
        self.lists += 1;
    }

    /// Resumes from the newest version, and lists when that has expired.
    async fn resume(&mut self, client: &Client) -> Watch {
        loop {
            let from = format!("&allowWatchBookmarks=true&resourceVersion={}", self.version);
            let mut watch = client.watch(&secrets("platform"), &from).await;
            self.probes += 1;
            let probe = format!("probe-{}", self.probes);
            client.post(&secrets("platform")).json(&secret(&probe, "")).send().await.expect(201);
            let first = watch.next().await.expect("an event");
            if first.kind == "ERROR" {
                assert_eq!(first.object["code"], 410, "{first:?}");
                self.list(client).await;
                continue;
            }
            self.take(first);
            return watch;
        }
    }

    fn take(&mut self, event: Event) {
        self.version = event.version();
        let name = name_of(&event.object).to_owned();
        match event.kind.as_str() {
            "DELETED" => drop(self.objects.remove(&name)),
            "BOOKMARK" => {}
            _ => drop(self.objects.insert(name, event.object)),
        }
    }
}

#[tokio::test]
async fn an_informer_with_a_restore_in_the_middle_ends_up_equal_to_the_server() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    for name in ["one", "two"] {
        create(&server, name).await;
    }
    let mut informer = Informer::default();
    informer.list(&server.client()).await;
    let mut watch = informer.resume(&server.client()).await;
    back_up(&home).await;
    // The timeline that gets lost; the informer sees it.
    create(&server, "three").await;
    server.client().delete(&secret_path("one")).send().await.expect(200);
    let change = json!({ "metadata": { "labels": { "changed": "yes" } } });
    let changing = secret_path("two");
    server.client().patch(&changing, "merge-patch", &change).send().await.expect(200);
    let mut lost = Vec::new();
    for event in watch.take(3).await {
        lost.push(event.version());
        informer.take(event);
    }
    let stale = informer.objects["two"].clone();
    server.kill();
    restore(&home).await;

    let server = Setup::on(&home).start().await;
    let client = server.client();
    for version in lost {
        let path = format!("{}?resourceVersion={version}", secrets("platform"));
        let exact = format!("{path}&resourceVersionMatch=Exact");
        client.get(&exact).send().await.expect(410);
        let from = format!("&resourceVersion={version}");
        let event = client.watch(&secrets("platform"), &from).await.next().await.unwrap();
        assert_eq!((event.kind.as_str(), &event.object["code"]), ("ERROR", &json!(410)));
    }
    client.put(&changing).json(&stale).send().await.expect(409);
    let mut watch = informer.resume(&client).await;
    assert_eq!(informer.lists, 2, "one list at first, and one after the restore");
    client.delete(&secret_path("two")).send().await.expect(200);
    create(&server, "four").await;
    for event in watch.take(2).await {
        informer.take(event);
    }
    let mut at_the_server = Informer::default();
    at_the_server.list(&client).await;
    assert_eq!(informer.objects, at_the_server.objects);
    let names: Vec<_> = informer.objects.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["four", "one", "probe-1", "probe-2", "probe-3"],
        "`three` is lost, `one` is back"
    );
    assert_eq!(value_of(&informer.objects["one"]), "v");
    server.stop().await;
}

#[tokio::test]
async fn a_backup_is_private_complete_and_recorded() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    create(&server, "one").await;
    let path = back_up(&home).await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The record of the answer is written a moment after the answer.
    let codes = wait::until("two records of the backup", async || {
        let records = home.records().into_iter().filter(|record| record["verb"] == "backup");
        let codes: Vec<_> =
            records.map(|record| record["responseStatus"]["code"].clone()).collect();
        (codes.len() >= 2).then_some(codes)
    })
    .await;
    assert_eq!(codes, [Value::Null, json!(200)]);
    // A file that exists is replaced only on demand.
    let first = std::fs::read(&path).unwrap();
    let to = path.to_str().unwrap();
    let refused = operator(&home).fails(1, &["storage", "backup", "--to", to]).await;
    assert!(refused.contains("--overwrite"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), first);
    server.stop().await;
    // A backup does not write through a link, regardless of its target.
    let linked = home.path().join("linked");
    std::os::unix::fs::symlink(home.kubeconfig(), linked.with_extension("unfinished")).unwrap();
    let kubeconfig = std::fs::read(home.kubeconfig()).unwrap();
    operator(&home).fails(1, &["storage", "backup", "--to", linked.to_str().unwrap()]).await;
    assert_eq!(std::fs::read(home.kubeconfig()).unwrap(), kubeconfig);
    assert!(!linked.exists());
    // Without a server, this command reads the database.
    let output = operator(&home).run(&["storage", "backup", "--overwrite", "--to", to]).await;
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.err.contains("at-rest keys"), "{output:?}");
    assert_ne!(std::fs::read(&path).unwrap(), first);
    let mut left: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
    left.retain(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("backup")
    });
    assert_eq!(left.len(), 1, "nothing else is left: {left:?}");
    restore(&home).await;
    let server = Setup::on(&home).start().await;
    server.client().get(&secret_path("one")).send().await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_runs_refuses_a_restore_in_its_place() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    create(&server, "one").await;
    let path = back_up(&home).await;
    let (database, aside) = (home.data().join("db"), home.path().join("aside"));
    std::fs::rename(&database, &aside).unwrap();
    let refused = operator(&home).fails(1, &["storage", "restore", path.to_str().unwrap()]).await;
    assert!(refused.contains("a server runs on"), "{refused}");
    assert!(refused.contains("stop it before a restore"), "{refused}");
    assert!(!database.exists(), "nothing is made");
    std::fs::rename(&aside, &database).unwrap();
    create(&server, "two").await;
    server.stop().await;
    let server = Setup::on(&home).start().await;
    server.client().get(&secret_path("two")).send().await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn a_restore_needs_room_the_right_keys_and_an_intact_backup() {
    let (home, other) = (Home::new(), Home::new());
    let server = Setup::on(&home).start().await;
    create(&server, "one").await;
    let path = back_up(&home).await;
    server.stop().await;
    let file = path.to_str().unwrap();
    let refused = operator(&home).fails(1, &["storage", "restore", file]).await;
    assert!(refused.contains("already exists"), "{refused}");

    let refused = operator(&other).fails(1, &["storage", "restore", file]).await;
    assert!(refused.contains("seal.keys is missing"), "{refused}");
    assert!(!other.data().exists(), "nothing is made");

    Setup::on(&other).start().await.stop().await;
    std::fs::remove_dir_all(other.data().join("db")).unwrap();
    let refused = operator(&other).fails(1, &["storage", "restore", file]).await;
    assert!(refused.contains("is of another database"), "{refused}");

    let keys = home.data().join("keys");
    let keys = keys.to_str().unwrap();
    let mut damaged = std::fs::read(&path).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let broken = home.path().join("damaged");
    std::fs::write(&broken, &damaged).unwrap();
    for file in [broken.to_str().unwrap(), keys] {
        let arguments = ["storage", "restore", file, "--key-dir", keys];
        let refused = operator(&other).fails(1, &arguments).await;
        assert!(refused.contains("backup") && !refused.contains("panicked"), "{refused}");
    }
    assert!(!other.data().join("db/postern.redb").exists());
    let seen = (1_u64 << 50).to_string();
    let arguments = ["storage", "restore", file, "--key-dir", keys, "--above", &seen];
    operator(&other).ok(&arguments).await;
    let foreign = Setup::on(&other).argument("--key-dir").argument(keys).run_to_end().await;
    assert!(foreign.stderr.contains("is not the certificate authority that"), "{}", foreign.stderr);
    std::fs::copy(home.kubeconfig(), other.kubeconfig()).unwrap();
    let server = Setup::on(&other).argument("--key-dir").argument(keys).start().await;
    let admin = server.client().with_token(&Kubeconfig::read(&home.kubeconfig()).unwrap().token);
    admin.get(&secret_path("one")).send().await.expect(200);
    let list = admin.get(&secrets("platform")).send().await.expect(200);
    assert!(version_of(&list) > 1 << 50, "behind what a client is known to have seen");
    server.stop().await;
}

/// The uid of the owner is stored next to the object, and goes with it.
#[tokio::test]
async fn an_owner_owns_after_a_restore_and_a_later_namesake_does_not() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    make(&server.client(), "users", "ada", json!({})).await;
    let mut object = secret("one", "v");
    object["spec"]["owner"] = json!({ "user": "ada" });
    server.client().post(&secrets("platform")).json(&object).send().await.expect(201);
    back_up(&home).await;
    server.stop().await;
    restore(&home).await;
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let as_ada = async || {
        let request = admin.get(&secret_path("one")).header("impersonate-user", "ada");
        request.send().await.status
    };
    assert_eq!(as_ada().await, 200);
    admin.delete(&format!("{}/ada", collection("users"))).send().await.expect(200);
    make(&admin, "users", "ada", json!({})).await;
    // The later ada has nothing of it.
    assert_eq!(as_ada().await, 404);
    server.stop().await;
}

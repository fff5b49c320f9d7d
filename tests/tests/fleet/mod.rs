//! Three servers with one store on etcd: each serves the writes that another has acknowledged, and
//! no server is indispensable.

mod cut_off;
mod full;
mod migrate;
mod single_sign_on;
mod tunnels;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Command;

use postern_tests::etcd::Etcd;
use postern_tests::http::Client;
use postern_tests::objects::{collection, make, name_of, secret, secret_path, secrets, value_of};
use postern_tests::rights::{path, set, user};
use postern_tests::{Home, Kubeconfig, Server, Setup, wait};
use serde_json::json;

/// The arguments that every server on a store has. The packaged etcd has faults that these tests do not meet.
pub(crate) fn on(setup: Setup, store: &str) -> Setup {
    setup.argument("--store").argument(store).argument("--allow-old-etcd")
}

/// Prepares a store, and returns the directory of the first server.
pub(crate) async fn init(store: &str) -> Home {
    let home = Home::new();
    let setup = Setup::bare(&home).argument("init").argument("--data-dir").argument(home.data());
    let ended = on(setup, store).run_to_end().await;
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(Path::new(ended.stdout.trim()), home.kubeconfig());
    home
}

/// A directory for another server, with the keys and the kubeconfig of the first.
pub(crate) fn copy_of(first: &Home) -> Home {
    let home = Home::new();
    let copied = Command::new("cp").arg("-a").args([first.data(), home.data()]).status().unwrap();
    assert!(copied.success());
    home
}

/// Starts three servers on a new store.
async fn three(etcd: &Etcd) -> Vec<Server> {
    let store = etcd.store("/fleet");
    let first = init(&store).await;
    let homes = [copy_of(&first), copy_of(&first), first];
    let mut servers = Vec::new();
    for home in &homes {
        servers.push(on(Setup::on(home), &store).start().await);
    }
    servers
}

/// Waits until a server is ready, which it is not while etcd is silent for a second.
async fn until_ready(server: &Server) {
    wait::until("the server to be ready", async || {
        let reply = server.client().get("/readyz").try_send().await.ok()?;
        (reply.status == 200).then_some(())
    })
    .await;
}

fn private_directories(path: &Path) {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
}

/// The certificate authority is in the store. Its key is in no file.
#[tokio::test]
async fn a_server_needs_only_the_keyring_and_clients_trust_all_servers() {
    let etcd = Etcd::start().await;
    let store = etcd.store("/fleet");
    let first = init(&store).await;
    let other = Home::new();
    private_directories(&other.data().join("keys"));
    for file in ["keys/seal.keys", "admin.kubeconfig"] {
        std::fs::copy(first.data().join(file), other.data().join(file)).unwrap();
    }
    let trusted = Kubeconfig::read(&first.kubeconfig()).unwrap().authority;
    for home in [&first, &other, &first] {
        let server = on(Setup::on(home), &store).start().await;
        assert_eq!(server.kubeconfig().authority, trusted);
        server.client().get(&collection("users")).send().await.expect(200);
        server.stop().await;
        let keys = std::fs::read_dir(home.data().join("keys")).unwrap();
        let names: Vec<_> = keys.map(|file| file.unwrap().file_name()).collect();
        assert!(
            names.iter().all(|name| !name.to_str().unwrap().starts_with("tls-ca")),
            "{names:?}"
        );
    }
}

/// A store that was prepared when the authority was in files gets it from the first server that has them.
#[tokio::test]
async fn an_authority_in_files_moves_to_the_store() {
    let (etcd, own) = (Etcd::start().await, Home::new());
    let alone = Setup::on(&own).start().await;
    let trusted = alone.kubeconfig().authority.clone();
    alone.stop().await;
    let store = etcd.store("/fleet");
    let home = Home::new();
    let keys = home.data().join("keys");
    private_directories(&keys);
    for file in ["tls-ca.pem", "tls-ca-key.pem"] {
        std::fs::copy(own.data().join("keys").join(file), keys.join(file)).unwrap();
    }
    let setup = Setup::bare(&home).argument("init").argument("--data-dir").argument(home.data());
    let ended = on(setup, &store).run_to_end().await;
    assert!(ended.status.success(), "{}", ended.stderr);
    for file in ["tls-ca.pem", "tls-ca-key.pem"] {
        std::fs::remove_file(keys.join(file)).unwrap();
    }
    let server = on(Setup::on(&home), &store).start().await;
    assert_eq!(server.kubeconfig().authority, trusted);
    server.stop().await;
}

#[tokio::test]
async fn what_one_server_acknowledges_all_serve_at_once() {
    let etcd = Etcd::start().await;
    let servers = three(&etcd).await;
    let clients: Vec<Client> = servers.iter().map(Server::client).collect();
    let mut watches = Vec::new();
    for client in &clients {
        watches.push(client.watch(&secrets("platform"), "&resourceVersion=0").await);
    }
    for number in 0..12 {
        let (writer, name) = (&clients[number % 3], format!("s{number}"));
        let made = writer.post(&secrets("platform")).json(&secret(&name, &name)).send().await;
        made.expect(201);
        for reader in &clients {
            let read = reader.get(&secret_path(&name)).send().await.expect(200);
            assert_eq!((name_of(&read), value_of(&read)), (name.as_str(), name.clone()));
        }
    }
    let expected: Vec<String> = (0..12).map(|number| format!("ADDED s{number}")).collect();
    for watch in &mut watches {
        assert_eq!(watch.summaries(12).await, expected);
    }
    // Two writers send the same version, each to another server. One of them wins.
    let old = clients[0].get(&secret_path("s1")).send().await.expect(200);
    let mut changed = old.clone();
    changed["metadata"]["labels"] = json!({ "by": "one" });
    clients[1].put(&secret_path("s1")).json(&changed).send().await.expect(200);
    clients[2].put(&secret_path("s1")).json(&old).send().await.expect(409);
    for server in servers {
        server.stop().await;
    }
}

#[tokio::test]
async fn a_login_link_begins_one_session_on_whichever_server() {
    let etcd = Etcd::start().await;
    let servers = three(&etcd).await;
    let clients: Vec<Client> = servers.iter().map(Server::client).collect();
    for round in 0..3 {
        let made = clients[round].post("/auth/code").send().await.expect(201);
        let code = made["status"]["code"].as_str().unwrap();
        let bearers: Vec<Client> = clients.iter().map(|client| client.with_token(code)).collect();
        let redeemed = bearers.iter().map(|client| client.post("/auth/session").send());
        let replies = futures_util::future::join_all(redeemed).await;
        let begun: Vec<_> = replies.iter().filter(|reply| reply.status == 201).collect();
        let codes: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        assert!(
            begun.len() == 1 && codes.iter().all(|code| [201, 401].contains(code)),
            "{codes:?}"
        );
        let cookie = begun[0].header("set-cookie").unwrap().split_once(';').unwrap().0;
        for client in &clients {
            let request = client.get(&collection("selves/me")).without("authorization");
            let request = request.header("cookie", cookie).header("x-postern-console", "1");
            request.send().await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_key_that_ends_on_one_server_ends_on_all() {
    let etcd = Etcd::start().await;
    let servers = three(&etcd).await;
    let clients: Vec<Client> = servers.iter().map(Server::client).collect();
    let ada = user(&clients[0], "ada").await;
    let selves = collection("selves");
    let ask = async |client: &Client| {
        client.with_token(ada.token()).post(&selves).json(&json!({})).send().await.status
    };
    for client in &clients {
        assert_eq!(ask(client).await, 201);
    }
    set(&clients[2], &path("users", "ada"), json!({ "disabled": true })).await;
    for client in &clients {
        assert_eq!(ask(client).await, 401);
    }
}

#[tokio::test]
async fn servers_survive_the_loss_of_another_server_and_of_etcd() {
    let mut etcd = Etcd::start().await;
    let mut servers = three(&etcd).await;
    let last = servers.pop().unwrap();
    let home = last.home().clone();
    make(&last.client(), "users", "before", json!({})).await;
    last.kill();
    let client = servers[0].client();
    make(&client, "users", "after", json!({})).await;

    etcd.kill();
    let path = path("users", "after");
    let refused = client.get(&path).send().await;
    assert!([503, 504].contains(&refused.status), "{}", refused.text());
    let write = client.post(&secrets("platform")).json(&secret("lost", "x")).send().await;
    assert!([500, 503, 504].contains(&write.status), "{}", write.text());
    assert_ne!(client.get("/readyz").send().await.status, 200);
    client.get("/livez").send().await.expect_text(200);

    etcd.start_again().await;
    for server in &servers {
        wait::until("the server to serve again", async || {
            let reply = server.client().get(&path).try_send().await.ok()?;
            (reply.status == 200).then_some(())
        })
        .await;
        until_ready(server).await;
    }
    // The third one comes back, and has missed nothing.
    let third = on(Setup::on(&home), &etcd.store("/fleet")).start().await;
    third.client().get(&path).send().await.expect(200);
}

#[tokio::test]
async fn a_store_that_is_not_prepared_or_of_others_is_refused() {
    let etcd = Etcd::start().await;
    let fails = async |setup: Setup, store: &str| {
        let ended = on(setup, store).run_to_end().await;
        assert!(!ended.status.success());
        ended.stderr
    };
    let empty = Home::new();
    let store = etcd.store("/one");
    let unprepared = fails(Setup::on(&empty), &store).await;
    assert!(unprepared.contains("postern init"), "{unprepared}");
    let first = init(&store).await;
    // Without the keyring, and with the keyring of another fleet.
    let keyless = fails(Setup::on(&Home::new()), &store).await;
    assert!(keyless.contains("keyring") && keyless.contains("copy it"), "{keyless}");
    let other = init(&etcd.store("/two")).await;
    let foreign = fails(Setup::on(&other), &store).await;
    assert!(foreign.contains("keyring does not belong"), "{foreign}");
    let again = Home::new();
    let setup = Setup::bare(&again).argument("init").argument("--data-dir").argument(again.data());
    let twice = fails(setup, &store).await;
    assert!(twice.contains("keyring"), "{twice}");
    assert!(!again.data().join("keys/seal.keys").exists(), "nothing was made");
    let setup = Setup::bare(&first).argument("init").argument("--data-dir").argument(first.data());
    let prepared = fails(setup, &store).await;
    assert!(prepared.contains("prepared already"), "{prepared}");
    let plain = fails(Setup::on(&first), "etcd://192.0.2.1/one").await;
    assert!(plain.contains("--etcd-ca-file"), "{plain}");
    let wrong = fails(Setup::on(&first), "redis://localhost").await;
    assert!(wrong.contains("expected etcd://"), "{wrong}");
    // The administrator of the first fleet is still there.
    let server = on(Setup::on(&first), &store).start().await;
    let kubeconfig = Kubeconfig::read(&first.kubeconfig()).unwrap();
    Client::new(&kubeconfig).get("/readyz").send().await.expect_text(200);
    server.stop().await;
}

/// Runs `postern storage COMMAND` on the directory of a server. The result is the output.
pub(crate) async fn storage(home: &Home, command: &[&str]) -> Result<String, String> {
    let mut setup = Setup::bare(home).argument("storage");
    for argument in command {
        setup = setup.argument(argument);
    }
    let ended = setup.argument("--data-dir").argument(home.data()).run_to_end().await;
    if ended.status.success() { Ok(ended.stdout.trim().to_owned()) } else { Err(ended.stderr) }
}

fn port(client: &Client) -> String {
    client.address().rsplit(':').next().unwrap().to_owned()
}

/// Copies the keyring of one server to another, in one step.
pub(crate) fn copy_keyring(from: &Home, to: &Home) {
    let [from, to] = [from, to].map(|home| home.data().join("keys/seal.keys"));
    let new = to.with_extension("new");
    assert!(Command::new("cp").arg("-p").args([&from, &new]).status().unwrap().success());
    std::fs::rename(new, to).unwrap();
}

#[tokio::test]
async fn the_at_rest_key_changes_when_all_servers_have_the_new_one() {
    let etcd = Etcd::start().await;
    let servers = three(&etcd).await;
    let homes: Vec<Home> = servers.iter().map(|server| server.home().clone()).collect();
    let client = servers[0].client();
    client.post(&secrets("platform")).json(&secret("before", "x")).send().await.expect(201);
    let key = storage(&homes[0], &["rotate-key"]).await.unwrap();

    // Two servers lack it: nothing is encrypted with it, and a second rotation says which ones lack it.
    assert_eq!(storage(&homes[0], &["rewrap"]).await.unwrap(), "0");
    wait::until("the first server to know the others", async || {
        let again = storage(&homes[0], &["rotate-key"]).await.unwrap_err();
        let is_named = |server: &Server| again.contains(&format!(":{}", port(&server.client())));
        servers[1..].iter().all(is_named).then_some(())
    })
    .await;
    copy_keyring(&homes[0], &homes[1]);
    copy_keyring(&homes[0], &homes[2]);
    let rewrapped = wait::until("the key to become active", async || {
        let rewrapped = storage(&homes[1], &["rewrap"]).await.unwrap();
        (rewrapped != "0").then_some(rewrapped)
    })
    .await;
    assert!(rewrapped.parse::<u32>().unwrap() > 3);
    for server in &servers {
        let client = server.client();
        let read = client.get(&secret_path("before")).send().await.expect(200);
        assert_eq!(value_of(&read), "x");
        let name = format!("s{}", port(&client));
        client.post(&secrets("platform")).json(&secret(&name, "y")).send().await.expect(201);
    }
    assert_eq!(storage(&homes[2], &["rewrap"]).await.unwrap(), "0", "all servers use the new key");
    // History still needs the old key, and values the new one.
    let old = std::fs::read_to_string(homes[0].data().join("keys/seal.keys")).unwrap();
    let old = old.lines().find_map(|line| line.strip_prefix("key ")).unwrap();
    let old = old.split(' ').next().unwrap().to_owned();
    let needed = storage(&homes[0], &["drop-key", &old]).await.unwrap_err();
    assert!(needed.contains("need the at-rest key"), "{needed}");
    let current = storage(&homes[0], &["drop-key", &key]).await.unwrap_err();
    assert!(current.contains("is the current one"), "{current}");

    // A server that comes back with the old keyring does not start.
    let mut servers = servers;
    let last = servers.pop().unwrap();
    let home = last.home().clone();
    last.stop().await;
    let keyring = home.data().join("keys/seal.keys");
    let text = std::fs::read_to_string(&keyring).unwrap();
    let without = text.lines().filter(|line| !line.starts_with(&format!("key {key}")));
    let without = without.collect::<Vec<_>>().join("\n");
    std::fs::write(&keyring, without.replace(&format!("current {key}"), &format!("current {old}")))
        .unwrap();
    let refused = on(Setup::on(&home), &etcd.store("/fleet")).run_to_end().await;
    assert!(refused.stderr.contains("copy that of another server"), "{}", refused.stderr);
}

#[tokio::test]
async fn init_does_not_replace_the_kubeconfig_of_another_store() {
    let etcd = Etcd::start().await;
    let first = init(&etcd.store("/one")).await;
    let kubeconfig = std::fs::read_to_string(first.kubeconfig()).unwrap();
    let store = etcd.store("/two");
    let setup = Setup::bare(&first).argument("init").argument("--data-dir").argument(first.data());
    let refused = on(setup, &store).run_to_end().await;
    assert!(
        !refused.status.success() && refused.stderr.contains("move the file away"),
        "{}",
        refused.stderr
    );
    assert_eq!(std::fs::read_to_string(first.kubeconfig()).unwrap(), kubeconfig);
    // Nothing was written to the other store either: another machine can still prepare it.
    init(&store).await;
}

#[tokio::test]
async fn of_two_init_at_once_on_one_data_directory_one_prepares_its_store() {
    let etcd = Etcd::start().await;
    let stores = [etcd.store("/one"), etcd.store("/two")];
    let home = Home::new();
    let prepare = |store: &String| {
        let setup = Setup::bare(&home).argument("init").argument("--data-dir");
        on(setup.argument(home.data()), store).run_to_end()
    };
    let (one, two) = tokio::join!(prepare(&stores[0]), prepare(&stores[1]));
    assert!(one.status.success() != two.status.success(), "{}{}", one.stderr, two.stderr);
    let prepared = if one.status.success() { &stores[0] } else { &stores[1] };
    // The kubeconfig has the key of that store.
    let server = on(Setup::on(&home), prepared).start().await;
    server.client().get(&secrets("platform")).send().await.expect(200);
}

#[tokio::test]
async fn each_server_writes_its_name_into_its_audit_log_and_divides_the_limits() {
    let etcd = Etcd::start().await;
    let servers = three(&etcd).await;
    let mut names = std::collections::BTreeSet::new();
    for server in &servers {
        server.client().get(&secrets("platform")).send().await.expect(200);
        // A third of 1000, rounded up.
        wait::until("the limits to be divided by three", async || {
            let metrics = server.client().get("/metrics").send().await.expect_text(200);
            metrics.lines().any(|line| line == "postern_owner_watches_limit 334").then_some(())
        })
        .await;
        // Records of reads are written a moment later.
        let record = wait::until("a record", async || server.home().records().pop()).await;
        let name = record["annotations"]["platform.sh/server"].as_str().unwrap().to_owned();
        assert!(name.ends_with(&format!(":{}", port(&server.client()))), "{name}");
        names.insert(name);
    }
    assert_eq!(names.len(), 3);
}

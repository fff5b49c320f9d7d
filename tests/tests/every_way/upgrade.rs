//! Servers on one store are replaced one after the other by servers of this commit, and back:
//! versions that follow each other work together.

use std::path::{Path, PathBuf};
use std::process::Command;

use postern_tests::etcd::Etcd;
use postern_tests::http::Client;
use postern_tests::objects::{secret, secret_path, secrets, value_of};
use postern_tests::watching::Watch;
use postern_tests::{Home, Server, Setup, binary};

use crate::tunnels::previous;

const SERVERS: usize = 3;

fn on(setup: Setup, store: &str) -> Setup {
    setup.argument("--store").argument(store).argument("--allow-old-etcd")
}

/// A server of this program in a directory.
async fn start(program: &Path, home: &Home, store: &str) -> Server {
    on(Setup::on(home), store).program(program.to_owned()).start().await
}

/// Checks that all servers read each server's writes, and that an open watch of each has seen them.
async fn work_together(servers: &[Server], watches: &mut [Watch], round: usize) {
    let clients: Vec<Client> = servers.iter().map(Server::client).collect();
    for (number, writer) in clients.iter().enumerate() {
        let name = format!("s{round}-{number}");
        let made = writer.post(&secrets("platform")).json(&secret(&name, &name)).send().await;
        made.expect(201);
        for reader in &clients {
            let read = reader.get(&secret_path(&name)).send().await.expect(200);
            assert_eq!(value_of(&read), name);
        }
        for watch in &mut *watches {
            assert_eq!(watch.summaries(1).await, [format!("ADDED {name}")]);
        }
    }
}

async fn watch(server: &Server, from: &str) -> Watch {
    let from = format!("&resourceVersion={from}");
    server.client().watch(&secrets("platform"), &from).await
}

/// The version of the collection, from which a watch goes on.
async fn version(server: &Server) -> String {
    let list = server.client().get(&secrets("platform")).send().await.expect(200);
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn servers_are_replaced_one_after_the_other_and_back() {
    let (etcd, old, new) = (Etcd::start().await, previous(), PathBuf::from(binary::path()));
    let store = etcd.store("/upgrade");
    let first = Home::new();
    let setup = Setup::bare(&first).program(old.clone()).argument("init").argument("--data-dir");
    let ended = on(setup.argument(first.data()), &store).run_to_end().await;
    assert!(ended.status.success(), "{}", ended.stderr);
    let mut homes = vec![first];
    while homes.len() < SERVERS {
        let home = Home::new();
        let copied = Command::new("cp").arg("-a").args([homes[0].data(), home.data()]).status();
        assert!(copied.unwrap().success());
        homes.push(home);
    }
    let (mut servers, mut watches) = (Vec::new(), Vec::new());
    for home in &homes {
        servers.push(start(&old, home, &store).await);
    }
    for server in &servers {
        watches.push(watch(server, "0").await);
    }
    work_together(&servers, &mut watches, 0).await;
    for (step, program) in [&new, &old].into_iter().enumerate() {
        for (number, home) in homes.iter().enumerate() {
            let from = version(&servers[number]).await;
            servers.remove(number).stop().await;
            servers.insert(number, start(program, home, &store).await);
            // A client goes on where it was, on the server of the other version.
            watches[number] = watch(&servers[number], &from).await;
            work_together(&servers, &mut watches, 1 + step * SERVERS + number).await;
        }
    }
    for server in servers {
        server.stop().await;
    }
}

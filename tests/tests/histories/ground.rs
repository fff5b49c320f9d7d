//! Three servers on an etcd with three members, and the network between all of them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use postern_tests::etcd_cluster::{EtcdCluster, MEMBERS, member_name};
use postern_tests::links::{From, Links};
use postern_tests::objects::{create, secret, secrets};
use postern_tests::rights::{rbac, role, rule_on, user};
use postern_tests::{Home, Server, Setup, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::checker::GUARDED;
use super::clients::{Addresses, NAMESPACE, ROLE};
use super::history::{Action, Operation, Outcome, Recorder};
use super::workload::{USERS, user_name};
use crate::fleet::{copy_of, init, on};

/// The servers of a fleet.
pub(crate) const SERVERS: usize = 3;

/// How a fleet is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The value of `--history`.
    pub(crate) history: &'static str,
    /// The most bytes that etcd stores.
    pub(crate) quota_bytes: Option<u64>,
}

/// A fleet that runs.
pub(crate) struct Fleet {
    pub(crate) etcd: EtcdCluster,
    pub(crate) links: Links,
    pub(crate) addresses: Arc<Addresses>,
    /// The keys of the users.
    pub(crate) keys: Vec<String>,
    replicas: Vec<Replica>,
    options: Options,
}

struct Replica {
    home: Home,
    /// The server; `None` while it is down.
    server: Option<Server>,
    /// Its way to each member of etcd.
    store: String,
}

/// The name of a server in the network.
pub(crate) fn server_name(number: usize) -> String {
    format!("s{number}")
}

impl Fleet {
    pub(crate) async fn start(options: Options) -> Self {
        let links = Links::default();
        let quota = options.quota_bytes.map(|bytes| format!("--quota-backend-bytes={bytes}"));
        let extra: Vec<&str> = quota.iter().map(String::as_str).collect();
        let etcd = EtcdCluster::start(&links, &extra).await;
        let first = init(&format!("etcd://127.0.0.1:{}/fleet", etcd.client_port(0))).await;
        let homes = [copy_of(&first), copy_of(&first), first];
        let mut replicas = Vec::new();
        for (number, home) in homes.into_iter().enumerate() {
            let store = store_of(&etcd, &links, number).await;
            replicas.push(Replica { home, server: None, store });
        }
        let addresses = Arc::new(Addresses::new(SERVERS));
        let mut fleet = Self { etcd, links, addresses, keys: Vec::new(), replicas, options };
        for number in 0..SERVERS {
            fleet.start_server(number).await;
        }
        fleet
    }

    /// Makes the guarded object, its readers' role and the users.
    pub(crate) async fn prepare(&mut self, recorder: &Recorder) {
        let admin = self.addresses.of(0).expect("the server runs");
        let rules = json!([rule_on("sharedsecrets", &[GUARDED], &["get"])]);
        let made =
            admin.post(&rbac(Some(NAMESPACE), "role")).json(&role(ROLE, &rules)).send().await;
        made.expect(201);
        for number in 0..USERS {
            self.keys.push(user(&admin, &user_name(number)).await.token().to_owned());
        }
        let (invoked, value) = (recorder.now(), "first".to_owned());
        let made = create(&admin, &secrets(NAMESPACE), GUARDED, secret(GUARDED, &value)).await;
        recorder.operation(Operation {
            client: "preparation".to_owned(),
            server: 0,
            invoked,
            completed: recorder.now(),
            action: Action::Create { name: GUARDED.to_owned(), value },
            outcome: Outcome::Written(postern_tests::objects::version_of(&made)),
        });
    }

    /// Starts a server that is down, and waits until it is ready.
    pub(crate) async fn start_server(&mut self, number: usize) {
        let replica = &mut self.replicas[number];
        let mut setup = on(Setup::on(&replica.home), &replica.store);
        if let Some(library) = clock_library() {
            set_clock(&replica.home, 0);
            setup = setup
                .environment("LD_PRELOAD", library)
                .environment("FAKETIME_TIMESTAMP_FILE", clock_file(&replica.home))
                .environment("FAKETIME_NO_CACHE", "1")
                .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let server = setup.argument("--history").argument(self.options.history).start().await;
        self.addresses.set(number, Some(server.client()));
        replica.server = Some(server);
    }

    /// Ends a server without notice.
    pub(crate) fn kill_server(&mut self, number: usize) {
        self.addresses.set(number, None);
        if let Some(server) = self.replicas[number].server.take() {
            server.kill();
        }
    }

    /// Stops the clock of a server's process, or lets it go on.
    pub(crate) fn signal(&self, number: usize, signal: Signal) {
        let server = self.replicas[number].server.as_ref().expect("the server runs");
        let id = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
        kill_process(id, signal).unwrap();
    }

    /// The directory of a server.
    pub(crate) fn home(&self, number: usize) -> &Home {
        &self.replicas[number].home
    }

    /// Sets the clock of a server this many seconds ahead, or behind. It needs [`clock_library`].
    pub(crate) fn step_clock(&self, number: usize, seconds: i64) {
        set_clock(&self.replicas[number].home, seconds);
    }

    /// Sets the links between a server and all members of etcd.
    pub(crate) fn set_links(&self, server: usize, link: postern_tests::links::Link) {
        for member in 0..MEMBERS {
            self.links.set(&server_name(server), &member_name(member), link);
        }
    }

    /// Waits until all is well: each server reads and is ready.
    pub(crate) async fn wait_until_well(&mut self) {
        self.etcd.ready().await;
        for number in 0..SERVERS {
            let client = self.addresses.of(number).expect("the server runs");
            for path in ["/readyz".to_owned(), postern_tests::objects::secret_path(GUARDED)] {
                wait::until(&format!("server {number} to answer again"), async || {
                    let reply = client.get(&path).try_send().await.ok()?;
                    (reply.status == 200).then_some(())
                })
                .await;
            }
        }
    }

    /// The logs of all servers, for a failure.
    pub(crate) fn logs(&self) -> String {
        let log =
            |(number, one): (usize, &Replica)| format!("== server {number}\n{}", one.home.logged());
        self.replicas.iter().enumerate().map(log).collect::<Vec<_>>().join("\n")
    }
}

/// The library that `POSTERN_TEST_FAKETIME` names, with which the clock of one process can be set: Debian's libfaketimeMT.
pub(crate) fn clock_library() -> Option<OsString> {
    std::env::var_os("POSTERN_TEST_FAKETIME")
}

fn clock_file(home: &Home) -> PathBuf {
    home.path().join("clock")
}

fn set_clock(home: &Home, seconds: i64) {
    let new = home.path().join("new-clock");
    std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
    // The process reads the file at each look at the clock.
    std::fs::rename(new, clock_file(home)).unwrap();
}

/// The address of the store for a server: its own proxies to the members.
async fn store_of(etcd: &EtcdCluster, links: &Links, server: usize) -> String {
    let mut members = Vec::new();
    for member in 0..MEMBERS {
        // Each server has another member first.
        let member = (member + server) % MEMBERS;
        let from = From::Party(server_name(server));
        let port = links.proxy(from, &member_name(member), etcd.client_port(member)).await;
        members.push(format!("127.0.0.1:{port}"));
    }
    format!("etcd://{}/fleet", members.join(","))
}

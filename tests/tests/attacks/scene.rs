//! Where an attack takes place: a server, its administrator, and ordinary users.

use std::net::{IpAddr, Ipv4Addr};

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use postern_tests::http::{Client, Lines};
use postern_tests::objects::{collection, make};
use postern_tests::{Home, Server, Setup, binary};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use postern_tests::Form;

/// The address of attackers.
pub(crate) const ATTACKERS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The address of all other clients.
pub(crate) const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The access keys, as a resource: the one kind that an ordinary user may write.
pub(crate) const KEYS: &str = "ownedaccesskeys";

/// A server under attack.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) form: Form,
    /// The administrator, over HTTP/1.1.
    pub(crate) admin: Client,
}

impl Scene {
    /// Starts a server with these arguments, and the usual ones.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::started_by(Setup::on(&Home::new()), arguments).await
    }

    /// Starts a server that may have so many file descriptors open.
    pub(crate) async fn with_descriptors(descriptors: usize) -> Self {
        let home = Home::new();
        let script = limiting_script(&home, descriptors);
        Self::started_by(Setup::on(&home).program(script), &[]).await
    }

    async fn started_by(mut setup: Setup, arguments: &[&str]) -> Self {
        for argument in arguments {
            setup = setup.argument(argument);
        }
        let server = setup.start().await;
        // Thousands of connections take as many descriptors here as there.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
            .expect("a limit can be raised to its maximum");
        let admin = server.client().from_address(OTHERS);
        Self { server, form: Form::of_figures(), admin }
    }

    /// Makes an ordinary user with an access key `NAME-key`. Returns the key's value.
    pub(crate) async fn user(&self, name: &str) -> String {
        make(&self.admin, "users", name, json!({})).await;
        let key = make(&self.admin, KEYS, &format!("{name}-key"), json!({ "user": name })).await;
        key["spec"]["key"].as_str().expect("a new key is returned once").to_owned()
    }

    /// How long an attack lasts that does nothing but load the server.
    pub(crate) fn lasting(&self) -> Duration {
        self.form.pick(Duration::from_secs(2), Duration::from_secs(12))
    }

    /// The duration of an attack that waits for the server to close its connections. It is longer
    /// than the half minute that the server allows.
    pub(crate) fn holding(&self) -> Duration {
        self.form.pick(Duration::from_secs(4), Duration::from_secs(45))
    }

    /// A client of an attacker over HTTP/1.1.
    pub(crate) fn attacker(&self, token: &str) -> Client {
        self.server.client().from_address(ATTACKERS).with_token(token)
    }

    /// The same over HTTP/2.
    pub(crate) fn attacker_http2(&self, token: &str) -> Client {
        Client::http2(self.server.kubeconfig()).from_address(ATTACKERS).with_token(token)
    }

    /// A client of another user over HTTP/1.1.
    pub(crate) fn other(&self, token: &str) -> Client {
        self.admin.with_token(token)
    }

    /// Makes many keys of an ordinary user, as large as keys may be.
    pub(crate) async fn large_keys(&self, owner: &str, count: usize) {
        let mut makers = JoinSet::new();
        for maker in 0..MAKERS {
            let (admin, owner) = (self.admin.clone(), owner.to_owned());
            makers.spawn(async move {
                let mut connection = admin.connect().await.expect("a connection");
                for number in (maker..count).step_by(MAKERS) {
                    let key = large_key(&owner, &format!("{owner}-{number}"));
                    let request = admin.post(&collection(KEYS)).json(&key);
                    let reply = request.try_send_on(&mut connection).await.expect("an answer");
                    reply.expect(201);
                }
            });
        }
        makers.join_all().await;
    }

    /// The most memory that the server has had so far, in MB, as `/proc` says.
    pub(crate) fn peak_memory_mb(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// The memory that the server has now, in MB, as `/proc` says.
    pub(crate) fn memory_mb(&self) -> u64 {
        self.memory("VmRSS:")
    }

    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id()));
        let status = status.expect("the server is alive");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.expect("the kernel says how much memory it had") * 1024 / 1_000_000
    }

    /// Opens watches of one access key on few connections until one is refused with 429, and returns
    /// all that were opened. `None` if so many were opened and none was refused.
    pub(crate) async fn watches(&self, token: &str, most: usize) -> Option<Vec<Lines>> {
        let client = self.attacker_http2(token);
        let path = format!("{}?watch=true", collection(KEYS));
        let mut watches = Vec::new();
        let mut connection = None;
        while watches.len() < most {
            let open = match connection.take() {
                Some(open) if watches.len() % STREAMS != 0 => open,
                _ => client.connect().await.expect("a connection for watches"),
            };
            match client.get(&path).try_stream_on(open.shared()).await {
                Ok(watch) => watches.push(watch),
                Err(error) if error.starts_with("429") => return Some(watches),
                Err(error) => panic!("watch {}: {error}", watches.len() + 1),
            }
            connection = Some(open);
        }
        None
    }
}

/// Connections over which large keys are made.
const MAKERS: usize = 8;

/// Watches on each connection.
const STREAMS: usize = 50;

/// Bytes of a large key's annotation: with all else, the key is below 64 KiB.
const LARGE_BYTES: usize = 56 * 1024;

/// Writes a script that lowers its limit of file descriptors and becomes the server.
fn limiting_script(home: &Home, descriptors: usize) -> PathBuf {
    let path = home.path().join("with-few-descriptors");
    let program = binary::path().display();
    let script = format!("#!/bin/sh\nulimit -n {descriptors}\nexec '{program}' \"$@\"\n");
    std::fs::write(&path, script).expect("the script can be written");
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&path, mode).expect("the script can be made executable");
    path
}

/// The path of an access key.
pub(crate) fn key_path(name: &str) -> String {
    format!("{}/{name}", collection(KEYS))
}

/// An access key of an owner, as a body.
pub(crate) fn key_of(owner: &str, name: &str) -> Value {
    json!({
        "apiVersion": "management.platform.sh/v1",
        "kind": "OwnedAccessKey",
        "metadata": { "name": name },
        "spec": { "user": owner },
    })
}

/// The same, nearly as large as a key may be.
pub(crate) fn large_key(owner: &str, name: &str) -> Value {
    let mut key = key_of(owner, name);
    key["metadata"]["annotations"] = json!({ "x": "x".repeat(LARGE_BYTES) });
    key
}

/// Waits: an attack that lasts, or a quiet time that is measured.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

//! An etcd with three members on loopback. Tests can kill a member, or cut its links.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::etcd::Etcd;
use crate::etcd_gateway::post;
use crate::links::{From, Links};
use crate::{Home, wait};

/// The members of a cluster.
pub const MEMBERS: usize = 3;

/// An etcd with three members. Dropping it ends it.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    links: Links,
    home: Home,
    options: Vec<String>,
}

#[derive(Debug)]
struct Member {
    child: Option<Child>,
    client_port: u16,
    peer_port: u16,
    /// The proxy that the other members use.
    proxy_port: u16,
}

/// The name of a member in the network.
#[must_use]
pub fn member_name(number: usize) -> String {
    format!("e{number}")
}

impl EtcdCluster {
    /// Starts three members with more options of etcd, and waits until they have a leader. The links between them are
    /// in the network.
    pub async fn start(links: &Links, options: &[&str]) -> Self {
        let mut members = Vec::new();
        // The ports are free until etcd takes them.
        let ports: Vec<_> =
            (0..MEMBERS * 2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |number: usize| ports[number].local_addr().unwrap().port();
        for number in 0..MEMBERS {
            let (client_port, peer_port) = (port(number * 2), port(number * 2 + 1));
            let proxy_port = links.proxy(From::Process, &member_name(number), peer_port).await;
            members.push(Member { child: None, client_port, peer_port, proxy_port });
        }
        drop(ports);
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut cluster = Self { members, links: links.clone(), home: Home::new(), options };
        for number in 0..MEMBERS {
            cluster.start_member(number);
        }
        cluster.ready().await;
        cluster
    }

    /// Waits until each member that runs has a leader, and answers linearizable reads.
    pub async fn ready(&mut self) {
        for number in 0..MEMBERS {
            if self.members[number].child.is_some() {
                wait::until("a member of etcd to have a leader", async || {
                    let range = json!({ "key": STANDARD.encode("/none") });
                    self.call(number, "kv/range", &range).await.ok()
                })
                .await;
            }
        }
    }

    /// The port of a member for clients.
    #[must_use]
    pub fn client_port(&self, number: usize) -> u16 {
        self.members[number].client_port
    }

    /// The process of a member, if it runs.
    #[must_use]
    pub fn process(&self, number: usize) -> Option<u32> {
        self.members[number].child.as_ref().map(Child::id)
    }

    /// Whether a member runs.
    #[must_use]
    pub fn is_running(&self, number: usize) -> bool {
        self.members[number].child.is_some()
    }

    /// Ends a member without notice.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.members[number].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts a member, again on the same data and ports.
    pub fn start_member(&mut self, number: usize) {
        let child = self.spawn(number);
        self.links.set_process(&member_name(number), child.id());
        self.members[number].child = Some(child);
    }

    /// The number of the leader, if a member knows it.
    pub async fn leader(&self) -> Option<usize> {
        for number in 0..MEMBERS {
            let Ok(status) = self.call(number, "maintenance/status", &json!({})).await else {
                continue;
            };
            if status["leader"].is_string() && status["leader"] == status["header"]["member_id"] {
                return Some(number);
            }
        }
        None
    }

    /// Calls a method of etcd's JSON gateway at a member.
    ///
    /// # Errors
    /// The error message of etcd or of the connection.
    pub async fn call(&self, number: usize, method: &str, body: &Value) -> Result<Value, String> {
        let call =
            post(self.members[number].client_port, format!("/v3/{method}"), body.to_string());
        wait::within("an answer of etcd", call).await
    }

    /// The revision of etcd, from a member that answers.
    pub async fn revision(&self) -> u64 {
        let range = json!({ "key": STANDARD.encode("/none") });
        let answer = self.call_any("kv/range", &range).await;
        let revision = answer["header"]["revision"].as_str().expect("an answer has a revision");
        revision.parse().unwrap()
    }

    /// Calls a method at the first member that responds.
    pub async fn call_any(&self, method: &str, body: &Value) -> Value {
        wait::until("a member of etcd to answer", async || {
            for number in 0..MEMBERS {
                if let Ok(answer) = self.call(number, method, body).await {
                    return Some(answer);
                }
            }
            None
        })
        .await
    }

    /// Removes the history before a revision.
    pub async fn compact(&self, revision: u64) {
        // The call fails if the server has compacted as far, which is as good.
        let body = json!({ "revision": revision.to_string() });
        for number in 0..MEMBERS {
            if self.call(number, "kv/compaction", &body).await.is_ok() {
                return;
            }
        }
    }

    /// Saves the state. All members are killed for it, and started again.
    pub async fn save(&mut self) {
        self.exchange("saved", |data, saved| {
            drop(std::fs::remove_dir_all(saved));
            copy(data, saved);
        })
        .await;
    }

    /// Goes back to the state that was saved. All members are killed for it, and started again.
    pub async fn restore(&mut self) {
        self.exchange("saved", |data, saved| {
            std::fs::remove_dir_all(data).unwrap();
            copy(saved, data);
        })
        .await;
    }

    async fn exchange(&mut self, name: &str, with: impl Fn(&std::path::Path, &std::path::Path)) {
        for number in 0..MEMBERS {
            self.kill(number);
        }
        for number in 0..MEMBERS {
            let saved = self.home.path().join(format!("{name}-{number}"));
            with(&self.data(number), &saved);
        }
        for number in 0..MEMBERS {
            self.start_member(number);
        }
        self.ready().await;
    }

    fn data(&self, number: usize) -> PathBuf {
        self.home.path().join(member_name(number))
    }

    fn spawn(&self, number: usize) -> Child {
        let member = &self.members[number];
        let log = self.home.path().join(format!("{}.log", member_name(number)));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<String> = (0..MEMBERS)
            .map(|number| {
                format!("{}={}", member_name(number), url(self.members[number].proxy_port))
            })
            .collect();
        Command::new(Etcd::program())
            .args(["--name", &member_name(number), "--data-dir"])
            .arg(self.data(number))
            .args(["--listen-client-urls", &url(member.client_port)])
            .args(["--advertise-client-urls", &url(member.client_port)])
            .args(["--listen-peer-urls", &url(member.peer_port)])
            .args(["--initial-advertise-peer-urls", &url(member.proxy_port)])
            .args(["--initial-cluster", &cluster.join(","), "--unsafe-no-fsync"])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd can be started")
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Fails if it has exited already, which is fine.
            if let Some(child) = &mut member.child
                && child.kill().is_ok()
            {
                drop(child.wait());
            }
        }
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

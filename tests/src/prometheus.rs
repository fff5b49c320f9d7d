//! Prometheus on loopback, with the alerts of `deploy/alerts`. It reads the metrics of servers and agents, and says which
//! alerts fire. Its rules have no waiting times.
//!
//! `cargo xtask fetch --all` brings it. Without it, a test goes on without it and says so; in the full form it fails.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kubectl::repository;
use crate::{Agent, Form, Home, Kubeconfig, wait};

/// How often metrics are read; a read may take as long.
const SCRAPE_INTERVAL: &str = "1s";

/// How often rules are evaluated.
const RULE_INTERVAL: &str = "200ms";

/// The path of a program of Prometheus's package; `None` where it was not fetched, unless this is the full form.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let path = repository().join(".cache/prometheus/usr/bin").join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(
        Form::of_this_run() == Form::Short,
        "there is no {name}: `cargo xtask fetch --all` brings it"
    );
    eprintln!("skipped what needs {name}: `cargo xtask fetch --all` brings it");
    None
}

/// The body of a GET without TLS, as text. Panics without a response of 200.
pub async fn plain_get(address: &str, path: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        std::io::Result::Ok(response)
    };
    let response = wait::within("a response without TLS", exchange).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.lines().next().unwrap_or_default();
    assert!(status.contains(" 200 "), "{address}{path}: {status}: {body}");
    body.to_owned()
}

/// Prometheus. Dropping it ends it.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    log: PathBuf,
    address: String,
}

impl Prometheus {
    /// Starts it with its files in a directory of the home, if it was fetched. It reads the metrics of a server with the
    /// credential of the kubeconfig, and those of an agent. Waits until it has read them, so that later changes count.
    pub async fn start(home: &Home, server: &Kubeconfig, agent: Option<&Agent>) -> Option<Self> {
        let program = program("prometheus")?;
        let directory = home.path().join("prometheus");
        std::fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
        write("ca.pem", std::str::from_utf8(&server.authority).unwrap());
        write("token", &server.token);
        write("rules.yaml", &without_waits(&rules()));
        write("prometheus.yml", &configuration(server, agent));
        let log = directory.join("log");
        let child = Command::new(program)
            .current_dir(&directory)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("Prometheus can be started");
        let mut prometheus = Self { child, log, address: String::new() };
        prometheus.address = wait::until("Prometheus to listen", async || {
            let log = prometheus.logged();
            let (_, rest) = log.split_once("msg=\"Listening on\" address=")?;
            Some(rest.split_once('\n')?.0.trim().to_owned())
        })
        .await;
        let targets = 1 + usize::from(agent.is_some());
        wait::until("Prometheus to read the metrics", async || {
            if let Some(status) = prometheus.child.try_wait().unwrap() {
                panic!("Prometheus ended with {status}: {}", prometheus.logged());
            }
            if !prometheus.logged().contains("Server is ready to receive web requests") {
                return None;
            }
            let up = prometheus.get("/api/v1/query?query=up==1").await;
            let up = up["data"]["result"].as_array().map_or(0, Vec::len);
            (up == targets).then_some(())
        })
        .await;
        Some(prometheus)
    }

    async fn get(&self, path: &str) -> Value {
        serde_json::from_str(&plain_get(&self.address, path).await).expect("JSON")
    }

    /// The alerts that fire now.
    pub async fn firing(&self) -> BTreeSet<String> {
        let answer = self.get("/api/v1/alerts").await;
        let alerts = answer["data"]["alerts"].as_array().expect("alerts");
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until an alert fires.
    pub async fn until_firing(&self, alert: &str) {
        wait::until(&format!("{alert} to fire"), async || {
            self.firing().await.contains(alert).then_some(())
        })
        .await;
    }

    /// Waits until an alert does not fire any more.
    pub async fn until_quiet(&self, alert: &str) {
        wait::until(&format!("{alert} to end"), async || {
            (!self.firing().await.contains(alert)).then_some(())
        })
        .await;
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// The alerts of the repository.
#[must_use]
pub fn rules() -> String {
    std::fs::read_to_string(repository().join("deploy/alerts/postern.yaml")).unwrap()
}

/// The rules, which fire at once.
fn without_waits(rules: &str) -> String {
    let is_wait = |line: &&str| !line.trim_start().starts_with("for: ");
    let lines = rules.lines().filter(is_wait);
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn configuration(server: &Kubeconfig, agent: Option<&Agent>) -> String {
    let mut text = format!(
        "global:
  scrape_interval: {SCRAPE_INTERVAL}
  scrape_timeout: {SCRAPE_INTERVAL}
  evaluation_interval: {RULE_INTERVAL}
rule_files: [rules.yaml]
scrape_configs:
- job_name: postern
  scheme: https
  authorization: {{ credentials_file: token }}
  tls_config: {{ ca_file: ca.pem }}
  static_configs: [{{ targets: ['{}'] }}]
",
        server.authority_of_server()
    );
    if let Some(agent) = agent {
        let address = agent.metrics_address();
        let _ = write!(
            text,
            "- job_name: postern-agent\n  static_configs: [{{ targets: ['{address}'] }}]\n"
        );
    }
    text
}

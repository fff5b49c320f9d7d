//! `OpenBao`, in its fastest setup that is still durable: raft storage on the disk, TLS, no audit,
//! no leases, the key-value engine without versions.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Bench;
use super::server::{Server, directory, free_port, spawn};
use crate::{fetch, shell};

const READY_TIMEOUT: Duration = Duration::from_secs(30);

impl Bench {
    /// Starts a new server, unsealed, with an empty key-value engine at `kv`.
    pub(crate) fn start_openbao(&self) -> Result<Server> {
        let bao = fetch::openbao(&self.root)?;
        let dir = directory()?;
        std::fs::create_dir(dir.path().join("raft"))?;
        self.make_certificate(dir.path())?;
        let port = free_port()?;
        let configuration = configuration(dir.path(), port, free_port()?);
        std::fs::write(dir.path().join("config.hcl"), configuration)?;
        let mut command = Command::new(&bao);
        command.env("HOME", dir.path()).args(["server", "-log-level=warn", "-config"]);
        let child = spawn(command.arg(dir.path().join("config.hcl")), &dir)?;
        let mut server = Server::new("openbao", child, dir);
        let base = format!("https://127.0.0.1:{port}");
        let client = Client { bao: &bao, base: &base, dir: server.dir.path().to_owned() };
        client.prepare(self)?;
        let file = |name| server.path(name).to_string_lossy().into_owned();
        let (ca, token) = (file("ca.pem"), file("token"));
        let header = "x-vault-token";
        let words =
            ["--base", &base, "--ca", &ca, "--token-file", &token, "--token-header", header];
        server.access = words.map(str::to_owned).to_vec();
        server.collection = String::from("/v1/kv");
        server.check()?;
        Ok(server)
    }
}

fn configuration(dir: &Path, port: u16, cluster_port: u16) -> String {
    let dir = dir.display();
    format!(
        r#"disable_mlock = true
api_addr = "https://127.0.0.1:{port}"
cluster_addr = "https://127.0.0.1:{cluster_port}"
storage "raft" {{
  path = "{dir}/raft"
  node_id = "bench"
}}
listener "tcp" {{
  address = "127.0.0.1:{port}"
  cluster_address = "127.0.0.1:{cluster_port}"
  tls_cert_file = "{dir}/ca.pem"
  tls_key_file = "{dir}/key.pem"
  tls_min_version = "tls13"
}}
"#
    )
}

/// `OpenBao`'s own client, for the setup.
struct Client<'a> {
    bao: &'a Path,
    base: &'a str,
    dir: std::path::PathBuf,
}

impl Client<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.bao);
        command
            .env("BAO_ADDR", self.base)
            .env("BAO_CACERT", self.dir.join("ca.pem"))
            .env("HOME", &self.dir)
            .args(words);
        command
    }

    /// Initialises, unseals, and makes the key-value engine. The root token is written to a file
    /// in the server's directory, which is removed with the server.
    fn prepare(&self, bench: &Bench) -> Result<()> {
        let words = ["operator", "init", "-key-shares=1", "-key-threshold=1", "-format=json"];
        let mut output = String::new();
        bench.stop.wait_for("openbao did not start", READY_TIMEOUT, || {
            output = shell::output_of(&mut self.command(&words)).unwrap_or_default();
            Ok(!output.is_empty())
        })?;
        let output: Value = serde_json::from_str(&output)?;
        let key = output["unseal_keys_b64"][0].as_str().context("openbao printed no key")?;
        let token = output["root_token"].as_str().context("openbao printed no token")?;
        std::fs::write(self.dir.join("token"), token)?;
        self.command(&["operator", "unseal", key]).output()?;
        bench.stop.wait_for("openbao did not unseal", READY_TIMEOUT, || {
            let enable = ["secrets", "enable", "-path=kv", "-version=1", "kv"];
            let done = self.command(&enable).env("BAO_TOKEN", token).output()?;
            Ok(done.status.success())
        })
    }
}

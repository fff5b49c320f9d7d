//! A cluster with one pod, which speaks the protocols of exec, attach, cp and port-forward over
//! SPDY and over WebSocket. It is a script of `tests/python`, and reports its state to the tests.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Home, Kubeconfig, SelfSigned, python, wait};

/// The credential that the cluster accepts.
const TOKEN: &str = "credential-of-the-pods-cluster";

/// The cluster. Dropping it ends it.
#[derive(Debug)]
pub struct Pod {
    child: Child,
    directory: PathBuf,
    port: u16,
}

impl Pod {
    /// Starts it, with its files in a directory of the home.
    pub async fn start(home: &Home) -> Self {
        Self::start_by(home, &python::program()).await
    }

    /// The same, by another program than Python, which has the same arguments.
    pub async fn start_by(home: &Home, python: &Path) -> Self {
        let directory = home.path().join("pod");
        std::fs::create_dir_all(directory.join("files")).unwrap();
        SelfSigned::make().write(&directory);
        let output = |name: &str| File::create(directory.join(name)).unwrap();
        let child = Command::new(python)
            .arg(python::script("pod.py"))
            .args([directory.join("ca.pem"), directory.join("key.pem")])
            .arg(TOKEN)
            .arg(directory.join("files"))
            // The script imports other scripts of that directory, and must leave nothing there.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .spawn()
            .expect("python can be started");
        let mut pod = Self { child, directory, port: 0 };
        pod.port = wait::until("the pod's cluster to listen", async || {
            if let Some(status) = pod.child.try_wait().unwrap() {
                let errors = pod.read("stderr");
                panic!("the pod's cluster ended with {status}: {errors}");
            }
            pod.read("stdout").split_once('\n')?.0.parse().ok()
        })
        .await;
        pod
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }

    /// The port of its API.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The working directory of commands that are executed in the pod.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.directory.join("files")
    }

    /// A line for each upgraded connection so far, with the request and the protocol.
    #[must_use]
    pub fn upgrades(&self) -> Vec<String> {
        self.read("stdout").lines().skip(1).map(str::to_owned).collect()
    }

    /// Writes the kubeconfig of its administrator, and returns the path.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        let kubeconfig = Kubeconfig {
            server: format!("https://127.0.0.1:{}", self.port),
            authority: std::fs::read(self.directory.join("ca.pem")).unwrap(),
            token: TOKEN.to_owned(),
            namespace: "default".to_owned(),
        };
        kubeconfig.write(&self.directory.join("kubeconfig"))
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            eprintln!("what the pod's cluster said:\n{}", self.read("stderr"));
        }
    }
}

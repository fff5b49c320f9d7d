//! Starting the agent of a connected cluster, waiting until it listens, and stopping it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::http::Client;
use crate::{Home, Kubeconfig, binary, wait};

/// How an agent is started.
#[derive(Debug, Clone)]
pub struct AgentSetup {
    home: Home,
    cluster: String,
    /// The options that name the trusted central server: an authority file or a digest.
    trust: Vec<OsString>,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    program: Option<PathBuf>,
    own_directory: Option<PathBuf>,
}

impl AgentSetup {
    /// An agent of a cluster of this central server, with its access key, in front of the upstream of a
    /// kubeconfig, on a free port. Its files are in a directory of the home, named for the cluster.
    #[must_use]
    pub fn new(
        home: &Home,
        central: &Kubeconfig,
        cluster: &str,
        key: &str,
        upstream: &Path,
    ) -> Self {
        let directory = home.path().join(format!("agent-{cluster}"));
        std::fs::create_dir_all(&directory).unwrap();
        let (authority, key_file) = (directory.join("central-ca.pem"), directory.join("key"));
        std::fs::write(&authority, &central.authority).unwrap();
        std::fs::write(&key_file, format!("{key}\n")).unwrap();
        let setup = Self {
            home: home.clone(),
            cluster: cluster.to_owned(),
            trust: vec!["--ca-file".into(), authority.into()],
            arguments: Vec::new(),
            environment: Vec::new(),
            program: None,
            own_directory: None,
        };
        setup
            .argument(format!("--server=https://{}", central.authority_of_server()))
            .argument(format!("--cluster={cluster}"))
            .argument("--key-file")
            .argument(key_file)
            .argument("--upstream")
            .argument(upstream)
            .argument("--state-dir")
            .argument(directory.join("state"))
            .argument("--listen=127.0.0.1:0")
            .argument("--drain-timeout=1s")
    }

    /// Another program in the place of the binary under test.
    #[must_use]
    pub fn program(mut self, program: PathBuf) -> Self {
        self.program = Some(program);
        self
    }

    /// One more argument.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// A variable of its environment, which is empty otherwise.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Without a listener: requests come through the agent's tunnels alone.
    #[must_use]
    pub fn without_listener(mut self) -> Self {
        self.arguments.retain(|argument| argument != "--listen=127.0.0.1:0");
        self
    }

    /// Its files are in another directory of the home: for a further agent of the same cluster.
    #[must_use]
    pub fn in_state_dir(mut self, name: &str) -> Self {
        let directory = self.home.path().join(name);
        let old = OsString::from(self.state_dir());
        let new = directory.join("state");
        std::fs::create_dir_all(&directory).unwrap();
        for argument in &mut self.arguments {
            if *argument == old {
                *argument = new.clone().into();
            }
        }
        self.own_directory = Some(directory);
        self
    }

    /// Trusts the authority with this digest, in place of the central server's authority in a file.
    #[must_use]
    pub fn pinned(mut self, digest: &str) -> Self {
        self.trust = vec![format!("--ca-digest={digest}").into()];
        self
    }

    fn directory(&self) -> PathBuf {
        let usual = || self.home.path().join(format!("agent-{}", self.cluster));
        self.own_directory.clone().unwrap_or_else(usual)
    }

    /// The directory for the state that outlives the agent's process.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.directory().join("state")
    }

    /// Starts the agent, and waits until it is ready.
    pub async fn start(self) -> Agent {
        let agent = self.launch().await;
        agent.ready().await;
        agent
    }

    /// Starts an agent that listens nowhere, and waits until it has a tunnel.
    pub async fn tunnel(self) -> Agent {
        let agent = self.without_listener().spawn();
        agent.connected().await;
        agent
    }

    /// Starts the agent, and waits until it listens.
    pub async fn launch(self) -> Agent {
        let mut agent = self.spawn();
        agent.address = wait::until("the agent to listen", async || {
            if let Some(status) = agent.child.try_wait().unwrap() {
                panic!("the agent ended with {status}: {}", agent.logged());
            }
            let logged = agent.logged();
            let (_, rest) = logged.split_once("listening on https://")?;
            Some(rest.split_once('\n')?.0.trim().to_owned())
        })
        .await;
        agent
    }

    /// Starts the agent, and waits for nothing.
    #[must_use]
    pub fn spawn(self) -> Agent {
        let directory = self.directory();
        let log = directory.join("agent.log");
        let child = Command::new(self.program.as_deref().unwrap_or_else(|| binary::path()))
            .arg("agent")
            .args(self.trust)
            .args(self.arguments)
            .env_clear()
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("the binary under test can be started");
        Agent { child, directory, log, address: String::new() }
    }
}

/// A running agent. Dropping it kills it.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    directory: PathBuf,
    log: PathBuf,
    address: String,
}

impl Agent {
    /// Waits until the agent is ready: the central server has answered, and its cluster answers.
    pub async fn ready(&self) {
        let client = self.client("x");
        wait::until("the agent to be ready", async || {
            let reply = client.get("/readyz").try_send().await.ok()?;
            (reply.status == 200).then_some(())
        })
        .await;
    }

    /// Waits until it has a tunnel to the central server.
    pub async fn connected(&self) {
        wait::until("the agent to have a tunnel", async || {
            self.logged().contains("connected to the central server through a tunnel").then_some(())
        })
        .await;
    }

    /// The directory for the state that outlives the agent's process.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// Ends the process at once.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The agent's log so far.
    #[must_use]
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The process's id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `HOST:PORT` of its metrics, for an agent with `--metrics-listen`.
    #[must_use]
    pub fn metrics_address(&self) -> String {
        let logged = self.logged();
        let (_, rest) = logged.split_once("metrics on http://").expect("it has --metrics-listen");
        rest.split_once('/').expect("a path").0.to_owned()
    }

    /// `HOST:PORT`
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How it is reached with an endpoint token.
    #[must_use]
    pub fn kubeconfig(&self, token: &str) -> Kubeconfig {
        Kubeconfig {
            server: format!("https://{}/kubernetes/cluster", self.address),
            authority: std::fs::read(self.state_dir().join("ca.pem")).unwrap(),
            token: token.to_owned(),
            namespace: "platform".to_owned(),
        }
    }

    /// A client with an endpoint token.
    #[must_use]
    pub fn client(&self, token: &str) -> Client {
        Client::new(&self.kubeconfig(token))
    }

    /// SIGTERM, and the exit status has to be 0.
    pub async fn stop(mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let status = wait::until("the agent to end", async || self.child.try_wait().unwrap()).await;
        assert!(status.success(), "the agent ended with {status}: {}", self.logged());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            let log = self.logged();
            let lines: Vec<_> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(20)..];
            eprintln!("the end of the agent's log:\n{}", tail.join("\n"));
        }
    }
}

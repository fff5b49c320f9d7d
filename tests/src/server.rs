//! Starting the binary, waiting until it is ready, and stopping or killing it. With `POSTERN_TEST_FLEET`, three servers
//! on one etcd behind nginx take the place of one. So tests that know nothing of it run against them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::etcd::Etcd;
use crate::http::Client;
use crate::kubectl::Kubectl;
use crate::{Home, Kubeconfig, Nginx, binary, wait};

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Setup {
    home: Home,
    program: Option<PathBuf>,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// The result of a server process that has exited.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ended {
    fn read(status: ExitStatus, out: &Path, err: &Path) -> Self {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        Self { status, stdout: read(out), stderr: read(err) }
    }
}

impl Setup {
    /// `serve` on the given directory and a free port.
    #[must_use]
    pub fn on(home: &Home) -> Self {
        let mut setup = Self::bare(home);
        setup.arguments.push("serve".into());
        setup
            .argument("--data-dir")
            .argument(home.data())
            .argument("--listen")
            .argument("127.0.0.1:0")
    }

    /// No arguments at all, in the given home.
    #[must_use]
    pub fn bare(home: &Home) -> Self {
        let program = None;
        Self { home: home.clone(), program, arguments: Vec::new(), environment: Vec::new() }
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

    /// One more environment variable.
    #[must_use]
    pub fn environment(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts the server and waits until it is ready. With `POSTERN_TEST_FLEET`, it is three servers on one etcd behind
    /// nginx.
    pub async fn start(self) -> Server {
        if is_fleet_wanted(&self) {
            return Box::pin(start_fleet(self)).await;
        }
        self.start_alone().await
    }

    /// Starts one server and waits until it is ready.
    async fn start_alone(self) -> Server {
        let child = self.spawn(&self.home.stdout(), &self.home.stderr());
        let mut server = Server::of(child, self.home.clone());
        server.ready().await;
        server
    }

    /// The same on another directory, with other arguments.
    fn with_arguments(&self, home: &Home, arguments: Vec<OsString>) -> Self {
        Self { home: home.clone(), arguments, ..self.clone() }
    }

    /// Starts the server without waiting. Its kubeconfig is not known yet.
    #[must_use]
    pub fn start_unready(self) -> Server {
        let child = self.spawn(&self.home.stdout(), &self.home.stderr());
        Server::of(child, self.home.clone())
    }

    /// Starts the server and waits until it is ready or has exited.
    ///
    /// # Errors
    /// The result of the process, if it has exited.
    pub async fn start_or_end(self) -> Result<Server, Ended> {
        let (out, err) = self.separate_output();
        let mut server = Server::of(self.spawn(&out, &err), self.home.clone());
        match Box::pin(server.ready_or_end()).await {
            None => Ok(server),
            Some(status) => Err(Ended::read(status, &out, &err)),
        }
    }

    /// Starts the server and waits until it exits.
    pub async fn run_to_end(self) -> Ended {
        let (out, err) = self.separate_output();
        let mut server = Server::of(self.spawn(&out, &err), self.home.clone());
        let status = server.ended().await;
        Ended::read(status, &out, &err)
    }

    /// Creates two empty files, for the output of this process alone.
    fn separate_output(&self) -> (PathBuf, PathBuf) {
        let (out, err) = (self.home.path().join("end-stdout"), self.home.path().join("end-stderr"));
        drop((File::create(&out).unwrap(), File::create(&err).unwrap()));
        (out, err)
    }

    fn spawn(&self, stdout: &Path, stderr: &Path) -> Child {
        let append = |path: &Path| File::options().create(true).append(true).open(path).unwrap();
        Command::new(self.program.as_deref().unwrap_or_else(|| binary::path()))
            .args(&self.arguments)
            .current_dir(self.home.path())
            // Settings in the environment of the tests must not reach the server.
            .env_clear()
            .envs(
                std::env::vars_os()
                    .filter(|(name, _)| !name.to_string_lossy().starts_with("POSTERN_")),
            )
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(append(stdout))
            .stderr(append(stderr))
            .spawn()
            .expect("the binary under test can be started")
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    home: Home,
    kubeconfig: Option<Kubeconfig>,
    /// The other servers on its store, and the load balancer in front of all.
    fleet: Option<Box<Fleet>>,
}

impl Server {
    /// Starts a server with a new home and default settings.
    pub async fn start() -> Self {
        Setup::on(&Home::new()).start().await
    }

    fn of(child: Child, home: Home) -> Self {
        Self { child, home, kubeconfig: None, fleet: None }
    }

    /// This server together with the others, reached through their load balancer.
    fn in_fleet(mut self, kubeconfig: Kubeconfig, fleet: Fleet) -> Self {
        self.kubeconfig = Some(kubeconfig);
        self.fleet = Some(Box::new(fleet));
        self
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&mut self) {
        if let Some(status) = self.ready_or_end().await {
            panic!("the server ended with {status}:\n{}", self.home.logged());
        }
    }

    /// Reads the kubeconfig again for each check, because each start writes the new port into it.
    /// On the old port there is no server, or a server with a certificate of another authority.
    async fn ready_or_end(&mut self) -> Option<ExitStatus> {
        let result = wait::until("the server to be ready", async || {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(Err(status));
            }
            let kubeconfig = Kubeconfig::read(&self.home.kubeconfig()).ok()?;
            let reply = Client::new(&kubeconfig).get("/readyz").try_send().await.ok()?;
            (reply.status == 200).then_some(Ok(kubeconfig))
        })
        .await;
        match result {
            Ok(kubeconfig) => {
                self.kubeconfig = Some(kubeconfig);
                None
            }
            Err(status) => Some(status),
        }
    }

    /// How to reach the server.
    #[must_use]
    pub fn kubeconfig(&self) -> &Kubeconfig {
        self.kubeconfig.as_ref().expect("the server is ready")
    }

    /// Its directory.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// A client with the administrator's key, on HTTP/1.1.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.kubeconfig())
    }

    /// kubectl with the administrator's kubeconfig.
    #[must_use]
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.home)
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for the exit and returns the status.
    pub async fn ended(&mut self) -> ExitStatus {
        wait::until("the server to end", async || self.child.try_wait().unwrap()).await
    }

    /// SIGTERM, and the exit status has to be 0.
    pub async fn stop(mut self) {
        self.terminate();
        let status = self.ended().await;
        assert!(status.success(), "the server ended with {status}:\n{}", self.home.logged());
        if let Some(fleet) = self.fleet.take() {
            Box::pin(fleet.stop()).await;
        }
    }

    /// Sends SIGKILL, so that the server cannot clean up.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has exited already, which is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            let log = self.home.logged();
            let lines: Vec<_> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(40)..];
            eprintln!("the end of the server's log:\n{}", tail.join("\n"));
        }
    }
}

/// The servers in addition to the first one.
const OTHERS: usize = 2;

/// The processes of a fleet in addition to the first server. Dropping it ends all of them.
#[derive(Debug)]
struct Fleet {
    nginx: Nginx,
    others: Vec<Server>,
    etcd: Etcd,
}

impl Fleet {
    /// Stops the other servers.
    async fn stop(self) {
        let Self { nginx, others, etcd } = self;
        drop(nginx);
        for server in others {
            server.stop().await;
        }
        drop(etcd);
    }
}

/// Whether a setup starts three servers: it runs `serve`, and names no store.
fn is_fleet_wanted(setup: &Setup) -> bool {
    let arguments = &setup.arguments;
    std::env::var_os("POSTERN_TEST_FLEET").is_some()
        && arguments.first().is_some_and(|command| command == "serve")
        && arguments.iter().all(|argument| argument != "--store")
}

/// Starts an etcd on the data in the home, prepares it if it is new, and starts the servers and nginx.
async fn start_fleet(setup: Setup) -> Server {
    let home = setup.home.clone();
    let etcd = Etcd::at(Home::at(&home.path().join("etcd"))).await;
    let store = etcd.store("/fleet");
    let setup = setup.argument("--store").argument(&store).argument("--allow-old-etcd");
    // A server writes its new address only into the file that it has written itself.
    let written = home.path().join("written.kubeconfig");
    if written.exists() {
        std::fs::copy(&written, home.kubeconfig()).expect("the kubeconfig can be written");
    } else {
        let mut arguments = setup.arguments.clone();
        arguments[0] = "init".into();
        let ended = setup.with_arguments(&home, arguments).run_to_end().await;
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    let mut others = Vec::new();
    for number in 0..OTHERS {
        let other = Home::at(&home.path().join(format!("server-{number}")));
        if !other.data().exists() {
            let mut copy = Command::new("cp");
            let copied = copy.arg("-a").arg(home.data()).arg(other.data()).status();
            assert!(copied.expect("cp can be started").success());
        }
        let to_other = |argument: &OsString| {
            if *argument == home.data() { other.data().into() } else { argument.clone() }
        };
        let arguments = setup.arguments.iter().map(to_other).collect();
        others.push(setup.with_arguments(&other, arguments).start_alone().await);
    }
    let first = setup.start_alone().await;
    let behind: Vec<&Kubeconfig> =
        [&first].into_iter().chain(&others).map(Server::kubeconfig).collect();
    std::fs::copy(home.kubeconfig(), &written).expect("the kubeconfig can be copied");
    let nginx = Nginx::balance(&home, "fleet", &behind).await;
    let kubeconfig = nginx.kubeconfig(first.kubeconfig());
    let _ = kubeconfig.write(&home.kubeconfig());
    first.in_fleet(kubeconfig, Fleet { nginx, others, etcd })
}

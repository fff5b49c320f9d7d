//! Starting an agent, and stopping it.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use postern_auth::endpoint_token::MAX_SESSION_SECONDS;
use postern_client::{Client, Proxy as HttpProxy, ServerUrl, Settings as ClientSettings, Trust};
use postern_kinds::SecretText;
use postern_listen::{ConnectionLimits, ConnectionTable};
use postern_proxy::{Limits, Proxy, TcpDial};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::advertise::OwnEndpoint;
use crate::audit::{Audit, MAX_BYTES, Queue};
use crate::certificate::{Certificate, RENEW_INTERVAL};
use crate::endpoint::Endpoint;
use crate::flow::{Flow, FlowLimits};
use crate::lifespan::GatewayTokens;
use crate::metrics::Metrics;
use crate::readiness::ReadinessCheck;
use crate::secret_counts::SecretCounts;
use crate::secrets::{self, SecretsMode, SecretsSettings};
use crate::serve::Agent;
use crate::service_account::{READ_INTERVAL, ServiceAccount};
use crate::state::{Clock, State};
use crate::state_dir::{StateDir, read_given};
use crate::tunnel_pool::Pool;
use crate::tunnels::{self, Tunnels};
use crate::upstream::ClusterUpstream;
use crate::virtual_clusters::{ClusterDomain, Reader, VirtualClusters};
use crate::{audit, config_sync, listen, local, readiness, scrape, service_account, upstream};

/// How long one request to the central server may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a shutdown waits until the last configuration is on disk.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// By which certificate authority clients know that they have reached an agent. It is written into the Cluster.
#[derive(Clone, Debug, Default)]
pub enum AdvertisedCa {
    /// By the agent's own.
    #[default]
    Own,
    /// By those of a file, in PEM, for example those of an ingress that terminates TLS.
    File(PathBuf),
    /// By those that the client's system trusts.
    System,
}

impl AdvertisedCa {
    /// The authorities in PEM; `None` for those of the system.
    ///
    /// # Errors
    /// When there are none in the file.
    fn pem(&self, own: &str) -> anyhow::Result<Option<Vec<u8>>> {
        match self {
            Self::Own => Ok(Some(own.as_bytes().to_vec())),
            Self::System => Ok(None),
            Self::File(file) => {
                let of_file = || format!("--advertise-ca-file {}", file.display());
                let pem = read_given(file).with_context(of_file)?;
                Trust::of_pem(pem.clone()).with_context(of_file)?;
                Ok(Some(pem))
            }
        }
    }
}

/// The maximum duration of exec, attach and port-forward. For this time after a token's end, the
/// central server still sends revocations of the token.
pub const MAX_SESSION: Duration = Duration::from_secs(MAX_SESSION_SECONDS.unsigned_abs());

/// The operator's settings of an agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The central server's URL.
    pub server: String,
    /// The certificate authorities of the central server, in PEM. Either these are given or a digest.
    pub ca_file: Option<PathBuf>,
    /// The digest of the public key of its certificate authority: `sha256:HEX`.
    pub ca_digest: Option<String>,
    /// The name of the Cluster that the agent is in.
    pub cluster: String,
    /// The agent's own access key.
    pub key_file: PathBuf,
    /// The kubeconfig of the cluster, or the directory of a ServiceAccount.
    pub upstream: PathBuf,
    /// The URL of the cluster, if `upstream` is a directory.
    pub upstream_server: String,
    /// May virtual clusters be on loopback and link-local addresses? For development.
    pub allow_local_upstreams: bool,
    /// The domain of the cluster's Services.
    pub cluster_domain: ClusterDomain,
    /// The name of this agent, among those of its cluster.
    pub name: String,
    /// The most tunnels to the central server; without any, it must reach the agent's listener.
    pub max_tunnels: usize,
    /// The HTTP proxy to the central server.
    pub proxy: Option<HttpProxy>,
    /// Where the agent listens; nowhere, when absent: requests come through tunnels.
    pub listen: Option<SocketAddr>,
    /// Where its metrics are served, without authentication; nowhere, when absent.
    pub metrics_listen: Option<SocketAddr>,
    /// The directory of the last configuration, the certificate authority and the audit queue.
    pub state_dir: PathBuf,
    /// The name, or the name and port, under which clients reach it. It is written into the Cluster.
    pub advertise: Option<String>,
    /// By which certificate authority clients know that they have reached it.
    pub advertised_ca: AdvertisedCa,
    /// How long it serves without contact to the central server.
    pub max_offline: Duration,
    /// How long exec, attach, port-forward and the like go on at most.
    pub max_session: Duration,
    /// How long a client may read nothing of a stream.
    pub stream_stall: Duration,
    /// How long a shutdown waits for requests in flight.
    pub drain_timeout: Duration,
    /// Whether audit records of exec and attach contain the command.
    pub audit_exec_commands: bool,
    /// The native Secrets that it fills from project secrets.
    pub secrets: SecretsSettings,
}

/// Runs an agent until `stop` is ready. `listening` is called with the address once it listens, if it does. `first_id` is
/// random: the ids of its audit records count up from it.
///
/// # Errors
/// When a setting cannot be used, or the address is taken.
pub async fn run(
    settings: Settings,
    clock: Clock,
    first_id: u128,
    listening: impl FnOnce(SocketAddr) + Send,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    check(&settings)?;
    let dir = StateDir::open(&settings.state_dir).context("--state-dir")?;
    let client_settings = client_settings(&settings)?;
    let (upstream, account) = own_cluster(&settings).context("--upstream")?;
    let max_offline = i64::try_from(settings.max_offline.as_secs()).unwrap_or(i64::MAX);
    let state = Arc::new(State::new(clock, max_offline));
    if let Some(stored) = dir.load_config(&settings.cluster) {
        // A time that has not come yet would keep the agent going for longer than --max-offline.
        state.apply_config(stored.spec, stored.at.min(state.now()));
    }
    let endpoint = settings.advertise.as_deref().map(Endpoint::parse).transpose();
    let endpoint = endpoint.map_err(anyhow::Error::msg).context("--advertise")?;
    let local = local::open(&dir)?;
    let listener = settings.listen.map(|at| Listener::open(&dir, at, endpoint.as_ref(), &state));
    let listener = listener.transpose()?;
    let queue = Queue::open(&dir.join("audit"), MAX_BYTES)?;
    let audit = Audit::new(queue, first_id, settings.audit_exec_commands);
    let tunnels = Pool::new(settings.max_tunnels, first_id);
    let agent = new_agent(&settings, state, upstream, audit, tunnels);
    let proxy = settings.proxy.as_ref();
    let (mut tasks, mut storing) = start_sync_tasks(&agent, &client_settings, proxy, dir)?;
    if let Some(account) = account {
        let (account, cluster) = (Arc::new(account), agent.upstream.clone());
        tasks.spawn(service_account::keep_current(account, cluster, READ_INTERVAL));
    }
    if settings.secrets.mode != SecretsMode::Off {
        let client = new_client(&client_settings, settings.proxy.clone())?;
        tasks.spawn(secrets::run(agent.clone(), settings.secrets, client));
    }
    if let Some(address) = settings.metrics_listen {
        tasks.spawn(scrape::serve(agent.clone(), metrics_listener(address)?));
    }
    tasks.spawn(local::serve(agent.clone(), local));
    let mut serving = JoinSet::new();
    if let Some(Listener { tcp, address, certificate, tls }) = listener {
        tasks.spawn(renew(certificate.clone(), agent.state.clone()));
        if let Some(endpoint) = endpoint {
            let client = new_client(&client_settings, settings.proxy.clone())?;
            let host = endpoint.with_port(address.port());
            let authority = settings.advertised_ca.pem(&certificate.authority)?;
            let own = OwnEndpoint { host, authority };
            tasks.spawn(own.advertise(client, settings.cluster.clone()));
        }
        serving.spawn(listen::serve(agent.clone(), tcp, tls, settings.drain_timeout));
        listening(address);
    }
    start_tunnels(&agent, &settings, &client_settings, &mut tasks, &mut serving)?;
    stop.await;
    tracing::info!("shutting down");
    agent.draining.send_replace(true);
    let served = async { while serving.join_next().await.is_some() {} };
    tokio::join!(served, agent.proxy.drain(settings.drain_timeout));
    tasks.shutdown().await;
    let _ = timeout(STORE_TIMEOUT, storing.join_next()).await;
    agent.audit.queue.written().await;
    Ok(())
}

/// The state that requests are answered from.
fn new_agent(
    settings: &Settings,
    state: Arc<State>,
    upstream: ClusterUpstream,
    audit: Arc<Audit>,
    tunnels: Arc<Pool>,
) -> Arc<Agent> {
    // A request can take two: one to its client, and one to the cluster.
    let descriptors = postern_listen::raise_descriptor_limit() / 2;
    let limits = ConnectionLimits::of_descriptors(descriptors);
    let proxy = proxy(limits.total, settings.stream_stall);
    let (allow_local, domain) = (settings.allow_local_upstreams, settings.cluster_domain.clone());
    let reader = Reader::new(proxy.clone(), upstream.clone(), allow_local, domain);
    Arc::new(Agent {
        state,
        cluster: settings.cluster.clone(),
        proxy,
        upstream,
        virtual_clusters: VirtualClusters::new(reader),
        max_session: settings.max_session,
        stream_stall: settings.stream_stall,
        audit,
        metrics: Metrics::default(),
        secrets: SecretCounts::default(),
        flow: Flow::new(FlowLimits::of_connections(limits.total)),
        gateway_tokens: GatewayTokens::default(),
        connections: ConnectionTable::new(limits),
        readiness: Arc::default(),
        tunnels,
        draining: watch::Sender::new(false),
    })
}

/// Checks the settings of the ways to the agent.
fn check(settings: &Settings) -> anyhow::Result<()> {
    anyhow::ensure!(
        settings.listen.is_some() || settings.max_tunnels > 0,
        "pass --listen, or a --max-tunnels above 0: otherwise no request can reach the agent"
    );
    anyhow::ensure!(
        postern_tunnel::is_name(&settings.name),
        "--name {:?}: must have letters, digits, hyphens and dots, and at most 253 of them",
        settings.name
    );
    Ok(())
}

/// Starts to keep tunnels open, and to write the condition about them.
fn start_tunnels(
    agent: &Arc<Agent>,
    settings: &Settings,
    client_settings: &ClientSettings,
    tasks: &mut JoinSet<()>,
    serving: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    if settings.max_tunnels == 0 {
        return Ok(());
    }
    let client = new_client(client_settings, settings.proxy.clone())?;
    let (pool, name) = (agent.tunnels.clone(), settings.name.clone());
    let tunnels = Tunnels::new(agent.clone(), client.upgrader(), name, pool.clone());
    serving.spawn(tunnels.run(settings.drain_timeout));
    let (state, cluster) = (agent.state.clone(), settings.cluster.clone());
    tasks.spawn(tunnels::report(pool, state, cluster, client));
    Ok(())
}

/// The cluster of the agent. If the agent reaches it as a ServiceAccount, the second value is this
/// ServiceAccount, because its files change.
fn own_cluster(settings: &Settings) -> anyhow::Result<(ClusterUpstream, Option<ServiceAccount>)> {
    let path = &settings.upstream;
    if !path.is_dir() {
        return Ok((upstream::of_file(path)?.into(), None));
    }
    let (account, upstream) = ServiceAccount::open(path, &settings.upstream_server)?;
    Ok((upstream.into(), Some(account)))
}

/// The listener for the metrics.
fn metrics_listener(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = bind("--metrics-listen", address)?;
    tracing::info!("metrics on http://{}/metrics", listener.local_addr()?);
    Ok(listener)
}

/// A listener on an address that a flag says.
fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = postern_listen::bind(address);
    bound.with_context(|| format!("{flag}: cannot listen on {address}"))
}

/// Starts the tasks that talk to the central server. Each has its own connection, so that none waits for another.
/// The second set stores the configuration, and ends after the first.
fn start_sync_tasks(
    agent: &Agent,
    settings: &ClientSettings,
    proxy: Option<&HttpProxy>,
    dir: StateDir,
) -> anyhow::Result<(JoinSet<()>, JoinSet<()>)> {
    let client = || new_client(settings, proxy.cloned());
    let (state, cluster) = (agent.state.clone(), agent.cluster.clone());
    let readiness_check = ReadinessCheck {
        proxy: agent.proxy.clone(),
        upstream: agent.upstream.clone(),
        state: state.clone(),
        cluster: cluster.clone(),
        readiness: agent.readiness.clone(),
    };
    let (mut tasks, mut storing) = (JoinSet::new(), JoinSet::new());
    let (to_store, given) = watch::channel(None);
    storing.spawn(config_sync::store_latest(given, move |stored| dir.store_config(stored)));
    tasks.spawn(config_sync::run(state, [client()?, client()?], cluster.clone(), to_store));
    tasks.spawn(readiness::run(readiness_check, client()?));
    tasks.spawn(audit::send(agent.audit.clone(), client()?, cluster));
    Ok((tasks, storing))
}

/// The agent's own listener.
struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    certificate: Arc<Certificate>,
    tls: TlsAcceptor,
}

impl Listener {
    fn open(
        dir: &StateDir,
        at: SocketAddr,
        endpoint: Option<&Endpoint>,
        state: &State,
    ) -> anyhow::Result<Self> {
        let certificate = Certificate::prepare(dir, hosts(at, endpoint), state.now())?;
        let tcp = bind("--listen", at)?;
        let address = tcp.local_addr()?;
        let tls = TlsAcceptor::from(certificate.clone().server_config()?);
        Ok(Self { tcp, address, certificate, tls })
    }
}

/// A client of the central server, with a separate connection.
fn new_client(settings: &ClientSettings, proxy: Option<HttpProxy>) -> anyhow::Result<Client> {
    let mut client = Client::new(settings.clone())?;
    client.set_proxy(proxy);
    Ok(client)
}

fn client_settings(settings: &Settings) -> anyhow::Result<ClientSettings> {
    let server =
        ServerUrl::parse(&settings.server).map_err(|what| anyhow::anyhow!("--server: {what}"))?;
    let trust = trust(settings.ca_file.as_deref(), settings.ca_digest.as_deref())?;
    let of_key = || format!("--key-file {}", settings.key_file.display());
    let key = read_given(&settings.key_file).with_context(of_key)?;
    let key = String::from_utf8(key).ok().map(SecretText::from);
    let key = key.with_context(|| format!("{}: it is no text", of_key()))?;
    let key = SecretText::from(key.expose().trim().to_owned());
    anyhow::ensure!(!key.expose().is_empty(), "{}: it is empty", of_key());
    Ok(ClientSettings {
        server,
        key,
        impersonation: None,
        trust,
        tls_server_name: None,
        request_timeout: REQUEST_TIMEOUT,
    })
}

/// The trust in the central server. The system's authorities are not used, and the first server to answer is not
/// trusted for that.
fn trust(ca_file: Option<&Path>, ca_digest: Option<&str>) -> anyhow::Result<Trust> {
    match (ca_file, ca_digest) {
        (Some(file), None) => {
            let of_file = || format!("--ca-file {}", file.display());
            let pem = read_given(file).with_context(of_file)?;
            Trust::of_pem(pem).with_context(of_file)
        }
        (None, Some(text)) => Ok(Trust::Pinned(text.parse().context("--ca-digest")?)),
        _ => anyhow::bail!(
            "give one of --ca-file and --ca-digest: an agent trusts no server that it does not know"
        ),
    }
}

/// The proxy that forwards requests, over at most so many connections.
fn proxy(max_connections: usize, stream_stall: Duration) -> Proxy {
    let limits = Limits { max_connections, stream_stall, ..Limits::default() };
    Proxy::with(limits, Arc::new(TcpDial::new()))
}

/// The names that the certificate is for.
fn hosts(listen: SocketAddr, endpoint: Option<&Endpoint>) -> Vec<String> {
    let mut hosts = vec!["localhost".to_owned()];
    if !listen.ip().is_unspecified() {
        hosts.push(listen.ip().to_string());
    }
    hosts.extend(endpoint.map(|endpoint| endpoint.name().to_owned()));
    hosts.dedup();
    hosts
}

/// Renews the certificate. It returns never.
async fn renew(certificate: Arc<Certificate>, state: Arc<State>) {
    loop {
        sleep(RENEW_INTERVAL).await;
        if let Err(error) = certificate.renew(state.now()) {
            tracing::error!("the certificate could not be renewed: {error:#}");
        }
    }
}

//! Starting an agent, and stopping it.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_client::{Client, Collection, ServerUrl, Settings as ClientSettings, Trust};
use postern_kinds::SecretText;
use postern_kinds::cluster::{Cluster, DIRECT_ENDPOINT};
use postern_listen::{ConnectionLimits, ConnectionTable};
use postern_proxy::{Limits, Proxy, TcpDial};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::audit::{Audit, MAX_BYTES, Queue};
use crate::certificate::{Certificate, RENEW_INTERVAL};
use crate::flow::{Flow, FlowLimits};
use crate::serve::Agent;
use crate::state::{Clock, State};
use crate::state_dir::{StateDir, read_given};
use crate::{audit, follow, listen, upstream};

/// How long one request to the central server may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it is until the endpoint is written into the Cluster again, after that has failed.
const ADVERTISE_PAUSE: Duration = Duration::from_secs(5);

/// What the operator decides about an agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The central server's URL.
    pub server: String,
    /// The certificate authorities of the central server, in PEM.
    pub ca_file: PathBuf,
    /// The name of the Cluster that the agent is in.
    pub cluster: String,
    /// The agent's own access key.
    pub key_file: PathBuf,
    /// The kubeconfig of the cluster.
    pub upstream: PathBuf,
    /// Where the agent listens.
    pub listen: SocketAddr,
    /// Where it keeps what it has heard, and its certificate authority.
    pub state_dir: PathBuf,
    /// The name, or the name and port, under which clients reach it. It is written into the Cluster.
    pub advertise: Option<String>,
    /// How long it goes on without hearing from the central server.
    pub max_offline: Duration,
    /// How long exec, attach, port-forward and the like go on at most.
    pub max_session: Duration,
    /// How long a shutdown waits for requests in flight.
    pub drain_timeout: Duration,
}

/// Runs an agent until `stop` is ready. `listening` is called with the address once it listens. `first_id` is
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
    let dir = StateDir::open(&settings.state_dir)?;
    let client_settings = client_settings(&settings)?;
    let upstream = upstream::of_file(&settings.upstream)?;
    let max_offline = i64::try_from(settings.max_offline.as_secs()).unwrap_or(i64::MAX);
    let state = Arc::new(State::new(clock, max_offline));
    if let Some(heard) = dir.heard(&settings.cluster)? {
        state.hear(heard.spec, heard.at);
    }
    let certificate = Certificate::prepare(&dir, hosts(&settings), state.now())?;
    let listener = postern_listen::bind(settings.listen)
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    let address = listener.local_addr()?;
    let tls = TlsAcceptor::from(certificate.clone().server_config()?);
    let queue = Queue::open(&dir.join("audit"), MAX_BYTES)?;
    let audit = Audit::new(queue, first_id);
    // A request can take two: one to its client, and one to the cluster.
    let descriptors = postern_listen::raise_descriptor_limit() / 2;
    let limits = ConnectionLimits::of_descriptors(descriptors);
    let agent = Arc::new(Agent {
        state: state.clone(),
        cluster: settings.cluster.clone(),
        proxy: proxy(limits.total),
        upstream,
        max_session: settings.max_session,
        audit: audit.clone(),
        flow: Flow::new(FlowLimits::default()),
        connections: ConnectionTable::new(limits),
        draining: watch::Sender::new(false),
    });
    let mut tasks = JoinSet::new();
    let client = Client::new(client_settings.clone())?;
    tasks.spawn(follow::follow(state.clone(), client, settings.cluster.clone(), dir));
    tasks.spawn(renew(certificate.clone(), state));
    let client = Client::new(client_settings.clone())?;
    tasks.spawn(audit::send(audit, client, settings.cluster.clone()));
    if let Some(host) = settings.advertise.clone() {
        let client = Client::new(client_settings)?;
        let host = with_port(&host, address.port());
        let authority = certificate.authority.clone();
        tasks.spawn(advertise(client, settings.cluster.clone(), host, authority));
    }
    let mut serving = JoinSet::new();
    serving.spawn(listen::serve(agent.clone(), listener, tls, settings.drain_timeout));
    listening(address);
    stop.await;
    tracing::info!("shutting down");
    agent.draining.send_replace(true);
    let (_, ()) = tokio::join!(serving.join_next(), agent.proxy.drain(settings.drain_timeout));
    tasks.shutdown().await;
    agent.audit.queue.written().await;
    Ok(())
}

fn client_settings(settings: &Settings) -> anyhow::Result<ClientSettings> {
    let server =
        ServerUrl::parse(&settings.server).map_err(|what| anyhow::anyhow!("--server: {what}"))?;
    let trust = Trust::of_pem(read_given(&settings.ca_file)?)
        .with_context(|| format!("--ca-file {}", settings.ca_file.display()))?;
    let key = read_given(&settings.key_file)?;
    let key = String::from_utf8(key).ok().map(SecretText::from);
    let key = key.with_context(|| format!("{} has no access key", settings.key_file.display()))?;
    let key = SecretText::from(key.expose().trim().to_owned());
    anyhow::ensure!(!key.expose().is_empty(), "{} is empty", settings.key_file.display());
    Ok(ClientSettings {
        server,
        key,
        impersonation: None,
        trust,
        tls_server_name: None,
        request_timeout: REQUEST_TIMEOUT,
    })
}

/// Returns what sends requests on, over at most so many connections.
fn proxy(max_connections: usize) -> Proxy {
    Proxy::with(Limits { max_connections, ..Limits::default() }, Arc::new(TcpDial::new()))
}

/// Returns the names that the certificate is for.
fn hosts(settings: &Settings) -> Vec<String> {
    let mut hosts = vec!["localhost".to_owned()];
    if !settings.listen.ip().is_unspecified() {
        hosts.push(settings.listen.ip().to_string());
    }
    if let Some(host) = &settings.advertise {
        let host = host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host);
        hosts.push(host.to_owned());
    }
    hosts.dedup();
    hosts
}

/// Returns a host with the port of the listener, unless it has one.
fn with_port(host: &str, port: u16) -> String {
    if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") }
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

/// Writes into the Cluster where the agent is reached, and by which authority.
async fn advertise(mut client: Client, cluster: String, host: String, authority: String) {
    let annotations = json!({
        DIRECT_ENDPOINT: host,
        format!("{DIRECT_ENDPOINT}-ca-data"): STANDARD.encode(authority),
    });
    let patch = json!({ "metadata": { "annotations": annotations } });
    let clusters = Collection::of::<Cluster>(None);
    let mut is_warned = false;
    while let Err(error) = client.merge_patch(clusters, &cluster, &patch).await {
        if !std::mem::replace(&mut is_warned, true) {
            tracing::warn!("the endpoint could not be written into the Cluster: {error}");
        }
        sleep(ADVERTISE_PAUSE).await;
    }
    tracing::info!(host, "the endpoint is in the Cluster's annotations");
}

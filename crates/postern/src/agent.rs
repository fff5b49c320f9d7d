//! `postern agent`: the settings and the start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgAction, ArgGroup, Args};
use postern_agent::{
    AdvertisedCa, ClusterDomain, MAX_SESSION, STREAM_STALL, SecretsMode, SecretsSettings,
    VIRTUAL_CLUSTER_INTERVAL,
};
use postern_client::ServerUrl;
use postern_server::{Source as _, System, host_name};
use tokio::signal::unix::{SignalKind, signal};

use crate::settings::{LogFormat, Observation, proxy_of_environment};
use crate::values::{PositiveDuration, with_conventions};

/// The settings of an agent.
#[derive(Args)]
#[command(group(ArgGroup::new("trust").required(true).args(["ca_file", "ca_digest"])))]
#[command(mut_args = |arg| with_conventions(arg, "POSTERN_AGENT"))]
pub(crate) struct Agent {
    /// The URL of the central server
    #[arg(long, value_name = "URL")]
    server: String,

    /// The file with the certificate authorities of the central server, in PEM; no other authority is trusted
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// The SHA-256 digest of the public key of the central server's certificate authority, in the format of
    /// kubeadm's --discovery-token-ca-cert-hash. It replaces --ca-file; the server must send the authority's
    /// certificate in its chain
    #[arg(long, value_name = "sha256:HEX")]
    ca_digest: Option<String>,

    /// The name of the agent's Cluster
    #[arg(long, value_name = "NAME")]
    cluster: String,

    /// The file with the agent's access key
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,

    /// The kubeconfig of the cluster, with an inline credential; the agent uses its current context. In a pod, it can
    /// be the directory of a ServiceAccount, with the files token and ca.crt. The agent reads both files again every minute
    #[arg(long, value_name = "KUBECONFIG")]
    upstream: PathBuf,

    /// The URL of the cluster, if --upstream is the directory of a ServiceAccount
    #[arg(long, value_name = "URL", default_value = "https://kubernetes.default.svc")]
    upstream_server: String,

    /// Allow virtual clusters at loopback and link-local addresses. For development only: a writer of a
    /// virtual cluster's Secret can then reach services of this machine
    #[arg(long)]
    allow_local_upstreams: bool,

    /// The DNS domain of the cluster's Services. The agent connects to a virtual cluster at
    /// SERVICE.NAMESPACE.svc.DOMAIN. as an absolute name, so the resolver uses no search domain
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    cluster_domain: ClusterDomain,

    /// The name of this agent in the status of the Cluster, where each agent of the cluster has its own [default: the
    /// host name, which in a pod is the name of the pod]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The maximum number of tunnels to the central server. Each request, watch and stream under way takes one. 0 opens
    /// none: the central server must then reach the agent at --advertise
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    max_tunnels: usize,

    /// The address to listen on; port 0 selects a free port. Without it, requests come through tunnels alone
    /// [default: none, or 127.0.0.1:9443 with --advertise]
    #[arg(long)]
    listen: Option<SocketAddr>,

    /// The address for /metrics, without TLS and authentication [default: none]
    #[arg(long)]
    metrics_listen: Option<SocketAddr>,

    /// The directory for the last configuration, the certificate authority and the audit queue
    #[arg(long, value_name = "DIR", default_value = "./postern-agent")]
    state_dir: PathBuf,

    /// The name or address at which clients reach the agent, optionally with a port. The agent writes it to the
    /// Cluster, so its access key needs permission to patch the Cluster
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Option<String>,

    /// The file with the certificate authorities of an ingress or load balancer that terminates TLS, in PEM.
    /// Clients verify the advertised host with them [default: the agent's own authority]
    #[arg(
        long,
        value_name = "FILE",
        requires = "advertise",
        conflicts_with = "advertise_system_ca"
    )]
    advertise_ca_file: Option<PathBuf>,

    /// Let clients verify the advertised host with the certificate authorities of their system
    #[arg(long, requires = "advertise")]
    advertise_system_ca: bool,

    /// How long the agent serves requests without a connection to the central server
    #[arg(long, default_value = "24h")]
    max_offline: PositiveDuration,

    /// The maximum duration of exec, attach, port-forward and other streams, at most 8h
    #[arg(long, default_value_t = MAX_SESSION.into())]
    max_session: PositiveDuration,

    /// How long a client may read nothing of a log, exec or other stream, before the stream ends
    #[arg(long, default_value_t = STREAM_STALL.into())]
    stream_stall: PositiveDuration,

    /// How long a shutdown waits for requests in flight
    #[arg(long, default_value = "10s")]
    drain_timeout: PositiveDuration,

    /// Whether audit records of exec and attach contain the command (at most 2 KiB)
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    audit_exec_commands: bool,

    /// Fill native Secrets from project secrets: off, bound or all. With bound, in namespaces that bind the role for
    /// Secrets to the agent. With all, in all namespaces of spaces
    #[arg(long, value_name = "MODE", default_value = "off")]
    secrets: SecretsMode,

    /// How often the agent lists the labelled Secrets of a virtual cluster
    #[arg(long, default_value_t = VIRTUAL_CLUSTER_INTERVAL.into())]
    secrets_virtual_cluster_interval: PositiveDuration,

    /// The log filter: error, warn, info, debug or trace, also for one module, as in `postern_agent=debug`
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,

    /// The format of the log: text, or json with one object a line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// The OTLP receiver to which traces are sent, over HTTP with protobuf, such as `http://127.0.0.1:4318`
    /// [default: `OTEL_EXPORTER_OTLP_ENDPOINT`, or none]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

impl Agent {
    /// The log and the traces.
    pub(crate) fn observation(&self) -> Observation {
        Observation {
            service: "postern-agent",
            log: self.log.clone(),
            log_format: self.log_format,
            otlp_endpoint: self.otlp_endpoint.clone(),
        }
    }

    /// The settings with the defaults filled in.
    ///
    /// # Errors
    /// When a value is invalid; the error names the flag.
    pub(crate) fn settings(self) -> anyhow::Result<postern_agent::Settings> {
        let max_session = self.max_session.get();
        anyhow::ensure!(
            max_session <= MAX_SESSION,
            "invalid --max-session: must be at most 8h, because the central server keeps revocations for 8h"
        );
        let default_listen = SocketAddr::from(DEFAULT_LISTEN);
        let is_reached = self.advertise.is_some() || self.max_tunnels == 0;
        // An invalid URL is reported when the agent starts.
        let server = ServerUrl::parse(&self.server).ok();
        let proxy = server.map(|server| proxy_of_environment(&server)).transpose()?.flatten();
        Ok(postern_agent::Settings {
            name: self.name.unwrap_or_else(host_name),
            max_tunnels: self.max_tunnels,
            proxy,
            max_offline: self.max_offline.get(),
            max_session,
            stream_stall: self.stream_stall.get(),
            drain_timeout: self.drain_timeout.get(),
            server: self.server,
            ca_file: self.ca_file,
            ca_digest: self.ca_digest,
            cluster: self.cluster,
            key_file: self.key_file,
            upstream: self.upstream,
            upstream_server: self.upstream_server,
            allow_local_upstreams: self.allow_local_upstreams,
            cluster_domain: self.cluster_domain,
            listen: self.listen.or_else(|| is_reached.then_some(default_listen)),
            metrics_listen: self.metrics_listen,
            state_dir: self.state_dir,
            audit_exec_commands: self.audit_exec_commands,
            secrets: SecretsSettings {
                mode: self.secrets,
                virtual_cluster_interval: self.secrets_virtual_cluster_interval.get(),
            },
            advertise: self.advertise,
            advertised_ca: match self.advertise_ca_file {
                Some(file) => AdvertisedCa::File(file),
                None if self.advertise_system_ca => AdvertisedCa::System,
                None => AdvertisedCa::Own,
            },
        })
    }
}

/// The address that an agent listens on if it is reached at an endpoint, and no other address is given.
const DEFAULT_LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 9443);

/// Runs an agent until SIGTERM or SIGINT.
///
/// # Errors
/// When a setting cannot be used; the error names it.
pub(crate) async fn run_until_signal(settings: postern_agent::Settings) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let system = System::default();
    let mut random = [0; 16];
    system.fill(&mut random);
    let first_id = u128::from_be_bytes(random);
    let clock = Arc::new(move || system.now_micro());
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let listening = |address| tracing::info!("listening on https://{address}");
    postern_agent::run(settings, clock, first_id, listening, stop).await
}

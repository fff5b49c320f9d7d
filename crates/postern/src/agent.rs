//! `postern agent`: its settings, and its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args};
use postern_agent::{AdvertisedCa, ClusterDomain, MAX_SESSION};
use postern_server::{Source as _, System};
use tokio::signal::unix::{SignalKind, signal};

use crate::settings::duration;

/// The settings of an agent.
#[derive(Args)]
#[command(group(ArgGroup::new("trust").required(true).args(["ca_file", "ca_digest"])))]
pub(crate) struct Agent {
    /// The central server's URL
    #[arg(long, env = "POSTERN_AGENT_SERVER", value_name = "URL")]
    server: String,

    /// The certificate authorities of the central server, in PEM; no other authority is trusted
    #[arg(long, env = "POSTERN_AGENT_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// The SHA-256 digest of the public key of the central server's certificate authority, as in kubeadm's
    /// --discovery-token-ca-cert-hash. It replaces --ca-file; the server must send the certificate of its
    /// authority
    #[arg(long, env = "POSTERN_AGENT_CA_DIGEST", value_name = "sha256:HEX")]
    ca_digest: Option<String>,

    /// The name of the Cluster that the agent is in
    #[arg(long, env = "POSTERN_AGENT_CLUSTER", value_name = "NAME")]
    cluster: String,

    /// A file with the agent's own access key
    #[arg(long, env = "POSTERN_AGENT_KEY_FILE", value_name = "FILE")]
    key_file: PathBuf,

    /// The kubeconfig of the cluster, with an inline credential; the agent uses its current context. In a pod, it can
    /// be the directory of a ServiceAccount, with the files token and ca.crt. They are read once, so the token must
    /// not expire
    #[arg(long, env = "POSTERN_AGENT_UPSTREAM", value_name = "KUBECONFIG")]
    upstream: PathBuf,

    /// The URL of the cluster, if --upstream is the directory of a ServiceAccount
    #[arg(
        long,
        env = "POSTERN_AGENT_UPSTREAM_SERVER",
        value_name = "URL",
        default_value = "https://kubernetes.default.svc"
    )]
    upstream_server: String,

    /// Allow virtual clusters at loopback and link-local addresses. For development only: a writer of a
    /// virtual cluster's Secret can then reach services of this machine
    #[arg(long, env = "POSTERN_AGENT_ALLOW_LOCAL_UPSTREAMS")]
    allow_local_upstreams: bool,

    /// The DNS domain of the cluster's Services: a virtual cluster is dialled at SERVICE.NAMESPACE.svc.DOMAIN. as an
    /// absolute name, so no search domain of the resolver is tried
    #[arg(
        long,
        env = "POSTERN_AGENT_CLUSTER_DOMAIN",
        value_name = "DOMAIN",
        default_value = "cluster.local"
    )]
    cluster_domain: ClusterDomain,

    /// The address to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "POSTERN_AGENT_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:9443"
    )]
    listen: SocketAddr,

    /// The address for /metrics, without TLS and without a credential [default: none]
    #[arg(long, env = "POSTERN_AGENT_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,

    /// The directory for the last configuration, the certificate authority and the audit queue
    #[arg(
        long,
        env = "POSTERN_AGENT_STATE_DIR",
        value_name = "DIR",
        default_value = "./postern-agent"
    )]
    state_dir: PathBuf,

    /// The name or address under which clients reach the agent, perhaps with a port; it is written into the
    /// Cluster, which its access key must be allowed to patch
    #[arg(long, env = "POSTERN_AGENT_ADVERTISE", value_name = "HOST[:PORT]")]
    advertise: Option<String>,

    /// The certificate authorities, in PEM, with which clients verify an ingress or a load balancer that
    /// terminates TLS [default: the agent's own]
    #[arg(
        long,
        env = "POSTERN_AGENT_ADVERTISE_CA_FILE",
        value_name = "FILE",
        requires = "advertise",
        conflicts_with = "advertise_system_ca"
    )]
    advertise_ca_file: Option<PathBuf>,

    /// Clients verify the advertised host with the certificate authorities of their system
    #[arg(long, env = "POSTERN_AGENT_ADVERTISE_SYSTEM_CA", requires = "advertise")]
    advertise_system_ca: bool,

    /// How long the agent serves requests without contact to the central server [default: 24h]
    #[arg(long, env = "POSTERN_AGENT_MAX_OFFLINE", value_name = "DURATION")]
    max_offline: Option<String>,

    /// The maximum duration of exec, attach, port-forward and other streams, at most 8h [default: 8h]
    #[arg(long, env = "POSTERN_AGENT_MAX_SESSION", value_name = "DURATION")]
    max_session: Option<String>,

    /// How long a shutdown waits for requests in flight [default: 10s]
    #[arg(long, env = "POSTERN_AGENT_DRAIN_TIMEOUT", value_name = "DURATION")]
    drain_timeout: Option<String>,

    /// Whether audit records of exec and attach contain the command (at most 2 KiB)
    #[arg(
        long,
        env = "POSTERN_AGENT_AUDIT_EXEC_COMMANDS",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    audit_exec_commands: bool,

    /// The log filter: error, warn, info, debug or trace, also for one module
    #[arg(long, env = "POSTERN_AGENT_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
}

impl Agent {
    /// The log filter.
    pub(crate) fn log(&self) -> &str {
        &self.log
    }

    /// The settings with the defaults filled in.
    ///
    /// # Errors
    /// When a value makes no sense; says which.
    pub(crate) fn settings(self) -> anyhow::Result<postern_agent::Settings> {
        let of = |name, text: &Option<String>, default| duration(name, text.as_deref(), default);
        let max_session = of("max-session", &self.max_session, MAX_SESSION)?;
        anyhow::ensure!(
            max_session <= MAX_SESSION,
            "--max-session must be at most 8h: the central server keeps revocations for 8h"
        );
        Ok(postern_agent::Settings {
            max_offline: of("max-offline", &self.max_offline, Duration::from_hours(24))?,
            max_session,
            drain_timeout: of("drain-timeout", &self.drain_timeout, Duration::from_secs(10))?,
            server: self.server,
            ca_file: self.ca_file,
            ca_digest: self.ca_digest,
            cluster: self.cluster,
            key_file: self.key_file,
            upstream: self.upstream,
            upstream_server: self.upstream_server,
            allow_local_upstreams: self.allow_local_upstreams,
            cluster_domain: self.cluster_domain,
            listen: self.listen,
            metrics_listen: self.metrics_listen,
            state_dir: self.state_dir,
            audit_exec_commands: self.audit_exec_commands,
            advertise: self.advertise,
            advertised_ca: match self.advertise_ca_file {
                Some(file) => AdvertisedCa::File(file),
                None if self.advertise_system_ca => AdvertisedCa::System,
                None => AdvertisedCa::Own,
            },
        })
    }
}

/// Runs an agent until a signal tells it to stop.
///
/// # Errors
/// When a setting cannot be used; says which.
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

//! Agents without work: they open tunnels to a server, watch their configuration, and wait.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::procs::{Meter, round, usage_of_all};
use crate::target::{self, Target};

const CLUSTERS: &str = "/kubernetes/management/apis/management.platform.sh/v1/clusters";

/// The sub-protocol of tunnels.
const PROTOCOL: &str = "v1.tunnel.platform.sh";

/// The frame that an agent sends after so long without another one: an empty pong of a client (RFC
/// 6455).
const HEARTBEAT: [u8; 6] = [0x8a, 0x80, 0, 0, 0, 0];
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);

/// `postern-bench tunnels`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: target::Options,
    /// A file with the names of clusters and the access keys of their agents: one of each on a line, with a blank
    /// between them
    #[arg(long)]
    agents: PathBuf,
    /// Tunnels of each agent
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    each: u32,
    /// How long they wait, in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// Opens all tunnels, and measures the server while nothing is sent through them.
pub(crate) async fn run(options: &Options) -> Result<Value> {
    let target = Arc::new(Target::new(&options.target)?);
    let pids = &options.target.pids;
    let before = usage_of_all(pids).rss_kib;
    let agents = std::fs::read_to_string(&options.agents)?;
    let (mut tunnels, mut watches) = (JoinSet::new(), JoinSet::new());
    for line in agents.lines() {
        let (cluster, key) = line.split_once(' ').context("a line is CLUSTER KEY")?;
        for part in ["tokens", "places"] {
            let path = format!("{CLUSTERS}/{cluster}/agentconfig?part={part}&watch=true");
            watches.spawn(watch(connect(&target).await?, target.clone(), path, key.into()));
        }
        for _ in 0..options.each {
            let (sender, host) = (connect(&target).await?, target.authority.clone());
            let upgraded = open(sender, &host, cluster, key).await?;
            tunnels.spawn(wait(TokioIo::new(upgraded)));
        }
    }
    let opened = tunnels.len();
    // The memory of the opening is freed, and the first heartbeats are over.
    tokio::time::sleep(Duration::from_secs(25)).await;
    let meter = Meter::start(pids);
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    let mut result = json!({ "op": "tunnels" });
    meter.stop(1, &mut result);
    let mut ended = 0;
    while tunnels.try_join_next().is_some() {
        ended += 1;
    }
    ensure!(watches.try_join_next().is_none(), "a watch of an agent's configuration has ended");
    let beyond = usage_of_all(pids).rss_kib.saturating_sub(before);
    let busy = result["server_cpu_seconds"].as_f64().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (beyond_mb, seconds) = (beyond as f64 * 1024.0 / 1e6, options.seconds as f64);
    result["opened"] = json!(opened);
    result["held"] = json!(opened - ended);
    result["watches"] = json!(watches.len());
    result["beyond_mb"] = json!(round(beyond_mb));
    result["core_percent"] = json!(round(busy / seconds * 100.0));
    Ok(result)
}

/// Keeps a tunnel open until the server closes it.
async fn wait(mut tunnel: TokioIo<Upgraded>) -> Result<()> {
    let mut heartbeats = tokio::time::interval(HEARTBEAT_INTERVAL);
    let mut received = [0; 256];
    loop {
        tokio::select! {
            count = tunnel.read(&mut received) => if count? == 0 {
                return Ok(());
            },
            _ = heartbeats.tick() => tunnel.write_all(&HEARTBEAT).await?,
        }
    }
}

type Sender = http1::SendRequest<Empty<Bytes>>;

async fn connect(target: &Target) -> Result<Sender> {
    let stream = TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    let connector = TlsConnector::from(target.tls.clone());
    let stream = connector.connect(target.name.clone(), stream).await?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // When the connection fails, so do the requests on it, which report the error.
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok(sender)
}

async fn open(mut sender: Sender, host: &str, cluster: &str, key: &str) -> Result<Upgraded> {
    let request = Request::get(format!("{CLUSTERS}/{cluster}/tunnel"))
        .header("host", host)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")
        .header("sec-websocket-protocol", PROTOCOL)
        .header("platform-agent-name", "idle")
        .header("authorization", format!("Bearer {key}"))
        .body(Empty::new())?;
    let response = sender.send_request(request).await?;
    ensure!(response.status() == 101, "{cluster}: {}", response.status());
    Ok(hyper::upgrade::on(response).await?)
}

/// Watches a part of the configuration until it is aborted.
async fn watch(mut sender: Sender, target: Arc<Target>, path: String, key: String) -> Result<()> {
    let request = Request::get(&path)
        .header("host", &target.authority)
        .header("authorization", format!("Bearer {key}"))
        .body(Empty::new())?;
    let mut response = sender.send_request(request).await?;
    ensure!(response.status() == 200, "{path}: {}", response.status());
    while let Some(frame) = response.body_mut().frame().await {
        frame?;
    }
    Ok(())
}

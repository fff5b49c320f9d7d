//! Writes straight to an etcd, as something to compare a server with that stores its objects there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use prost::Message;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::histogram::Times;
use crate::procs::{Meter, round};

const TXN: PathAndQuery = PathAndQuery::from_static("/etcdserverpb.KV/Txn");

/// `postern-bench etcd-put`.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    /// HOST:PORT of the etcd
    #[arg(long)]
    address: String,
    /// Transactions at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=5000))]
    connections: u32,
    /// Stop after so many seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    body_bytes: u32,
    /// Each transaction also puts a key that all of them put
    #[arg(long)]
    with_head: bool,
    /// The processes of the etcd, separated by commas
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
}

// Messages of etcd's public protocol, with the fields that are used.

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct RequestOp {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnResponse {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

/// Puts new keys until the time is over.
pub(crate) async fn run(options: &Options) -> Result<Value> {
    let endpoint = Endpoint::from_shared(format!("http://{}", options.address))?.tcp_nodelay(true);
    let channel = endpoint.connect().await.context("etcd does not answer")?;
    let (times, number) = (Arc::new(Mutex::new(Times::new()?)), Arc::new(AtomicU64::new(0)));
    let meter = Meter::start(&options.pids);
    let started = Instant::now();
    let until = started + Duration::from_secs(options.seconds);
    let mut workers = JoinSet::new();
    for _ in 0..options.connections {
        let (channel, times) = (channel.clone(), times.clone());
        let (number, options) = (number.clone(), options.clone());
        workers.spawn(async move {
            while Instant::now() < until {
                let began = Instant::now();
                put(&channel, &options, number.fetch_add(1, Ordering::Relaxed)).await?;
                times.lock().record(began.elapsed());
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    let seconds = started.elapsed().as_secs_f64();
    let times = times.lock();
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let per_second = times.len() as f64 / seconds;
    let mut result = json!({
        "op": "etcd-put",
        "succeeded": times.len(),
        "succeeded_per_second": round(per_second),
        "latency_microseconds": times.percentiles(),
    });
    meter.stop(times.len(), &mut result);
    Ok(result)
}

async fn put(channel: &Channel, options: &Options, number: u64) -> Result<()> {
    let value = Bytes::from(vec![b'x'; options.body_bytes as usize]);
    let key = Bytes::from(format!("/bench/{number:012}"));
    let head =
        Put { key: Bytes::from_static(b"/bench/~head"), value: Bytes::from_static(&[0; 48]) };
    let puts = [Put { key, value }].into_iter().chain(options.with_head.then_some(head));
    let success = puts.map(|put| RequestOp { put: Some(put) }).collect();
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await?;
    let codec: ProstCodec<Txn, TxnResponse> = ProstCodec::default();
    let done = grpc.unary(tonic::Request::new(Txn { success }), TXN, codec).await?;
    ensure!(done.into_inner().succeeded, "etcd has rejected a transaction");
    Ok(())
}

//! Many watchers and one writer: the time until a change arrives at each of them.
//!
//! The writer puts the time into each write, so that every event itself contains the time of its
//! sending. Delivery is the time from then until a watcher has read the whole event.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::{Bytes, BytesMut};
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::histogram::Times;
use crate::object::{self, Maker};
use crate::procs::{Meter, usage_of_all};
use crate::target::{self, Target};
use crate::wire::Client;

/// How long to wait for events after the last write.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest event; more bytes without a line end are an error.
const EVENT_BYTES_MAX: usize = 8 << 20;

/// `postern-bench watch`.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    #[command(flatten)]
    target: target::Options,
    /// The kubeconfig of another server on the same store: writes go there
    #[arg(long)]
    writer_kubeconfig: Option<PathBuf>,
    /// The collection that is written to
    #[arg(long)]
    path: String,
    /// The query that is added to the collection's path for a watch
    #[arg(long, default_value = "?watch=true")]
    watch_query: String,
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5000))]
    watchers: u32,
    /// Writes in all
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    events: u32,
    /// Writes a second
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Objects are named PREFIX-NUMBER
    #[arg(long, default_value = "watched")]
    prefix: String,
    /// Bytes of a body that is sent
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    body_bytes: u32,
}

/// The results of all watchers.
struct Seen {
    times: Times,
    bytes: u64,
}

/// Opens the watches, writes, and returns how long events took.
pub(crate) async fn run(options: &Options) -> Result<Value> {
    let target = Arc::new(Target::new(&options.target)?);
    // A list has other forms: only the watches ask for one.
    let plain = match &options.writer_kubeconfig {
        Some(path) => Target::of_kubeconfig(path)?,
        None => Target::clone(&target),
    };
    let plain = Arc::new(Target { accept: None, ..plain });
    let mut writer = Client::connect(&plain).await.context("the writer cannot connect")?;
    let seen = Arc::new(Mutex::new(Seen { times: Times::new()?, bytes: 0 }));
    let started = Instant::now();
    let path = format!("{}{}", options.path, with_version(options, &mut writer).await?);
    let mut followers = JoinSet::new();
    for _ in 0..options.watchers {
        let (client, stream) = open(&target, &path).await?;
        followers.spawn(follow(client, stream, options.events, started, seen.clone()));
    }
    let meter = Meter::start(&options.target.pids);
    let (write_times, refused) = write(options, &mut writer, started).await?;
    let complete = wait_for_all(&mut followers).await;
    let seen = seen.lock();
    let events = seen.times.len();
    let mut result = json!({
        "op": "watch",
        "http": options.target.http,
        "watchers": options.watchers,
        "rate": options.rate,
        "writes_refused": refused,
        "watchers_complete": complete,
        "events": events,
        "events_expected": u64::from(options.events) * u64::from(options.watchers),
        "event_bytes_average": seen.bytes.checked_div(events),
        "write_microseconds": write_times.percentiles(),
        "delivery_microseconds": seen.times.percentiles(),
        "rss_kib_with_watchers": usage_of_all(&options.target.pids).rss_kib,
    });
    meter.stop(options.events.into(), &mut result);
    Ok(result)
}

/// The query with the collection's version, if it has one: a watch from there has no events
/// for objects that exist already.
async fn with_version(options: &Options, writer: &mut Client) -> Result<String> {
    let path = format!("{}?limit=1", options.path);
    let response = writer.exchange(Method::GET, &path, Bytes::new(), true).await?;
    let list: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let version = list["metadata"]["resourceVersion"].as_str();
    let version = version.map(|version| format!("&resourceVersion={version}"));
    Ok(format!("{}{}", options.watch_query, version.unwrap_or_default()))
}

async fn open(target: &Arc<Target>, path: &str) -> Result<(Client, Incoming)> {
    let mut client = Client::connect(target).await.context("a watcher cannot connect")?;
    let response = client.send(Method::GET, path, Bytes::new()).await?;
    let status = response.status();
    ensure!(status.is_success(), "GET {path} returned {status}");
    Ok((client, response.into_body()))
}

/// Reads until all events have come; an early end of the stream is an error.
async fn follow(
    client: Client,
    mut stream: Incoming,
    events: u32,
    started: Instant,
    seen: Arc<Mutex<Seen>>,
) -> Result<Client> {
    let mut buffer = BytesMut::new();
    let mut missing = events;
    while missing > 0 {
        let frame = stream.frame().await.context("the watch ended early")??;
        let Ok(data) = frame.into_data() else { continue };
        buffer.extend_from_slice(&data);
        ensure!(buffer.len() <= EVENT_BYTES_MAX, "an event has no end");
        while let Some(end) = memchr::memchr(b'\n', &buffer) {
            let event = buffer.split_to(end + 1);
            if let Some(sent) = object::sent(&event) {
                let mut seen = seen.lock();
                seen.times.record(started.elapsed().saturating_sub(sent));
                seen.bytes += event.len() as u64;
                missing = missing.saturating_sub(1);
            }
        }
    }
    Ok(client)
}

/// Writes when each write is due, and not before the last one has its response.
async fn write(options: &Options, writer: &mut Client, started: Instant) -> Result<(Times, u64)> {
    let maker = Maker::new(options.body_bytes as usize);
    let mut times = Times::new()?;
    let mut refused = 0;
    let first_due = Instant::now();
    for number in 0..options.events {
        let due = first_due + Duration::from_secs_f64(f64::from(number) / f64::from(options.rate));
        tokio::time::sleep_until(due.into()).await;
        let name = object::name(&options.prefix, number.into());
        let sent = Instant::now();
        let body = maker.secret(&name, None, started.elapsed());
        let response = writer.exchange(Method::POST, &options.path, body, false).await?;
        times.record(sent.elapsed());
        refused += u64::from(response.status >= 300);
    }
    Ok((times, refused))
}

/// How many watchers have seen everything. Their connections stay open until all have.
async fn wait_for_all(watchers: &mut JoinSet<Result<Client>>) -> usize {
    let mut complete = Vec::new();
    let all = async {
        while let Some(ended) = watchers.join_next().await {
            complete.extend(ended.ok().and_then(Result::ok));
        }
    };
    // Late events are counted as missing.
    drop(tokio::time::timeout(LAST_EVENT_TIMEOUT, all).await);
    complete.len()
}

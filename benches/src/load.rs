//! One kind of request over many connections, as fast as responses come or at a fixed rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::histogram::Times;
use crate::object::{self, Maker, Random};
use crate::procs::Meter;
use crate::target::{self, Target};
use crate::wire::{Client, Response};

/// The time after which a request without a response is given up.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

/// The longest pause before a retry, even if `Retry-After` is longer.
const RETRY_AFTER_SECONDS_MAX: u64 = 5;

/// The number of requests without a response after which the run is given up.
const FAILURES_MAX: u64 = 1000;

/// The manager that applies whole objects.
const WHOLE_OBJECTS: &str = "bench";

/// The query of a watch that begins with all objects.
const WATCH_LIST: &str = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                          &allowWatchBookmarks=true";

/// The annotation of the bookmark that ends them.
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";

/// The kind of request.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq)]
pub(crate) enum Operation {
    /// POST of a new object to the collection
    Create,
    /// GET of an object by name, a random one of those that exist
    Get,
    /// PUT of an object with its last version
    Update,
    /// PATCH of an annotation of an object by name, a random one of those that exist
    Patch,
    /// PATCH as server-side apply, of one object after the other: of a whole object by the manager
    /// `bench`, and of a label by any other
    Apply,
    /// GET of the collection's own path: a list, or any other page
    #[value(alias = "raw")]
    List,
    /// GET of the collection's own path as a watch that begins with all objects, until the bookmark
    /// that ends them. Each is on a separate connection, which is made before
    WatchList,
    /// PUT of a value under a new name, as key-value stores have it
    KvPut,
    /// PUT of a value under a name that exists
    KvUpdate,
}

/// `postern-bench load`.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    #[arg(value_enum)]
    operation: Operation,
    #[command(flatten)]
    target: target::Options,
    /// The collection's path, with its query if any
    #[arg(long)]
    path: String,
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=5000))]
    connections: u32,
    /// Requests at once on each HTTP/2 connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=250))]
    streams: u32,
    /// Stop after so many requests
    #[arg(long, default_value_t = 100_000_000)]
    count: u64,
    /// Stop after so many seconds, even if requests are left
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Requests a second, sent when they are due; latency counts from then. 0 is as fast as possible
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    rate: u32,
    /// Waits before a retry as long as Retry-After says, and does not retry at once
    #[arg(long)]
    heed_retry_after: bool,
    /// Objects are named PREFIX-NUMBER
    #[arg(long, default_value = "bench")]
    prefix: String,
    /// The number of the first object
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many objects there are
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    objects: u64,
    /// Each connection gets or patches one object alone: the first one the first object, and so on.
    /// The slowest connection's 99th percentile is in the result
    #[arg(long, conflicts_with = "objects")]
    own_object: bool,
    /// The field manager of applies
    #[arg(long, default_value = WHOLE_OBJECTS)]
    manager: String,
    /// Bytes of a body that is sent
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    body_bytes: u32,
}

/// The state that all workers of a run share.
struct Run {
    options: Options,
    maker: Maker,
    started: Instant,
    taken: AtomicU64,
    stop: AtomicBool,
    tally: Mutex<Tally>,
}

/// The responses so far.
struct Tally {
    statuses: BTreeMap<u16, u64>,
    succeeded: Times,
    refused: Times,
    with_retry_after: u64,
    failures: u64,
    first_failure: Option<String>,
    body_bytes: u64,
    /// The largest p99 of one connection, in microseconds, where each is measured.
    slowest_p99: Option<u64>,
}

impl Tally {
    fn new() -> Result<Self> {
        Ok(Self {
            statuses: BTreeMap::new(),
            succeeded: Times::new()?,
            refused: Times::new()?,
            with_retry_after: 0,
            failures: 0,
            first_failure: None,
            body_bytes: 0,
            slowest_p99: None,
        })
    }

    fn add(&mut self, response: &Response, time: Duration) {
        *self.statuses.entry(response.status).or_default() += 1;
        self.with_retry_after += u64::from(response.retry_after_seconds.is_some());
        if response.status < 300 {
            self.succeeded.record(time);
            self.body_bytes += response.body_bytes;
        } else {
            self.refused.record(time);
        }
    }
}

/// Connects, sends the requests, and returns the results.
pub(crate) async fn run(options: &Options) -> Result<Value> {
    let mut workers = connect(options).await?;
    if options.operation == Operation::Update {
        learn_versions(options, &mut workers).await?;
    }
    let run = Arc::new(Run {
        options: options.clone(),
        maker: Maker::new(options.body_bytes as usize),
        started: Instant::now(),
        taken: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        tally: Mutex::new(Tally::new()?),
    });
    let meter = Meter::start(&options.target.pids);
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(work(run.clone(), worker));
    }
    let deadline = Duration::from_secs(options.seconds);
    let all = async { while tasks.join_next().await.is_some() {} };
    tokio::pin!(all);
    if tokio::time::timeout(deadline, &mut all).await.is_err() {
        run.stop.store(true, Ordering::Relaxed);
        all.await;
    }
    result(&run, &meter)
}

/// A client that sends requests, with its state.
struct Worker {
    client: Client,
    random: Random,
    /// The objects that only this worker updates, and their versions.
    versions: Vec<(u64, String)>,
    own: Option<Own>,
}

/// The object that one connection gets or patches alone, and how long that takes.
struct Own {
    number: u64,
    times: Times,
}

async fn connect(options: &Options) -> Result<Vec<Worker>> {
    let targets = Target::of_each_credential(&options.target)?;
    let mut workers = Vec::new();
    for (number, target) in (0..options.connections).zip(targets.iter().cycle()) {
        let client = Client::connect(target).await.context("cannot connect")?;
        let streams = if target.http2 { options.streams } else { 1 };
        let shares: Vec<_> = (1..streams).filter_map(|_| client.share()).collect();
        for client in std::iter::once(client).chain(shares) {
            let random = Random::new(workers.len() as u64 + 1);
            let number = options.first + u64::from(number);
            let own = options.own_object.then(|| Times::new().map(|times| Own { number, times }));
            let own = own.transpose()?;
            workers.push(Worker { client, random, versions: Vec::new(), own });
        }
    }
    Ok(workers)
}

/// Reads the version of every object, each for the one worker that will update it.
async fn learn_versions(options: &Options, workers: &mut [Worker]) -> Result<()> {
    let count = workers.len();
    for number in 0..options.objects {
        let index = usize::try_from(number)? % count;
        let worker = workers.get_mut(index).context("there is no worker")?;
        let number = options.first + number;
        let path = format!("{}/{}", options.path, object::name(&options.prefix, number));
        let response = worker.client.exchange(Method::GET, &path, Bytes::new(), true).await?;
        let version = object::version(&response.body);
        let version =
            version.with_context(|| format!("GET {path} returned {}", response.status))?;
        worker.versions.push((number, version));
    }
    ensure!(workers.iter().all(|worker| !worker.versions.is_empty()), "more workers than objects");
    Ok(())
}

async fn work(run: Arc<Run>, mut worker: Worker) {
    let mut turn = 0;
    while !run.stop.load(Ordering::Relaxed) {
        let ticket = run.taken.fetch_add(1, Ordering::Relaxed);
        if ticket >= run.options.count {
            break;
        }
        let due = due(&run, ticket).await;
        let (request, index) = request(&run, &mut worker, ticket, turn);
        turn += 1;
        let is_watch = run.options.operation == Operation::WatchList;
        let sending = async {
            if is_watch {
                return worker.client.read_until(&request.path, INITIAL_EVENTS_END).await;
            }
            let keep = index.is_some();
            worker.client.exchange(request.method, &request.path, request.body, keep).await
        };
        let result = match tokio::time::timeout(RESPONSE_TIMEOUT, sending).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("no response for {RESPONSE_TIMEOUT:?}")),
        };
        match result {
            Ok(response) => {
                let time = due.elapsed();
                run.tally.lock().add(&response, time);
                if is_watch && worker.client.reconnect().await.is_err() {
                    break;
                }
                if let Some(own) = worker.own.as_mut().filter(|_| response.status < 300) {
                    own.times.record(time);
                }
                let version = object::version(&response.body).filter(|_| response.status < 300);
                if let (Some(index), Some(version)) = (index, version) {
                    worker.versions[index].1 = version;
                }
                if run.options.heed_retry_after
                    && let Some(seconds) = response.retry_after_seconds
                {
                    let pause = Duration::from_secs(seconds.min(RETRY_AFTER_SECONDS_MAX));
                    tokio::time::sleep(pause).await;
                }
            }
            Err(error) => {
                if reconnect(&run, &mut worker, &error).await.is_err() {
                    break;
                }
            }
        }
    }
    let p99 = worker.own.filter(|own| own.times.len() > 0).map(|own| own.times.p99());
    let mut tally = run.tally.lock();
    tally.slowest_p99 = tally.slowest_p99.max(p99);
}

/// Waits until the request is due, if there is a rate. Returns when it was due.
async fn due(run: &Run, ticket: u64) -> Instant {
    if run.options.rate == 0 {
        return Instant::now();
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let after = Duration::from_secs_f64(ticket as f64 / f64::from(run.options.rate));
    let due = run.started + after;
    tokio::time::sleep_until(due.into()).await;
    due
}

/// Counts a failure and connects again; an error ends the worker.
async fn reconnect(run: &Run, worker: &mut Worker, error: &anyhow::Error) -> Result<()> {
    {
        let mut tally = run.tally.lock();
        tally.failures += 1;
        tally.first_failure.get_or_insert_with(|| format!("{error:#}"));
        if tally.failures > FAILURES_MAX {
            run.stop.store(true, Ordering::Relaxed);
            bail!("too many failures");
        }
    }
    worker.client.reconnect().await
}

struct Prepared {
    method: Method,
    path: String,
    body: Bytes,
}

/// The next request of a worker, and the index of the version that its response has.
fn request(run: &Run, worker: &mut Worker, ticket: u64, turn: usize) -> (Prepared, Option<usize>) {
    let options = &run.options;
    let sent = run.started.elapsed();
    let new_name = || object::name(&options.prefix, options.first + ticket);
    let under = |name: &str| format!("{}/{name}", options.path);
    let (method, path, body, index) = match options.operation {
        Operation::Create => {
            let body = run.maker.secret(&new_name(), None, sent);
            (Method::POST, options.path.clone(), body, None)
        }
        Operation::Get => (Method::GET, under(&one_of(options, worker)), Bytes::new(), None),
        Operation::Patch => {
            (Method::PATCH, under(&one_of(options, worker)), Maker::patch(sent), None)
        }
        Operation::Apply => {
            let name = object::name(&options.prefix, options.first + ticket % options.objects);
            let body = match options.manager.as_str() {
                WHOLE_OBJECTS => run.maker.secret(&name, None, sent),
                manager => Maker::label(&name, manager, sent),
            };
            let path = format!("{}?fieldManager={}&force=true", under(&name), options.manager);
            (Method::PATCH, path, body, None)
        }
        Operation::Update => {
            let index = turn % worker.versions.len();
            let (number, version) = &worker.versions[index];
            let name = object::name(&options.prefix, *number);
            let body = run.maker.secret(&name, Some(version), sent);
            (Method::PUT, under(&name), body, Some(index))
        }
        Operation::List => (Method::GET, options.path.clone(), Bytes::new(), None),
        Operation::WatchList => {
            (Method::GET, format!("{}{WATCH_LIST}", options.path), Bytes::new(), None)
        }
        Operation::KvPut => {
            let name = new_name();
            (Method::PUT, under(&name), run.maker.value(&name, sent), None)
        }
        Operation::KvUpdate => {
            let name = any(options, &mut worker.random);
            (Method::PUT, under(&name), run.maker.value(&name, sent), None)
        }
    };
    (Prepared { method, path, body }, index)
}

/// The name of the worker's own object, or of a random one.
fn one_of(options: &Options, worker: &mut Worker) -> String {
    match &worker.own {
        Some(own) => object::name(&options.prefix, own.number),
        None => any(options, &mut worker.random),
    }
}

/// The name of a random object, each with the same probability.
fn any(options: &Options, random: &mut Random) -> String {
    let limit = usize::try_from(options.objects).unwrap_or(usize::MAX);
    object::name(&options.prefix, options.first + random.below(limit) as u64)
}

fn result(run: &Run, meter: &Meter) -> Result<Value> {
    let tally = run.tally.lock();
    let answered: u64 = tally.statuses.values().sum();
    if answered == 0 {
        bail!("nothing was answered: {}", tally.first_failure.as_deref().unwrap_or("no request"));
    }
    let succeeded = tally.succeeded.len();
    let mut result = json!({
        "op": format!("{:?}", run.options.operation).to_lowercase(),
        "http": run.options.target.http,
        "connections": run.options.connections,
        "rate": run.options.rate,
        "answered": answered,
        "succeeded": succeeded,
        "statuses": tally.statuses,
        "failures": tally.failures,
        "first_failure": tally.first_failure,
        "with_retry_after": tally.with_retry_after,
        "body_bytes_average": tally.body_bytes.checked_div(succeeded),
        "latency_microseconds": tally.succeeded.percentiles(),
        "refused_latency_microseconds": tally.refused.percentiles(),
        "slowest_connection_p99_microseconds": tally.slowest_p99,
    });
    meter.stop(answered, &mut result);
    let seconds = result["seconds"].as_f64().unwrap_or(0.0).max(0.001);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let rate = succeeded as f64 / seconds;
    result["succeeded_per_second"] = json!(rate.round());
    Ok(result)
}

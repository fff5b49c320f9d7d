//! The clients that do not attack: their requests during an attack, how long these take, and the
//! resources that the server uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use postern_tests::http::{Client, Connection, Request};
use rustix::process::{Pid, setpriority_process};
use serde_json::json;

use crate::attacks::scene::{Scene, key_path};
use postern_tests::Form;

/// The longest wait for a response, after which the request has failed. No machine needs this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes a request about an access key. The number is a new one for each.
type MakeRequest = for<'a> fn(&'a Client, &str, u64) -> Request<'a>;

/// A request that is sent again and again at a modest rate.
#[derive(Clone)]
struct Probe {
    client: Client,
    request: MakeRequest,
    /// The path of the sender's own access key.
    key: String,
    period: Duration,
    /// Whether it has one connection for all of its requests, or one for each.
    keeps_connection: bool,
}

/// The results of one probe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// How long each answer took, in ascending order. One that did not come counts with its wait.
    times: Vec<Duration>,
    /// The requests without success, each with its reason.
    pub(crate) failures: Vec<String>,
}

/// The results of all probes in one interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interval {
    pub(crate) livez: Seen,
    pub(crate) admin: Seen,
    pub(crate) reads: Seen,
    pub(crate) writes: Seen,
}

/// The clients that the server must serve.
pub(crate) struct Victims {
    probes: [Vec<Probe>; 4],
}

/// Probes that are running, in a thread of their own: a busy attacker does not make them late.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<[Seen; 4]>,
}

impl Seen {
    /// The longest time.
    pub(crate) fn max(&self) -> Duration {
        self.times.last().copied().unwrap_or_default()
    }

    /// The 99th percentile.
    pub(crate) fn p99(&self) -> Duration {
        let index = (self.times.len() * 99).div_ceil(100).saturating_sub(1);
        self.times.get(index).copied().unwrap_or_default()
    }

    fn merge(all: impl IntoIterator<Item = Self>) -> Self {
        let mut merged = Self::default();
        for seen in all {
            merged.times.extend(seen.times);
            merged.failures.extend(seen.failures);
        }
        merged.times.sort_unstable();
        merged
    }
}

impl Interval {
    /// The requests without success.
    pub(crate) fn failures(&self) -> Vec<String> {
        let all = [&self.livez, &self.admin, &self.reads, &self.writes];
        all.iter().flat_map(|seen| seen.failures.iter().cloned()).collect()
    }
}

/// How often `/livez` and the administrator's GET are asked for.
const OPERATOR_PERIOD: Duration = Duration::from_millis(100);

impl Victims {
    /// Prepares one ordinary user that reads and writes fifty times a second each, next to the
    /// administrator and the probe of liveness.
    pub(crate) async fn new(scene: &Scene) -> Self {
        Self::of(scene, 1, Duration::from_millis(20)).await
    }

    /// Prepares so many ordinary users, each of whom reads and writes once in a period.
    pub(crate) async fn of(scene: &Scene, users: usize, period: Duration) -> Self {
        let livez: MakeRequest = |client, _, _| client.get("/livez");
        let get: MakeRequest = |client, key, _| client.get(key);
        let change: MakeRequest = |client, key, number| {
            let patch = json!({ "metadata": { "annotations": { "n": number.to_string() } } });
            client.patch(key, "merge-patch", &patch)
        };
        let mut probes = [const { Vec::new() }; 4];
        for number in 0..users {
            let name = format!("victim{number}");
            let client = scene.other(&scene.user(&name).await);
            let key = key_path(&format!("{name}-key"));
            let mut add = |at: usize, client: &Client, request, period, keeps_connection| {
                let (client, key) = (client.clone(), key.clone());
                probes[at].push(Probe { client, request, key, period, keeps_connection });
            };
            if number == 0 {
                add(0, &scene.admin, livez, OPERATOR_PERIOD, false);
                add(1, &scene.admin, get, OPERATOR_PERIOD, false);
            }
            add(2, &client, get, period, true);
            add(3, &client, change, period, true);
        }
        Self { probes }
    }

    /// Begins to send requests.
    pub(crate) fn start(&self) -> Running {
        let probes = self.probes.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(run_all(probes, &stopping))
        });
        Running { stop, thread }
    }

    /// Runs the probes while a future runs. Returns their results, and the future's own result.
    pub(crate) async fn during<T>(
        &self,
        form: Form,
        attack: impl Future<Output = T>,
    ) -> (Interval, T) {
        let attackers = form.pick(Vec::new(), threads());
        let running = self.start();
        give_way(&attackers);
        let result = attack.await;
        (running.finish(), result)
    }
}

/// How far attackers give way to the server and to the other clients, in the full form. They share
/// the processors with the server here, which attackers do not elsewhere.
const NICENESS: i32 = 10;

/// The threads of this process.
fn threads() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the kernel lists our threads");
    let names = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    names.filter_map(Pid::from_raw).collect()
}

/// Lowers the priority of threads, and of those that they start from now on.
fn give_way(threads: &[Pid]) {
    for thread in threads {
        // A thread that has ended needs no lower priority.
        let _ = setpriority_process(Some(*thread), NICENESS);
    }
}

impl Running {
    /// Waits for the last answers, and returns all that was seen.
    pub(crate) fn finish(self) -> Interval {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join().expect("the probes do not panic");
        let [livez, admin, reads, writes] = seen;
        Interval { livez, admin, reads, writes }
    }
}

async fn run_all(probes: [Vec<Probe>; 4], stop: &Arc<AtomicBool>) -> [Seen; 4] {
    let tasks = probes.map(|probes| {
        let run = |probe| tokio::spawn(run(probe, Arc::clone(stop)));
        probes.into_iter().map(run).collect::<Vec<_>>()
    });
    let mut all = [const { Vec::new() }; 4];
    for (seen, tasks) in all.iter_mut().zip(tasks) {
        for task in tasks {
            seen.push(task.await.expect("a probe does not panic"));
        }
    }
    all.map(Seen::merge)
}

async fn run(probe: Probe, stop: Arc<AtomicBool>) -> Seen {
    let mut seen = Seen::default();
    let mut connection = None;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let sent = tokio::time::timeout(PATIENCE, probe.send(number, &mut connection)).await;
        seen.times.push(started.elapsed());
        if let Err(error) = sent.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
            connection = None;
            seen.failures.push(error);
        }
        number += 1;
        tokio::time::sleep_until((started + probe.period).into()).await;
    }
    seen
}

impl Probe {
    async fn send(&self, number: u64, connection: &mut Option<Connection>) -> Result<(), String> {
        let mut open = match connection.take() {
            Some(open) => open,
            None => self.client.connect().await?,
        };
        let reply = (self.request)(&self.client, &self.key, number).try_send_on(&mut open).await?;
        *connection = self.keeps_connection.then_some(open);
        if reply.status == 200 {
            Ok(())
        } else {
            Err(format!("{}: {}", reply.status, reply.text()))
        }
    }
}

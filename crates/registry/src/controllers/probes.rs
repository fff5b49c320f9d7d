//! Probes: tries the route to each cluster and instance, and writes the result into its status. Admission then sets the
//! phase, and keeps a digest of the route in the status. If the route changes, the result is unknown, and the route is
//! tried at once. Otherwise it is tried once a minute, and less often while it fails.
//!
//! One server of several tries an object. The objects of a project are tried one after another, so that a tenant with many
//! targets that do not respond delays only its own.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postern_auth::gateway_path::GatewayTarget;
use postern_kinds::cluster::Cluster;
use postern_kinds::probe::{Probe, ProbeResult};
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, Verb};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_telemetry::log_limited;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::cursor::{Cursor, CursorRead};
use crate::admit::{Part, Writing};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The kinds with a route.
const KINDS: [&dyn AnyKind; 3] = [&Cluster, &VirtualClusterInstance, &SpaceInstance];

/// The time between two attempts at a route that works.
const INTERVAL: Duration = Duration::from_mins(1);

/// The time after the first failed attempt. Each further failure doubles it, up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_mins(15);

/// The age from which a result is unknown.
const MAX_AGE: Duration = Duration::from_mins(3);

/// How often the ages are checked.
const AGE_CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// The time in which changes are collected.
const BATCH_INTERVAL: Duration = Duration::from_millis(20);

/// The attempts at the same time at clusters, and at instances. Tenants with many instances do not delay clusters.
const MAX_ATTEMPTS: [usize; 2] = [32, 32];

/// Tries the route to a target, and returns the result. It always ends within seconds.
pub type Attempt = Arc<dyn Fn(GatewayTarget) -> BoxFuture<'static, ProbeResult> + Send + Sync>;

/// An object with a route: the index of its kind in [`KINDS`], and its storage key.
type Probed = (usize, Arc<str>);

/// The known state of an object with a route.
struct Known {
    state: State,
    failures: u32,
    /// When the last result was obtained, by this server or by another one.
    at: Instant,
    result: ProbeResult,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its next attempt is at this time.
    Due(Instant),
    /// It waits for another object of its project.
    Waiting,
    /// An attempt is under way.
    Running,
}

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>, attempt: Attempt) {
    let mut progress = registry.cache().subscribe();
    let mut probes = Probes::new(registry, attempt);
    let mut next_age_check = Instant::now() + AGE_CHECK_INTERVAL;
    loop {
        progress.mark_unchanged();
        probes.catch_up();
        probes.start_due();
        let next = probes.next_due().map_or(next_age_check, |(at, _)| next_age_check.min(*at));
        tokio::select! {
            changed = progress.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::time::sleep(BATCH_INTERVAL).await;
            }
            Some(done) = probes.running.join_next() => {
                // After a panic, the task starts again.
                let Ok((of, result)) = done else { return };
                probes.finish(&of, result);
            }
            () = sleep_until(next) => {
                if Instant::now() >= next_age_check {
                    next_age_check = Instant::now() + AGE_CHECK_INTERVAL;
                    probes.forget_old().await;
                }
            }
        }
    }
}

struct Probes {
    registry: Arc<Registry>,
    attempt: Attempt,
    /// The cursor in the events of each of [`KINDS`].
    cursors: [Cursor; 3],
    known: HashMap<Probed, Known>,
    /// The times of the next attempts, by lane.
    due: [BTreeSet<(Instant, Probed)>; 2],
    /// The number of attempts under way, by lane.
    attempts: [usize; 2],
    /// The queues of projects with an attempt under way.
    queues: HashMap<Arc<str>, VecDeque<Probed>>,
    running: JoinSet<(Probed, Option<ProbeResult>)>,
}

impl Probes {
    fn new(registry: Arc<Registry>, attempt: Attempt) -> Self {
        Self {
            registry,
            attempt,
            cursors: [Cursor::default(); 3],
            known: HashMap::new(),
            due: [BTreeSet::new(), BTreeSet::new()],
            attempts: [0, 0],
            queues: HashMap::new(),
            running: JoinSet::new(),
        }
    }

    fn relist(&mut self, kind: usize) {
        for object in self.registry.cache().of(KINDS[kind].info()).page(None, usize::MAX) {
            self.note(&(kind, object.key().clone()));
        }
    }

    /// Reads all events since the last call.
    fn catch_up(&mut self) {
        let registry = self.registry.clone();
        for (kind, of) in KINDS.iter().enumerate() {
            while let Some(read) = self.cursors[kind].next(registry.cache().of(of.info())) {
                match read {
                    CursorRead::Events(events) => {
                        for event in &events {
                            self.note(&(kind, event.object.key().clone()));
                        }
                    }
                    CursorRead::Expired => self.relist(kind),
                }
            }
        }
    }

    /// Notes the state of an object: a route that was not tried is due now, and an object without a route never.
    fn note(&mut self, probed: &Probed) {
        let Some(probe) = read(&self.registry, probed).as_ref().and_then(Probe::of) else {
            self.set_due(probed, None);
            self.known.remove(probed);
            return;
        };
        let now = Instant::now();
        let is_new = !self.known.contains_key(probed);
        let known = self.known.entry(probed.clone()).or_insert(Known {
            state: State::Running,
            failures: 0,
            at: now,
            result: probe.result,
        });
        if is_new {
            known.state = State::Due(now);
            let wait =
                if probe.result == ProbeResult::Unknown { Duration::ZERO } else { spread(probed) };
            self.set_due(probed, Some(now + wait));
            return;
        }
        let is_changed = known.result != probe.result;
        known.result = probe.result;
        if is_changed {
            known.at = now;
        }
        if probe.result == ProbeResult::Unknown && matches!(known.state, State::Due(_)) {
            known.failures = 0;
            self.set_due(probed, Some(now));
        }
    }

    /// Sets the time of the next attempt at an object that neither waits nor runs.
    fn set_due(&mut self, probed: &Probed, at: Option<Instant>) {
        let Some(known) = self.known.get_mut(probed) else { return };
        if let State::Due(before) = known.state {
            self.due[lane_of(probed)].remove(&(before, probed.clone()));
        }
        if let Some(at) = at {
            known.state = State::Due(at);
            self.due[lane_of(probed)].insert((at, probed.clone()));
        }
    }

    /// The next attempt, of the lanes with room for one.
    fn next_due(&self) -> Option<&(Instant, Probed)> {
        let lanes = self.due.iter().zip(self.attempts).zip(MAX_ATTEMPTS);
        let free = lanes.filter(|((_, attempts), max)| attempts < max);
        free.filter_map(|((due, _), _)| due.first()).min()
    }

    /// Starts the attempts that are due, as far as there is room.
    fn start_due(&mut self) {
        while let Some((at, probed)) = self.next_due().cloned()
            && at <= Instant::now()
        {
            self.due[lane_of(&probed)].remove(&(at, probed.clone()));
            if !self.registry.servers().is_first_for(&probed.1) {
                // The server that has the turn keeps the result up to date.
                if let Some(known) = self.known.get_mut(&probed) {
                    known.at = Instant::now();
                }
                self.set_due(&probed, Some(Instant::now() + INTERVAL));
                continue;
            }
            let group = group_of(&probed);
            let Some(queue) = self.queues.get_mut(&group) else {
                self.queues.insert(group, VecDeque::new());
                self.start(probed);
                continue;
            };
            queue.push_back(probed.clone());
            if let Some(known) = self.known.get_mut(&probed) {
                known.state = State::Waiting;
            }
        }
    }

    fn start(&mut self, probed: Probed) {
        if let Some(known) = self.known.get_mut(&probed) {
            known.state = State::Running;
        }
        self.attempts[lane_of(&probed)] += 1;
        let (registry, attempt) = (self.registry.clone(), self.attempt.clone());
        self.running.spawn(async move {
            let result = try_route(&registry, &attempt, &probed).await;
            (probed, result)
        });
    }

    /// Notes the end of an attempt; its result is `None` if there was none.
    fn finish(&mut self, probed: &Probed, result: Option<ProbeResult>) {
        self.attempts[lane_of(probed)] -= 1;
        let group = group_of(probed);
        loop {
            let next = self.queues.get_mut(&group).and_then(VecDeque::pop_front);
            match next {
                Some(next) if self.is_waiting(&next) => {
                    self.start(next);
                    break;
                }
                Some(_) => {}
                None => {
                    self.queues.remove(&group);
                    break;
                }
            }
        }
        let Some(known) = self.known.get_mut(probed) else { return };
        known.at = Instant::now();
        known.failures = match result {
            Some(ProbeResult::Reached) => 0,
            _ => known.failures.saturating_add(1),
        };
        let wait = match known.failures {
            0 => INTERVAL,
            failures => LONGEST_RETRY.min(FIRST_RETRY * 2_u32.saturating_pow(failures - 1)),
        };
        let due = known.at + wait;
        self.set_due(probed, Some(due));
        if result.is_none() {
            // The route has changed meanwhile.
            self.note(probed);
        }
    }

    fn is_waiting(&self, probed: &Probed) -> bool {
        self.known.get(probed).is_some_and(|known| known.state == State::Waiting)
    }

    /// Makes results unknown that could not be obtained again in time.
    async fn forget_old(&mut self) {
        let is_old =
            |known: &Known| known.result == ProbeResult::Reached && known.at.elapsed() >= MAX_AGE;
        let old = self.known.iter().filter(|(_, known)| is_old(known));
        let old: Vec<Probed> = old.map(|(probed, _)| probed.clone()).collect();
        for probed in old {
            let Some(probe) = read(&self.registry, &probed).as_ref().and_then(Probe::of) else {
                continue;
            };
            write(&self.registry, &probed, &probe.route, ProbeResult::Unknown).await;
        }
    }
}

/// The lane of an object: 0 for clusters, 1 for instances.
fn lane_of((kind, _): &Probed) -> usize {
    usize::from(*kind > 0)
}

/// The objects of which one is tried at a time: those of a namespace. Each cluster is alone.
fn group_of((_, key): &Probed) -> Arc<str> {
    storage_key::name_of(key).0.map_or_else(|| key.clone(), Into::into)
}

/// A part of the interval that differs between objects, so that a server does not try all at once after its start.
fn spread((_, key): &Probed) -> Duration {
    let sum = key.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    INTERVAL * (sum % 64) / 64
}

fn read(registry: &Registry, (kind, key): &Probed) -> Option<Object> {
    registry.cache().of(KINDS[*kind].info()).get(key).ok().flatten()?.decode().ok()
}

/// Tries the route to an object, and writes the result; `None` if the object has no route, or another one meanwhile.
async fn try_route(registry: &Registry, attempt: &Attempt, probed: &Probed) -> Option<ProbeResult> {
    let probe = Probe::of(&read(registry, probed)?)?;
    let (namespace, name) = storage_key::name_of(&probed.1);
    let project = || {
        let policy = registry.cache().policy();
        policy.projects().of(namespace.unwrap_or_default()).map(str::to_owned)
    };
    let name = name.to_owned();
    let target = match probed.0 {
        0 => GatewayTarget::Cluster { cluster: name },
        1 => GatewayTarget::ProjectVirtualCluster { project: project()?, name },
        _ => GatewayTarget::Space { project: project()?, name },
    };
    let result = attempt(target).await;
    if result != probe.result {
        write(registry, probed, &probe.route, result).await;
    }
    let now = Probe::of(&read(registry, probed)?)?;
    (now.route == probe.route).then_some(result)
}

/// Writes the result of an attempt at a route, unless the object has another one meanwhile. A failure to write it is
/// tried again with the next attempt.
async fn write(registry: &Registry, (kind, key): &Probed, route: &str, result: ProbeResult) {
    let (namespace, name) = storage_key::name_of(key);
    let permit = Permit::for_server(KINDS[*kind], Verb::Update, namespace, name);
    let writing = Writing { part: Part::Status, ..Writing::by_server() };
    let written = operations::update(registry, &permit, &writing, |now: &Object| {
        let mut new = now.clone();
        if Probe::of(now).is_some_and(|probe| probe.route == route) {
            let status = new.fields.entry("status").or_insert_with(|| Value::Object(Map::new()));
            if let Some(status) = status.as_object_mut() {
                status.insert("probe".to_owned(), json!(Probe { route: route.to_owned(), result }));
            }
        }
        Ok(new)
    });
    report(written.await.map(drop));
}

fn report(written: Result<(), ApiError>) {
    if let Err(error) = written
        && error.code() >= 500
    {
        let inner = error.inner().unwrap_or_default();
        log_limited!(warn, inner, "the result of a probe could not be written: {error}");
    }
}

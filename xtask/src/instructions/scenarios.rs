//! The counted work: each scenario, and how its instructions are counted.
//!
//! Most counts are the difference of two runs of the load program, divided by the difference of
//! their lengths. So they contain neither the start of the server nor the handshake of the
//! connection.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::callgrind::{self, Counted, Counting, start_postern};
use super::fixtures::{Fixture, Fixtures};
use crate::bench::Bench;
use crate::bench::groups::access::{MANY, tokens_file};
use crate::bench::groups::gateway::{CENTRAL, as_gateway, connect, start_agent};
use crate::bench::postern::{BODY_BYTES, spawn_postern};
use crate::bench::server::{Server, directory};

/// A start under callgrind takes at most this long.
const START_TIMEOUT: Duration = Duration::from_mins(3);

/// Replaced by how many requests or events a run has.
const COUNT: &str = "{count}";

/// Replaced by the number of the run, for names that no other run has used.
const RUN: &str = "{run}";

/// One kind of work that the counts measure.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    work: Work,
}

/// How a scenario is counted.
enum Work {
    /// Requests of the load program, by the administrator's key.
    Requests(Fixture, Load),
    /// The same by another key of the fixture.
    RequestsOf(&'static str, Fixture, Load),
    /// Requests to the bare server.
    Bare(Load),
    /// Requests to a cluster through the gateway; the server is counted.
    Gateway(Load),
    /// Requests to a cluster through its agent; the agent is counted.
    Agent(Load),
    /// A start with many objects, less the count of a start with none.
    Start(Fixture),
}

/// Runs of the load program.
struct Load {
    words: &'static [&'static str],
    /// The lengths of the two runs.
    lengths: [u32; 2],
}

const fn load(words: &'static [&'static str], lengths: [u32; 2]) -> Load {
    Load { words, lengths }
}

const GET: &[&str] = &["load", "get", "--prefix", "base", "--count", COUNT];
const LIST: &[&str] = &["load", "list", "--count", COUNT];
const TABLE: &[&str] =
    &["load", "list", "--accept", "application/json;as=Table;g=meta.k8s.io;v=v1", "--count", COUNT];
const CREATE: &[&str] = &["load", "create", "--prefix", RUN, "--count", COUNT];
const UPDATE: &[&str] =
    &["load", "update", "--prefix", "base", "--objects", "100", "--count", COUNT];
const APPLY: &[&str] = &["load", "apply", "--prefix", "base", "--objects", "100", "--count", COUNT];
/// Slow enough that each event is delivered before the next one.
const WATCH: &[&str] =
    &["watch", "--watchers", "100", "--rate", "5", "--prefix", RUN, "--events", COUNT];

/// All scenarios, in the order of the table.
pub(super) const ALL: &[Scenario] = &[
    scenario("bare-get", Work::Bare(load(GET, [200, 1200]))),
    scenario("get", Work::Requests(Fixture::Small, load(GET, [200, 1200]))),
    scenario("get-scoped-key", Work::RequestsOf("scoped", Fixture::Small, load(GET, [200, 1200]))),
    scenario("list-1000-json", Work::Requests(Fixture::Small, load(LIST, [5, 25]))),
    scenario("list-1000-table", Work::Requests(Fixture::Small, load(TABLE, [1, 3]))),
    scenario("create", Work::Requests(Fixture::Small, load(CREATE, [200, 1200]))),
    scenario("update", Work::Requests(Fixture::Small, load(UPDATE, [200, 1200]))),
    scenario("apply", Work::Requests(Fixture::Small, load(APPLY, [200, 1200]))),
    scenario("event-100-watchers", Work::Requests(Fixture::Small, load(WATCH, [5, 25]))),
    scenario("get-gateway", Work::Gateway(load(GET, [200, 1200]))),
    scenario("get-agent", Work::Agent(load(GET, [200, 1200]))),
    scenario(
        "decision-10000-bindings",
        Work::RequestsOf(MANY, Fixture::ManyBindings, load(GET, [200, 1200])),
    ),
    scenario("start-10000-objects", Work::Start(Fixture::ManyObjects)),
];

const fn scenario(name: &'static str, work: Work) -> Scenario {
    Scenario { name, work }
}

/// The programs, directories and options of all counts.
pub(super) struct Counter {
    pub(super) bench: Bench,
    pub(super) fixtures: Fixtures,
    /// Where callgrind's files are kept, if the developer wants them.
    pub(super) profiles: Option<PathBuf>,
}

impl Counter {
    /// The instructions of one request, event or start.
    pub(super) fn count(&self, scenario: &Scenario) -> Result<u64> {
        let bench = &self.bench;
        match &scenario.work {
            Work::Requests(fixture, load) => {
                let server = start_postern(bench, self.fixtures.copy(bench, *fixture)?, &[])?;
                self.count_requests(scenario.name, server, load)
            }
            Work::RequestsOf(key, fixture, load) => {
                let mut server = start_postern(bench, self.fixtures.copy(bench, *fixture)?, &[])?;
                let tokens = tokens_file(&server, key).display().to_string();
                server.access.extend(["--tokens-file".to_owned(), tokens]);
                self.count_requests(scenario.name, server, load)
            }
            Work::Bare(load) => {
                let dir = directory()?;
                let command = callgrind::command(&bench.load, dir.path(), Counting::Later)?;
                self.count_requests(scenario.name, bench.start_bare(command, dir)?, load)
            }
            Work::Gateway(load) => self.count_gateway(scenario.name, load),
            Work::Agent(load) => self.count_agent(scenario.name, load),
            Work::Start(fixture) => {
                let full = self.count_start(scenario.name, *fixture)?;
                let empty = self.count_start("start-empty", Fixture::Empty)?;
                full.checked_sub(empty).context("a start with objects took less than one without")
            }
        }
    }

    fn count_gateway(&self, name: &str, load: &Load) -> Result<u64> {
        let bench = &self.bench;
        let upstream = self.start_upstream()?;
        let central = self.start_central()?;
        connect(bench, &central, &upstream.path("kubeconfig"))?;
        // The objects were made without callgrind; now a server under callgrind serves them.
        let server = start_postern(bench, central.stop()?, &CENTRAL.map(str::to_owned))?;
        self.count_requests(name, as_gateway(bench, server)?, load)
    }

    fn count_agent(&self, name: &str, load: &Load) -> Result<u64> {
        let bench = &self.bench;
        let upstream = self.start_upstream()?;
        let central = self.start_central()?;
        let kubeconfig = upstream.path("kubeconfig");
        let keys = connect(bench, &central, &kubeconfig)?;
        let dir = directory()?;
        let command = callgrind::command(&bench.postern, dir.path(), Counting::Later)?;
        let agent = start_agent(bench, (command, dir), &central, &kubeconfig, &keys)?;
        self.count_requests(name, agent, load)
    }

    /// A cluster that does nothing but respond.
    fn start_upstream(&self) -> Result<Server> {
        self.bench.start_bare(Command::new(&self.bench.load), directory()?)
    }

    fn start_central(&self) -> Result<Server> {
        self.bench.start_postern_with(&CENTRAL.map(str::to_owned))
    }

    fn count_requests(&self, name: &str, server: Server, load: &Load) -> Result<u64> {
        let stop = &self.bench.stop;
        let mut counted = Counted::new(server);
        let [short, long] = load.lengths;
        counted.start(stop)?;
        // The first requests also make the state that later ones find.
        self.run(&mut counted.server, load, short, "warm")?;
        counted.count_background(stop)?;
        counted.reset(stop)?;
        self.run(&mut counted.server, load, short, "short")?;
        let few = counted.take(stop)?;
        self.keep(&counted, &format!("{name}.{short}"))?;
        self.run(&mut counted.server, load, long, "long")?;
        let many = counted.take(stop)?;
        self.keep(&counted, &format!("{name}.{long}"))?;
        let more = many.checked_sub(few).context("more requests took fewer instructions")?;
        Ok(more / u64::from(long - short))
    }

    /// Sends requests over one connection, or events to watchers. All of them have to succeed.
    fn run(&self, server: &mut Server, load: &Load, count: u32, run: &str) -> Result<()> {
        server.check()?;
        let count = count.to_string();
        let given = load.words.iter().map(|word| word.replace(COUNT, &count).replace(RUN, run));
        let mut words: Vec<String> = given.collect();
        words.extend(server.access.iter().cloned());
        words.extend(["--path".to_owned(), server.collection.clone()]);
        words.extend(["--body-bytes", BODY_BYTES].map(str::to_owned));
        let is_load = words.first().is_some_and(|word| word == "load");
        if is_load {
            words.extend(["--connections", "1", "--seconds", "300"].map(str::to_owned));
        }
        let measured = self.bench.run_load(&words)?;
        let (done, wanted) = if is_load {
            (measured.text("succeeded"), count)
        } else {
            (measured.text("events"), measured.text("events_expected"))
        };
        ensure!(done == wanted, "{}: only {done} of {wanted}", words.join(" "));
        Ok(())
    }

    /// The instructions of a server until it is ready.
    fn count_start(&self, name: &str, fixture: Fixture) -> Result<u64> {
        let bench = &self.bench;
        let dir: TempDir = self.fixtures.copy(bench, fixture)?;
        let command = callgrind::command(&bench.postern, dir.path(), Counting::FromStart)?;
        let mut server = spawn_postern(command, dir, &[])?;
        // The server greets once everything is loaded. Requests that ask for readiness would be counted, too.
        bench.stop.wait_for("the server did not start", START_TIMEOUT, || {
            server.check()?;
            Ok(std::fs::metadata(server.path("output"))?.len() > 0)
        })?;
        let mut counted = Counted::new(server);
        let instructions = counted.take(&bench.stop)?;
        self.keep(&counted, name)?;
        Ok(instructions)
    }

    fn keep(&self, counted: &Counted, name: &str) -> Result<()> {
        let Some(directory) = &self.profiles else { return Ok(()) };
        callgrind::keep(counted, directory, name)
    }
}

//! Ten times the connections that the limits admit: the number of refusals, the time of the
//! admitted requests, and whether the server can still be reached.

use anyhow::Result;

use super::figure;
use crate::bench::Bench;
use crate::bench::load::{Measurement, RUN_PREFIX};
use crate::bench::postern::BODY_BYTES;
use crate::bench::report::{Figure, Ratio, Section, Wanted};
use crate::bench::server::Server;

/// A kind of clients.
struct ClientKind {
    who: &'static str,
    operation: &'static str,
    /// Connections: as many as requests of the kind that the server admits at once.
    full: &'static str,
    /// Ten times that.
    too_many: &'static str,
    heed: bool,
    /// How long it lasts, in seconds; many connections take some seconds to open.
    seconds: &'static str,
    /// Whether they use the key of a second user, and not the admin's.
    has_own_user: bool,
}

const CLIENT_KINDS: [ClientKind; 3] = [
    ClientKind {
        who: "writers that respect Retry-After",
        operation: "create",
        full: "200",
        too_many: "2000",
        heed: true,
        seconds: "6",
        has_own_user: false,
    },
    ClientKind {
        who: "writers that retry at once",
        operation: "create",
        full: "200",
        too_many: "2000",
        heed: false,
        seconds: "6",
        has_own_user: false,
    },
    ClientKind {
        who: "readers that retry at once",
        operation: "get",
        full: "400",
        too_many: "4000",
        heed: false,
        seconds: "12",
        has_own_user: true,
    },
];

/// The results of all rounds with one kind of clients.
#[derive(Default)]
struct Results {
    p99: Vec<f64>,
    with_retry_after: Vec<f64>,
    answered: Vec<f64>,
    resident: Vec<f64>,
}

/// Measures full load and overload in alternation, with other requests at the same time.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    bench.fill_postern(&mut postern, 1000)?;
    let mut section = Section::new(&[&postern], bench);
    let admin = postern.access.clone();
    let second_user = access_of_second_user(bench, &postern)?;
    let mut results = CLIENT_KINDS.map(|_| Results::default());
    for _ in 0..bench.pick(3, 1) {
        for (results, kind) in results.iter_mut().zip(&CLIENT_KINDS) {
            let who = if kind.has_own_user { &second_user } else { &admin };
            postern.access.clone_from(who);
            let full = bench.measure(&mut postern, &kind.load(bench, kind.full, false))?;
            let who = format!("{} connections", kind.full);
            section.figures.push(figure(kind.operation, &who, &full));
            let (over, aside) = with_background_requests(bench, &mut postern, kind, &admin)?;
            results.add(&full, &over, &aside);
            let who = format!("{} connections, {}", kind.too_many, kind.who);
            let mut figure = figure(kind.operation, &who, &over);
            figure.values.push(format!("{:.0} responses 429", over.number("statuses.429")));
            section.figures.push(figure);
            section.figures.extend(BACKGROUND_REQUESTS.iter().zip(&aside).map(background_figure));
        }
    }
    for (results, kind) in results.into_iter().zip(&CLIENT_KINDS) {
        section.ratios.extend(results.ratios(kind));
    }
    section.notes.push(
        "Objects are created all the time, and take some of the memory. The client is as busy \
         as the server, and some of the latency is its own. The writers use the admin's own key, \
         the readers that of a second user, so that the admin's reads have a queue of their own."
            .to_owned(),
    );
    Ok(section)
}

impl Results {
    fn add(&mut self, full: &Measurement, over: &Measurement, aside: &[Measurement]) {
        let grown = |name: &str| over.number(name) / full.number(name).max(1.0);
        self.p99.push(grown("latency_microseconds.p99"));
        self.resident.push(grown("peak_rss_kib"));
        let refused = over.number("statuses.429").max(1.0);
        self.with_retry_after.push(over.number("with_retry_after") / refused);
        self.answered.push(aside.iter().map(share_answered).fold(1.0, f64::min));
    }

    fn ratios(self, kind: &ClientKind) -> Vec<Ratio> {
        let row = |what: &str, wanted, rounds| {
            Ratio::of_rounds(&format!("{}: {what}", kind.who), wanted, rounds, None)
        };
        let ClientKind { full, too_many, .. } = kind;
        let p99 = format!("p99 of what is admitted at {too_many} connections, to that at {full}");
        let reached = "share of 200 for /readyz and for the admin's reads meanwhile";
        vec![
            row(&p99, Wanted::AtMost(2.0), self.p99),
            row("share of 429 with Retry-After", Wanted::AtLeast(1.0), self.with_retry_after),
            row(reached, Wanted::AtLeast(1.0), self.answered),
            row("peak memory, to that at full load", Wanted::AtMost(2.0), self.resident),
        ]
    }
}

impl ClientKind {
    fn load(&self, bench: &Bench, connections: &'static str, heed: bool) -> Vec<&'static str> {
        let mut words = match self.operation {
            "get" => vec!["load get", "--prefix", "base", "--objects", "1000"],
            _ => vec!["load create", "--prefix", RUN_PREFIX, "--body-bytes", BODY_BYTES],
        };
        words.extend(["--connections", connections, "--seconds", bench.pick(self.seconds, "3")]);
        words.extend(["--threads", "2"]);
        words.extend(heed.then_some("--heed-retry-after"));
        words
    }
}

/// The requests that are sent ten times a second at the same time.
const BACKGROUND_REQUESTS: [&str; 2] = ["/readyz", "admin's GET"];

/// Runs the overload, while `/readyz` and an object are read with the admin's key.
fn with_background_requests(
    bench: &Bench,
    postern: &mut Server,
    kind: &ClientKind,
    access: &[String],
) -> Result<(Measurement, Vec<Measurement>)> {
    let object = format!("{}/base-00000001", postern.collection);
    std::thread::scope(|scope| {
        let requests: Vec<_> = ["/readyz", &object]
            .map(|path| {
                let mut words = vec!["load".to_owned(), "list".to_owned()];
                words.extend(access.iter().cloned());
                let rate = ["--connections", "1", "--rate", "10", "--path", path, "--seconds"];
                words.extend(rate.map(str::to_owned));
                words.push(bench.pick(kind.seconds, "4").to_owned());
                scope.spawn(move || bench.run_load(&words))
            })
            .into_iter()
            .collect();
        let over = bench.once(postern, &kind.load(bench, kind.too_many, kind.heed));
        let requests = requests.into_iter().map(|request| {
            request.join().map_err(|_| anyhow::anyhow!("a background request panicked"))?
        });
        let requests: Result<Vec<_>> = requests.collect();
        Ok((over?, requests?))
    })
}

/// The load program's arguments for a second user, which has every right.
fn access_of_second_user(bench: &Bench, postern: &Server) -> Result<Vec<String>> {
    bench.postern_cli(postern, &["create", "user", "second", "--groups", "system:masters"])?;
    let key = bench.postern_cli(postern, &["create", "accesskey", "--user", "second"])?;
    let path = postern.path("second.token");
    std::fs::write(&path, key)?;
    let tokens = ["--tokens-file".to_owned(), path.to_string_lossy().into_owned()];
    Ok(postern.access.iter().cloned().chain(tokens).collect())
}

fn share_answered(measurement: &Measurement) -> f64 {
    let all = measurement.number("answered") + measurement.number("failures");
    measurement.number("succeeded") / all.max(1.0)
}

fn background_figure((name, measurement): (&&str, &Measurement)) -> Figure {
    let latency = |at: &str| measurement.number(&format!("latency_microseconds.{at}")) / 1000.0;
    Figure {
        run: format!("{name} during overload, 10 a second"),
        server: "postern".to_owned(),
        values: vec![
            format!(
                "200 for {} of {}",
                measurement.text("succeeded"),
                measurement.text("answered")
            ),
            format!("p50 {:.1} ms", latency("p50")),
            format!("max {:.1} ms", latency("max")),
        ],
    }
}

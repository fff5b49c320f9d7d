//! Ten times the connections that the limits let through: what is refused, how those that are
//! admitted fare, and whether the server can still be reached.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::figure;
use crate::bench::Bench;
use crate::bench::load::{FRESH, Found};
use crate::bench::postern::BODY_BYTES;
use crate::bench::report::{Figure, Ratio, Section, Wanted};
use crate::bench::server::Server;

/// A kind of crowd.
struct Kind {
    who: &'static str,
    operation: &'static str,
    /// Connections: as many as requests of the kind that the server lets in at once.
    full: &'static str,
    /// Ten times that.
    too_many: &'static str,
    heed: bool,
    /// Seconds that it lasts; a larger one takes its time to come together.
    seconds: &'static str,
    /// Has it a key of its own? Else it has the admin's.
    is_somebody_else: bool,
}

const KINDS: [Kind; 3] = [
    Kind {
        who: "writers that heed Retry-After",
        operation: "create",
        full: "200",
        too_many: "2000",
        heed: true,
        seconds: "6",
        is_somebody_else: false,
    },
    Kind {
        who: "writers that come again at once",
        operation: "create",
        full: "200",
        too_many: "2000",
        heed: false,
        seconds: "6",
        is_somebody_else: false,
    },
    Kind {
        who: "readers that come again at once",
        operation: "get",
        full: "400",
        too_many: "4000",
        heed: false,
        seconds: "12",
        is_somebody_else: true,
    },
];

/// What the rounds found of one kind of crowd.
#[derive(Default)]
struct Crowd {
    p99: Vec<f64>,
    told: Vec<f64>,
    answered: Vec<f64>,
    resident: Vec<f64>,
}

/// Full load and overload in alternation, and somebody else who looks in meanwhile.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    bench.fill_postern(&mut postern, 1000)?;
    let mut section = Section::new(&[&postern], bench);
    let admin = postern.access.clone();
    let somebody = key_of_somebody(bench, &postern)?;
    let mut crowds = KINDS.map(|_| Crowd::default());
    for _ in 0..bench.pick(3, 1) {
        for (crowd, kind) in crowds.iter_mut().zip(&KINDS) {
            let who = if kind.is_somebody_else { &somebody } else { &admin };
            postern.access.clone_from(who);
            let full = bench.measure(&mut postern, &kind.load(bench, kind.full, false))?;
            let who = format!("{} connections", kind.full);
            section.figures.push(figure(kind.operation, &who, &full));
            let (over, aside) = with_visitors(bench, &mut postern, kind, &admin)?;
            crowd.add(&full, &over, &aside);
            let who = format!("{} connections, {}", kind.too_many, kind.who);
            let mut figure = figure(kind.operation, &who, &over);
            figure.values.push(format!("{:.0} answers 429", over.number("statuses.429")));
            section.figures.push(figure);
            section.figures.extend(VISITED.iter().zip(&aside).map(visitor));
        }
    }
    for (crowd, kind) in crowds.into_iter().zip(&KINDS) {
        section.ratios.extend(crowd.ratios(kind));
    }
    section.notes.push(
        "Objects are created all the while, so that some of the memory is theirs. The client is as \
         busy as the server, and some of the latency is its own. The writers have the admin's own \
         key, the readers one of somebody else: among readers with his key, the admin draws lots \
         as they do, unless he comes over a new connection."
            .to_owned(),
    );
    Ok(section)
}

impl Crowd {
    fn add(&mut self, full: &Found, over: &Found, aside: &[Found]) {
        let grown = |name: &str| over.number(name) / full.number(name).max(1.0);
        self.p99.push(grown("latency_microseconds.p99"));
        self.resident.push(grown("peak_rss_kib"));
        self.told.push(over.number("retry_after_told") / over.number("statuses.429").max(1.0));
        self.answered.push(aside.iter().map(share_answered).fold(1.0, f64::min));
    }

    fn ratios(self, kind: &Kind) -> Vec<Ratio> {
        let row = |what: &str, wanted, rounds| {
            Ratio::of_rounds(&format!("{}: {what}", kind.who), wanted, rounds, None)
        };
        let Kind { full, too_many, .. } = kind;
        let p99 = format!("p99 of what is admitted at {too_many} connections, to that at {full}");
        let reached = "share of /readyz and of the admin's reads answered 200 meanwhile";
        vec![
            row(&p99, Wanted::AtMost(2.0), self.p99),
            row("share of 429 with Retry-After", Wanted::AtLeast(1.0), self.told),
            row(reached, Wanted::AtLeast(1.0), self.answered),
            row("peak memory, to that at full load", Wanted::AtMost(2.0), self.resident),
        ]
    }
}

impl Kind {
    fn load(&self, bench: &Bench, connections: &'static str, heed: bool) -> Vec<&'static str> {
        let mut words = match self.operation {
            "get" => vec!["load get", "--prefix", "base", "--objects", "1000"],
            _ => vec!["load create", "--prefix", FRESH, "--body-bytes", BODY_BYTES],
        };
        words.extend(["--connections", connections, "--seconds", bench.pick(self.seconds, "3")]);
        words.extend(["--threads", "2"]);
        words.extend(heed.then_some("--heed-retry-after"));
        words
    }
}

/// What is asked for ten times a second meanwhile.
const VISITED: [&str; 2] = ["/readyz", "admin's GET"];

/// Overload, while `/readyz` and the admin's key are used.
fn with_visitors(
    bench: &Bench,
    postern: &mut Server,
    kind: &Kind,
    access: &[String],
) -> Result<(Found, Vec<Found>)> {
    let object = format!("{}/base-00000001", postern.collection);
    std::thread::scope(|scope| {
        let visits: Vec<_> = ["/readyz", &object]
            .map(|path| {
                let mut words = vec!["load".to_owned(), "list".to_owned()];
                words.extend(access.iter().cloned());
                let visit = ["--connections", "1", "--rate", "10", "--path", path, "--seconds"];
                words.extend(visit.map(str::to_owned));
                words.push(bench.pick(kind.seconds, "4").to_owned());
                scope.spawn(move || bench.run_load(&words))
            })
            .into_iter()
            .collect();
        let over = bench.once(postern, &kind.load(bench, kind.too_many, kind.heed));
        let visits = visits
            .into_iter()
            .map(|visit| visit.join().map_err(|_| anyhow::anyhow!("a visitor panicked"))?);
        let visits: Result<Vec<_>> = visits.collect();
        Ok((over?, visits?))
    })
}

/// What the load program is told to come as somebody else who may do everything.
fn key_of_somebody(bench: &Bench, postern: &Server) -> Result<Vec<String>> {
    let admin = postern.path("data/admin.kubeconfig");
    let postern_cli = |arguments: &[&str]| -> Result<String> {
        let mut command = Command::new(&bench.postern);
        let output = command.args(arguments).env("KUBECONFIG", &admin).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    postern_cli(&["create", "user", "somebody", "--groups", "system:masters"])?;
    let key = postern_cli(&["create", "accesskey", "--user", "somebody"])?;
    let text = std::fs::read_to_string(&admin)?;
    let (_, rest) = text.split_once("token: ").context("the kubeconfig has no token")?;
    let old = rest.lines().next().unwrap_or_default().trim_matches('"');
    let path = postern.path("somebody.kubeconfig");
    std::fs::write(&path, text.replace(old, &key))?;
    Ok(vec!["--kubeconfig".to_owned(), path.to_string_lossy().into_owned()])
}

fn share_answered(found: &Found) -> f64 {
    let all = found.number("answered") + found.number("failures");
    found.number("succeeded") / all.max(1.0)
}

fn visitor((name, found): (&&str, &Found)) -> Figure {
    let latency = |at: &str| found.number(&format!("latency_microseconds.{at}")) / 1000.0;
    Figure {
        run: format!("{name} during overload, 10 a second"),
        server: "postern".to_owned(),
        values: vec![
            format!("{} of {} answered 200", found.text("succeeded"), found.text("answered")),
            format!("p50 {:.1} ms", latency("p50")),
            format!("max {:.1} ms", latency("max")),
        ],
    }
}

//! One owner of keys that sends ten times the server's capacity, and twenty others at a modest
//! rate: the effect on the others.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::figure;
use crate::bench::Bench;
use crate::bench::load::Measurement;
use crate::bench::report::{Figure, Ratio, Section, Wanted};
use crate::bench::server::Server;

/// The one kind that an ordinary user may read and write: their own access keys.
const KEYS: &str = "/kubernetes/management/apis/management.platform.sh/v1/ownedaccesskeys";

/// Each of the others is an ordinary user with one key.
const OTHERS: &str = "20";

/// The reads that all the others send in a second, and as many writes. Each sends a twentieth.
const RATE: &str = "400";

/// Keys of the one owner, of which requests take a random one.
const KEYS_OF_ONE: &str = "16";

/// The requests of the one owner: the operation, and connections over HTTP/2 with so many streams each.
/// That is ten times the reads, and ten times the writes, that the server carries at once by default.
const TOO_MANY: [(&str, &str, &str); 2] = [("get", "8", "80"), ("patch", "8", "80")];

/// The operations of the others that are measured.
const OPERATIONS: [&str; 2] = ["get", "patch"];

/// The results of all rounds for one operation of the others.
#[derive(Default)]
struct Results {
    p99: Vec<f64>,
    refused: Vec<f64>,
}

/// Measures the others alone and next to the one owner, in alternation.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    KEYS.clone_into(&mut postern.collection);
    make_keys(bench, &postern)?;
    let mut section = Section::new(&[&postern], bench);
    let mut results = OPERATIONS.map(|_| Results::default());
    for _ in 0..bench.pick(5, 1) {
        let alone = run_all(bench, &mut postern, false)?;
        let next_to = run_all(bench, &mut postern, true)?;
        let pairs = alone.others.iter().zip(&next_to.others);
        for ((results, operation), (alone, next_to)) in
            results.iter_mut().zip(OPERATIONS).zip(pairs)
        {
            results.p99.push(slowest(next_to) / slowest(alone).max(1.0));
            results.refused.push(next_to.number("statuses.429"));
            section.figures.push(figure_of_others(operation, "alone", alone));
            section.figures.push(figure_of_others(operation, "next to the one owner", next_to));
        }
        for (one, (operation, _, _)) in next_to.one_owner.iter().zip(TOO_MANY) {
            let mut figure = figure(operation, "the one owner", one);
            figure.values.push(format!("{:.0} responses 429", one.number("statuses.429")));
            section.figures.push(figure);
        }
    }
    for (results, operation) in results.into_iter().zip(OPERATIONS) {
        section.ratios.extend(results.ratios(operation));
    }
    section.notes.push(
        "The one owner and the others are ordinary users, who read and write their own access keys. \
         The one owner sends 640 reads and 640 writes at once over HTTP/2, ten times what the server \
         carries by default, and retries at once. \
         Each of the twenty others sends 20 reads and 20 writes a second over HTTP/1.1. The p99 is that \
         of the slowest of them. All clients run on the server's machine, and cause some of the \
         latency."
            .to_owned(),
    );
    Ok(section)
}

impl Results {
    fn ratios(self, operation: &str) -> [Ratio; 2] {
        let row = |what: &str, wanted, rounds| {
            let what = format!("twenty others, {operation}: {what}");
            Ratio::of_rounds(&what, wanted, rounds, None)
        };
        let p99 = "p99 of the slowest, while one owner sends ten times what can be carried, to that \
                   without";
        [
            row(p99, Wanted::AtMost(2.0), self.p99),
            row("responses 429", Wanted::AtMost(0.0), self.refused),
        ]
    }
}

/// Makes the users and their keys, and the files of tokens for the load program.
fn make_keys(bench: &Bench, postern: &Server) -> Result<()> {
    let create = |user: &str, key: &str| {
        bench.postern_cli(postern, &["create", "accesskey", key, "--user", user])
    };
    let mut tokens = String::new();
    for number in 0..OTHERS.parse()? {
        let (number, user): (u32, _) = (number, format!("other{number}"));
        bench.postern_cli(postern, &["create", "user", &user])?;
        writeln!(tokens, "{}", create(&user, &format!("other-{number:08}"))?)?;
    }
    std::fs::write(others_file(postern), tokens)?;
    bench.postern_cli(postern, &["create", "user", "one"])?;
    let mut token = String::new();
    for number in 0..KEYS_OF_ONE.parse::<u32>()? {
        token = create("one", &format!("one-{number:08}"))?;
    }
    std::fs::write(one_file(postern), token)?;
    Ok(())
}

fn others_file(postern: &Server) -> std::path::PathBuf {
    postern.path("others.tokens")
}

fn one_file(postern: &Server) -> std::path::PathBuf {
    postern.path("one.token")
}

/// Measurements that were made at the same time.
struct Measured {
    others: Vec<Measurement>,
    one_owner: Vec<Measurement>,
}

/// Runs the requests of the others and, with `with_one_owner`, those of the one owner, all at the
/// same time.
fn run_all(bench: &Bench, postern: &mut Server, with_one_owner: bool) -> Result<Measured> {
    postern.check()?;
    let seconds = bench.pick("12", "3");
    let mut runs = Vec::new();
    for operation in OPERATIONS {
        let words = ["--own-object", "--prefix", "other", "--connections", OTHERS, "--rate", RATE];
        runs.push(words_of(postern, operation, &others_file(postern), seconds, &words));
    }
    for (operation, connections, streams) in TOO_MANY.iter().filter(|_| with_one_owner) {
        let words = ["--prefix", "one", "--objects", KEYS_OF_ONE, "--http", "2"];
        let many = ["--connections", connections, "--streams", streams];
        let words = [&words[..], &many].concat();
        runs.push(words_of(postern, operation, &one_file(postern), seconds, &words));
    }
    let mut others = std::thread::scope(|scope| {
        let runs: Vec<_> = runs.iter().map(|words| scope.spawn(|| bench.run_load(words))).collect();
        let measured = runs.into_iter().map(|run| {
            run.join().map_err(|_| anyhow::anyhow!("a run of the load program panicked"))?
        });
        measured.collect::<Result<Vec<_>>>()
    })?;
    let one_owner = others.split_off(OPERATIONS.len());
    Ok(Measured { others, one_owner })
}

fn words_of(
    postern: &Server,
    operation: &str,
    tokens: &Path,
    seconds: &str,
    more: &[&str],
) -> Vec<String> {
    let tokens = tokens.to_string_lossy();
    let words = ["load", operation, "--path", KEYS, "--seconds", seconds, "--tokens-file", &tokens];
    let words = words.iter().chain(more).map(|word| (*word).to_owned());
    words.chain(postern.access.iter().cloned()).collect()
}

fn slowest(measurement: &Measurement) -> f64 {
    measurement.number("slowest_connection_p99_microseconds")
}

fn figure_of_others(operation: &str, next_to: &str, measurement: &Measurement) -> Figure {
    Figure {
        run: format!("{operation} of twenty others, {next_to}"),
        server: "postern".to_owned(),
        values: vec![
            format!("{:.0}/s", measurement.per_second()),
            format!("p50 {:.0} µs", measurement.number("latency_microseconds.p50")),
            format!("p99 {:.0} µs", measurement.number("latency_microseconds.p99")),
            format!("p99 of the slowest {:.0} µs", slowest(measurement)),
            format!("{:.0} responses 429", measurement.number("statuses.429")),
        ],
    }
}

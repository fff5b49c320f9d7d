//! Ten times the connections that the limit on writes lets through: what is refused, how those
//! that are admitted fare, and whether the server can still be reached.

use anyhow::Result;

use super::figure;
use crate::bench::Bench;
use crate::bench::load::{FRESH, Found};
use crate::bench::postern::BODY_BYTES;
use crate::bench::report::{Figure, Ratio, Section, Wanted};
use crate::bench::server::Server;

/// As many as the server lets write at once.
const FULL: &str = "200";

/// Ten times that.
const TOO_MANY: &str = "2000";

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
    let (mut patient, mut rude) = (Crowd::default(), Crowd::default());
    for _ in 0..bench.pick(3, 1) {
        for (crowd, heed) in [(&mut patient, true), (&mut rude, false)] {
            let full = bench.measure(&mut postern, &create(bench, FULL, false))?;
            section.figures.push(figure("create", &format!("{FULL} connections"), &full));
            let (over, aside) = with_visitors(bench, &mut postern, heed)?;
            crowd.add(&full, &over, &aside);
            let manners = if heed { "come when told" } else { "come again at once" };
            let who = format!("{TOO_MANY} connections, {manners}");
            let mut figure = figure("create", &who, &over);
            figure.values.push(format!("{:.0} answers 429", over.number("statuses.429")));
            section.figures.push(figure);
            section.figures.extend(["/readyz", "admin's GET"].iter().zip(&aside).map(visitor));
        }
    }
    section.ratios.extend(patient.ratios("clients that heed Retry-After"));
    section.ratios.extend(rude.ratios("clients that come again at once"));
    section.notes.push(
        "Objects are created all the while, so that some of the memory is theirs. The client has \
         one thread: with clients that come again at once it is as busy as the server, and some \
         of the latency is its own."
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

    fn ratios(self, who: &str) -> Vec<Ratio> {
        let row = |what: &str, wanted, rounds| {
            Ratio::of_rounds(&format!("{who}: {what}"), wanted, rounds, None)
        };
        let p99 = format!("p99 of what is admitted at {TOO_MANY} connections, to that at {FULL}");
        let reached = "share of /readyz and of the admin's reads answered 200 meanwhile";
        vec![
            row(&p99, Wanted::AtMost(2.0), self.p99),
            row("share of 429 with Retry-After", Wanted::AtLeast(1.0), self.told),
            row(reached, Wanted::AtLeast(1.0), self.answered),
            row("peak memory, to that at full load", Wanted::AtMost(2.0), self.resident),
        ]
    }
}

fn create(bench: &Bench, connections: &'static str, heed: bool) -> Vec<&'static str> {
    let seconds = bench.pick("6", "3");
    let create = ["load create", "--prefix", FRESH, "--connections", connections];
    let heed: &[&str] = if heed { &["--heed-retry-after"] } else { &[] };
    [&create[..], &["--seconds", seconds, "--body-bytes", BODY_BYTES], heed].concat()
}

/// Overload, while `/readyz` and the admin's key are used ten times a second.
fn with_visitors(bench: &Bench, postern: &mut Server, heed: bool) -> Result<(Found, Vec<Found>)> {
    let access = postern.access.clone();
    let object = format!("{}/base-00000001", postern.collection);
    std::thread::scope(|scope| {
        let visits: Vec<_> = ["/readyz", &object]
            .map(|path| {
                let mut words = vec!["load".to_owned(), "list".to_owned()];
                words.extend(access.iter().cloned());
                let visit = ["--connections", "1", "--rate", "10", "--path", path, "--seconds"];
                words.extend(visit.map(str::to_owned));
                words.push(bench.pick("8", "4").to_owned());
                scope.spawn(move || bench.run_load(&words))
            })
            .into_iter()
            .collect();
        let over = bench.once(postern, &create(bench, TOO_MANY, heed));
        let visits = visits
            .into_iter()
            .map(|visit| visit.join().map_err(|_| anyhow::anyhow!("a visitor panicked"))?);
        let visits: Result<Vec<_>> = visits.collect();
        Ok((over?, visits?))
    })
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

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

/// Full load and overload in alternation, and somebody else who looks in meanwhile.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    bench.fill_postern(&mut postern, 1000)?;
    let mut section = Section::new(&[&postern], bench);
    let (mut p99, mut told, mut answered, mut resident) = (vec![], vec![], vec![], vec![]);
    for _ in 0..bench.pick(3, 1) {
        let full = bench.measure(&mut postern, &create(bench, FULL))?;
        let (over, aside) = with_visitors(bench, &mut postern)?;
        let at = "latency_microseconds.p99";
        p99.push(over.number(at) / full.number(at).max(1.0));
        let refused = over.number("statuses.429");
        told.push(over.number("retry_after_told") / refused.max(1.0));
        answered.push(aside.iter().map(share_answered).fold(1.0, f64::min));
        resident.push(over.number("peak_rss_kib") / full.number("peak_rss_kib").max(1.0));
        section.figures.push(figure("create", &format!("{FULL} connections"), &full));
        let mut figure = figure("create", &format!("{TOO_MANY} connections"), &over);
        figure.values.push(format!("{refused:.0} answers 429"));
        section.figures.push(figure);
        section.figures.extend(["/readyz", "admin's GET"].iter().zip(&aside).map(visitor));
    }
    let what = "admitted creates at 2,000 connections, p99 to that at 200";
    section.ratios.push(Ratio::of_rounds(what, Wanted::AtMost(2.0), p99, None));
    let what = "share of 429 that carry Retry-After";
    section.ratios.push(Ratio::of_rounds(what, Wanted::AtLeast(1.0), told, None));
    let what = "share of /readyz and of the admin's reads that are answered 200 meanwhile";
    section.ratios.push(Ratio::of_rounds(what, Wanted::AtLeast(1.0), answered, None));
    let what = "peak memory of overload to that of full load";
    section.ratios.push(Ratio::of_rounds(what, Wanted::AtMost(2.0), resident, None));
    section.notes.push(
        "Refused clients come again at once, as no well-behaved client would. Objects are created \
         all the while, so that some of the memory is theirs."
            .to_owned(),
    );
    Ok(section)
}

fn create(bench: &Bench, connections: &'static str) -> Vec<&'static str> {
    let seconds = bench.pick("6", "3");
    let create = ["load create", "--prefix", FRESH, "--connections", connections];
    [&create[..], &["--seconds", seconds, "--body-bytes", BODY_BYTES]].concat()
}

/// Overload, while `/readyz` and the admin's key are used ten times a second.
fn with_visitors(bench: &Bench, postern: &mut Server) -> Result<(Found, Vec<Found>)> {
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
        let over = bench.once(postern, &create(bench, TOO_MANY));
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

//! Resident memory: of an idle server, and of one that has many objects and has been used.

use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::bench::load::RUN_PREFIX;
use crate::bench::report::{Figure, Ratio, Section, Wanted};

const MB: f64 = 1_000_000.0;

/// Memory that a server with many objects may have in addition to twice the objects' bytes, in MB.
const BEYOND_MB: f64 = 60.0;

/// Measures an idle server; then the same one with objects, after lists, and with watchers.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    let mut section = Section::new(&[&postern], bench);
    bench.stop.sleep(Duration::from_secs(2))?;
    let idle = resident(bench, &postern.pids())?;
    let objects: u64 = bench.pick(100_000, 10_000);
    section.ratios.push(Ratio::of_rounds("idle, MB", Wanted::AtMost(30.0), vec![idle], None));
    let mut add = |when: &str, megabytes: f64| {
        section.figures.push(Figure {
            run: when.to_owned(),
            server: "postern".to_owned(),
            values: vec![format!("{megabytes:.1} MB")],
        });
    };
    add("idle", idle);
    bench.fill_postern(&mut postern, objects)?;
    add(&format!("{objects} objects created"), resident(bench, &postern.pids())?);
    let list = ["load list", "--connections", "1", "--count", "3", "--seconds", "60"];
    bench.once(&mut postern, &list)?;
    add("after three full lists", resident(bench, &postern.pids())?);
    let get = ["load get", "--prefix", "base", "--count", "1000"];
    let object = bench.once(&mut postern, &get)?.number("body_bytes_average");
    let watch = ["watch", "--watchers", "100", "--events", "100", "--prefix", RUN_PREFIX];
    let measurement = bench.once(&mut postern, &[&watch[..], &["--body-bytes", "838"]].concat())?;
    let watched = measurement.number("rss_kib_with_watchers") * 1024.0 / MB;
    add("with 100 watchers", watched);
    add("peak", measurement.number("peak_rss_kib") * 1024.0 / MB);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let bytes = objects as f64 * object;
    let limit = 2.0 * bytes / MB + BEYOND_MB;
    let what = format!(
        "{objects} objects of {object:.0} bytes ({:.1} MB), created over 32 connections, listed three \
         times, 100 watchers, MB",
        bytes / MB
    );
    section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(limit), vec![watched], None));
    Ok(section)
}

/// The resident memory now, in MB.
fn resident(bench: &Bench, pids: &str) -> Result<f64> {
    let measurement = bench.run_load(&["stat", "--pids", pids].map(str::to_owned))?;
    Ok(measurement.number("rss_kib") * 1024.0 / MB)
}

//! Server-side apply of objects that five managers own, next to plain updates of others.

use anyhow::Result;

use super::figure;
use crate::bench::Bench;
use crate::bench::load::Measurement;
use crate::bench::postern::BODY_BYTES;
use crate::bench::report::{Rounds, Section, Wanted};

/// Objects that updates go to, and as many that applies go to.
const OBJECTS: u64 = 1000;

/// Managers that own one label each. With the manager of the whole object there are five.
const MANAGERS: [&str; 4] = ["manager-1", "manager-2", "manager-3", "manager-4"];

/// Measures applies and updates, in alternation.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    bench.fill_postern(&mut postern, OBJECTS)?;
    let count = OBJECTS.to_string();
    // Updates would take the labels away: they have objects of their own.
    for manager in ["bench"].iter().chain(&MANAGERS) {
        let apply = ["load apply", "--prefix", "applied", "--manager", manager, "--seconds", "120"];
        let more = ["--count", count.as_str(), "--body-bytes", BODY_BYTES];
        let measurement = bench.once(&mut postern, &[&apply[..], &more].concat())?;
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let all = measurement.number("succeeded") >= OBJECTS as f64;
        anyhow::ensure!(all, "{manager} applied only {}", measurement.text("succeeded"));
    }
    let seconds = bench.pick("4", "2");
    let to = |operation, prefix| {
        [operation, "--prefix", prefix, "--seconds", seconds, "--body-bytes", BODY_BYTES]
    };
    let mut compared = Rounds::default();
    let mut section = Section::new(&[&postern], bench);
    for _ in 0..bench.pick(4, 2) {
        let updates = bench.measure(&mut postern, &to("load update", "base"))?;
        let applies = bench.measure(&mut postern, &to("load apply", "applied"))?;
        compared.add(&applies, &updates, Measurement::per_second);
        section.figures.push(figure("update", "postern", &updates));
        section.figures.push(figure("apply", "postern", &applies));
    }
    section.notes.push(
        "An apply is of a whole object of 1 KB, in which four other managers own a label each. Each \
         changes an annotation, as each update does."
            .to_owned(),
    );
    let what = "server-side apply of 1 KB with 5 managers at 32 connections, requests a second to \
                those of plain updates";
    section.ratios.push(compared.ratio(what, Wanted::AtLeast(0.5)));
    Ok(section)
}

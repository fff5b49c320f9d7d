//! All objects in one response, compared with a file of the same length.

use anyhow::Result;

use super::figure;
use crate::bench::Bench;
use crate::bench::report::{Ratio, Rounds, Section, Wanted};
use crate::bench::server::Server;

/// Measures a watch that begins with all objects, until it has sent them, next to the list of them.
fn measure_watch_list(
    bench: &Bench,
    postern: &mut Server,
    objects: u64,
    section: &mut Section,
) -> Result<()> {
    let seconds = bench.pick("5", "2");
    let of = |operation| [operation, "--connections", "1", "--seconds", seconds];
    let mut rounds = Rounds::default();
    let mut beyond = Vec::new();
    for _ in 0..bench.pick(4, 2) {
        let list = bench.measure(postern, &of("load list"))?;
        let before = list.number("peak_rss_kib");
        let watch = bench.measure(postern, &of("load watch-list"))?;
        beyond.push((watch.number("peak_rss_kib") - before) * 1024.0 / 1e6);
        rounds.add(&watch, &list, |measurement| measurement.number("latency_microseconds.mean"));
        section.figures.push(figure(&format!("list of {objects}"), "postern", &list));
        section.figures.push(figure(
            &format!("watch that begins with {objects}"),
            "postern",
            &watch,
        ));
    }
    let what =
        format!("a watch that begins with {objects} objects, until it has them, to the list");
    section.ratios.push(rounds.ratio(&what, Wanted::AtMost(1.2)));
    let what =
        format!("peak memory that such a watch adds to that of a list, MB, of {objects} objects");
    section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(20.0), beyond, None));
    Ok(())
}

/// Measures full lists, and nginx with a file of the same length.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    let mut section = Section::new(&[&postern], bench);
    let mut filled = 0;
    for objects in bench.pick(vec![10_000, 100_000], vec![1_000, 10_000]) {
        let (first, count) = (filled.to_string(), (objects - filled).to_string());
        let fill = ["load create", "--prefix", "base", "--seconds", "600", "--body-bytes", "838"];
        bench.once(&mut postern, &[&fill[..], &["--first", &first, "--count", &count]].concat())?;
        filled = objects;
        let whole = ["load list", "--connections", "1", "--seconds", bench.pick("5", "2")];
        let length = bench.once(&mut postern, &whole)?.number("body_bytes_average");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length")]
        let length = length as u64;
        let mut nginx = bench.start_nginx(&[length])?;
        let path = format!("/{length}");
        let send = [&whole[..], &["--path", &path]].concat();
        let mut rounds = Rounds::default();
        for _ in 0..bench.pick(4, 2) {
            let ours = bench.measure(&mut postern, &whole)?;
            let theirs = bench.measure(&mut nginx, &send)?;
            rounds
                .add(&ours, &theirs, |measurement| measurement.number("latency_microseconds.mean"));
            section.figures.push(figure(&format!("list of {objects}"), "postern", &ours));
            section.figures.push(figure(&format!("file of {length} bytes"), "nginx", &theirs));
        }
        let what =
            format!("a full list of {objects}, time to nginx's for a file of {length} bytes");
        section.ratios.push(rounds.ratio(&what, Wanted::AtMost(1.3)));
    }
    measure_watch_list(bench, &mut postern, filled, &mut section)?;
    Ok(section)
}

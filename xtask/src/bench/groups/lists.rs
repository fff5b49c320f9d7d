//! All objects in one response, compared with a file of the same length.

use anyhow::Result;

use super::figure;
use crate::bench::Bench;
use crate::bench::report::{Rounds, Section, Wanted};

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
    Ok(section)
}

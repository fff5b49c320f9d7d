//! The server's cost of a request with many objects, compared with few.

use anyhow::Result;

use super::figure;
use super::ready::{start, times};
use crate::bench::Bench;
use crate::bench::load::RUN_PREFIX;
use crate::bench::postern::BODY_BYTES;
use crate::bench::report::{Ratio, Section, Wanted};

/// Few objects.
const FEW: u64 = 1000;

/// Measures GET and create, by processor time.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let many: u64 = bench.pick(1_000_000, 50_000);
    let mut large = bench.start_postern()?;
    bench.fill_postern(&mut large, many)?;
    let mut section = Section::new(&[&large], bench);
    let (mut reads, mut creates) = (vec![], vec![]);
    let names = |objects: u64| objects.to_string();
    for _ in 0..bench.pick(5, 2) {
        // A new one each time: the creates of the last round have filled the old one.
        let mut small = bench.start_postern()?;
        bench.fill_postern(&mut small, FEW)?;
        let get = ["load get", "--prefix", "base", "--seconds", bench.pick("4", "2"), "--objects"];
        let with_few = bench.measure(&mut small, &[&get[..], &[&names(FEW)]].concat())?;
        let with_many = bench.measure(&mut large, &[&get[..], &[&names(many)]].concat())?;
        reads.push(with_many.cpu() / with_few.cpu().max(0.001));
        section.figures.push(figure("GET", &format!("{FEW} objects"), &with_few));
        section.figures.push(figure("GET", &format!("{many} objects"), &with_many));
        let create =
            ["load create", "--prefix", RUN_PREFIX, "--count", bench.pick("20000", "5000")];
        let create = [&create[..], &["--body-bytes", BODY_BYTES, "--seconds", "30"]].concat();
        let with_few = bench.measure(&mut small, &create)?;
        let with_many = bench.measure(&mut large, &create)?;
        creates.push(with_many.cpu() / with_few.cpu().max(0.001));
        section.figures.push(figure("create", &format!("{FEW} objects"), &with_few));
        section.figures.push(figure("create", &format!("{many} objects"), &with_many));
    }
    let wanted = Wanted::AtMost(1.2);
    let what = format!("server CPU of a GET with {many} objects to that with {FEW}");
    section.ratios.push(Ratio::of_rounds(&what, wanted, reads, None));
    let what = format!("server CPU of a create with {many} objects to that with {FEW}");
    section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(1.2), creates, None));
    let dir = large.stop()?;
    let rounds = 0..bench.pick(3, 1);
    let starts: Vec<_> = rounds.map(|_| start(bench, dir.path())).collect::<Result<_>>()?;
    section.figures.push(times(&format!("start with {many} objects"), &starts));
    let what = format!("start with {many} objects, ms");
    section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(5000.0), starts, None));
    Ok(section)
}

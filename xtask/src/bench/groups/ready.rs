//! From the start of the program to the first 200 on `/readyz`, after a clean end and after a kill.

use std::path::Path;

use anyhow::Result;

use crate::bench::Bench;
use crate::bench::load::RUN_PREFIX;
use crate::bench::postern::arguments;
use crate::bench::report::{Figure, Ratio, Section, Wanted};
use crate::bench::server::{directory, free_port};

/// Measures the first start, starts without objects, and starts with many.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let rounds = bench.pick(7, 3);
    let dir = directory()?;
    let mut section = Section::new(&[], bench);
    let mut first = vec![];
    for _ in 0..rounds {
        first.push(start(bench, directory()?.path())?);
    }
    section.figures.push(times("first start, which makes keys and administrator", &first));
    start(bench, dir.path())?;
    let empty: Vec<_> = (0..rounds).map(|_| start(bench, dir.path())).collect::<Result<_>>()?;
    section.figures.push(times("empty", &empty));
    section.ratios.push(Ratio::of_rounds("empty, ms", Wanted::AtMost(100.0), empty, None));
    let objects: u64 = bench.pick(100_000, 10_000);
    let mut server = bench.start_postern_on(dir)?;
    bench.fill_postern(&mut server, objects)?;
    let dir = server.stop()?;
    let full: Vec<_> = (0..rounds).map(|_| start(bench, dir.path())).collect::<Result<_>>()?;
    section.figures.push(times(&format!("{objects} objects"), &full));
    let what = format!("with {objects} objects, ms");
    section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(600.0), full, None));
    let (mut dir, mut killed) = (dir, vec![]);
    for _ in 0..rounds {
        let mut server = bench.start_postern_on(dir)?;
        // More than the database gets at once: the log has the rest.
        let writes = ["load create", "--prefix", RUN_PREFIX, "--count", "1500", "--seconds", "30"];
        bench.once(&mut server, &writes)?;
        dir = server.kill()?;
        killed.push(start(bench, dir.path())?);
    }
    section.figures.push(times(&format!("{objects} objects, after SIGKILL"), &killed));
    let what = format!("with {objects} objects, after SIGKILL in the middle of writes, ms");
    section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(1000.0), killed, None));
    Ok(section)
}

/// The time of one start, in milliseconds.
pub(super) fn start(bench: &Bench, dir: &Path) -> Result<f64> {
    start_with(bench, dir, &[])
}

/// The time of one start with more arguments, in milliseconds.
pub(super) fn start_with(bench: &Bench, dir: &Path, more: &[String]) -> Result<f64> {
    let data = dir.join("data");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (kubeconfig, output) = (text(&data.join("admin.kubeconfig")), text(&dir.join("output")));
    let mut words = vec!["ready".to_owned()];
    words.extend(["--kubeconfig".to_owned(), kubeconfig, "--output".to_owned(), output]);
    words.extend(["--".to_owned(), text(&bench.postern)]);
    words.extend(arguments(&data, &format!("127.0.0.1:{}", free_port()?)));
    words.extend(more.iter().cloned());
    crate::bench::machine::wait_for_quiet(&bench.stop)?;
    let milliseconds = bench.run_load(&words)?.number("ready_milliseconds");
    println!("    ready after {milliseconds:.0} ms");
    Ok(milliseconds)
}

pub(super) fn times(run: &str, milliseconds: &[f64]) -> Figure {
    Figure {
        run: run.to_owned(),
        server: "postern".to_owned(),
        values: milliseconds.iter().map(|time| format!("{time:.0} ms")).collect(),
    }
}

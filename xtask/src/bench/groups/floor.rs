//! A GET next to one from a bare server of the same libraries, over few connections and over many.
//! The additional processor time is the cost of Postern's own code.

use std::process::Command;

use anyhow::Result;

use super::figure;
use crate::bench::Bench;
use crate::bench::load::Measurement;
use crate::bench::report::{Rounds, Section, Wanted};
use crate::bench::server::directory;

/// Objects that are read.
const OBJECTS: u64 = 1000;

/// Connections of a run.
const CONNECTIONS: [&str; 4] = ["1", "4", "8", "32"];

/// Measures a GET from Postern, with and without the audit log, and the bare server's, in alternation.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    let mut unaudited = bench.start_postern_unaudited()?;
    for server in [&mut postern, &mut unaudited] {
        bench.fill_postern(server, OBJECTS)?;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(16).to_string();
    let mut command = Command::new(&bench.load);
    command.args(["--threads", &threads]);
    let mut bare = bench.start_bare(command, directory()?)?;
    let mut section = Section::new(&[&postern, &bare], bench);
    let seconds = bench.pick("3", "1");
    for connections in CONNECTIONS {
        let get = ["load get", "--prefix", "base", "--seconds", seconds];
        let get = [&get[..], &["--connections", connections]].concat();
        let (mut to_bare, mut unaudited_to_bare) = (Rounds::default(), Rounds::default());
        for _ in 0..bench.pick(5, 2) {
            let audited = bench.measure(&mut postern, &get)?;
            let without_audit = bench.measure(&mut unaudited, &get)?;
            let bare_get = bench.measure(&mut bare, &get)?;
            to_bare.add(&audited, &bare_get, Measurement::cpu);
            unaudited_to_bare.add(&without_audit, &bare_get, Measurement::cpu);
            let run = format!("GET over {connections} connections");
            section.figures.push(figure(&run, "postern", &audited));
            section.figures.push(figure(&run, "postern, not audited", &without_audit));
            section.figures.push(figure(&run, "bare", &bare_get));
        }
        let what = format!("GET over {connections} connections, CPU to the bare server's");
        section.ratios.push(to_bare.ratio(&what, Wanted::AtMost(2.2)));
        let what = format!("the same over {connections} connections, not audited");
        section.ratios.push(unaudited_to_bare.ratio(&what, Wanted::AtMost(1.8)));
    }
    section.notes.push(
        "The bare server is `postern-bench bare`: hyper, rustls and tokio, and one JSON document of 1.4 KB. It \
         authenticates no client, decides nothing, and has no audit log."
            .to_owned(),
    );
    Ok(section)
}

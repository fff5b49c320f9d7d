//! Single objects at 32 connections: read, created, changed.

use anyhow::Result;

use super::figure;
use crate::bench::Bench;
use crate::bench::load::{Measurement, RUN_PREFIX};
use crate::bench::postern::BODY_BYTES;
use crate::bench::report::{Ratio, Rounds, Section, Wanted};
use crate::bench::server::Server;

/// Objects that reads and updates go to.
const OBJECTS: u64 = 1000;

/// Measures our GET, nginx's of a file of the same length, and `OpenBao`'s of a value of that
/// length.
pub(super) fn reads(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    bench.fill_postern(&mut postern, OBJECTS)?;
    let get = ["load get", "--prefix", "base", "--seconds", bench.pick("5", "2")];
    let length = bench.once(&mut postern, &get)?.number("body_bytes_average");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small length")]
    let length = length as u64;
    let mut nginx = bench.start_nginx(&[length])?;
    let mut openbao = bench.start_openbao()?;
    fill_openbao(bench, &mut openbao)?;
    let file = format!("/{length}");
    let send = ["load list", "--path", &file, "--seconds", bench.pick("5", "2")];
    // Neither of the peers keeps an audit log here. Postern does, unless its policy says otherwise.
    let mut unaudited = bench.start_postern_unaudited()?;
    bench.fill_postern(&mut unaudited, OBJECTS)?;
    let (mut to_nginx, mut to_openbao) = (Rounds::default(), Rounds::default());
    let (mut bare_to_nginx, mut bare_to_openbao) = (Rounds::default(), Rounds::default());
    let mut section = Section::new(&[&postern, &nginx, &openbao], bench);
    for round in 0..bench.pick(5, 2) {
        let ours = bench.measure(&mut postern, &get)?;
        let theirs = bench.measure(&mut nginx, &send)?;
        let bare = bench.measure(&mut unaudited, &get)?;
        let vault = bench.measure(&mut openbao, &get)?;
        to_nginx.add(&ours, &theirs, Measurement::per_second);
        to_openbao.add(&ours, &vault, Measurement::per_second);
        bare_to_nginx.add(&bare, &theirs, Measurement::per_second);
        bare_to_openbao.add(&bare, &vault, Measurement::per_second);
        if round == 0 {
            let multiplexed = ["--http", "2", "--connections", "1", "--streams", "32"];
            let http2 = bench.measure(&mut postern, &[&get[..], &multiplexed].concat())?;
            section.figures.push(figure("GET, HTTP/2, 1 × 32 streams", "postern", &http2));
        }
        section.figures.push(figure("GET by name", "postern", &ours));
        section.figures.push(figure("static file", "nginx", &theirs));
        section.figures.push(figure("GET by name, not audited", "postern", &bare));
        section.figures.push(figure("GET by name", "openbao", &vault));
    }
    section
        .notes
        .push(format!("A response body is {length} bytes; nginx serves a file of that length."));
    let (least_of_nginx, least_of_openbao) = (Wanted::AtLeast(0.6), Wanted::AtLeast(7.0));
    section.ratios.push(ratio("GET by name", "32", "nginx", &to_nginx, least_of_nginx));
    section.ratios.push(ratio("GET by name", "32", "openbao", &to_openbao, least_of_openbao));
    let bare = "GET by name, not audited, as the peers' are not,";
    section.ratios.push(ratio(bare, "32", "nginx", &bare_to_nginx, least_of_nginx));
    section.ratios.push(ratio(bare, "32", "openbao", &bare_to_openbao, least_of_openbao));
    Ok(section)
}

/// Measures our create and update, and `OpenBao`'s, over few connections and over many.
pub(super) fn writes(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    bench.fill_postern(&mut postern, OBJECTS)?;
    let mut openbao = bench.start_openbao()?;
    fill_openbao(bench, &mut openbao)?;
    let mut section = Section::new(&[&postern, &openbao], bench);
    for (connections, wanted) in [("32", 5.0), ("200", 8.0)] {
        let (mut created, mut updated) = (Rounds::default(), Rounds::default());
        let seconds = bench.pick("4", "2");
        let to = |operation, prefix| {
            let load = [operation, "--prefix", prefix, "--seconds", seconds];
            [&load[..], &["--body-bytes", BODY_BYTES, "--connections", connections]].concat()
        };
        let mut add = |run: &str, server: &str, measured: &Measurement| {
            let run = format!("{run}, {connections} connections");
            section.figures.push(figure(&run, server, measured));
        };
        for _ in 0..bench.pick(4, 2) {
            let ours = bench.measure(&mut postern, &to("load create", RUN_PREFIX))?;
            let theirs = bench.measure(&mut openbao, &to("load kv-put", RUN_PREFIX))?;
            created.add(&ours, &theirs, Measurement::per_second);
            add("create", "postern", &ours);
            add("put, new name", "openbao", &theirs);
            let ours = bench.measure(&mut postern, &to("load update", "base"))?;
            let theirs = bench.measure(&mut openbao, &to("load kv-update", "base"))?;
            updated.add(&ours, &theirs, Measurement::per_second);
            add("update", "postern", &ours);
            add("put, old name", "openbao", &theirs);
        }
        let wanted = || Wanted::AtLeast(wanted);
        section.ratios.push(ratio("create", connections, "openbao", &created, wanted()));
        section.ratios.push(ratio("update", connections, "openbao", &updated, wanted()));
    }
    Ok(section)
}

/// Measures updates over a time in which history is removed continuously.
pub(super) fn endurance(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern_with(&["--history".to_owned(), "2m".to_owned()])?;
    bench.fill_postern(&mut postern, OBJECTS)?;
    let seconds = bench.pick("600", "10");
    let updates = ["load update", "--prefix", "base", "--seconds", seconds];
    let updates = [&updates[..], &["--body-bytes", BODY_BYTES]].concat();
    let measured = bench.once(&mut postern, &updates)?;
    let mut section = Section::new(&[], bench);
    section.figures.push(figure("updates", "postern", &measured));
    section.notes.push(format!(
        "{seconds} seconds of updates of {OBJECTS} objects over 32 connections, as fast as they are answered. History is kept for two minutes."
    ));
    let p99 = measured.number("latency_microseconds.p99") / 1000.0;
    let what = format!("updates for {seconds} s while history is forgotten, p99, ms");
    section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(10.0), vec![p99], None));
    Ok(section)
}

/// Stores values as long as our objects are when they are stored.
fn fill_openbao(bench: &Bench, openbao: &mut Server) -> Result<()> {
    let count = OBJECTS.to_string();
    let fill = ["load kv-put", "--prefix", "base", "--body-bytes", "1024", "--seconds", "120"];
    bench.once(openbao, &[&fill[..], &["--count", &count]].concat())?;
    Ok(())
}

fn ratio(what: &str, connections: &str, peer: &str, rounds: &Rounds, wanted: Wanted) -> Ratio {
    let what = format!("{what} at {connections} connections, requests a second to {peer}'s");
    rounds.ratio(&what, wanted)
}

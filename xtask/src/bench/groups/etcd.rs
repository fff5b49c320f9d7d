//! Servers on an etcd, next to a server with its own file and to etcd itself.

use std::process::Command;

use anyhow::{Result, ensure};

use super::figure;
use super::ready::times;
use crate::bench::Bench;
use crate::bench::load::{Measurement, RUN_PREFIX};
use crate::bench::postern::BODY_BYTES;
use crate::bench::report::{Figure, Ratio, Rounds, Section, Wanted};
use crate::bench::server::Server;

/// Objects that reads go to.
const OBJECTS: u64 = 1000;

/// Measures everything.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut etcd = bench.start_etcd()?;
    let store = Bench::on_etcd(&etcd, "bench")?;
    let dir = bench.init_on_etcd(&store)?;
    let mut remote = bench.start_postern_by(Command::new(&bench.postern), dir, &store)?;
    remote.upstream = etcd.pids();
    let mut section = Section::new(&[&remote], bench);
    section.notes.push(
        "etcd 3.4.23 with one member on the same two cores and disk; it syncs each write. The load program, the server \
         and etcd share the processors."
            .to_owned(),
    );
    measure_writes(bench, &mut remote, &mut etcd, &mut section)?;
    measure_reads(bench, &mut remote, &mut section)?;
    measure_delivery(bench, &mut remote, &store, &mut section)?;
    measure_restart(bench, remote, &store, &mut section)?;
    Ok(section)
}

/// Creates, next to transactions straight to etcd, with and without the head that each of Postern's
/// transactions puts.
fn measure_writes(
    bench: &Bench,
    remote: &mut Server,
    etcd: &mut Server,
    section: &mut Section,
) -> Result<()> {
    let seconds = bench.pick("4", "2");
    let create = ["load create", "--prefix", RUN_PREFIX, "--seconds", seconds];
    let create = [&create[..], &["--body-bytes", BODY_BYTES, "--connections", "32"]].concat();
    let put = ["etcd-put", "--connections", "32", "--seconds", seconds];
    let with_head = [&put[..], &["--with-head"]].concat();
    let (mut to_raw, mut head) = (Rounds::default(), Rounds::default());
    for _ in 0..bench.pick(4, 2) {
        let raw = bench.measure(etcd, &put)?;
        let headed = bench.measure(etcd, &with_head)?;
        let ours = bench.measure(remote, &create)?;
        to_raw.add(&ours, &raw, Measurement::per_second);
        head.add(&headed, &raw, Measurement::per_second);
        section.figures.push(figure("create, 32 connections", "postern on etcd", &ours));
        section.figures.push(figure("put of 1 KB, 32 at once", "etcd", &raw));
        section.figures.push(figure("the same with a head", "etcd", &headed));
    }
    let what = "create at 32 connections, requests a second to etcd's puts";
    section.ratios.push(to_raw.ratio(what, Wanted::AtLeast(0.5)));
    let what = "etcd's puts with a head, a second to those without";
    section.ratios.push(head.ratio(what, Wanted::AtLeast(0.93)));
    Ok(())
}

/// GET by name, next to a server with its own file.
fn measure_reads(bench: &Bench, remote: &mut Server, section: &mut Section) -> Result<()> {
    let mut embedded = bench.start_postern()?;
    for server in [&mut embedded, &mut *remote] {
        bench.fill_postern(server, OBJECTS)?;
    }
    let get = ["load get", "--prefix", "base", "--seconds", bench.pick("5", "2")];
    let single = [&get[..], &["--connections", "1"]].concat();
    let (mut many, mut added) = (Rounds::default(), Vec::new());
    for _ in 0..bench.pick(4, 2) {
        let ours = bench.measure(remote, &get)?;
        let file = bench.measure(&mut embedded, &get)?;
        many.add(&ours, &file, Measurement::per_second);
        section.figures.push(figure("GET, 32 connections", "postern on etcd", &ours));
        section.figures.push(figure("GET, 32 connections", "postern on a file", &file));
        let [ours, file] =
            [bench.measure(remote, &single)?, bench.measure(&mut embedded, &single)?];
        let p50 = |of: &Measurement| of.number("latency_microseconds.p50") / 1000.0;
        added.push(p50(&ours) - p50(&file));
        section.figures.push(figure("GET, 1 connection", "postern on etcd", &ours));
        section.figures.push(figure("GET, 1 connection", "postern on a file", &file));
    }
    let what = "GET at 32 connections, requests a second to those of a server with a file";
    section.ratios.push(many.ratio(what, Wanted::AtLeast(0.7)));
    let what = "GET at 1 connection, p50 above that of a server with a file, ms";
    section.ratios.push(Ratio::of_rounds(what, Wanted::AtMost(0.6), added, None));
    Ok(())
}

/// From a write on one server to 100 watchers of another.
fn measure_delivery(
    bench: &Bench,
    remote: &mut Server,
    store: &[String],
    section: &mut Section,
) -> Result<()> {
    let dir = Bench::copy_of(remote)?;
    let mut other = bench.start_postern_by(Command::new(&bench.postern), dir, store)?;
    let writer = remote.access[1].clone();
    let events = bench.pick("500", "150");
    let watch = ["watch", "--watchers", "100", "--rate", "50", "--events", events];
    let more = ["--prefix", RUN_PREFIX, "--body-bytes", BODY_BYTES];
    let there = [&watch[..], &more, &["--writer-kubeconfig", &writer]].concat();
    let here = [&watch[..], &more].concat();
    let (mut p50, mut p99) = (Vec::new(), Rounds::default());
    for _ in 0..bench.pick(4, 2) {
        let measured = bench.measure(&mut other, &there)?;
        let same = bench.measure(remote, &here)?;
        for one in [&measured, &same] {
            ensure!(one.text("events") == one.text("events_expected"), "not all events came");
        }
        let at =
            |of: &Measurement, which: &str| of.number(&format!("delivery_microseconds.{which}"));
        p50.push(at(&measured, "p50") / 1000.0);
        p99.add(&measured, &same, |of| of.number("delivery_microseconds.p99"));
        for (server, of) in [("another server", &measured), ("the same server", &same)] {
            section.figures.push(Figure {
                run: "write to 100 watchers".to_owned(),
                server: server.to_owned(),
                values: ["p50", "p99"]
                    .map(|which| format!("{which} {:.0} µs", at(of, which)))
                    .to_vec(),
            });
        }
    }
    let what = "from a write to 100 watchers of another server, p50, ms";
    section.ratios.push(Ratio::of_rounds(what, Wanted::AtMost(3.0), p50, None));
    let what = "from a write to 100 watchers of another server, p99 to that of the same server";
    section.ratios.push(p99.ratio(what, Wanted::AtMost(2.0)));
    Ok(())
}

/// From the start to ready, with many objects in etcd.
fn measure_restart(
    bench: &Bench,
    mut remote: Server,
    store: &[String],
    section: &mut Section,
) -> Result<()> {
    let objects: u64 = bench.pick(100_000, 5_000);
    let count = objects.to_string();
    let fill = ["load create", "--prefix", "full", "--seconds", "600", "--count", &count];
    bench.once(&mut remote, &[&fill[..], &["--body-bytes", BODY_BYTES]].concat())?;
    let dir = remote.stop()?;
    let mut measured = Vec::new();
    for _ in 0..bench.pick(5, 2) {
        measured.push(super::ready::start_with(bench, dir.path(), store)?);
    }
    section.figures.push(times(&format!("start with {objects} objects in etcd"), &measured));
    let what = format!("start with {objects} objects in etcd until ready, ms");
    section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(2500.0), measured, None));
    Ok(())
}

//! One writer, many watchers: the time from the sending of a write until each watcher has the
//! event.

use anyhow::{Result, ensure};

use crate::bench::Bench;
use crate::bench::load::{Measurement, RUN_PREFIX};
use crate::bench::report::{Figure, Rounds, Section, Wanted};
use crate::bench::server::Server;

/// Measures delivery, and the delivery of the bare fan-out server.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut postern = bench.start_postern()?;
    let mut probe = bench.start_probe()?;
    let events = bench.pick("500", "150");
    let watch =
        ["watch", "--watchers", "100", "--rate", "50", "--events", events, "--prefix", RUN_PREFIX];
    let ours = [&watch[..], &["--body-bytes", "838"]].concat();
    let length = bench.once(&mut postern, &ours)?.text("event_bytes_average");
    let theirs = [&watch[..], &["--body-bytes", &length]].concat();
    let mut section = Section::new(&[&postern, &probe], bench);
    let (mut p50, mut p99) = (Rounds::default(), Rounds::default());
    for _ in 0..bench.pick(5, 2) {
        let measurement = bench.measure(&mut postern, &ours)?;
        let bare = bench.measure(&mut probe, &theirs)?;
        for one in [&measurement, &bare] {
            let whole = one.text("events") == one.text("events_expected");
            ensure!(
                whole,
                "only {} of {} events came",
                one.text("events"),
                one.text("events_expected")
            );
        }
        p50.add(&measurement, &bare, |measurement| measurement.number("delivery_microseconds.p50"));
        p99.add(&measurement, &bare, |measurement| measurement.number("delivery_microseconds.p99"));
        section.figures.push(figure("postern", &measurement));
        section.figures.push(figure("bare fan-out", &bare));
    }
    section.notes.push(format!(
        "100 watchers, 50 writes a second, events of {length} bytes. The bare fan-out server writes \
         a page and syncs once for each write, sends the bytes on, and does nothing else. An event in a form \
         other than plain JSON is encoded once for all its watchers; one of plain JSON is the object's own bytes."
    ));
    measure_forms(bench, &mut postern, &mut section)?;
    let what = "delivery p50 to the bare fan-out server's";
    section.ratios.push(p50.ratio(what, Wanted::AtMost(1.5)));
    let what = "delivery p99 to the bare fan-out server's";
    section.ratios.push(p99.ratio(what, Wanted::AtMost(2.0)));
    Ok(section)
}

/// Measures the cost of an event with many watchers, in each form.
fn measure_forms(bench: &Bench, postern: &mut Server, section: &mut Section) -> Result<()> {
    let watchers = bench.pick("1000", "100");
    let watch = ["watch", "--watchers", watchers, "--rate", "10", "--prefix", RUN_PREFIX];
    let watch = [&watch[..], &["--events", bench.pick("60", "20"), "--body-bytes", "838"]].concat();
    let group = "g=meta.k8s.io;v=v1";
    let table = format!("application/json;as=Table;{group}");
    let metadata = format!("application/json;as=PartialObjectMetadata;{group}");
    for (form, accept) in [("Table", &table), ("PartialObjectMetadata", &metadata)] {
        let mut rounds = Rounds::default();
        for _ in 0..bench.pick(2, 1) {
            let plain = bench.measure(postern, &watch)?;
            let accept = ["--accept", accept.as_str()];
            let other = bench.measure(postern, &[&watch[..], &accept].concat())?;
            for one in [&plain, &other] {
                let whole = one.text("events") == one.text("events_expected");
                ensure!(whole, "only {} events came", one.text("events"));
            }
            rounds.add(&other, &plain, Measurement::cpu);
        }
        let what = format!(
            "an event to {watchers} watchers as {form}, the server's CPU to that as plain JSON"
        );
        section.ratios.push(rounds.ratio(&what, Wanted::AtMost(1.2)));
    }
    Ok(())
}

fn figure(server: &str, measurement: &Measurement) -> Figure {
    Figure {
        run: "write to 100 watchers".to_owned(),
        server: server.to_owned(),
        values: vec![
            format!("{:.0} µs CPU/write", measurement.cpu()),
            format!("delivery p50 {:.0} µs", measurement.number("delivery_microseconds.p50")),
            format!("delivery p99 {:.0} µs", measurement.number("delivery_microseconds.p99")),
            format!("write p50 {:.0} µs", measurement.number("write_microseconds.p50")),
        ],
    }
}

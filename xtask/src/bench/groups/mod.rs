//! The groups of measurements. Each group starts the servers that it needs, and sets the targets.

pub(crate) mod access;
mod apply;
mod etcd;
mod fairness;
mod floor;
pub(crate) mod gateway;
mod lists;
mod memory;
mod overload;
mod ready;
mod requests;
mod scale;
mod tunnel;
mod watch;

use anyhow::Result;

use super::Bench;
use super::load::Measurement;
use super::report::{Figure, Section};

/// One group.
pub(crate) struct Group {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// For the report.
    pub(crate) title: &'static str,
    /// Measures it.
    pub(crate) measure: fn(&Bench) -> Result<Section>,
}

/// All groups, in the order of the report.
pub(crate) const ALL: &[Group] = &[
    Group { name: "reads", title: "GET by name", measure: requests::reads },
    Group { name: "floor", title: "GET next to a bare server", measure: floor::measure },
    Group { name: "writes", title: "create and update", measure: requests::writes },
    Group { name: "endurance", title: "updates for a while", measure: requests::endurance },
    Group { name: "apply", title: "server-side apply", measure: apply::measure },
    Group { name: "lists", title: "a full list in one response", measure: lists::measure },
    Group { name: "watch", title: "one write to 100 watchers", measure: watch::measure },
    Group { name: "memory", title: "resident memory", measure: memory::measure },
    Group { name: "ready", title: "from start to ready", measure: ready::measure },
    Group { name: "scale", title: "cost with many objects", measure: scale::measure },
    Group { name: "overload", title: "more than can be done", measure: overload::measure },
    Group {
        name: "fairness",
        title: "one owner who asks for too much",
        measure: fairness::measure,
    },
    Group { name: "access", title: "callers who may not do everything", measure: access::measure },
    Group { name: "gateway", title: "the way to a connected cluster", measure: gateway::measure },
    Group { name: "tunnel", title: "the way through a tunnel", measure: tunnel::measure },
    Group { name: "etcd", title: "servers on one etcd", measure: etcd::measure },
];

/// The usual absolute figures of a run.
fn figure(run: &str, server: &str, measurement: &Measurement) -> Figure {
    let latency = |at: &str| measurement.number(&format!("latency_microseconds.{at}"));
    Figure {
        run: run.to_owned(),
        server: server.to_owned(),
        values: vec![
            format!("{:.1} µs CPU/request", measurement.cpu()),
            format!("{:.0}/s", measurement.per_second()),
            format!("p50 {:.0} µs", latency("p50")),
            format!("p99 {:.0} µs", latency("p99")),
        ],
    }
}

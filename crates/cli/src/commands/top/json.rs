//! A report as a value for programs. A figure that is not known is null.

use serde_json::{Map, Number, Value, json};

use super::report::{OwnerRow, Report, Traffic};

/// The report of a server.
pub(super) fn value(report: &Report, server: &str) -> Value {
    let (store, clusters) = (&report.store, &report.clusters);
    let in_flight = report.in_flight.iter().map(|one| {
        let counts = json!({ "running": number(one.running), "waiting": number(one.waiting) });
        (one.class.clone(), counts)
    });
    let by_phase = clusters.by_phase.iter().map(|(phase, count)| (phase.clone(), number(*count)));
    let mut requests = traffic(&report.requests);
    requests.insert("byResource".to_owned(), by_resource(report));
    json!({
        "server": server,
        "version": report.version,
        "intervalSeconds": figure(report.seconds),
        "restarted": report.is_restarted,
        "problems": report.problems,
        "requests": requests,
        "inFlight": in_flight.collect::<Map<_, _>>(),
        "watches": {
            "open": number(report.watches.0),
            "eventsPerSecond": figure(report.watches.1),
            "byResource": by_watched(report),
        },
        "store": {
            "revision": figure(store.revision),
            "transactionsPerSecond": figure(store.transactions),
            "lagRevisions": figure(store.lag),
            "commitP50Seconds": figure(store.commit_p50_seconds),
            "commitP99Seconds": figure(store.commit_p99_seconds),
            "freeBytes": figure(store.free_bytes),
        },
        "clusters": {
            "stored": figure(clusters.stored),
            "byPhase": by_phase.collect::<Map<_, _>>(),
            "agentsConnected": figure(clusters.agents),
            "requestsPerSecond": figure(clusters.requests),
            "failuresPerSecond": figure(clusters.failures),
            "connections": figure(clusters.connections),
            "streams": figure(clusters.streams),
        },
        "process": {
            "processors": figure(report.process.processors),
            "memoryBytes": figure(report.process.memory_bytes),
            "openFiles": figure(report.process.open_files),
            "connections": figure(report.connections.0),
            "connectionsLimit": figure(report.connections.1),
        },
        "owners": report.owners.as_ref().ok().map(|owners| {
            owners.iter().map(owner).collect::<Vec<_>>()
        }),
        "ownersError": report.owners.as_ref().err(),
    })
}

fn by_resource(report: &Report) -> Value {
    let rows = report.by_resource.iter().map(|row| {
        let mut value = traffic(&row.traffic);
        for (name, text) in
            [("verb", &row.verb), ("group", &row.group), ("resource", &row.resource)]
        {
            value.insert(name.to_owned(), json!(text));
        }
        Value::Object(value)
    });
    rows.collect()
}

fn by_watched(report: &Report) -> Value {
    let rows = report.by_watched.iter().map(|row| {
        json!({
            "group": row.group,
            "resource": row.resource,
            "open": number(row.open),
            "eventsPerSecond": figure(row.events),
        })
    });
    rows.collect()
}

fn owner(row: &OwnerRow) -> Value {
    json!({
        "owner": row.owner,
        "perSecond": figure(row.rate),
        "share": figure(row.share),
        "watches": number(row.watches),
    })
}

fn traffic(traffic: &Traffic) -> Map<String, Value> {
    let figures = [
        ("perSecond", traffic.rate),
        ("errorsPerSecond", traffic.errors),
        ("rejectedPerSecond", traffic.rejected),
        ("p50Seconds", traffic.p50_seconds),
        ("p99Seconds", traffic.p99_seconds),
    ];
    figures.into_iter().map(|(name, value)| (name.to_owned(), figure(value))).collect()
}

fn figure(value: Option<f64>) -> Value {
    value.map_or(Value::Null, number)
}

/// A number, without a decimal point if it is whole. Null if JSON cannot express it.
fn number(value: f64) -> Value {
    if value.fract() == 0.0
        && let Ok(whole) = format!("{value:.0}").parse::<i64>()
    {
        return whole.into();
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_whole_as_they_can_be() {
        for (value, want) in
            [(3.0, "3"), (0.0, "0"), (2.5, "2.5"), (f64::NAN, "null"), (f64::INFINITY, "null")]
        {
            assert_eq!(number(value).to_string(), want);
        }
    }
}

//! The owners with most requests, in Prometheus' text format. It is not a part of `/metrics`: the
//! labels are names of owners, and they change all the time. A database of metrics would keep all
//! of them.

use std::fmt::Write as _;

use postern_flow::OwnerRequests;

use super::format::head;

/// The counts of these owners as text, in their order.
pub fn write(owners: &[OwnerRequests]) -> String {
    let mut text = String::new();
    let name = "postern_owner_requests_total";
    head(&mut text, name, "counter", "Requests of the owners that have sent most lately.");
    for one in owners {
        let _ = writeln!(text, "{name}{{owner=\"{}\"}} {}", escape(&one.owner), one.requests);
    }
    let name = "postern_owner_open_watches";
    head(&mut text, name, "gauge", "Open watches of these owners, with requests to clusters.");
    for one in owners {
        let _ = writeln!(text, "{name}{{owner=\"{}\"}} {}", escape(&one.owner), one.watches);
    }
    text
}

/// A label's value as the format quotes it.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn names_are_quoted() {
        let owners = [("host:a", 2, 1), ("q\"\\\n", 1, 0)].map(|(owner, requests, watches)| {
            OwnerRequests { owner: Arc::from(owner), requests, watches }
        });
        let text = write(&owners);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "postern_owner_requests_total{owner=\"host:a\"} 2",
                "postern_owner_requests_total{owner=\"q\\\"\\\\\\n\"} 1",
                "postern_owner_open_watches{owner=\"host:a\"} 1",
                "postern_owner_open_watches{owner=\"q\\\"\\\\\\n\"} 0",
            ]
        );
    }

    #[test]
    fn the_reference_lists_every_metric_and_no_other() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let section = page.split("\n## ").find(|section| section.starts_with("Owners")).unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let listed: Vec<_> =
            rows.filter_map(|(name, row)| Some((name, row.split_once(" | ")?.0))).collect();
        let text = write(&[]);
        let written: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        assert_eq!(listed, written);
    }
}

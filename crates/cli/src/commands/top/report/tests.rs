//! Tests of reports: tables of two scrapes and the figures that follow.

use super::*;

fn reading(at_seconds: f64, server: &str, owners: &str) -> Reading {
    Reading {
        at_seconds,
        server: Scrape::parse(server).unwrap(),
        owners: Ok(Scrape::parse(owners).unwrap()),
    }
}

/// The report of two scrapes of one process, two seconds apart.
fn between(before: &str, after: &str) -> Report {
    let start = "process_start_time_seconds 100\n";
    let (before, after) = (format!("{start}{before}"), format!("{start}{after}"));
    Report::new(Some(&reading(10.0, &before, "")), &reading(12.0, &after, ""))
}

/// A sample of the requests.
fn requests(verb: &str, resource: &str, code: u16, count: u32) -> String {
    format!(
        "apiserver_request_total{{verb=\"{verb}\",group=\"\",resource=\"{resource}\",\
         subresource=\"\",code=\"{code}\"}} {count}\n"
    )
}

/// The histogram of the durations, with bounds of 0.1 s and 1 s.
fn durations(verb: &str, resource: &str, counts: [u32; 3]) -> String {
    let bucket = |(bound, count)| {
        format!(
            "apiserver_request_duration_seconds_bucket{{verb=\"{verb}\",group=\"\",\
             resource=\"{resource}\",subresource=\"\",le=\"{bound}\"}} {count}\n"
        )
    };
    ["0.1", "1", "+Inf"].into_iter().zip(counts).map(bucket).collect()
}

#[test]
fn requests_have_rates_and_quantiles() {
    let before = [
        requests("GET", "users", 200, 100),
        requests("GET", "users", 500, 1),
        durations("GET", "users", [100, 101, 101]),
    ]
    .concat();
    let after = [
        requests("GET", "users", 200, 108),
        requests("GET", "users", 500, 3),
        requests("POST", "teams", 429, 4),
        requests("LIST", "teams", 200, 0),
        durations("GET", "users", [110, 111, 111]),
        durations("POST", "teams", [0, 4, 4]),
    ]
    .concat();
    let report = between(&before, &after);
    assert_eq!((report.seconds, report.is_restarted), (Some(2.0), false));
    let total = &report.requests;
    assert_eq!((total.rate, total.errors, total.rejected), (Some(7.0), Some(1.0), Some(2.0)));
    let rows: Vec<_> = report
        .by_resource
        .iter()
        .map(|row| (row.verb.as_str(), row.resource.as_str(), row.traffic.rate))
        .collect();
    assert_eq!(rows, [("GET", "users", Some(5.0)), ("POST", "teams", Some(2.0))]);
    assert_eq!(report.by_resource[0].traffic.p50_seconds, Some(0.05));
    assert_eq!(report.by_resource[1].traffic.p50_seconds, Some(0.55));
}

#[test]
fn paths_and_subresources_are_named() {
    let sample = |labels: &str| format!("apiserver_request_total{{verb=\"GET\",{labels}}} 1\n");
    let after = [
        sample("resource=\"\",subresource=\"/metrics\""),
        sample("resource=\"clusters\",subresource=\"status\""),
        sample("resource=\"\",subresource=\"\""),
    ]
    .concat();
    let report = between("apiserver_request_total 0\n", &after);
    let names: Vec<_> = report.by_resource.iter().map(|row| row.resource.as_str()).collect();
    assert_eq!(names, ["", "/metrics", "clusters/status"]);
}

#[test]
fn a_restart_shows_no_negative_rates() {
    let before = requests("GET", "users", 200, 100);
    let after = requests("GET", "users", 200, 3);
    let of = |start: u32, samples: &str| {
        format!("process_start_time_seconds {start}\npostern_store_revision 9\n{samples}")
    };
    for (name, second) in
        [("another start", of(200, &after)), ("counts went back", of(100, &after))]
    {
        let report =
            Report::new(Some(&reading(10.0, &of(100, &before), "")), &reading(12.0, &second, ""));
        assert!(report.is_restarted && report.problems[0].contains("started again"), "{name}");
        assert_eq!((report.seconds, report.requests.rate), (None, None), "{name}");
        assert_eq!((report.store.revision, report.store.transactions), (Some(9.0), None), "{name}");
        assert!(report.by_resource.is_empty(), "{name}");
    }
}

#[test]
fn the_first_scrape_has_states_and_no_rates() {
    let report = Report::new(None, &reading(10.0, &requests("GET", "users", 200, 3), ""));
    assert_eq!((report.seconds, report.is_restarted), (None, false));
    assert_eq!(report.requests, Traffic::default());
    assert!(report.watches.0.is_sign_positive(), "0 is not -0");
    let at_once = reading(10.0, "apiserver_request_total 1\n", "");
    let report = Report::new(Some(&at_once), &at_once);
    assert_eq!(report.requests.rate, None, "no division by 0");
}

#[test]
fn watches_are_those_that_are_open_or_have_events() {
    let state = |events: u32| {
        format!(
            "apiserver_longrunning_requests{{resource=\"users\",scope=\"cluster\"}} 2\n\
             apiserver_longrunning_requests{{resource=\"users\",scope=\"resource\"}} 1\n\
             apiserver_watch_events_total{{resource=\"users\"}} {events}\n\
             apiserver_watch_events_total{{resource=\"teams\"}} 7\n"
        )
    };
    let report = between(&state(10), &state(20));
    assert_eq!(report.watches, (3.0, Some(5.0)));
    let row = WatchRow {
        group: String::new(),
        resource: "users".to_owned(),
        open: 3.0,
        events: Some(5.0),
    };
    assert_eq!(report.by_watched, [row]);
}

#[test]
fn the_lag_is_what_the_database_does_not_have_yet() {
    for (samples, want) in [
        ("postern_store_revision 10\npostern_store_applied_revision 7\n", Some(3.0)),
        ("postern_store_revision 7\npostern_store_applied_revision 8\n", Some(0.0)),
        ("postern_store_revision 7\n", None),
        ("", None),
    ] {
        assert_eq!(between(samples, samples).store.lag, want, "{samples}");
    }
    let commits = |count: u32| {
        format!(
            "postern_store_revision {count}\n\
             postern_store_commit_duration_seconds_bucket{{le=\"0.1\"}} {count}\n\
             postern_store_commit_duration_seconds_bucket{{le=\"+Inf\"}} {count}\n"
        )
    };
    let store = between(&commits(2), &commits(4)).store;
    assert_eq!((store.transactions, store.commit_p50_seconds), (Some(1.0), Some(0.05)));
}

#[test]
fn clusters_are_counted_by_their_phase() {
    let samples = "apiserver_storage_objects{resource=\"clusters\"} 3\n\
                   apiserver_storage_objects{resource=\"users\"} 30\n\
                   postern_clusters{connection=\"agent\",phase=\"Ready\"} 1\n\
                   postern_clusters{connection=\"kubeconfig\",phase=\"Ready\"} 1\n\
                   postern_clusters{connection=\"agent\",phase=\"Failed\"} 1\n\
                   postern_clusters{connection=\"agent\",phase=\"Pending\"} 0\n\
                   postern_agent_connected{cluster_uid=\"u\"} 1\n";
    let clusters = between(samples, samples).clusters;
    assert_eq!((clusters.stored, clusters.agents, clusters.requests), (Some(3.0), Some(1.0), None));
    let phases: Vec<_> = clusters.by_phase.into_iter().collect();
    assert_eq!(phases, [("Failed".to_owned(), 1.0), ("Ready".to_owned(), 2.0)]);
}

#[test]
fn owners_have_rates_and_shares_of_what_is_listed_twice() {
    let owner = |name: &str, count: u32| {
        format!("postern_owner_requests_total{{owner=\"{name}\"}} {count}\n")
    };
    let before = [owner("ada", 10), owner("bob", 50)].concat();
    let after = [
        owner("ada", 12),
        // Forgotten in between.
        owner("bob", 6),
        // Not among those of the earlier scrape: the requests of a longer time.
        owner("eve", 1000),
        "postern_owner_open_watches{owner=\"ada\"} 4\n".to_owned(),
    ]
    .concat();
    let report = Report::new(Some(&reading(10.0, "", &before)), &reading(12.0, "", &after));
    let rows: Vec<_> = report
        .owners
        .unwrap()
        .into_iter()
        .map(|row| (row.owner, row.rate, row.share, row.watches))
        .collect();
    assert_eq!(
        rows,
        [
            ("bob".to_owned(), Some(3.0), Some(0.75), 0.0),
            ("ada".to_owned(), Some(1.0), Some(0.25), 4.0),
            ("eve".to_owned(), None, None, 0.0),
        ]
    );
    let denied = Reading { owners: Err("denied".to_owned()), ..reading(12.0, "", "") };
    assert_eq!(Report::new(None, &denied).owners, Err("denied".to_owned()));
}

#[test]
fn problems_are_named() {
    for (before, after, want) in [
        ("", "", None),
        (
            "",
            "kubernetes_healthcheck{name=\"audit\"} 0\nkubernetes_healthcheck{name=\"ping\"} 1\n",
            Some("the check audit of /readyz fails"),
        ),
        ("", "postern_corrupt_objects{resource=\"a\"} 2\n", Some("2 corrupt objects are stored")),
        ("", "postern_corrupt_records 0\npostern_keyring_readable 1\n", None),
        ("", "postern_keyring_readable 0\n", Some("the keyring's file cannot be read")),
        ("apiserver_audit_error_total 3\n", "apiserver_audit_error_total 3\n", None),
        (
            "apiserver_audit_error_total 3\n",
            "apiserver_audit_error_total 5\n",
            Some("2 writes to the audit log failed"),
        ),
    ] {
        let problems = between(before, after).problems;
        let is_as_wanted = match want {
            None => problems.is_empty(),
            Some(want) => problems.len() == 1 && problems[0].starts_with(want),
        };
        assert!(is_as_wanted, "{after}: {problems:?}");
    }
}

//! `/metrics`: its counters, its readers, and that requests cannot add lines to it.

use postern_tests::http::Client;
use postern_tests::objects::based;
use postern_tests::{Server, wait};
use serde_json::json;

async fn read(client: &Client) -> String {
    let reply = client.get("/metrics").send().await;
    assert_eq!(reply.status, 200);
    assert!(reply.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    String::from_utf8(reply.body.to_vec()).unwrap()
}

/// The value of the one line that starts with `name` and contains all of `labels`.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let mut lines = text.lines().filter(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']));
        rest.is_some_and(|rest| labels.iter().all(|label| rest.contains(label)))
    });
    let line = lines.next()?;
    assert_eq!(lines.next(), None, "one line for {name} {labels:?}");
    Some(line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn requests_are_counted_by_verb_resource_and_code() {
    let server = Server::start().await;
    let client = server.client();
    let secrets = based("/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets");
    let secret = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
        "metadata": { "name": "counted-one" }, "spec": { "data": { "canary": "Y2FuYXJ5" } },
    });
    let dry = client.post(&format!("{secrets}?dryRun=All")).json(&secret).send().await;
    assert_eq!(dry.status, 201);
    assert_eq!(client.post(&secrets).json(&secret).send().await.status, 201);
    assert_eq!(client.post(&secrets).json(&secret).send().await.status, 409);
    assert_eq!(client.get(&secrets).send().await.status, 200);
    assert_eq!(client.get(&format!("{secrets}/counted-one")).send().await.status, 200);
    let text = read(&client).await;
    let total = |labels: &[&str]| {
        let ours = [labels, &["resource=\"sharedsecrets\"", "version=\"v1\""]].concat();
        value(&text, "apiserver_request_total", &ours)
    };
    let post = "verb=\"POST\"";
    assert_eq!(total(&[post, "code=\"201\"", "dry_run=\"All\""]), Some(1.0));
    assert_eq!(total(&[post, "code=\"201\"", "dry_run=\"\"", "scope=\"resource\""]), Some(1.0));
    assert_eq!(total(&[post, "code=\"409\""]), Some(1.0));
    assert_eq!(total(&["verb=\"LIST\"", "scope=\"namespace\""]), Some(1.0));
    assert_eq!(total(&["verb=\"GET\"", "scope=\"resource\""]), Some(1.0));
    let buckets = ["verb=\"POST\"", "resource=\"sharedsecrets\"", "le=\"+Inf\""];
    assert_eq!(value(&text, "apiserver_request_duration_seconds_bucket", &buckets), Some(3.0));
    let count = value(&text, "apiserver_request_duration_seconds_count", &buckets[..2]);
    assert_eq!(count, Some(3.0));
    let stored = ["resource=\"sharedsecrets\"", "group=\"management.platform.sh\""];
    assert_eq!(value(&text, "apiserver_storage_objects", &stored), Some(1.0));
    let reading = value(&text, "apiserver_current_inflight_requests", &["readOnly"]);
    assert_eq!(reading, Some(1.0), "this very request");
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
        "postern_store_revision",
    ] {
        assert!(value(&text, name, &[]).unwrap() > 0.0, "{name}");
    }
    for never in ["counted-one", "canary", "platform\"", "admin"] {
        assert!(!text.contains(never), "{never} is in a label");
    }
}

#[tokio::test]
async fn watches_are_counted_while_they_are_open() {
    let server = Server::start().await;
    let client = server.client();
    let labels = ["verb=\"WATCH\"", "resource=\"namespaces\"", "scope=\"cluster\""];
    let events = async || {
        let text = read(&client).await;
        value(&text, "apiserver_watch_events_total", &["resource=\"namespaces\""])
    };
    assert_eq!(events().await, Some(0.0));
    let path = based("/api/v1/namespaces?watch=true");
    let mut watch = client.get(&path).stream().await;
    watch.next().await.unwrap().expect("an event");
    watch.next().await.unwrap().expect("an event");
    assert_eq!(value(&read(&client).await, "apiserver_longrunning_requests", &labels), Some(1.0));
    assert_eq!(events().await, Some(2.0));
    drop(watch);
    wait::until("the watch to be seen closed", async || {
        let text = read(&client).await;
        value(&text, "apiserver_longrunning_requests", &labels).is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn unknown_paths_and_verbs_add_no_lines() {
    let server = Server::start().await;
    let client = server.client();
    for number in 0..20 {
        for path in [
            format!("/apis/g{number}.example/v1/things"),
            format!("/nothing{number}"),
            format!("/apis/management.platform.sh/v1/things{number}"),
        ] {
            assert_eq!(client.get(&based(&path)).send().await.status, 404);
        }
    }
    let text = read(&client).await;
    let others = value(&text, "apiserver_request_total", &["verb=\"other\"", "code=\"404\""]);
    assert_eq!(others, Some(60.0));
    assert!(!text.contains("things") && !text.contains("nothing"));
}

#[tokio::test]
async fn they_need_a_credential_and_are_the_same_on_every_path() {
    let server = Server::start().await;
    let client = server.client();
    for path in ["/metrics".to_owned(), based("/metrics")] {
        assert_eq!(client.get(&path).send().await.status, 200);
        assert_eq!(client.get(&path).without("authorization").send().await.status, 401);
        assert_eq!(client.post(&path).send().await.status, 405);
    }
    let text = read(&client).await;
    let refused = ["subresource=\"/metrics\"", "code=\"401\""];
    assert_eq!(value(&text, "apiserver_request_total", &refused), Some(2.0));
    check_format(&text);
}

/// Every line is a comment or a sample, and the lines of a metric are together, after its type.
fn check_format(text: &str) {
    let mut seen = std::collections::BTreeSet::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split(' ').next().unwrap();
            assert!(seen.insert(current), "{current} comes twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(current), "{line} is after the type of {current}");
            let (_, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
        }
    }
}

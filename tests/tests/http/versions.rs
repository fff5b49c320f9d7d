//! `resourceVersion` and `resourceVersionMatch` of get, list and watch, row by row of Kubernetes'
//! table; and the versions that compaction removes.

use postern_tests::objects::{name_of, secret, secret_path, secrets, version_of};
use postern_tests::status::{failure, failure_of};
use postern_tests::{Home, Server, Setup, wait};
use serde_json::{Value, json};

/// Creates three states of one collection, and returns their versions.
async fn three(server: &Server) -> [u64; 3] {
    let client = server.client();
    let mut versions = [0; 3];
    for (index, version) in versions.iter_mut().enumerate() {
        let object = secret(&format!("s{index}"), "v");
        client.post(&secrets("platform")).json(&object).send().await.expect(201);
        *version = version_of(&client.get(&secrets("platform")).send().await.expect(200));
    }
    assert!(versions.is_sorted());
    versions
}

fn count(list: &Value) -> usize {
    list["items"].as_array().expect("a list has items").len()
}

#[tokio::test]
async fn lists_follow_the_table() {
    let server = Server::start().await;
    let client = server.client();
    let [one, two, three] = three(&server).await;
    let collection = secrets("platform");
    // Not older than the requested version. Here this is everything, because nothing is newer.
    for query in [
        String::new(),
        "?resourceVersion=".to_owned(),
        "?resourceVersion=0".to_owned(),
        format!("?resourceVersion={one}"),
        format!("?resourceVersion={three}"),
        format!("?resourceVersion={one}&resourceVersionMatch=NotOlderThan"),
        format!("?resourceVersion={one}&resourceVersionMatch=NotOlderThan&limit=10"),
        "?resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(),
        "?limit=10".to_owned(),
        "?limit=10&resourceVersion=0".to_owned(),
    ] {
        let list = client.get(&format!("{collection}{query}")).send().await.expect(200);
        assert_eq!(count(&list), 3, "{query}");
        assert!(version_of(&list) >= three, "{query}");
    }
    for (query, items) in [
        (format!("?resourceVersion={one}&resourceVersionMatch=Exact"), 1),
        (format!("?resourceVersion={two}&resourceVersionMatch=Exact"), 2),
        (format!("?resourceVersion={two}&resourceVersionMatch=Exact&limit=5"), 2),
        (format!("?resourceVersion={two}&limit=5"), 2),
    ] {
        let list = client.get(&format!("{collection}{query}")).send().await.expect(200);
        assert_eq!(count(&list), items, "{query}");
    }
    let exact = format!("{collection}?resourceVersion={two}&resourceVersionMatch=Exact");
    let list = client.get(&exact).send().await.expect(200);
    assert_eq!(version_of(&list), two, "an exact list has the version that was asked for");
}

#[tokio::test]
async fn gets_follow_the_table() {
    let server = Server::start().await;
    let client = server.client();
    let [one, _, three] = three(&server).await;
    for query in [
        String::new(),
        "?resourceVersion=0".into(),
        format!("?resourceVersion={one}"),
        format!("?resourceVersion={three}"),
    ] {
        let read = client.get(&format!("{}{query}", secret_path("s2"))).send().await.expect(200);
        assert_eq!(name_of(&read), "s2", "{query}");
    }
    let text =
        failure(&client.get(&format!("{}?resourceVersion=x", secret_path("s2"))).send().await);
    assert!(text.starts_with("400 BadRequest\n"), "{text}");
}

#[tokio::test]
async fn a_version_of_the_far_future_times_out() {
    let server = Server::start().await;
    let client = server.client();
    let [_, _, three] = three(&server).await;
    let future = three + 256_000;
    for path in [
        format!("{}?resourceVersion={future}", secrets("platform")),
        format!("{}?resourceVersion={future}", secret_path("s0")),
        format!(
            "{}?resourceVersion={future}&resourceVersionMatch=NotOlderThan",
            secrets("platform")
        ),
    ] {
        let reply = client.get(&path).send().await;
        let text = failure(&reply);
        let expected = format!(
            "504 Timeout\nTimeout: Too large resource version: {future}, current: {three}\n"
        );
        assert!(text.starts_with(&expected), "{text}");
        let details = &reply.json()["details"];
        assert_eq!(details["retryAfterSeconds"], 1);
        assert_eq!(details["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
}

#[tokio::test]
async fn a_version_of_the_near_future_is_waited_for() {
    let server = Server::start().await;
    let client = server.client();
    let [_, _, three] = three(&server).await;
    let path = format!("{}?resourceVersion={}", secrets("platform"), three + 1);
    let (list, made) = tokio::join!(
        client.get(&path).send(),
        client.post(&secrets("platform")).json(&secret("s3", "v")).send(),
    );
    made.expect(201);
    assert_eq!(count(&list.expect(200)), 4);
}

#[tokio::test]
async fn watches_follow_the_table() {
    let server = Server::start().await;
    let client = server.client();
    let [one, two, three] = three(&server).await;
    let collection = secrets("platform");
    let mut watches = Vec::new();
    for (query, events) in [
        (String::new(), vec!["ADDED s0", "ADDED s1", "ADDED s2"]),
        ("&resourceVersion=0".into(), vec!["ADDED s0", "ADDED s1", "ADDED s2"]),
        (format!("&resourceVersion={one}"), vec!["ADDED s1", "ADDED s2"]),
        (format!("&resourceVersion={two}"), vec!["ADDED s2"]),
        (format!("&resourceVersion={three}"), vec![]),
    ] {
        watches.push((client.watch(&collection, &query).await, query, events));
    }
    for (watch, query, events) in &mut watches {
        let mut seen = watch.summaries(events.len()).await;
        // The order of the initial state is free.
        seen.sort();
        assert_eq!(&seen, events, "{query}");
    }
    client.post(&collection).json(&secret("live", "v")).send().await.expect(201);
    for (watch, query, _) in &mut watches {
        assert_eq!(watch.summaries(1).await, ["ADDED live"], "{query}");
    }
}

/// A server with so little history that a test can wait for its compaction.
async fn with_short_history() -> Server {
    let home = Home::new();
    Setup::on(&home).argument("--history").argument("1s").start().await
}

/// Waits until the version is compacted, and writes some objects meanwhile.
async fn compacted(server: &Server, version: u64) {
    let client = server.client();
    let path =
        format!("{}?resourceVersion={version}&resourceVersionMatch=Exact", secrets("platform"));
    let mut round = 0;
    wait::until("history to be compacted", async || {
        round += 1;
        let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
        client.patch(&secret_path("s0"), "merge-patch", &label).send().await.expect(200);
        (client.get(&path).send().await.status == 410).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_compacted_is_410() {
    let server = with_short_history().await;
    let client = server.client();
    let [one, ..] = three(&server).await;
    let collection = secrets("platform");
    let first = client.get(&format!("{collection}?limit=1")).send().await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    compacted(&server, version_of(&first)).await;

    let exact = format!("{collection}?resourceVersion={one}&resourceVersionMatch=Exact");
    let text = failure(&client.get(&exact).send().await);
    assert!(text.starts_with("410 Expired\n"), "{text}");

    let reply = client.get(&format!("{collection}?limit=1&continue={token}")).send().await;
    let status = reply.expect(410);
    assert_eq!(status["reason"], "Expired");
    let expected = "The provided continue parameter is too old to display a consistent list result";
    assert!(status["message"].as_str().unwrap().starts_with(expected), "{status}");
    let token = status["metadata"]["continue"].as_str().expect("a new continue token");
    let rest =
        client.get(&format!("{collection}?limit=10&continue={token}")).send().await.expect(200);
    let names: Vec<_> = rest["items"].as_array().unwrap().iter().map(name_of).collect();
    assert_eq!(names, ["s1", "s2"]);

    let old = format!("&resourceVersion={one}");
    let events = client.watch(&collection, &old).await.rest().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].kind, "ERROR");
    let text = failure_of(&events[0].object, 410);
    assert!(text.starts_with("410 Expired\ntoo old resource version: "), "{text}");
    client.get(&collection).send().await.expect(200);
}

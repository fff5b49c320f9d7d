//! The decisions of an agent are in the audit log of the central server, even if it made them while
//! the central server was away.

use std::collections::BTreeSet;

use postern_tests::objects::{endpoint_token, make};
use postern_tests::rights::path;
use postern_tests::{Home, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::agent::scene::{CLUSTER, Central, SECRETS, agent_setup, member, start_agent};

const REPORTER: &str = "platform.sh/reported-by";

/// The records of agents at the central server. They are in a file of their own.
fn reported(central: &Central) -> Vec<Value> {
    let own = central.home.records();
    assert!(own.iter().all(|record| record["annotations"][REPORTER].is_null()));
    let records = central.home.reported_records();
    assert!(records.iter().all(|record| record["annotations"][REPORTER].is_string()));
    records
}

/// Waits for the record of the end of a request, and returns it.
async fn ended(central: &Central, verb: &str, code: u16) -> Value {
    wait::until("the record in the audit log of the central server", async || {
        let is_it = |record: &Value| {
            let of = (&record["verb"], &record["stage"], &record["responseStatus"]["code"]);
            of == (&json!(verb), &json!("ResponseComplete"), &json!(code))
        };
        reported(central).into_iter().find(is_it)
    })
    .await
}

#[tokio::test]
async fn what_an_agent_decides_is_in_the_audit_log_of_the_central_server_once() {
    let (mut central, member, home) = (Central::new().await, member().await, Home::new());
    let agent = start_agent(&central, &member, &home).await;
    agent.ready().await;
    let (good, of_eve) = (
        endpoint_token(&central.ada, json!({})).await,
        endpoint_token(&central.eve, json!({})).await,
    );
    let secrets = format!("{CLUSTER}{SECRETS}");
    agent.client(&good).get(&secrets).send().await.expect(200);
    agent.client(&of_eve).get(&secrets).send().await.expect(403);
    let read = ended(&central, "list", 200).await;
    assert_eq!(read["annotations"]["platform.sh/cluster"], "member");
    assert_eq!(read["annotations"][REPORTER], "agent:member");
    assert_eq!((&read["user"]["username"], &read["level"]), (&json!("ada"), &json!("Metadata")));
    assert_eq!(read["objectRef"]["resource"], "sharedsecrets");
    let refused = ended(&central, "list", 403).await;
    assert_eq!(refused["user"]["username"], "eve");
    // The cluster's own record has the same id.
    let id = read["auditID"].as_str().unwrap();
    wait::until("the record of the cluster", async || {
        member.home().records().iter().any(|record| record["auditID"] == id).then_some(())
    })
    .await;

    // While the central server is away, records stay at the agent, also across a restart.
    central.stop().await;
    let object = json!({ "metadata": { "name": "s" }, "spec": {} });
    agent.client(&good).post(&secrets).json(&object).send().await.expect(201);
    agent.stop().await;
    let agent = start_agent(&central, &member, &home).await;
    agent.client(&good).delete(&format!("{secrets}/s")).send().await.expect(200);
    central.start().await;
    central.reconnect();
    for (verb, code) in [("create", 201), ("delete", 200)] {
        let record = ended(&central, verb, code).await;
        let of = |stage: &str| {
            let is_it = |one: &&Value| {
                (&one["auditID"], &one["stage"]) == (&record["auditID"], &json!(stage))
            };
            reported(&central).iter().filter(is_it).count()
        };
        assert_eq!((of("RequestReceived"), of("ResponseComplete")), (1, 1), "{verb}");
    }
    agent.stop().await;
    let key = "pst_";
    assert!(!reported(&central).iter().any(|record| record.to_string().contains(key)));
}

#[tokio::test]
async fn only_the_agent_of_a_cluster_reports_and_only_what_is_a_record() {
    let central = Central::new().await;
    let admin = central.admin();
    make(&admin, "clusters", "other", json!({})).await;
    let agent = admin.with_token(&central.agent_key);
    let events = |name: &str| format!("{}/auditevents", path("clusters", name));
    let event = json!({
        "level": "Metadata", "auditID": "one", "stage": "ResponseComplete", "verb": "get",
        "requestURI": "/kubernetes/cluster/version", "user": { "username": "ada" },
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        "stageTimestamp": "2026-01-01T00:00:00.000000Z",
        "annotations": { "platform.sh/cluster": "other", REPORTER: "somebody" },
    });
    let list = |items: Value| json!({ "apiVersion": "audit.k8s.io/v1", "kind": "EventList", "items": items });
    let one = list(json!([event]));
    // A repeated record is written once.
    for _ in 0..2 {
        agent.post(&events("member")).json(&one).send().await.expect(201);
    }
    let records = reported(&central);
    let stages: BTreeSet<&str> =
        records.iter().map(|record| record["auditID"].as_str().unwrap()).collect();
    assert_eq!((records.len(), stages), (1, BTreeSet::from(["one"])));
    assert_eq!(records[0]["annotations"]["platform.sh/cluster"], "member");
    assert_eq!(records[0]["annotations"][REPORTER], "agent:member");
    agent.post(&events("other")).json(&one).send().await.expect(403);
    central.ada.post(&events("member")).json(&one).send().await.expect(403);
    let refused = admin.post(&events("member")).json(&one).send().await.expect(403);
    assert!(refused["message"].as_str().unwrap().contains("only agent:member"), "{refused}");
    let mut wrong = event.clone();
    wrong["level"] = json!("RequestResponse");
    let refused = agent.post(&events("member")).json(&list(json!([wrong]))).send().await;
    assert!(refused.expect(422)["message"].as_str().unwrap().contains("items[0].level"));
    let many = list(Value::Array(vec![event; 1001]));
    let refused = agent.post(&events("member")).json(&many).send().await.expect(422);
    assert!(refused["message"].as_str().unwrap().contains("at most 1000"), "{refused}");
    assert_eq!(reported(&central).len(), 1, "nothing of what was refused");
}

/// Requests that any client can send without a token. They have no path, a path without a leading
/// `/`, a method that is no word, or a possible access key.
#[tokio::test]
async fn unauthenticated_clients_keep_no_record_of_others_from_the_central_server() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let agent = start_agent(&central, &member, &home).await;
    agent.ready().await;
    let good = endpoint_token(&central.ada, json!({})).await;
    let client = agent.client(&good);
    for line in ["GET /pst_x", "OPTIONS *", "CONNECT agent.test:443", "GET! /"] {
        let mut stream = client.raw().await.unwrap();
        let head = format!("{line} HTTP/1.1\r\nhost: agent.test\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 ", "{line}");
    }
    client.get(&format!("{CLUSTER}{SECRETS}")).send().await.expect(200);
    ended(&central, "list", 200).await;
    let refused = std::fs::read_dir(agent.state_dir().join("audit")).unwrap();
    let refused = refused.map(|file| file.unwrap().path());
    let refused = refused.filter(|path| path.extension().is_some_and(|end| end == "refused"));
    assert_eq!(refused.count(), 0);
    agent.stop().await;
}

/// One record that the central server refuses does not keep the other records of its list from
/// arriving.
#[tokio::test]
async fn a_record_that_the_central_server_refuses_keeps_no_other_from_it() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let record = |id: &str, verb: &str| {
        json!({
            "level": "Metadata", "auditID": id, "stage": "ResponseComplete", "verb": verb,
            "requestURI": "/kubernetes/cluster/version",
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
            "stageTimestamp": "2026-01-01T00:00:00.000000Z",
        })
    };
    let records = [("one", "get"), ("bad", "get!"), ("two", "get"), ("three", "get")];
    let lines: Vec<_> = records.iter().map(|(id, verb)| record(id, verb).to_string()).collect();
    let text = lines.join("\n") + "\n";
    let setup = agent_setup(&central, &member.home().kubeconfig(), &home);
    let queue = setup.state_dir().join("audit");
    std::fs::create_dir_all(&queue).unwrap();
    std::fs::write(queue.join(format!("{:020}.jsonl", 1)), text).unwrap();
    let agent = setup.launch().await;
    wait::until("the other records in the audit log of the central server", async || {
        let ids: BTreeSet<String> = reported(&central)
            .iter()
            .filter_map(|record| record["auditID"].as_str().map(str::to_owned))
            .collect();
        let all = ["one", "two", "three"].iter().all(|id| ids.contains(*id));
        assert!(!ids.contains("bad"));
        all.then_some(())
    })
    .await;
    let aside = queue.join(format!("{:020}.refused", 1));
    let aside =
        wait::until("the record that is set aside", async || std::fs::read_to_string(&aside).ok())
            .await;
    assert_eq!(aside.lines().count(), 1, "{aside}");
    agent.stop().await;
}

//! The trace of a request on its way to a cluster, and in the audit log.

use postern_tests::{Home, wait};

use crate::gateway::recording::Recording;
use crate::gateway::scene::{AT_AGENT, ByAgent, Central, MEMBER};

const ID: &str = "5f0c1f6e-2b0a-4a56-9c39-94e3a1f6a7b1";

/// The trace that begins with a request with the audit id [`ID`].
const OF_ID: &str = "00-5f0c1f6e2b0a4a569c3994e3a1f6a7b1-9c3994e3a1f6a7b1-00";

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn the_cluster_gets_the_trace_of_the_client_or_of_the_audit_id() {
    let cluster = Recording::start().await;
    let central = Central::new(&cluster.kubeconfig()).await;
    let path = format!("{MEMBER}/api/v1/pods");
    let get = || central.ada.get(&path).header("audit-id", ID);
    get().header("traceparent", TRACEPARENT).header("tracestate", "vendor=1").send().await;
    get().header("traceparent", "00-zz-1-1").send().await;
    let arrived = cluster.take();
    let headers: Vec<_> =
        arrived.iter().map(|one| (one.values("traceparent"), one.values("tracestate"))).collect();
    assert_eq!(
        headers,
        [
            (vec![TRACEPARENT.to_owned()], vec!["vendor=1".to_owned()]),
            (vec![OF_ID.to_owned()], vec![])
        ]
    );
    let annotations = wait::until("both records", async || {
        let records = central.server.home().records();
        let of_both = records.iter().filter(|record| record["auditID"] == ID);
        let annotations: Vec<_> = of_both
            .map(|record| record["annotations"]["platform.sh/traceparent"].clone())
            .collect();
        (annotations.len() == 2).then_some(annotations)
    })
    .await;
    assert_eq!(annotations, [TRACEPARENT.into(), serde_json::Value::Null]);
}

#[tokio::test]
async fn the_agent_and_its_cluster_get_the_trace() {
    let cluster = Recording::start().await;
    let by_agent = ByAgent::new(&Home::new(), &cluster.kubeconfig()).await;
    let (through, direct) =
        (format!("{MEMBER}/api/v1/pods"), format!("{AT_AGENT}/member/api/v1/pods"));
    cluster.take();
    for (client, path) in [(&by_agent.ada, &through), (&by_agent.direct, &direct)] {
        let request = client.get(path).header("traceparent", TRACEPARENT);
        request.send().await;
        client.get(path).header("audit-id", ID).send().await;
        let arrived = cluster.take();
        let headers: Vec<_> = arrived.iter().flat_map(|one| one.values("traceparent")).collect();
        assert_eq!(headers, [TRACEPARENT, OF_ID], "{path}");
    }
}

//! The agent's counts, in Prometheus' text format. They are served on a separate address that the operator
//! gives, without TLS and without a credential. A token of a tenant must not read them.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use postern_proxy::Failure;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::serve::Agent;

/// The most connections of scrapers, and how long one request may take.
const MAX_CONNECTIONS: usize = 16;
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// After a failed accept the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// All counts as text.
fn text(agent: &Agent) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let metrics = &agent.metrics;
    let one = |value: u64| vec![(String::new(), value)];
    let size = |value: usize| value as u64;
    metric(
        "postern_agent_requests_total",
        "counter",
        "Requests that were answered.",
        &metrics.answers(),
    );
    let in_flight = agent.flow.in_flight();
    let in_flight = [
        ("{kind=\"short\"}".to_owned(), size(in_flight.requests)),
        ("{kind=\"long\"}".to_owned(), size(in_flight.long_requests)),
    ];
    let help = "Requests under way; watches and streams are long.";
    metric("postern_agent_requests_in_flight", "gauge", help, &in_flight);
    let (open, busy) = agent.tunnels.counts();
    let tunnels = [
        ("{state=\"idle\"}".to_owned(), size(open - busy)),
        ("{state=\"busy\"}".to_owned(), size(busy)),
    ];
    let help = "Tunnels to the central server that are open.";
    metric("postern_agent_tunnels", "gauge", help, &tunnels);
    let counts = agent.proxy.counts();
    let help = "Upgraded connections that are open.";
    metric("postern_agent_sessions", "gauge", help, &one(size(counts.sessions)));
    let help = "Connections to the cluster that are open.";
    metric("postern_agent_upstream_connections", "gauge", help, &one(size(counts.connections)));
    let failures = Failure::ALL
        .map(|failure| (format!("{{reason=\"{}\"}}", failure.name()), counts.failures_of(failure)));
    let help = "Requests to the cluster that failed on the way, by the reason.";
    metric("postern_agent_upstream_failures_total", "counter", help, &failures);
    let help = "Virtual clusters in use, whose Secrets the agent reads.";
    let tracked = size(agent.virtual_clusters.tracked());
    metric("postern_agent_virtual_clusters", "gauge", help, &one(tracked));
    let accepted = metrics.accepted();
    metric("postern_agent_tokens_accepted_total", "counter", "Tokens that count.", &one(accepted));
    let help = "Tokens that were refused, by the reason.";
    metric("postern_agent_tokens_refused_total", "counter", help, &metrics.refused());
    if let Some(seconds) = agent.state.seconds_without_contact() {
        let help = "Seconds since the last contact to the central server.";
        metric("postern_agent_feed_age_seconds", "gauge", help, &one(seconds));
    }
    let help = "Bytes of audit records that wait for the central server.";
    metric("postern_agent_audit_queue_bytes", "gauge", help, &one(agent.audit.queue.bytes()));
    let help = "Audit records that are missing, since there was no room or too many were failures.";
    metric("postern_agent_audit_records_lost_total", "counter", help, &one(agent.audit.lost()));
    let secrets = &agent.secrets;
    let help = "Native Secrets that the agent asks data for.";
    metric("postern_agent_secret_wishes", "gauge", help, &one(secrets.wishes()));
    let help = "Whether the central server sends data of Secrets.";
    metric("postern_agent_secret_subscription", "gauge", help, &one(secrets.connected()));
    let help = "Writes of data into Secrets.";
    metric("postern_agent_secrets_filled_total", "counter", help, &one(secrets.filled()));
    let help = "Removals of data from Secrets.";
    metric("postern_agent_secrets_removed_total", "counter", help, &one(secrets.removed()));
    let help = "Writes of Secrets that failed, by the reason.";
    metric("postern_agent_secret_failures_total", "counter", help, &secrets.failures());
    let help = "Secrets whose last write has failed.";
    metric("postern_agent_secrets_failing", "gauge", help, &one(secrets.failing()));
    let help = "Events about Secrets that were not written.";
    let left_out = secrets.events_left_out();
    metric("postern_agent_secret_events_left_out_total", "counter", help, &one(left_out));
    let help = "Bytes of values of Secrets in memory.";
    metric("postern_agent_secret_bytes", "gauge", help, &one(secrets.bytes()));
    let open = size(agent.connections.open());
    metric("postern_agent_connections", "gauge", "Connections of clients.", &one(open));
    let ready = u64::from(agent.problem().is_none());
    metric("postern_agent_ready", "gauge", "Whether /readyz says so.", &one(ready));
    text
}

/// Serves the counts at `/metrics`. It returns never.
pub(crate) async fn serve(agent: Arc<Agent>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let agent = agent.clone();
        connections.spawn(async move {
            let service = service_fn(|request| {
                let answer = answer(&agent, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            let _ = timeout(CONNECTION_TIMEOUT, serving).await;
        });
    }
}

fn answer(agent: &Agent, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (code, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, text(agent)),
        _ => (StatusCode::NOT_FOUND, "there is only /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, FORMAT);
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http_body_util::BodyExt as _;

    use super::*;
    use crate::testing::{Scene, read};

    #[tokio::test]
    async fn what_was_answered_is_counted_and_served_apart_from_everything_else() {
        let scene = Scene::new().await;
        let mut client = scene.client().await;
        let pod = "/kubernetes/cluster/api/v1/namespaces/own/pods/x";
        read(client.send_request(scene.request("GET", pod)).await.unwrap()).await;
        let mut refused = scene.request("GET", pod);
        refused.headers_mut().insert("authorization", "Bearer x".parse().unwrap());
        read(client.send_request(refused).await.unwrap()).await;
        // The agent's own port has no metrics.
        let hidden = client.send_request(scene.request("GET", "/metrics")).await.unwrap();
        assert_eq!(read(hidden).await.0, 404);

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(scene.agent.clone(), listener));
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        let request = Request::get("/metrics").header("host", "x").body(Full::<Bytes>::default());
        let answer = client.send_request(request.unwrap()).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        for line in [
            "postern_agent_requests_total{verb=\"get\",code=\"200\"} 1",
            "postern_agent_requests_total{verb=\"unknown\",code=\"401\"} 1",
            "postern_agent_requests_total{verb=\"unknown\",code=\"404\"} 1",
            "postern_agent_requests_in_flight{kind=\"short\"} 0",
            "postern_agent_sessions 0",
            "postern_agent_virtual_clusters 0",
            "postern_agent_tokens_accepted_total 1",
            "postern_agent_tokens_refused_total{reason=\"malformed\"} 1",
            "postern_agent_feed_age_seconds 0",
            "postern_agent_audit_records_lost_total 0",
            "postern_agent_ready 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(text.contains("postern_agent_audit_queue_bytes "), "{text}");
        assert!(text.contains("postern_agent_upstream_failures_total{reason=\"unreachable\"} 0\n"));

        // The reference lists every metric and no other.
        let page = include_str!("../../../docs/reference/metrics.md");
        let section = page.split("\n## ").find(|section| section.starts_with("Agent")).unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let listed: BTreeMap<_, _> =
            rows.filter_map(|(name, row)| Some((name, row.split_once(" | ")?.0))).collect();
        let written: BTreeMap<_, _> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        assert_eq!(listed, written);
    }
}

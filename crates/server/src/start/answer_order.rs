//! The response to a request that several stages would reject, with its audit records and metrics.
//!
//! One row is one request. It shows the code, the start of the message, whether the response has an
//! audit id, and the number of audit records. It also shows the path and the code under which the
//! metrics count the request. Each request of the first phase is sent twice from one address, which
//! may fail to log in once in a minute. So the second failure exceeds the limit.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request};
use postern_meta::time::MicroTimestamp;
use postern_registry::clock::{Source, System};

use crate::admin::tests::settings;
use crate::open;
use crate::pipeline::{Client, Server, handle};
use crate::{Limits, Settings};
use postern_http::metrics;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;

/// The number of characters of a message in a row.
const MESSAGE_CHARS: usize = 48;

/// The requests of each phase: the method, the path, and the sender.
const REQUESTS: &[(&str, &str, Sender)] = &[
    ("GET", "/livez", Sender::Unauthenticated),
    ("POST", "/livez", Sender::Unauthenticated),
    ("GET", "/version", Sender::Unauthenticated),
    ("GET", "/auth/methods?x=1", Sender::Unauthenticated),
    ("GET", "/kubernetes/management/openid/v1/jwks", Sender::Unauthenticated),
    ("GET", "/auth/oidc/none/start", Sender::Unauthenticated),
    ("GET", "/auth/authorize", Sender::Unauthenticated),
    ("POST", "/auth/token", Sender::Unauthenticated),
    ("POST", "/auth/oidc/none/backchannel-logout", Sender::Unauthenticated),
    ("POST", "/auth/session", Sender::Unauthenticated),
    ("GET", "/auth/session", Sender::Unauthenticated),
    ("POST", "/auth/session", Sender::Administrator),
    ("GET", "/auth/session", Sender::Administrator),
    ("DELETE", "/auth/session", Sender::Administrator),
    ("GET", USER, Sender::Unauthenticated),
    ("GET", USER, Sender::Administrator),
    ("GET", USER, Sender::Powerless),
    ("GET", "/nothing", Sender::Unauthenticated),
    ("GET", "/nothing", Sender::Administrator),
    ("GET", "/nothing", Sender::Powerless),
    ("GET", "/kubernetes/management/apis/%zz", Sender::Unauthenticated),
    ("GET", "/kubernetes/management/apis/%zz", Sender::Administrator),
    ("GET", WATCH, Sender::Administrator),
    ("GET", WATCH, Sender::Powerless),
    ("POST", "/kubernetes/management/metrics", Sender::Administrator),
    ("GET", "/kubernetes/relay/uid/api", Sender::Unauthenticated),
    ("GET", "/kubernetes/cluster/none/api", Sender::Administrator),
    ("GET", "/kubernetes/cluster/none/api", Sender::Unauthenticated),
];

const USER: &str = "/kubernetes/management/apis/management.platform.sh/v1/users/none";
const WATCH: &str = "/kubernetes/management/apis/management.platform.sh/v1/users?watch=true";

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Unauthenticated,
    Administrator,
    /// A user without any permission, as whom the administrator acts.
    Powerless,
}

/// A stopped clock. It makes all failed logins count in the same minute.
struct StoppedClock(System, MicroTimestamp);

impl Source for StoppedClock {
    fn now_micro(&self) -> MicroTimestamp {
        self.1
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// A server, and the key of its administrator.
struct Scene {
    server: Arc<Server>,
    key: String,
}

impl Scene {
    /// The row of a request from an address.
    async fn row(&self, address: IpAddr, (method, path, sender): (&str, &str, Sender)) -> String {
        let mut request = Request::builder().method(method).uri(path).header("host", "a");
        if !matches!(sender, Sender::Unauthenticated) {
            request = request.header("authorization", format!("Bearer {}", self.key));
        }
        if matches!(sender, Sender::Powerless) {
            request = request.header("impersonate-user", "powerless");
        }
        let request = request.body(IncomingBody::empty()).unwrap();
        let client = Arc::new(Client::new(address, self.server.flow().clone()));
        let (series, records) = (self.series(), self.server.audit_records());
        let reply = handle(&self.server, &client, request, None).await;
        let (head, body) = reply.response.into_parts();
        let counted: Vec<String> = self.series().difference(&series).cloned().collect();
        let counted = counted.join(", ");
        let counted = counted.split_once(" #").map_or("nowhere", |(labels, _)| labels);
        let records = self.server.audit_records() - records;
        let message = message_of(&head.headers, &body);
        let id = if head.headers.contains_key("audit-id") { "id" } else { "no id" };
        format!(
            "{method} {path} {sender:?}: {} {message:?}, {id}, {records} records, counted {counted}\n",
            head.status.as_u16(),
        )
    }

    /// The path, the code and the count of each series of requests.
    fn series(&self) -> BTreeSet<String> {
        let text = metrics::write(self.server.metrics(), &self.server.readings());
        let lines = text.lines().filter(|line| line.starts_with("apiserver_request_total{"));
        let label = |line: &str, name: &str| {
            let value = line.split_once(&format!("{name}=\"")).unwrap().1;
            value.split_once('"').unwrap().0.to_owned()
        };
        let labels = ["verb", "resource", "subresource", "code"];
        let of = |line| labels.map(|name| label(line, name)).join(" ");
        lines.map(|line| format!("{} #{}", of(line), line.rsplit_once(' ').unwrap().1)).collect()
    }
}

/// The start of the message of a response, in one line.
fn message_of(headers: &HeaderMap, body: &Body) -> String {
    let Body::Whole(Some(bytes)) = body else { return "a stream".to_owned() };
    let text = String::from_utf8_lossy(bytes);
    let is_json = headers["content-type"].to_str().unwrap().contains("json");
    let value: serde_json::Value =
        if is_json { text.parse().unwrap() } else { serde_json::Value::Null };
    let message = ["message", "error_description"].iter().find_map(|name| value[*name].as_str());
    let message = message.unwrap_or(if is_json { "a document" } else { &text });
    message.replace('\n', " ").chars().take(MESSAGE_CHARS).collect()
}

async fn rows(dir: &Path) -> String {
    let settings = Settings {
        limits: Limits { watches_per_owner: 0, ..Limits::default() },
        max_login_failures: 1,
        ..settings(dir)
    };
    let (system, now) = (System::default(), System::default().now_micro());
    let opening = Box::pin(open(settings, Arc::new(StoppedClock(system, now))));
    let (running, welcome) = opening.await.unwrap();
    let kubeconfig = super::read_kubeconfig(&welcome.kubeconfig.unwrap()).unwrap();
    let key = kubeconfig.split_once("token: ").unwrap().1.lines().next().unwrap().trim();
    let server = running.parts.server.clone();
    let scene = Scene { server, key: key.trim_matches('"').to_owned() };
    let mut rows = Vec::new();
    for (phase, times) in [("serving", 2), ("starting", 1), ("draining", 1)] {
        scene.server.set_loaded_to(phase != "starting");
        if phase == "draining" {
            scene.server.drain(Duration::ZERO);
        }
        rows.push(format!("# {phase}\n"));
        for (number, request) in (1..).zip(REQUESTS) {
            let mut last = String::new();
            for _ in 0..times {
                let row = scene.row([192, 0, 2, number].into(), *request).await;
                rows.push(if row == last { "the same\n".to_owned() } else { row.clone() });
                last = row;
            }
        }
    }
    rows.concat()
}

#[tokio::test]
async fn the_first_stage_that_rejects_a_request_answers_it() {
    let home = tempfile::tempdir().unwrap();
    let found = rows(home.path()).await;
    assert!(found == include_str!("answer_order.txt"), "{found}");
}

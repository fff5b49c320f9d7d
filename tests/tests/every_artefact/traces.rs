//! The export of traces by a server with the feature `otel`. The tests check the spans of a request
//! at an OTLP receiver, and the trace that they belong to. They also check the trace of a request
//! at a cluster. The receiver and the cluster are servers of the test itself.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use postern_tests::http::Client;
use postern_tests::objects::{CORE, GROUP, make, make_kubeconfig};
use postern_tests::{Home, Setup, TlsServer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

/// The span of the client in each trace.
const CLIENT_SPAN: &str = "00f067aa0ba902b7";

/// A request that has arrived at a server of the test.
struct Arrived {
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

type AllArrived = Arc<Mutex<Vec<Arrived>>>;

/// A span, with its ids in hexadecimal digits.
#[derive(Debug)]
struct Span {
    trace_id: String,
    id: String,
    parent_id: String,
    name: String,
    /// The whole message, with the attributes.
    message: Vec<u8>,
}

/// The server that `cargo xtask test --all` built with the feature.
fn program() -> PathBuf {
    let path = std::env::var_os("POSTERN_TEST_OTEL_BIN");
    PathBuf::from(path.expect("POSTERN_TEST_OTEL_BIN names a postern with the feature otel"))
}

/// Serves one connection, and records its requests.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, all: AllArrived) {
    let service = service_fn(|request: Request<Incoming>| {
        let all = all.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes);
            let body = body.unwrap_or_default();
            all.lock().unwrap().push(Arrived { uri: head.uri, headers: head.headers, body });
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Starts an OTLP receiver.
async fn receiver() -> (SocketAddr, AllArrived) {
    let (listener, all) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), AllArrived::default());
    let (address, record) = (listener.local_addr().unwrap(), all.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, record.clone()));
        }
    });
    (address, all)
}

/// Connects the server to a cluster, which is called `member`.
async fn connect_cluster(admin: &Client) -> AllArrived {
    let all = AllArrived::default();
    let record = all.clone();
    let cluster = TlsServer::start(move |stream| serve(stream, record.clone())).await;
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: \"https://{}\", insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n",
        cluster.address()
    );
    make_kubeconfig(admin, "platform", "member", &kubeconfig).await;
    let config = json!({ "secretName": "member", "secretNamespace": "platform" });
    make(admin, "clusters", "member", json!({ "config": config })).await;
    all
}

/// The next number of a message of protobuf: seven bits in each byte, the lowest first.
fn number(message: &mut &[u8]) -> u64 {
    let end = message.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (digits, rest) = message.split_at(end);
    *message = rest;
    digits.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
}

/// The fields of a message with this id that are messages, strings or bytes.
fn fields(mut message: &[u8], wanted: u64) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = number(&mut message);
        let length = match tag & 7 {
            0 => {
                number(&mut message);
                0
            }
            1 => 8,
            2 => usize::try_from(number(&mut message)).unwrap(),
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (field, rest) = message.split_at(length);
        message = rest;
        if tag == wanted << 3 | 2 {
            found.push(field);
        }
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// The spans of an export. They are in scopes, and scopes are in resources.
fn spans(export: &[u8]) -> Vec<Span> {
    let scopes = fields(export, 1).into_iter().flat_map(|resource| fields(resource, 2));
    let read = |span: &[u8]| {
        let bytes = |field| fields(span, field).first().copied().unwrap_or_default();
        Span {
            trace_id: hex(bytes(1)),
            id: hex(bytes(2)),
            parent_id: hex(bytes(4)),
            name: String::from_utf8(bytes(5).to_vec()).unwrap(),
            message: span.to_vec(),
        }
    };
    scopes.flat_map(|scope| fields(scope, 2)).map(read).collect()
}

fn contains(message: &[u8], text: &str) -> bool {
    message.windows(text.len()).any(|part| part == text.as_bytes())
}

/// A request of a client with this trace id. `flags` says whether the client's span is sampled.
fn traceparent(trace: u32, flags: &str) -> String {
    format!("00-{trace:032x}-{CLIENT_SPAN}-{flags}")
}

/// The spans of a trace by their names. The span of the request has this parent, and the others are its children.
fn of_trace<'a>(all: &'a [Span], trace: &str, parent: &str) -> BTreeMap<&'a str, &'a Span> {
    let spans: Vec<_> = all.iter().filter(|span| span.trace_id == trace).collect();
    let names: BTreeMap<_, _> = spans.iter().map(|span| (span.name.as_str(), *span)).collect();
    assert_eq!(names.len(), spans.len(), "one span of each name: {spans:?}");
    let request = names["request"];
    assert_eq!(request.parent_id, parent);
    let mut steps = spans.iter().filter(|span| span.name != "request");
    assert!(steps.all(|step| step.parent_id == request.id), "{spans:?}");
    names
}

#[tokio::test]
async fn the_spans_of_requests_arrive_in_the_traces_of_their_clients() {
    let ((collector, exports), home) = (receiver().await, Home::new());
    let setup = Setup::on(&home).program(program()).argument("--allow-local-upstreams");
    let setup = setup.argument(format!("--otlp-endpoint=http://{collector}"));
    let server = setup.argument("--drain-timeout=1s").start().await;
    let admin = server.client();
    let cluster = connect_cluster(&admin).await;

    let projects = format!("{GROUP}/projects");
    let read = admin.get(&projects).header("traceparent", &traceparent(1, "01"));
    read.send().await.expect(200);
    let project = json!({ "metadata": { "name": "named-in-no-span" } });
    let create = admin.post(&projects).header("traceparent", &traceparent(2, "01"));
    let create = create.json(&project).send().await;
    create.expect(201);
    cluster.lock().unwrap().clear();
    let pods = "/kubernetes/cluster/member/api/v1/pods";
    let forward = admin.get(pods).header("traceparent", &traceparent(3, "01"));
    assert_eq!(forward.send().await.status, 200);
    let unsampled = admin.get(pods).header("traceparent", &traceparent(4, "00"));
    assert_eq!(unsampled.send().await.status, 200);
    let own = admin.get(&format!("{CORE}/namespaces")).send().await;
    own.expect(200);
    // A shutdown sends the last spans.
    server.stop().await;

    let exports = exports.lock().unwrap();
    for export in exports.iter() {
        assert_eq!(export.uri.path(), "/v1/traces");
        assert_eq!(export.headers["content-type"], "application/x-protobuf");
        assert!(contains(&export.body, "service.name") && contains(&export.body, "postern"));
        assert!(!contains(&export.body, "named-in-no-span"));
    }
    let all: Vec<_> = exports.iter().flat_map(|export| spans(&export.body)).collect();
    let of_client = |trace: u32| of_trace(&all, &format!("{trace:032x}"), CLIENT_SPAN);
    let names = |spans: &BTreeMap<_, _>| spans.keys().copied().collect::<Vec<_>>().join(" ");
    assert_eq!(names(&of_client(1)), "decision request");
    let created = of_client(2);
    assert_eq!(names(&created), "commit decision request");
    let audit_id = create.header("audit-id").unwrap();
    assert!(contains(&created["request"].message, audit_id));
    let forwarded = of_client(3);
    assert_eq!(names(&forwarded), "decision request upstream");
    let unsampled = format!("{:032x}", 4);
    assert!(!all.iter().any(|span| span.trace_id == unsampled));
    let audit_id = own.header("audit-id").unwrap();
    let root = all.iter().find(|span| contains(&span.message, audit_id)).unwrap();
    assert_eq!(names(&of_trace(&all, &root.trace_id, "")), "decision request");

    // The cluster's parent is the span of the request to it. An unsampled trace is passed on as unsampled.
    let arrived = cluster.lock().unwrap();
    let values: Vec<_> = arrived.iter().map(|one| one.headers["traceparent"].clone()).collect();
    assert_eq!(values[0], format!("00-{:032x}-{}-01", 3, forwarded["upstream"].id));
    let unsampled = values[1].to_str().unwrap();
    assert!(unsampled.starts_with(&format!("00-{:032x}-", 4)) && unsampled.ends_with("-00"));
    assert_eq!(values.len(), 2);
}

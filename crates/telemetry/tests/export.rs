//! The export of spans to a receiver of the test: which spans arrive, and in which trace.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use postern_telemetry::{
    RequestIds, SpanKind, in_current_request, request_span, span, start_export,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

/// A span as it arrived.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Received {
    trace_id: Vec<u8>,
    id: Vec<u8>,
    parent_id: Vec<u8>,
    name: String,
}

/// The fields of a message of protobuf that have a length, in their order, with their numbers.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let length = match tag & 7 {
            0 => {
                varint(&mut message);
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)).unwrap(),
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (field, rest) = message.split_at(length);
        message = rest;
        if tag & 7 == 2 {
            found.push((tag >> 3, field));
        }
    }
    found
}

/// The fields with this number in a message.
fn all(message: &[u8], number: u64) -> Vec<&[u8]> {
    fields(message).into_iter().filter(|field| field.0 == number).map(|field| field.1).collect()
}

/// The spans of an export: `resource_spans`, `scope_spans` and `spans` are nested.
fn spans(export: &[u8]) -> Vec<Received> {
    let scopes = all(export, 1).into_iter().flat_map(|resource| all(resource, 2));
    let spans = scopes.flat_map(|scope| all(scope, 2));
    let read = |span| {
        let one = |number| all(span, number).first().map_or_else(Vec::new, |bytes| bytes.to_vec());
        let name = String::from_utf8(one(5)).unwrap();
        Received { trace_id: one(1), id: one(2), parent_id: one(4), name }
    };
    spans.map(read).collect()
}

/// Starts a receiver, which sends on the bodies that arrive at `/v1/traces`.
async fn receiver(tasks: &mut JoinSet<()>) -> (String, mpsc::UnboundedReceiver<Bytes>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, arrived) = mpsc::unbounded_channel();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let sender = sender.clone();
            connections.spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let sender = sender.clone();
                    async move {
                        assert_eq!(request.uri().path(), "/v1/traces");
                        assert_eq!(request.headers()["content-type"], "application/x-protobuf");
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let _ = sender.send(body);
                        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
                    }
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (url, arrived)
}

/// One process has one export, so all cases are here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_a_request_arrive_in_its_trace() {
    let mut tasks = JoinSet::new();
    let (url, mut arrived) = receiver(&mut tasks).await;
    let export = start_export(Some(&url), "a-service", "1").unwrap().unwrap();
    assert!(start_export(Some(&url), "a-service", "1").is_err(), "a second export");

    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut ids = RequestIds::new(Uuid::from_u128(7), None, Some(parent));
    let mut request = request_span("request", &mut ids);
    let (trace, traceparent) = (ids.trace().unwrap(), ids.traceparent());
    assert_eq!(trace.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
    assert!(
        traceparent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && traceparent != parent
    );
    let upstream = ids.scope(async {
        drop(span("decision", SpanKind::Internal));
        let mut elsewhere = JoinSet::new();
        elsewhere.spawn(in_current_request(async { drop(span("commit", SpanKind::Internal)) }));
        elsewhere.join_next().await.unwrap().unwrap();
        span("upstream", SpanKind::Client).traceparent().unwrap()
    });
    let upstream = upstream.await;
    request.set_status(503);
    drop(request);

    let unsampled = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00";
    let mut ids = RequestIds::new(Uuid::from_u128(8), None, Some(unsampled));
    drop(request_span("not sampled", &mut ids));
    ids.scope(async { drop(span("not sampled either", SpanKind::Internal)) }).await;
    drop(span("outside of a request", SpanKind::Internal));
    // The last spans are sent now.
    tokio::task::block_in_place(|| drop(export));

    let mut received = Vec::new();
    while let Ok(body) = arrived.try_recv() {
        assert!(body.windows(9).any(|part| part == b"a-service"));
        received.extend(spans(&body));
    }
    let names: Vec<_> = received.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["decision", "commit", "upstream", "request"]);
    let root = received.pop().unwrap();
    assert_eq!(root.trace_id, trace.trace_id.to_be_bytes());
    assert_eq!(root.parent_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    for step in &received {
        assert_eq!((&step.trace_id, &step.parent_id), (&root.trace_id, &root.id), "{step:?}");
    }
    assert_eq!(
        upstream,
        format!("00-{}-{}-01", hex::encode(&root.trace_id), hex::encode(&received[2].id))
    );
}

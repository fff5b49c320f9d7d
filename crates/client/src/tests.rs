//! The client against a server with scripted responses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::{Impersonation, SecretText};
use postern_meta::status::Reason;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::{
    ApplyOptions, ChangeType, Client, Collection, Error, Representation, Selection, ServerUrl,
    Settings, Trust, WatchEvent,
};

/// A server with one answer for each request; after the last it is silent.
struct ScriptedServer {
    client: Client,
    seen: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

async fn script(answers: &[&str], timeout: Duration) -> ScriptedServer {
    script_for(answers, timeout, None).await
}

/// The same for a client that impersonates another user.
async fn script_for(
    answers: &[&str],
    timeout: Duration,
    impersonation: Option<Impersonation>,
) -> ScriptedServer {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers: Vec<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let requests = Arc::clone(&seen);
    tasks.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(Arc::new(tls)).accept(stream).await.unwrap();
        let mut answers = answers.into_iter();
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            let request = String::from_utf8_lossy(&buffer[..length]).into_owned();
            requests.lock().unwrap().push(request);
            if let Some(answer) = answers.next() {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    let settings = Settings {
        server: ServerUrl::parse(&format!("https://{address}")).unwrap(),
        key: SecretText::from("hush".to_owned()),
        impersonation,
        trust: Trust::of_pem(own.cert.pem().into_bytes()).unwrap(),
        tls_server_name: None,
        request_timeout: timeout,
    };
    ScriptedServer { client: Client::new(settings).unwrap(), seen, _tasks: tasks }
}

fn answer(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn busy() -> String {
    let status = json!({ "kind": "Status", "reason": "TooManyRequests", "message": "busy" });
    answer("429 Too Many Requests\r\nRetry-After: 0", &status.to_string())
}

fn secrets() -> Collection<'static> {
    Collection::of::<SharedSecret>(Some("platform"))
}

/// The answer to a GET of an object at a version, with the names in its list.
fn at_version(version: &str, names: &[&str]) -> String {
    let object = json!({
        "metadata": { "name": "db", "resourceVersion": version },
        "spec": { "names": names, "data": { "a": "QQ==" } },
    });
    answer("200 OK", &object.to_string())
}

fn conflict() -> String {
    let status = json!({ "kind": "Status", "reason": "Conflict", "message": "modified" });
    answer("409 Conflict", &status.to_string())
}

const LONG_TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn what_changes_nothing_is_sent_again_when_the_server_asks() {
    let found = answer("200 OK", "{\"metadata\":{\"name\":\"db\"}}");
    let mut script = script(&[&busy(), &busy(), &found], LONG_TIMEOUT).await;
    let object = script.client.get(secrets(), "db").await.unwrap();
    assert_eq!(object.metadata.name, "db");
    let seen = script.seen.lock().unwrap();
    assert_eq!(seen.len(), 3, "on one connection");
    let path = "GET /kubernetes/management/apis/management.platform.sh/v1/namespaces/platform/";
    assert!(seen[0].starts_with(path) && seen[0].contains("Bearer hush"), "{}", seen[0]);
}

#[tokio::test]
async fn attempts_end_and_changes_are_sent_once() {
    let all = [busy(), busy(), busy(), busy(), busy()];
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut reading = script(&all, LONG_TIMEOUT).await;
    let error = reading.client.get(secrets(), "db").await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TooManyRequests));
    assert_eq!(reading.seen.lock().unwrap().len(), 4);
    let mut writing = script(&all, LONG_TIMEOUT).await;
    let error = writing.client.merge_patch(secrets(), "db", &json!({})).await.unwrap_err();
    assert_eq!(error.status().unwrap().code, 429);
    assert_eq!(writing.seen.lock().unwrap().len(), 1);
}

/// Adds a name to the list; nothing where it is there.
fn add_name(object: &mut postern_meta::object::Object, name: &str) -> bool {
    let names = object.fields["spec"]["names"].as_array_mut().unwrap();
    let is_new = !names.contains(&json!(name));
    if is_new {
        names.push(json!(name));
    }
    is_new
}

#[tokio::test]
async fn an_edit_starts_again_from_what_others_have_written() {
    let answers =
        [at_version("1", &["a"]), conflict(), at_version("2", &["a", "b"]), at_version("3", &[])];
    let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
    let mut script = script(&answers, LONG_TIMEOUT).await;
    let edited = script.client.edit(secrets(), "db", |object| add_name(object, "c")).await;
    assert_eq!(edited.unwrap().metadata.resource_version, "3");
    let seen = script.seen.lock().unwrap();
    let methods: Vec<_> = seen.iter().map(|request| request.split(' ').next().unwrap()).collect();
    assert_eq!(methods, ["GET", "PUT", "GET", "PUT"]);
    for (request, wanted) in [
        (&seen[1], [r#""resourceVersion":"1""#, r#"["a","c"]"#, r#""data":{"a":"QQ=="}"#]),
        (&seen[3], [r#""resourceVersion":"2""#, r#"["a","b","c"]"#, r#""data":{"a":"QQ=="}"#]),
    ] {
        assert!(request.contains("/sharedsecrets/db?fieldValidation=Strict "), "{request}");
        assert!(wanted.iter().all(|part| request.contains(part)), "{request}");
    }
}

#[tokio::test]
async fn an_edit_ends_when_there_is_nothing_to_do_or_no_end_of_conflicts() {
    let mut unchanged = script(&[&at_version("1", &["a"])], LONG_TIMEOUT).await;
    let read = unchanged.client.edit(secrets(), "db", |object| add_name(object, "a")).await;
    assert_eq!(read.unwrap().metadata.resource_version, "1");
    assert_eq!(unchanged.seen.lock().unwrap().len(), 1);
    let (found, conflict) = (at_version("1", &[]), conflict());
    let answers = [&found, &conflict].map(String::as_str).repeat(6);
    let mut contended = script(&answers, LONG_TIMEOUT).await;
    let error = contended.client.edit(secrets(), "db", |object| add_name(object, "a")).await;
    assert_eq!(error.unwrap_err().reason(), Some(Reason::Conflict));
    assert_eq!(contended.seen.lock().unwrap().len(), 10);
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let mut script = script(&[], Duration::from_millis(50)).await;
    let error = script.client.get(secrets(), "db").await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }) && error.is_uncertain(), "{error:?}");
}

#[tokio::test]
async fn answers_of_something_else_are_errors() {
    for odd in [
        answer("200 OK", "<html>hush</html>"),
        answer("200 OK", "[\"hush\"]"),
        answer("502 Bad Gateway", "hush"),
        answer("404 Not Found", "{\"hush\":1}"),
    ] {
        let mut script = script(&[&odd], LONG_TIMEOUT).await;
        let error = script.client.get(secrets(), "db").await.unwrap_err();
        assert!(matches!(error, Error::Unexpected { .. }), "{odd}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
    }
    let endless = "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n";
    let mut script = script(&[endless], Duration::from_millis(200)).await;
    assert!(script.client.get(secrets(), "db").await.unwrap_err().is_uncertain());
    assert!(!format!("{:?}", script.client).contains("hush"), "the key is in no output");
}

#[tokio::test]
async fn a_list_is_assembled_from_its_pages() {
    let page = |names: &[&str], next: &str| {
        let items: Vec<_> =
            names.iter().map(|name| json!({ "metadata": { "name": name } })).collect();
        answer("200 OK", &json!({ "metadata": { "continue": next }, "items": items }).to_string())
    };
    let pages = [page(&["a", "b"], "t/1"), page(&["c"], "")];
    let mut script = script(&[&pages[0], &pages[1]], LONG_TIMEOUT).await;
    let list = script.client.list(secrets(), Representation::Whole).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    assert!(script.seen.lock().unwrap()[1].contains("&continue=t%2F1 "));
}

#[tokio::test]
async fn every_request_has_the_impersonation_headers() {
    let busy = busy();
    let found = answer("200 OK", "{\"metadata\":{\"name\":\"db\"}}");
    let values = vec!["x".to_owned()];
    let asked = Impersonation {
        user: "bob".to_owned(),
        groups: vec!["ops".to_owned(), "dev".to_owned()],
        uid: "u-7".to_owned(),
        extra: [("example.com/Why".to_owned(), values)].into(),
    };
    let mut script = script_for(&[&busy, &found, &found, &found], LONG_TIMEOUT, Some(asked)).await;
    script.client.get(secrets(), "db").await.unwrap();
    script.client.merge_patch(secrets(), "db", &json!({})).await.unwrap();
    script.client.list(secrets(), Representation::Whole).await.unwrap();
    let seen = script.seen.lock().unwrap();
    assert_eq!(seen.len(), 4, "the one that is sent again, too");
    for request in seen.iter() {
        for line in [
            "authorization: Bearer hush\r\n",
            "impersonate-user: bob\r\n",
            "impersonate-group: ops\r\n",
            "impersonate-group: dev\r\n",
            "impersonate-uid: u-7\r\n",
            "impersonate-extra-example.com%2fwhy: x\r\n",
        ] {
            assert_eq!(request.matches(line).count(), 1, "{line}: {request}");
        }
    }
}

#[tokio::test]
async fn warnings_of_every_answer_are_passed_on_once() {
    let warning = "Warning: 299 - \"be \\\"careful\\\"\"\r\nWarning: 299 - \"new\"";
    let found = answer(&format!("200 OK\r\n{warning}"), "{\"metadata\":{\"name\":\"db\"}}");
    let status = json!({ "kind": "Status", "reason": "NotFound", "message": "no" }).to_string();
    let missing = answer("404 Not Found\r\nWarning: 299 - \"also with an error\"", &status);
    let mut script = script(&[&found, &found, &missing], LONG_TIMEOUT).await;
    let passed_on = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&passed_on);
    let handler = move |text: &str| sink.lock().unwrap().push(text.to_owned());
    script.client.set_warning_handler(Box::new(handler));
    script.client.get(secrets(), "db").await.unwrap();
    script.client.get(secrets(), "db").await.unwrap();
    script.client.get(secrets(), "db").await.unwrap_err();
    assert_eq!(*passed_on.lock().unwrap(), ["be \"careful\"", "new", "also with an error"]);
}

#[tokio::test]
async fn nobody_is_impersonated_without_being_asked() {
    let found = answer("200 OK", "{\"metadata\":{\"name\":\"db\"}}");
    let mut script = script(&[&found], LONG_TIMEOUT).await;
    script.client.get(secrets(), "db").await.unwrap();
    assert!(!script.seen.lock().unwrap()[0].contains("impersonate"));
    assert_eq!(script.client.impersonation(), None);
}

#[test]
fn a_name_that_cannot_be_sent_is_refused_before_anything_is_sent() {
    let user = "bob\r\nx-other: y".to_owned();
    let settings = Settings {
        server: ServerUrl::parse("https://127.0.0.1:1").unwrap(),
        key: SecretText::from("hush".to_owned()),
        impersonation: Some(Impersonation { user, ..Impersonation::default() }),
        trust: Trust::System,
        tls_server_name: None,
        request_timeout: LONG_TIMEOUT,
    };
    let error = Client::new(settings).unwrap_err();
    assert!(matches!(&error, Error::Impersonation(what) if what.contains("the user")), "{error:?}");
}

#[tokio::test]
async fn what_is_known_already_is_not_read_again() {
    let object = r#"{"metadata":{"name":"db"},"spec":{}}"#;
    let first = answer("200 OK\r\nETag: \"one\"", object);
    let same = "HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\n\r\n".to_owned();
    let other = answer("200 OK\r\nETag: \"two\"", object);
    let mut server = script(&[&first, &same, &other], Duration::from_secs(10)).await;
    let mut known = None;
    for (is_new, tag) in [(true, "one"), (false, "one"), (true, "two")] {
        let read = server.client.get_changed(secrets(), "db", "part", &mut known).await.unwrap();
        assert_eq!((read.is_some(), known.as_deref()), (is_new, Some(&*format!("\"{tag}\""))));
    }
    let seen = server.seen.lock().unwrap().clone();
    let asked = seen.iter().map(|request| request.contains("if-none-match: \"one\""));
    assert_eq!(asked.collect::<Vec<_>>(), [false, true, true]);
}

/// The answer to a watch, with these lines.
fn watched(lines: &[serde_json::Value]) -> String {
    let lines: Vec<String> = lines.iter().map(serde_json::Value::to_string).collect();
    answer("200 OK", &(lines.join("\n") + "\n"))
}

#[tokio::test]
async fn a_watch_tells_event_after_event_and_why_it_ends() {
    let event = |kind: &str, object: serde_json::Value| json!({ "type": kind, "object": object });
    let object =
        json!({ "kind": "X", "metadata": { "name": "db" }, "spec": { "a": "x".repeat(70_000) } });
    let status =
        json!({ "kind": "Status", "reason": "Unauthorized", "message": "gone", "code": 401 });
    let lines = [
        event("ADDED", object),
        event("BOOKMARK", json!({ "kind": "X", "metadata": {} })),
        event("ERROR", status),
    ];
    let mut script = script(&[&watched(&lines)], LONG_TIMEOUT).await;
    let watch = script.client.watch_part(secrets(), "db", "parts", "part=a");
    let mut watch = watch.await.unwrap();
    let next = watch.next(LONG_TIMEOUT).await.unwrap();
    assert!(matches!(next, Some(WatchEvent::Object(object)) if object.metadata.name == "db"));
    assert!(matches!(watch.next(LONG_TIMEOUT).await, Ok(Some(WatchEvent::Bookmark))));
    let error = watch.next(LONG_TIMEOUT).await.unwrap_err();
    assert_eq!(error.status().unwrap().code, 401);
    assert!(watch.next(LONG_TIMEOUT).await.unwrap().is_none(), "it has ended");
    let seen = script.seen.lock().unwrap();
    let path = "/secrets/db/parts?watch=true&allowWatchBookmarks=true&part=a ";
    assert!(seen[0].contains(path.trim_start_matches("/secrets")), "{}", seen[0]);
}

#[tokio::test]
async fn a_server_without_the_watch_and_one_that_falls_silent_are_noticed() {
    for old in [answer("200 OK", "{\"kind\":\"X\"}"), answer("200 OK", "{\"kind\":\"X\"}\n")] {
        let mut script = script(&[&old], LONG_TIMEOUT).await;
        let mut watch = script.client.watch_part(secrets(), "db", "parts", "").await.unwrap();
        assert!(matches!(watch.next(LONG_TIMEOUT).await, Err(Error::NoWatch)));
    }
    let mut script =
        script(&["HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"], LONG_TIMEOUT).await;
    let mut watch = script.client.watch_part(secrets(), "db", "parts", "").await.unwrap();
    let silent = watch.next(Duration::from_millis(1)).await;
    assert!(matches!(silent, Err(Error::Timeout { .. })), "{silent:?}");
}

#[tokio::test]
async fn a_watch_of_a_collection_has_every_change() {
    let event = |kind: &str, object: serde_json::Value| json!({ "type": kind, "object": object });
    let row = json!({ "cells": ["db"], "object": { "metadata": { "resourceVersion": "8" } } });
    let gone = json!({ "kind": "Status", "reason": "Expired", "message": "too old", "code": 410 });
    let lines = [
        event("ADDED", json!({ "kind": "Table", "rows": [row] })),
        event("MODIFIED", json!({})),
        event("DELETED", json!({})),
        event("BOOKMARK", json!({})),
        event("ERROR", gone),
    ];
    let mut script = script(&[&watched(&lines)], LONG_TIMEOUT).await;
    let selection = Selection { labels: "a=b".to_owned(), ..Selection::of_name("db") };
    let watch = script.client.watch(secrets(), Representation::Table, &selection, "7").await;
    let mut watch = watch.unwrap();
    let mut types = Vec::new();
    let error = loop {
        match watch.next_change(LONG_TIMEOUT).await {
            Ok(change) => types.push(change.unwrap().change_type),
            Err(error) => break error,
        }
    };
    let all = [ChangeType::Added, ChangeType::Modified, ChangeType::Deleted, ChangeType::Bookmark];
    assert_eq!(types, all);
    assert_eq!(error.reason(), Some(Reason::Expired));
    let seen = script.seen.lock().unwrap();
    let query = "/sharedsecrets?watch=true&allowWatchBookmarks=true&resourceVersion=7&labelSelector=a%3Db\
                 &fieldSelector=metadata%2Ename%3Ddb ";
    assert!(seen[0].contains(query) && seen[0].contains("as=Table"), "{}", seen[0]);
}

#[tokio::test]
async fn selections_and_applies_are_in_the_query() {
    let list = answer("200 OK", r#"{"metadata":{},"rows":[]}"#);
    let object = answer("200 OK", r#"{"metadata":{"name":"db"}}"#);
    let mut script = script(&[&list, &object, &object], LONG_TIMEOUT).await;
    let selection = Selection::of_name("db");
    let rows = Representation::TableWithObjects;
    script.client.list_selected(secrets(), rows, &selection).await.unwrap();
    let new = postern_meta::object::Object::from_value(json!({ "metadata": { "name": "db" } }));
    let options = ApplyOptions { field_manager: "m", force: true, dry_run: true };
    script.client.apply(secrets(), &new.unwrap(), options).await.unwrap();
    script.client.merge_patch_as(secrets(), "db", &json!({ "a": 1 }), "m").await.unwrap();
    let seen = script.seen.lock().unwrap();
    for (request, wanted) in [
        (&seen[0], "?limit=20&fieldSelector=metadata%2Ename%3Ddb&includeObject=Object "),
        (&seen[1], "/db?fieldManager=m&force=true&dryRun=All&fieldValidation=Strict "),
        (&seen[1], "content-type: application/apply-patch+yaml"),
        (&seen[2], "/db?fieldManager=m&fieldValidation=Strict "),
        (&seen[2], "content-type: application/merge-patch+json"),
    ] {
        assert!(request.contains(wanted), "{wanted}: {request}");
    }
}

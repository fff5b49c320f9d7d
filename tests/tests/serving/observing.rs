//! A server as an operator sees it from outside: log lines with the ids of their requests, and its
//! health.

use postern_tests::objects::{secret_path, secrets};
use postern_tests::{Ended, Home, Server, Setup, binary, wait};
use serde_json::Value;

const ID: &str = "5f0c1f6e-2b0a-4a56-9c39-94e3a1f6a7b1";

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The log's lines so far, each of which has to be a JSON object with the fields of every line.
fn lines(home: &Home) -> Vec<Value> {
    let log = home.logged();
    // The last line may be incomplete.
    let complete = log.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let parse = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        for field in ["time", "level", "target", "message"] {
            assert!(value[field].is_string(), "{field} is missing in {line}");
        }
        value
    };
    complete.lines().map(parse).collect()
}

#[tokio::test]
async fn a_json_log_line_has_the_ids_of_its_request() {
    let setup = Setup::on(&Home::new()).argument("--log=info,postern_server=debug");
    let server = setup.argument("--log-format=json").start().await;
    let client = server.client();
    let request = client.get(&secret_path("none")).header("audit-id", ID);
    let request = request.header("x-request-id", "of-the-lb/7").header("traceparent", TRACEPARENT);
    request.send().await.expect(404);
    server.client().get(&secrets("platform")).send().await.expect(200);
    let (with, without) = wait::until("both lines", async || {
        let lines = lines(server.home());
        let of_response = |line: &&Value| line["fields"]["code"].is_u64();
        let with = lines.iter().filter(of_response).find(|line| line["audit_id"] == ID).cloned();
        let without = lines.iter().filter(of_response).find(|line| line["fields"]["code"] == 200);
        Some((with?, without?.clone()))
    })
    .await;
    assert_eq!(with["request_id"], "of-the-lb/7");
    assert_eq!(with["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(with["fields"]["code"], 404);
    let id = without["audit_id"].as_str().unwrap();
    assert_eq!(without["request_id"], id);
    assert_eq!(without["trace_id"], id.replace('-', ""));
}

#[tokio::test]
async fn a_text_log_line_ends_with_the_ids_of_its_request() {
    let server = Setup::on(&Home::new()).argument("--log=postern_server=debug").start().await;
    let client = server.client();
    let request = client.get(&secret_path("none")).header("audit-id", ID);
    request.header("traceparent", TRACEPARENT).send().await.expect(404);
    // Without an id of the client, the request id is the audit id.
    let ids = format!(" audit_id={ID} trace_id=4bf92f3577b34da6a3ce929d0e0e4736 request_id={ID}");
    wait::until("the line", async || {
        server.home().logged().lines().any(|line| line.ends_with(&ids)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_unknown_format_and_an_exporter_that_is_not_built_in_are_errors_at_the_start() {
    let Ended { status, stderr, .. } =
        Setup::on(&Home::new()).argument("--log-format=yaml").run_to_end().await;
    assert_eq!((status.code(), stderr.contains("text, json")), (Some(2), true), "{stderr}");
    let endpoint = "--otlp-endpoint=ftp://127.0.0.1";
    let Ended { status, stderr, .. } =
        Setup::on(&Home::new()).argument(endpoint).run_to_end().await;
    assert_eq!(status.code(), Some(1));
    assert!(stderr.contains("--otlp-endpoint: "), "{stderr}");
}

/// The exit code and both outputs of `postern health`, with the environment that the image has. No agent runs there.
async fn health(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new(binary::path());
    command.arg("health").args(arguments).env_clear();
    let output = command.env("POSTERN_AGENT_STATE_DIR", "/nowhere/agent").output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn health_asks_the_admin_socket_or_a_url() {
    let server = Server::start().await;
    let data_dir = format!("--data-dir={}", server.home().data().display());
    let by_socket = wait::until("the socket", async || {
        let answer = health(&[&data_dir]).await;
        (answer.0 == Some(0)).then_some(answer)
    })
    .await;
    assert_eq!(by_socket.1, "ok\n");
    let url = format!("--url=https://{}", server.client().address());
    let ca = server.home().path().join("health-ca.pem");
    std::fs::write(&ca, &server.kubeconfig().authority).unwrap();
    let ca = format!("--ca-file={}", ca.display());
    assert_eq!(health(&[&url, &ca]).await, (Some(0), "ok\n".to_owned()));
    let (code, text) = health(&[&url]).await;
    assert_eq!(code, Some(1), "no certificate authority of the system signs it: {text}");
    assert!(text.contains("certificate"), "{text}");
    let (code, text) = health(&[&url.replace("https", "http")]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("servers and agents serve /readyz with TLS"), "{text}");
    assert!(!text.contains("access key"), "{text}");
    let home = server.home().clone();
    assert!(!home.records().iter().any(|record| record.to_string().contains("health")));
    server.stop().await;
    let (code, text) = health(&[&data_dir]).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("no server runs on"), "{text}");
    let (code, text) = health(&[&url, &ca, "--timeout=2s"]).await;
    assert_eq!(code, Some(1), "{text}");
}

//! Response formats: JSON or YAML, pretty or not, compressed or not, and the response headers.

use postern_tests::Server;
use postern_tests::objects::{secret, secret_path, secrets};

#[tokio::test]
async fn the_first_acceptable_format_wins() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    for (accept, kind) in [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/json", "application/json"),
        ("application/yaml", "application/yaml"),
        ("application/yaml, application/json", "application/yaml"),
        ("image/png, application/yaml;q=0.5, */*;q=0.1", "application/yaml"),
        ("application/json;q=0.1, application/yaml;q=0.9", "application/yaml"),
        ("application/vnd.kubernetes.protobuf, application/json", "application/json"),
        ("application/cbor, application/json", "application/json"),
        ("application/json;charset=utf-8", "application/json"),
    ] {
        let mut request = client.get(&secret_path("s1"));
        if !accept.is_empty() {
            request = request.accept(accept);
        }
        let reply = request.send().await;
        assert_eq!(reply.status, 200, "{accept}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some(kind), "{accept}");
    }
}

#[tokio::test]
async fn failures_have_the_requested_format() {
    let server = Server::start().await;
    let reply = server.client().get(&secret_path("none")).accept("application/yaml").send().await;
    assert_eq!(reply.header("content-type"), Some("application/yaml"));
    let text = reply.expect_text(404);
    assert!(text.contains("reason: NotFound\n"), "{text}");
}

#[tokio::test]
async fn what_is_deleted_is_told_in_the_requested_format() {
    let server = Server::start().await;
    let client = server.client();
    for (accept, content_type, start) in [
        ("application/yaml", "application/yaml", "apiVersion: v1\n"),
        ("application/json", "application/json", "{\""),
        // A Status is no row of a table.
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "application/json", "{\""),
    ] {
        client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
        let reply = client.delete(&secret_path("s1")).accept(accept).send().await;
        assert_eq!(reply.header("content-type"), Some(content_type), "{accept}");
        let text = reply.expect_text(200);
        assert!(text.starts_with(start) && text.contains("Success"), "{accept}: {text}");
    }
}

#[tokio::test]
async fn curl_gets_pretty_output_and_kubectl_does_not() {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    let lines = async |query: &str, agent: &str| {
        let path = format!("{}{query}", secret_path("s1"));
        let text = client.get(&path).header("user-agent", agent).send().await.expect_text(200);
        text.trim_end().lines().count()
    };
    assert_eq!(lines("", "kubectl/v1.37").await, 1);
    assert!(lines("?pretty=true", "kubectl/v1.37").await > 5);
    assert!(lines("", "curl/8").await > 5);
    assert_eq!(lines("?pretty=false", "curl/8").await, 1);
    for path in [secret_path("s1"), secrets("platform")] {
        let reply = client.get(&path).accept("application/json;pretty=1").send().await;
        assert!(reply.expect_text(200).trim_end().lines().count() > 5, "{path}");
    }
    let reply = client.get(&secret_path("none")).accept("application/json;pretty=1").send().await;
    assert!(reply.expect_text(404).trim_end().lines().count() > 5);
}

#[tokio::test]
async fn only_large_responses_are_compressed_and_only_on_request() {
    let server = Server::start().await;
    let client = server.client();
    let value = "compressible ".repeat(20_000);
    client.post(&secrets("platform")).json(&secret("large", &value)).send().await.expect(201);
    client.post(&secrets("platform")).json(&secret("small", "v")).send().await.expect(201);
    let large = client.get(&secret_path("large")).header("accept-encoding", "gzip").send().await;
    assert_eq!(large.header("content-encoding"), Some("gzip"));
    assert!(large.body.len() < 100_000 && large.body.starts_with(&[0x1f, 0x8b]), "it is gzip");
    assert!(
        large.header("vary").is_some_and(|vary| vary.to_lowercase().contains("accept-encoding"))
    );
    let small = client.get(&secret_path("small")).header("accept-encoding", "gzip").send().await;
    assert_eq!(small.header("content-encoding"), None);
    let plain = client.get(&secret_path("large")).send().await;
    assert_eq!(plain.header("content-encoding"), None);
}

#[tokio::test]
async fn every_response_has_its_headers() {
    let server = Server::start().await;
    let client = server.client();
    let id = "11111111-2222-3333-4444-555555555555";
    let reply = client.get(&secrets("platform")).header("audit-id", id).send().await;
    assert_eq!(reply.header("audit-id"), Some(id), "the client's own is kept");
    let reply = client.get(&secrets("platform")).header("audit-id", "not an id").send().await;
    assert_eq!(reply.header("audit-id").map(str::len), Some(36), "and replaced when it is none");
    assert_eq!(reply.header("cache-control"), Some("no-cache, private"));
}

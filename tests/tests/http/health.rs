//! The health endpoints.

use postern_tests::Server;
use postern_tests::objects::based;

#[tokio::test]
async fn health_needs_no_key() {
    let server = Server::start().await;
    let client = server.client();
    for name in ["livez", "readyz", "healthz"] {
        for path in [format!("/{name}"), based(&format!("/{name}"))] {
            let reply = client.get(&path).without("authorization").send().await;
            assert_eq!(reply.expect_text(200), "ok");
            assert!(reply.header("content-type").unwrap().starts_with("text/plain"), "{path}");
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        }
        let verbose = client.get(&format!("/{name}?verbose")).without("authorization").send().await;
        let text = verbose.expect_text(200);
        let (last, checks) = text
            .trim_end()
            .split('\n')
            .collect::<Vec<_>>()
            .split_last()
            .map(|(last, checks)| (*last, checks.to_vec()))
            .unwrap();
        assert_eq!(last, format!("{name} check passed"));
        assert!(!checks.is_empty(), "{text}");
        for check in &checks {
            let check = check.strip_prefix("[+]").and_then(|rest| rest.strip_suffix(" ok"));
            let check = check.unwrap_or_else(|| panic!("{text}"));
            let alone =
                client.get(&format!("/{name}/{check}")).without("authorization").send().await;
            assert_eq!(alone.expect_text(200), "ok", "{check}");
            let but = client.get(&format!("/{name}?verbose&exclude={check}")).send().await;
            assert!(
                !but.expect_text(200).contains(&format!("[+]{check} ok")),
                "{check} is left out"
            );
        }
        assert_eq!(client.get(&format!("/{name}/no-such-check")).send().await.status, 404);
    }
}

#[tokio::test]
async fn a_wrong_key_does_not_affect_health() {
    let server = Server::start().await;
    let client = server.client().with_token("wrong");
    client.get("/readyz").send().await.expect_text(200);
}

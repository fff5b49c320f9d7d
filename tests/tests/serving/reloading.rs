//! SIGHUP: the audit policy and certificates are read again, and nothing ends.

use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::{Home, Server, Setup, wait};
use serde_json::json;

fn hang_up(server: &Server) {
    let id = rustix::process::Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::HUP).unwrap();
}

async fn logged(home: &Home, text: &str) {
    wait::until(text, async || home.logged().contains(text).then_some(())).await;
}

#[tokio::test]
async fn the_audit_policy_is_read_again_and_a_bad_one_changes_nothing() {
    let home = Home::new();
    let policy = home.path().join("policy.yaml");
    let put = |rules: serde_json::Value| {
        let text = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules });
        std::fs::write(&policy, text.to_string()).unwrap();
    };
    put(json!([{ "level": "None" }]));
    let server = Setup::on(&home).argument("--audit-policy-file").argument(&policy).start().await;
    let admin = server.client();
    let mut watch = admin.watch(&secrets("platform"), "").await;
    admin.get(&secret_path("before")).send().await.expect(404);
    put(json!([{ "level": "Metadata" }]));
    hang_up(&server);
    logged(&home, "the audit policy was reloaded").await;
    admin.get(&secret_path("after")).send().await.expect(404);
    put(json!([{ "level": "All" }]));
    hang_up(&server);
    logged(&home, "cannot reload the audit policy").await;
    admin.get(&secret_path("last")).send().await.expect(404);
    wait::until("the last record", async || {
        let records = home.records();
        let mut names = records.iter().map(|record| &record["objectRef"]["name"]);
        names.any(|name| name == "last").then_some(())
    })
    .await;
    let records = home.records();
    let names: Vec<_> = records.iter().map(|record| &record["objectRef"]["name"]).collect();
    assert!(names.contains(&&json!("after")) && !names.contains(&&json!("before")), "{names:?}");
    // The server and its watches went on.
    admin.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    assert_eq!(watch.next().await.unwrap().summary(), "ADDED s1");
    server.stop().await;
}

#[tokio::test]
async fn given_certificates_are_read_again() {
    let home = Home::new();
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let pair = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&cert, params.self_signed(&pair).unwrap().pem()).unwrap();
    std::fs::write(&key, pair.serialize_pem()).unwrap();
    let setup = Setup::on(&home).argument("--tls-cert-file").argument(&cert);
    let server = setup.argument("--tls-key-file").argument(&key).start().await;
    hang_up(&server);
    // The files have not changed, but an operator that requests a reload learns whether they can be
    // used.
    logged(&home, "the certificate was renewed").await;
    std::fs::write(&cert, "-----BEGIN CERTIFICATE").unwrap();
    logged(&home, "cannot renew the certificate").await;
    let once = home.logged().matches("cannot renew the certificate").count();
    hang_up(&server);
    wait::until("the error once more", async || {
        let count = home.logged().matches("cannot renew the certificate").count();
        (count > once).then_some(())
    })
    .await;
    server.client().get("/readyz").send().await.expect_text(200);
    server.stop().await;
}

//! How a server proves its identity: client certificates, and users with passwords.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use postern_store::{Change, Position, Txn, WithOld};
use postern_store_etcd::{Etcd, EtcdAccess, EtcdUrl, Password};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

use crate::open_with;
use crate::server::{EtcdServer, access};

/// A certificate authority and the certificates that it has signed, as files.
struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        write(&directory.path().join("ca.pem"), &certificate.pem());
        Self { issuer: Issuer::new(params, key), directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Signs a certificate, and writes it and its key.
    fn sign(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = (self.file(&format!("{name}.pem")), self.file(&format!("{name}-key.pem")));
        write(&files.0, &certificate.pem());
        write(&files.1, &key.serialize_pem());
        files
    }
}

#[expect(clippy::disallowed_methods, reason = "certificates of a test")]
fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

async fn message(url: &EtcdUrl, access: &EtcdAccess) -> String {
    Etcd::open(url, access).await.unwrap_err().to_string().to_lowercase()
}

fn put() -> Txn {
    let changes = vec![Change::Put { key: "/a".into(), value: "1".into() }];
    Txn { conditions: Vec::new(), changes }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_are_sent_and_etcd_is_recognized() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign("etcd", ExtendedKeyUsagePurpose::ServerAuth);
    let client_cert = authority.sign("postern", ExtendedKeyUsagePurpose::ClientAuth);
    let ca_file = authority.file("ca.pem");
    let text = |path: &Path| path.display().to_string();
    let server = EtcdServer::start_with_tls(&[
        "--cert-file",
        &text(&certificate),
        "--key-file",
        &text(&key),
        "--trusted-ca-file",
        &text(&ca_file),
        "--client-cert-auth",
    ]);
    let url = server.url("/tls");
    let known = EtcdAccess {
        ca_file: Some(ca_file.clone()),
        client_cert: Some(client_cert.clone()),
        ..access()
    };
    let store = open_with(&url, &known).await;
    let revision = store.commit(put()).await.unwrap();
    let mut watch = store.watch("", Position::ZERO, WithOld::Yes).await.unwrap();
    assert_eq!(watch.next().await.unwrap().revision, revision);

    let (ca_file, foreign) = (Some(ca_file), Authority::new());
    let foreign_cert = foreign.sign("postern", ExtendedKeyUsagePurpose::ClientAuth);
    let garbage = authority.file("garbage.pem");
    write(&garbage, "no certificate");
    let with = |client_cert: Option<(PathBuf, PathBuf)>| EtcdAccess {
        ca_file: ca_file.clone(),
        client_cert,
        ..access()
    };
    let with_authority = |file: PathBuf| EtcdAccess { ca_file: Some(file), ..known.clone() };
    let (cert, key) = client_cert;
    for (wrong, expected) in [
        // etcd says why in an alert of TLS, which the end of the connection may overtake.
        (with(None), "pass --etcd-cert-file"),
        (with(Some(foreign_cert.clone())), "pass --etcd-cert-file"),
        (with(Some((cert.clone(), foreign_cert.1))), "cannot use the certificates"),
        (with(Some((garbage.clone(), key.clone()))), "of --etcd-cert-file has no certificate"),
        (with(Some((cert, garbage.clone()))), "of --etcd-key-file has no private key"),
        (with_authority(foreign.file("ca.pem")), "not from the authority in --etcd-ca-file"),
        (with_authority(garbage), "of --etcd-ca-file has no certificate"),
        (with_authority(key), "of --etcd-ca-file has no certificate"),
        (with_authority(authority.file("none.pem")), "cannot read"),
        (access(), "if etcd uses tls there, pass --etcd-ca-file"),
    ] {
        let refused = message(&url, &wrong).await;
        assert!(refused.contains(expected), "{refused} lacks {expected}");
        assert!(!refused.contains("transport"), "{refused}");
    }
    let plain = EtcdServer::start();
    let refused = message(&plain.url("/plain"), &known).await;
    assert!(refused.contains("if it has no tls, pass no --etcd-ca-file"), "{refused}");
}

/// A call of etcd's API as JSON, over a separate connection.
pub(crate) fn call(address: &str, path: &str, token: Option<&str>, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "POST /v3/{path} HTTP/1.0\r\nHost: {address}\r\n{token}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.0 200"), "{path}: {response}");
    response
}

/// A number of bytes in base64, as etcd's JSON has keys.
pub(crate) fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_a_role_on_the_prefix_is_enough() {
    let server = EtcdServer::start();
    let address = server.address();
    let (first, end) = (base64(b"/mine/"), base64(b"/mine0"));
    for (path, body) in [
        ("auth/user/add", r#"{"name":"root","password":"root-password"}"#.to_owned()),
        ("auth/role/add", r#"{"name":"root"}"#.to_owned()),
        ("auth/user/grant", r#"{"user":"root","role":"root"}"#.to_owned()),
        ("auth/user/add", r#"{"name":"postern","password":"s3cr3t"}"#.to_owned()),
        ("auth/role/add", r#"{"name":"mine"}"#.to_owned()),
        (
            "auth/role/grant",
            format!(
                r#"{{"name":"mine","perm":{{"permType":"READWRITE","key":"{first}","range_end":"{end}"}}}}"#
            ),
        ),
        ("auth/user/grant", r#"{"user":"postern","role":"mine"}"#.to_owned()),
        ("auth/enable", "{}".to_owned()),
    ] {
        call(&address, path, None, &body);
    }
    let as_user = |name: &str, password: &str| EtcdAccess {
        user: Some((name.to_owned(), Password::new(password.to_owned()))),
        ..access()
    };
    let url = server.url("/mine");
    let store = open_with(&url, &as_user("postern", "s3cr3t")).await;
    let revision = store.commit(put()).await.unwrap();
    let mut watch = store.watch("", Position::ZERO, WithOld::Yes).await.unwrap();
    assert_eq!(watch.next().await.unwrap().revision, revision);
    let lease = store.fleet().unwrap().lease("compaction").await.unwrap();
    drop(lease);
    // The user may not compact, which is logged; etcd compacts without this call.
    let _ = store.compact(revision).await;

    let without = EtcdServer::start();
    let refused = message(&without.url("/mine"), &as_user("postern", "s3cr3t")).await;
    assert!(refused.contains("pass no --etcd-user"), "{refused}");
    let wrong = message(&url, &as_user("postern", "wrong")).await;
    assert!(wrong.contains("authentication failed"), "{wrong}");
    assert!(!wrong.contains("wrong-"), "{wrong}");
    let nameless = message(&url, &access()).await;
    assert!(nameless.contains("refuses this server"), "{nameless}");
    let elsewhere = message(&server.url("/others"), &as_user("postern", "s3cr3t")).await;
    assert!(elsewhere.contains("permission denied"), "{elsewhere}");
}

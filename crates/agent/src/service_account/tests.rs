//! The files of a ServiceAccount, at the start and while the agent runs. The cluster is a server of the test's own,
//! which answers with the credential that it gets.
#![expect(clippy::disallowed_methods, reason = "tasks of a test end with its runtime")]

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::certificate::Certificate;
use crate::state_dir::{StateDir, create_anew};
use crate::testing::{Scene, read};

/// The directory of a ServiceAccount.
struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        let mut file = create_anew(&self.0.path().join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.0.path().join(name)).unwrap();
    }

    fn open(&self, server: &str) -> anyhow::Result<(ServiceAccount, Upstream)> {
        ServiceAccount::open(self.0.path(), server)
    }
}

/// A certificate of a separate authority.
fn certificate() -> Arc<Certificate> {
    let home = tempfile::tempdir().unwrap();
    let dir = StateDir::open(home.path()).unwrap();
    // The system's time: the certificate is checked against it.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_secs()).unwrap();
    Certificate::prepare(&dir, vec!["127.0.0.1".to_owned()], now).unwrap()
}

/// Starts a cluster that answers each request with its credential.
async fn cluster(certificate: &Arc<Certificate>) -> SocketAddr {
    let tls = TlsAcceptor::from(certificate.clone().server_config().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // An agent that does not trust the certificate ends the handshake.
            let Ok(stream) = tls.accept(stream).await else { continue };
            let service = service_fn(async |request: Request<Incoming>| {
                let credential = request.headers()[AUTHORIZATION].as_bytes().to_vec();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(credential))))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

/// The code and the body of the cluster's answer to a request through the agent.
async fn answer(scene: &Scene) -> (u16, String) {
    let request = scene.request("GET", "/kubernetes/cluster/c/api/v1/pods");
    let (code, _, body) = read(scene.client().await.send_request(request).await.unwrap()).await;
    (code, body)
}

#[tokio::test]
async fn the_next_request_has_the_token_that_is_in_the_file() {
    let (directory, certificate) = (Directory::new(), certificate());
    let server = format!("https://{}", cluster(&certificate).await);
    directory.write(CA_FILE, &certificate.authority);
    directory.write(TOKEN_FILE, "first\n");
    let (account, upstream) = directory.open(&server).unwrap();
    let (account, cluster) = (Arc::new(account), ClusterUpstream::from(upstream));
    let mut scene = Scene::new().await;
    Arc::get_mut(&mut scene.agent).unwrap().upstream = cluster.clone();
    let is = |token: &str| (200, format!("Bearer {token}"));
    assert_eq!(answer(&scene).await, is("first"));

    let mut is_warned = false;
    directory.write(TOKEN_FILE, "second\n");
    assert_eq!(answer(&scene).await, is("first"), "no request reads a file");
    refresh(&account, &cluster, &mut is_warned).await;
    assert_eq!((answer(&scene).await, is_warned), (is("second"), false));

    directory.remove(TOKEN_FILE);
    for _ in 0..2 {
        refresh(&account, &cluster, &mut is_warned).await;
        assert_eq!((answer(&scene).await, is_warned), (is("second"), true));
    }
    for unusable in ["", "two\nlines"] {
        directory.write(TOKEN_FILE, unusable);
        refresh(&account, &cluster, &mut is_warned).await;
        assert_eq!((answer(&scene).await, is_warned), (is("second"), true));
    }
    directory.write(TOKEN_FILE, "third");
    refresh(&account, &cluster, &mut is_warned).await;
    assert_eq!((answer(&scene).await, is_warned), (is("third"), false));
}

/// The task reads the files at its interval, and not before.
#[tokio::test(start_paused = true)]
async fn the_files_are_read_at_an_interval() {
    let directory = Directory::new();
    directory.write(CA_FILE, &certificate().authority);
    directory.write(TOKEN_FILE, "first");
    let (account, upstream) = directory.open("https://127.0.0.1:1").unwrap();
    let account = Arc::new(account);
    let is_read = || account.in_use.lock().token.expose() == "second";
    directory.write(TOKEN_FILE, "second");
    tokio::spawn(keep_current(account.clone(), upstream.into(), READ_INTERVAL));
    sleep(READ_INTERVAL.saturating_sub(Duration::from_secs(1))).await;
    assert!(!is_read());
    while !is_read() {
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn new_authorities_are_trusted() {
    let (directory, certificate, other) = (Directory::new(), certificate(), certificate());
    let server = format!("https://{}", cluster(&certificate).await);
    directory.write(CA_FILE, &other.authority);
    directory.write(TOKEN_FILE, "the-token");
    let (account, upstream) = directory.open(&server).unwrap();
    let (account, cluster) = (Arc::new(account), ClusterUpstream::from(upstream));
    let mut scene = Scene::new().await;
    Arc::get_mut(&mut scene.agent).unwrap().upstream = cluster.clone();
    assert_eq!(answer(&scene).await.0, 503);
    directory.write(CA_FILE, &certificate.authority);
    refresh(&account, &cluster, &mut false).await;
    assert_eq!(answer(&scene).await, (200, "Bearer the-token".to_owned()));
}

#[test]
fn a_directory_of_a_service_account_needs_a_token_and_authorities() {
    let directory = Directory::new();
    let open = || {
        let opened = directory.open("https://kubernetes.default.svc");
        opened.map(|(_, upstream)| upstream).map_err(|error| format!("{error:#}"))
    };
    directory.write(CA_FILE, &certificate().authority);
    assert!(open().unwrap_err().contains("token does not exist"));
    directory.write(TOKEN_FILE, " \n");
    assert!(open().unwrap_err().contains("token is empty"));
    directory.write(TOKEN_FILE, "the-token\n");
    assert_eq!(open().unwrap().address(), "kubernetes.default.svc:443");
    directory.write(TOKEN_FILE, "the\ntoken");
    let refused = open().unwrap_err();
    assert!(refused.contains("cannot be used") && !refused.contains("the\ntoken"), "{refused}");
    directory.write(TOKEN_FILE, "the-token");
    directory.write(CA_FILE, "no certificate");
    assert!(open().unwrap_err().contains("cannot be used"));
}

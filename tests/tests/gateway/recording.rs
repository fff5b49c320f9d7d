//! A cluster of the test itself: it records the requests that arrive, and responds as the path
//! says.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use postern_tests::TlsServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Arrived {
    /// All values of a header.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        let values = self.headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }
}

/// The cluster.
pub(crate) struct Recording {
    address: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl Recording {
    /// Starts it; it ends with the test.
    pub(crate) async fn start() -> Self {
        let arrived: Arc<Mutex<Vec<Arrived>>> = Arc::default();
        let record = arrived.clone();
        let server = TlsServer::start(move |stream| {
            let record = record.clone();
            async move {
                let service = service_fn(|request| answer(request, record.clone()));
                let io = TokioIo::new(stream);
                let _ = http1::Builder::new().serve_connection(io, service).with_upgrades().await;
            }
        })
        .await;
        Self { address: server.address(), arrived }
    }

    /// Its address.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// A kubeconfig for it.
    pub(crate) fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"https://{}\", insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: u, user: {{token: credential-of-the-cluster}}}}]\n",
            self.address
        )
    }

    /// Takes the requests that have arrived. An agent's own reads of the Secrets of virtual
    /// clusters and probes are left out: no caller sent them.
    pub(crate) fn take(&self) -> Vec<Arrived> {
        let mut arrived = std::mem::take(&mut *self.arrived.lock().unwrap());
        let is_probe = |one: &Arrived| {
            let own = ["postern-probe", "postern-agent"];
            own.iter().any(|agent| one.values("user-agent") == [*agent])
        };
        arrived.retain(|one| !one.line.contains("/secrets/vc-") && !is_probe(one));
        arrived
    }
}

/// The cluster's response to a request. There is none if the path contains `held`. The status is
/// 200 for `/version` and similar paths, a redirect for `redirect`, and 401 for `refuse`. An
/// upgrade is accepted and then echoes, unless the path contains `noupgrade`.
async fn answer(
    mut request: Request<Incoming>,
    record: Arc<Mutex<Vec<Arrived>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let upgrade = request.headers().get("upgrade").cloned();
    let switched = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    assert_eq!(parts.version, Version::HTTP_11);
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let line = format!("{} {}", parts.method, parts.uri);
    if path.ends_with("/selfsubjectaccessreviews")
        && !parts.headers.contains_key("impersonate-user")
    {
        return Ok(may_impersonate());
    }
    record.lock().unwrap().push(Arrived { line, headers: parts.headers, body });
    if path.contains("held") {
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(Full::new(Bytes::from_static(b"{\"kind\":\"Recorded\"}\n")));
    let headers = response.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    headers.insert("set-cookie", "a=b".parse().unwrap());
    if path.contains("redirect") {
        headers.insert("location", "https://elsewhere.example/".parse().unwrap());
        *response.status_mut() = StatusCode::FOUND;
    } else if path.contains("refuse") {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    } else if let (Some(name), Some(switched), false) =
        (upgrade, switched, path.contains("noupgrade"))
    {
        headers.insert("upgrade", name);
        headers.insert("connection", "Upgrade".parse().unwrap());
        headers.insert("sec-websocket-accept", "x".parse().unwrap());
        headers.remove("content-type");
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.body_mut() = Full::default();
        tokio::spawn(async move {
            let Ok(stream) = switched.await else { return };
            let mut stream = TokioIo::new(stream);
            let mut buffer = [0; 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..read]).await.is_err() || stream.flush().await.is_err()
                {
                    return;
                }
            }
        });
    }
    Ok(response)
}

/// The response to an agent that asks for its own rights.
fn may_impersonate() -> Response<Full<Bytes>> {
    let review = br#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","status":{"allowed":true}}"#;
    let mut response = Response::new(Full::new(Bytes::from_static(review)));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    *response.status_mut() = StatusCode::CREATED;
    response
}

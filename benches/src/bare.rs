//! A server of hyper, rustls and tokio alone: it responds to every request with one fixed JSON
//! document over TLS.
//!
//! It is the floor for a GET: the libraries are those of Postern, and no code of Postern runs. The
//! additional time of Postern is the cost of authentication, authorization, the audit log and the
//! object.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::certificate;
use crate::object::Maker;

/// `postern-bench bare`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where it puts `ca.pem`, `kubeconfig` and `address` once it listens
    #[arg(long)]
    dir: PathBuf,
    /// Bytes of the document
    #[arg(long, default_value_t = 1400, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    body_bytes: u32,
    /// End after so many seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

/// Serves until the time in the options is over.
pub(crate) async fn run(options: &Options) -> Result<Value> {
    let certificate = certificate::make()?;
    let acceptor = TlsAcceptor::from(Arc::new(certificate.server_config()?));
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let address = listener.local_addr()?;
    // With it, the server can be the cluster behind a gateway.
    std::fs::write(options.dir.join("kubeconfig"), kubeconfig(address, &certificate.certificate))?;
    let document = Maker::new(options.body_bytes as usize).secret("bare", None, Duration::ZERO);
    certificate::announce(&options.dir, &certificate.certificate, address)?;
    let serve = async {
        loop {
            let (stream, _) = listener.accept().await?;
            let (acceptor, document) = (acceptor.clone(), document.clone());
            // A connection that fails is the client's to notice.
            tokio::spawn(async move { drop(connection(acceptor, document, stream).await) });
        }
    };
    match tokio::time::timeout(Duration::from_secs(options.seconds), serve).await {
        Ok(ended) => ended,
        Err(_) => Ok(json!({ "op": "bare" })),
    }
}

/// The kubeconfig of a server with this certificate authority, which takes any token.
pub(crate) fn kubeconfig(address: SocketAddr, ca: &str) -> String {
    let ca = STANDARD.encode(ca);
    let cluster = json!({"server": format!("https://{address}"), "certificate-authority-data": ca});
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bare",
        "clusters": [{"name": "bare", "cluster": cluster}],
        "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "bare"}}],
        "users": [{"name": "bare", "user": {"token": "any"}}],
    });
    config.to_string()
}

async fn connection(acceptor: TlsAcceptor, document: Bytes, stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    let service = service_fn(move |_: Request<Incoming>| {
        let response = respond(document.clone());
        async move { Ok::<_, Infallible>(response) }
    });
    Ok(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await?)
}

fn respond(document: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(document));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_sent_as_it_is() {
        let response = respond(Bytes::from_static(b"{}"));
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(response.status(), 200);
    }
}

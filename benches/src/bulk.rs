//! Long bodies: a server that sends and takes as many bytes as are asked for, and a client that times them.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::procs::{Meter, round};
use crate::target::{self, Target};
use crate::wire::Client;
use crate::{bare, certificate};

/// The bytes of a frame of a long body.
const FRAME: &[u8] = &[b'x'; 64 * 1024];

/// `postern-bench bulk-server`.
#[derive(clap::Args)]
pub(crate) struct ServerOptions {
    /// Where it puts `ca.pem`, `kubeconfig` and `address` once it listens
    #[arg(long)]
    dir: PathBuf,
    /// End after so many seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

/// `postern-bench bulk`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: target::Options,
    /// The path in front of the number of bytes
    #[arg(long)]
    path: String,
    /// Bytes of the body
    #[arg(long, default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    bytes: u64,
    /// Send the body, in place of receiving it
    #[arg(long)]
    up: bool,
}

/// A body of so many bytes.
struct Long {
    left: u64,
}

impl Body for Long {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(FRAME.len());
        self.left -= length as u64;
        let frame = Bytes::from_static(FRAME).slice(..length);
        Poll::Ready((length > 0).then(|| Ok(Frame::data(frame))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Serves until the time in the options is over. A GET of a path that ends in a number gets so many bytes. Each other
/// request is read to its end, and gets the answer of a review of access.
pub(crate) async fn serve(options: &ServerOptions) -> Result<Value> {
    let certificate = certificate::make()?;
    let acceptor = TlsAcceptor::from(Arc::new(certificate.server_config()?));
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let address = listener.local_addr()?;
    let kubeconfig = bare::kubeconfig(address, &certificate.certificate);
    std::fs::write(options.dir.join("kubeconfig"), kubeconfig)?;
    certificate::announce(&options.dir, &certificate.certificate, address)?;
    let serve = async {
        loop {
            let (stream, _) = listener.accept().await?;
            let acceptor = acceptor.clone();
            // A connection that fails is the client's to notice.
            tokio::spawn(async move { drop(connection(acceptor, stream).await) });
        }
    };
    match tokio::time::timeout(Duration::from_secs(options.seconds), serve).await {
        Ok(ended) => ended,
        Err(_) => Ok(json!({ "op": "bulk-server" })),
    }
}

async fn connection(acceptor: TlsAcceptor, stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    Ok(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(respond)).await?)
}

async fn respond(mut request: Request<Incoming>) -> Result<Response<Either<Full<Bytes>, Long>>> {
    let asked = request.uri().path().rsplit('/').next().and_then(|last| last.parse().ok());
    if let (&Method::GET, Some(left)) = (request.method(), asked) {
        return Ok(Response::new(Either::Right(Long { left })));
    }
    let mut received = 0;
    while let Some(frame) = request.body_mut().frame().await {
        received += frame?.data_ref().map_or(0, Bytes::len) as u64;
    }
    let body = json!({ "received": received, "status": { "allowed": true } });
    let mut response = Response::new(Either::Left(Full::new(body.to_string().into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Sends or receives one long body.
pub(crate) async fn run(options: &Options) -> Result<Value> {
    let target = Arc::new(Target::new(&options.target)?);
    let mut client = Client::connect(&target).await?;
    let bytes = options.bytes;
    let body =
        if options.up { Bytes::from(vec![b'x'; usize::try_from(bytes)?]) } else { Bytes::new() };
    let method = if options.up { Method::POST } else { Method::GET };
    let (meter, start) = (Meter::start(&options.target.pids), Instant::now());
    let path = format!("{}{bytes}", options.path);
    let response = client.exchange(method, &path, body, options.up).await?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(response.status == 200, "{path}: {}", response.status);
    let arrived = if options.up {
        serde_json::from_slice::<Value>(&response.body)?["received"].as_u64().unwrap_or_default()
    } else {
        response.body_bytes
    };
    ensure!(arrived == bytes, "{arrived} of {bytes} bytes arrived");
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let rate = bytes as f64 / 1e6 / seconds;
    let mut result = json!({ "op": "bulk", "megabytes_per_second": round(rate) });
    meter.stop(1, &mut result);
    Ok(result)
}

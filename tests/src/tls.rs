//! A certificate that a test makes itself, and a server of the test's own that speaks TLS with one.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A self-signed certificate for 127.0.0.1 and `localhost`. Clients that have it as an authority trust it.
#[derive(Debug)]
pub struct SelfSigned {
    certificate_pem: String,
    key_pem: String,
    config: Arc<ServerConfig>,
}

impl SelfSigned {
    /// Makes one.
    #[must_use]
    pub fn make() -> Self {
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = made.signing_key.serialize_der();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.try_into().unwrap())
            .unwrap();
        Self {
            certificate_pem: made.cert.pem(),
            key_pem: made.signing_key.serialize_pem(),
            config: Arc::new(config),
        }
    }

    /// The certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Writes `ca.pem` and `key.pem` into a directory, for a program that reads files.
    pub fn write(&self, directory: &Path) {
        std::fs::write(directory.join("ca.pem"), &self.certificate_pem).unwrap();
        std::fs::write(directory.join("key.pem"), &self.key_pem).unwrap();
    }

    /// Accepts TLS connections with this certificate.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }
}

/// A server that ends with the test.
#[derive(Debug)]
pub struct TlsServer {
    address: SocketAddr,
    certificate: SelfSigned,
}

impl TlsServer {
    /// Starts one on a free port, of which each connection is served so.
    pub async fn start<F, R>(serve: F) -> Self
    where
        F: Fn(TlsStream<TcpStream>) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let certificate = SelfSigned::make();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (acceptor, serve) = (certificate.acceptor(), Arc::new(serve));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, serve) = (acceptor.clone(), serve.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    serve(stream).await;
                });
            }
        });
        Self { address, certificate }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its certificate, in PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.certificate.pem()
    }
}

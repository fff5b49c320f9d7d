//! A certificate for a server on this machine, of the kind that our own server makes for itself:
//! ECDSA on P-256, so that all servers are compared over the same TLS.

use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// `postern-bench certificate`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The directory for `ca.pem` and `key.pem`
    #[arg(long)]
    dir: PathBuf,
}

/// A certificate that is its own authority, and its key, both in PEM.
pub(crate) struct Certificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Makes a certificate for localhost.
pub(crate) fn make() -> Result<Certificate> {
    let key = rcgen::KeyPair::generate()?;
    let hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(hosts)?.self_signed(&key)?;
    Ok(Certificate { certificate: certificate.pem(), key: key.serialize_pem() })
}

impl Certificate {
    /// TLS settings of a server that has this certificate and speaks HTTP/1.1.
    pub(crate) fn server_config(&self) -> Result<ServerConfig> {
        let private = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let chain = CertificateDer::from_pem_slice(self.certificate.as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![chain], private)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Writes the CA and the address. The process that started this one waits for `address`, which is
/// complete when it appears.
pub(crate) fn announce(dir: &Path, ca: &str, address: SocketAddr) -> Result<()> {
    std::fs::write(dir.join("ca.pem"), ca)?;
    std::fs::write(dir.join("address.new"), address.to_string())?;
    std::fs::rename(dir.join("address.new"), dir.join("address"))?;
    Ok(())
}

/// Makes a certificate and writes it to files.
pub(crate) fn run(options: &Options) -> Result<Value> {
    let made = make()?;
    write(&options.dir.join("ca.pem"), &made.certificate)?;
    write(&options.dir.join("key.pem"), &made.key)?;
    Ok(json!({ "op": "certificate" }))
}

fn write(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(file.write_all(text.as_bytes())?)
}

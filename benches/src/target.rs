//! The server that requests go to: its address on this machine, the CA to trust, and our
//! credential.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// The options of a run about its server.
#[derive(clap::Args, Clone)]
#[group(id = "target")]
pub(crate) struct Options {
    /// The kubeconfig that a server has written: its address, its CA and a token
    #[arg(long, conflicts_with_all = ["base", "ca", "token_file"])]
    kubeconfig: Option<PathBuf>,
    /// The server, as https://127.0.0.1:PORT; only this machine's own addresses
    #[arg(long)]
    base: Option<String>,
    /// The CA that signed the server's certificate, in PEM
    #[arg(long)]
    ca: Option<PathBuf>,
    /// A file with a token
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// A file with a token on each line: every connection has its own, and they begin again when there
    /// are more connections. They take the place of a kubeconfig's token
    #[arg(long, conflicts_with = "token_file")]
    tokens_file: Option<PathBuf>,
    /// The header that carries the token; `authorization` gets `Bearer` in front
    #[arg(long, default_value = "authorization")]
    token_header: String,
    /// The requested form, as in the header Accept
    #[arg(long)]
    accept: Option<String>,
    /// The version of HTTP
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) http: u8,
    /// Server processes to measure, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub(crate) pids: Vec<u32>,
}

/// A server on this machine.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// `host:port`, for the Host header.
    pub(crate) authority: String,
    pub(crate) name: ServerName<'static>,
    pub(crate) tls: Arc<ClientConfig>,
    /// The header with our credential, if any.
    pub(crate) credential: Option<(http::HeaderName, http::HeaderValue)>,
    /// The header Accept, if any.
    pub(crate) accept: Option<http::HeaderValue>,
    pub(crate) http2: bool,
}

impl Target {
    /// Reads the files that the options name.
    ///
    /// # Errors
    /// When the server is not on this machine, or a file cannot be used.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let given = match (&options.kubeconfig, &options.base) {
            (Some(path), _) => from_kubeconfig(path)?,
            (None, Some(base)) => Given {
                base: base.clone(),
                ca: read(options.ca.as_deref().context("--base needs --ca")?)?,
                token: options.token_file.as_deref().map(read).transpose()?,
            },
            (None, None) => bail!("no server: give --kubeconfig, or --base and --ca"),
        };
        let accept = options.accept.as_deref().map(http::HeaderValue::from_str).transpose()?;
        let target = Self::given(given, &options.token_header, options.http == 2)?;
        Ok(Self { accept, ..target })
    }

    /// The server of a kubeconfig, over HTTP/1.1.
    ///
    /// # Errors
    /// As [`Target::new`].
    pub(crate) fn of_kubeconfig(path: &Path) -> Result<Self> {
        Self::given(from_kubeconfig(path)?, "authorization", false)
    }

    fn given(given: Given, token_header: &str, http2: bool) -> Result<Self> {
        let (address, authority) = loopback(&given.base)?;
        let credential = given.token.map(|token| credential(token_header, token.trim()));
        Ok(Self {
            address,
            authority,
            name: ServerName::IpAddress(address.ip().into()),
            tls: Arc::new(tls(&given.ca, http2)?),
            credential: credential.transpose()?,
            accept: None,
            http2,
        })
    }

    /// The target of each credential: those of the file of tokens, or the only one.
    ///
    /// # Errors
    /// As for [`Target::new`], and when the file has no token.
    pub(crate) fn of_each_credential(options: &Options) -> Result<Vec<Arc<Self>>> {
        let target = Self::new(options)?;
        let Some(path) = &options.tokens_file else { return Ok(vec![Arc::new(target)]) };
        let text = read(path)?;
        let tokens = text.lines().map(str::trim).filter(|token| !token.is_empty());
        let targets = tokens.map(|token| {
            let credential = Some(credential(&options.token_header, token)?);
            Ok(Arc::new(Self { credential, ..target.clone() }))
        });
        let targets: Vec<_> = targets.collect::<Result<_>>()?;
        ensure!(!targets.is_empty(), "{} has no token", path.display());
        Ok(targets)
    }
}

struct Given {
    base: String,
    ca: String,
    token: Option<String>,
}

/// The address, the CA and the token in a kubeconfig. Our own server wrote the file, one
/// field on each line.
fn from_kubeconfig(path: &Path) -> Result<Given> {
    let text = read(path)?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(str::trim).with_context(|| format!("{} has no {name}", path.display()))
    };
    let ca = STANDARD.decode(field("certificate-authority-data:")?)?;
    Ok(Given {
        base: field("server:")?.to_owned(),
        ca: String::from_utf8(ca)?,
        token: Some(field("token:")?.to_owned()),
    })
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The address and the `host:port` of a base URL. The rest of the URL is not used.
fn loopback(base: &str) -> Result<(SocketAddr, String)> {
    let rest = base.strip_prefix("https://").context("the server's URL begins with https://")?;
    let authority = rest.split('/').next().unwrap_or_default().to_owned();
    let (host, port) = authority.rsplit_once(':').context("the server's URL needs a port")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip: IpAddr = match host {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        _ => host.parse().context("the server's URL needs an IP address or localhost")?,
    };
    ensure!(ip.is_loopback(), "{ip} is not an address of this machine: load stays on loopback");
    Ok((SocketAddr::new(ip, port.parse().context("the URL's port is no number")?), authority))
}

fn credential(header: &str, token: &str) -> Result<(http::HeaderName, http::HeaderValue)> {
    let name: http::HeaderName = header.to_ascii_lowercase().parse()?;
    let bearer = name == http::header::AUTHORIZATION;
    let value = if bearer { format!("Bearer {token}") } else { token.to_owned() };
    let mut value = http::HeaderValue::from_str(&value)?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn tls(ca: &str, http2: bool) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_a_target() {
        for good in ["https://127.0.0.1:1", "https://[::1]:80/x", "https://localhost:9"] {
            assert!(loopback(good).is_ok(), "{good}");
        }
        for bad in ["http://127.0.0.1:1", "https://10.0.0.1:1", "https://127.0.0.1", "https://a:1"]
        {
            assert!(loopback(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_a_bearer_only_where_it_belongs() {
        let value = |header| credential(header, "t").unwrap().1;
        assert_eq!(value("Authorization"), "Bearer t");
        assert_eq!(value("X-Vault-Token"), "t");
    }
}

//! The transit engine of `OpenBao` or Vault: two HTTP calls, which encrypt and decrypt the seed of an at-rest key.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use postern_meta::decode::decode_typed;
use postern_proxy::{Forward, Proxy, SecretBytes, Upstream, UpstreamAddresses, UpstreamConfig};
use postern_store::seal::{Kms, KmsError, WrappedSeed};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::data_dir::read_if_there;

/// The longest time for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest response that is read.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Characters of an error of the service that are passed on.
const MAX_ERROR_CHARS: usize = 200;

/// The part of the path between the mount of the engine and the name of the key, as in the API of the engine.
const KEYS: &str = "/keys/";

/// The setting `--keyring transit:…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitSettings {
    /// As in `transit:https://HOST:PORT/MOUNT/keys/NAME`.
    address: String,
    /// Without the path.
    origin: Uri,
    /// The path of the engine, without slashes at its ends. A namespace may be a part of it.
    mount: String,
    /// The name of the key in the engine.
    key: String,
    /// The file with the token. It is read for each call.
    token_file: PathBuf,
    /// The file with the certificate authorities of the service, in PEM; `None` for those of the system.
    ca_file: Option<PathBuf>,
}

impl TransitSettings {
    /// The settings of a URL and the files.
    ///
    /// # Errors
    /// When the URL is not that of a key, or would send a token in plain text to another machine.
    pub(crate) fn parse(
        url: &str,
        token_file: &Path,
        ca_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let parsed: Uri = url.parse().context("it is no URL")?;
        let (Some(scheme), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
            anyhow::bail!("it must be transit:https://HOST:PORT/MOUNT/keys/NAME");
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        anyhow::ensure!(
            scheme == "https" || (scheme == "http" && is_loopback),
            "use https: a token must not be sent to another machine without TLS"
        );
        let path = parsed.path().trim_matches('/');
        let (mount, key) = path.rsplit_once(KEYS).unwrap_or_default();
        let is_path = |text: &str| {
            let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            text.split('/').all(|part| {
                !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_safe)
            })
        };
        anyhow::ensure!(
            is_path(mount) && is_path(key) && !key.contains('/') && parsed.query().is_none(),
            "its path must be /MOUNT/keys/NAME"
        );
        Ok(Self {
            address: format!("transit:{url}"),
            origin: format!("{scheme}://{authority}").parse()?,
            mount: mount.to_owned(),
            key: key.to_owned(),
            token_file: token_file.to_owned(),
            ca_file: ca_file.map(Path::to_owned),
        })
    }
}

/// A key of the transit engine.
pub(crate) struct Transit {
    settings: TransitSettings,
    proxy: Proxy,
}

/// The data of a response. Only one of the fields is there.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    ciphertext: String,
    /// Base64 of a seed, which is secret.
    plaintext: String,
}

#[derive(Deserialize)]
struct Response {
    data: Data,
}

#[derive(Deserialize)]
struct Refusal {
    errors: Vec<String>,
}

impl Transit {
    pub(crate) fn new(settings: TransitSettings) -> Self {
        Self { settings, proxy: Proxy::new() }
    }

    /// Calls the engine. The path and the body are those of its API.
    async fn call(&self, action: &str, body: Zeroizing<String>) -> Result<Data, KmsError> {
        let called = tokio::time::timeout(CALL_TIMEOUT, self.try_call(action, body)).await;
        let called = called.unwrap_or_else(|_| {
            Err(anyhow::anyhow!("it did not answer within {} s", CALL_TIMEOUT.as_secs()))
        });
        called.map_err(|error| {
            KmsError::new(format!("the KMS {}: {action} failed: {error:#}", self.settings.address))
        })
    }

    async fn try_call(&self, action: &str, body: Zeroizing<String>) -> anyhow::Result<Data> {
        let TransitSettings { mount, key, .. } = &self.settings;
        let path = format!("/v1/{mount}/{action}/{key}");
        // A new connection for each call: calls are rare, and the token and the authorities may be new.
        let upstream = self.upstream()?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(&path)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
        let forward = Forward::new(path.parse::<PathAndQuery>()?);
        let response = self.proxy.forward(&upstream, request, forward).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the response broke off: {error}"))?;
        let body = body.to_bytes();
        if status.is_success() {
            let response: Response =
                decode_typed(&body).context("the response is not that of a transit engine")?;
            return Ok(response.data);
        }
        let refusal: Option<Refusal> = decode_typed(&body).ok();
        let errors = refusal.map(|refusal| refusal.errors.join("; ")).unwrap_or_default();
        let errors: String = errors.trim().chars().take(MAX_ERROR_CHARS).collect();
        anyhow::bail!("status {status}: {errors}{}", self.advice(status, action))
    }

    fn upstream(&self) -> anyhow::Result<Upstream> {
        let TransitSettings { origin, token_file, ca_file, .. } = &self.settings;
        let token = read_if_there(token_file)?.map(Zeroizing::new);
        let token = token.with_context(|| {
            format!("{} of --transit-token-file is missing", token_file.display())
        })?;
        let token = token.trim();
        anyhow::ensure!(
            !token.is_empty(),
            "{} of --transit-token-file is empty",
            token_file.display()
        );
        let ca_pem = ca_file.as_deref().map(|path| {
            let text = read_if_there(path)?;
            text.map(String::into_bytes)
                .with_context(|| format!("{} of --transit-ca-file is missing", path.display()))
        });
        let mut config = UpstreamConfig::new(origin.clone());
        config.ca_pem = ca_pem.transpose()?;
        config.authorization = Some(SecretBytes::new(format!("Bearer {token}").into_bytes()));
        // The operator has chosen the address. Plain HTTP is on this machine: the settings check that.
        config.addresses = UpstreamAddresses::any();
        config.allow_plain = true;
        Ok(Upstream::new(config)?)
    }

    /// What to do about a status.
    fn advice(&self, status: StatusCode, action: &str) -> String {
        let TransitSettings { mount, key, token_file, .. } = &self.settings;
        match status {
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => format!(
                "; check the token in {}: its policy must allow update on {mount}/{action}/{key}",
                token_file.display()
            ),
            StatusCode::NOT_FOUND => {
                format!("; check that the engine is mounted at {mount}, and has the key {key}")
            }
            StatusCode::SERVICE_UNAVAILABLE => "; check that the service is unsealed".to_owned(),
            _ => String::new(),
        }
    }
}

#[async_trait]
impl Kms for Transit {
    fn kind(&self) -> &'static str {
        "transit"
    }

    fn address(&self) -> &str {
        &self.settings.address
    }

    async fn wrap(&self, seed: &[u8]) -> Result<WrappedSeed, KmsError> {
        let plaintext = Zeroizing::new(BASE64.encode(seed));
        let mut body = Zeroizing::new(String::with_capacity(plaintext.len() + 64));
        for part in ["{\"plaintext\":\"", &plaintext, "\"}"] {
            body.push_str(part);
        }
        let Data { ciphertext, .. } = self.call("encrypt", body).await?;
        Ok(WrappedSeed {
            kind: self.kind().to_owned(),
            ciphertext: ciphertext.into_bytes().into(),
            ..WrappedSeed::default()
        })
    }

    async fn unwrap(&self, wrapped: &WrappedSeed) -> Result<Zeroizing<Vec<u8>>, KmsError> {
        let invalid = |what: &str| KmsError::new(format!("the KMS {}: {what}", self.address()));
        let ciphertext = std::str::from_utf8(&wrapped.ciphertext)
            .map_err(|_| invalid("the wrapped key is no ciphertext of a transit engine"))?;
        let body = Zeroizing::new(serde_json::json!({ "ciphertext": ciphertext }).to_string());
        let plaintext = Zeroizing::new(self.call("decrypt", body).await?.plaintext);
        let seed = BASE64.decode(plaintext.as_bytes());
        seed.map(Zeroizing::new).map_err(|_| invalid("the decrypted key is not base64"))
    }

    /// Decrypts the sample: this shows that the service answers, and that the token and the key are those for it.
    async fn check(&self, sample: &WrappedSeed) -> Result<(), KmsError> {
        self.unwrap(sample).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<TransitSettings, String> {
        TransitSettings::parse(url, Path::new("/token"), None).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_names_a_key_of_an_engine() {
        let parsed = parse("https://bao.example:8200/ns1/transit/keys/postern").unwrap();
        assert_eq!((parsed.mount.as_str(), parsed.key.as_str()), ("ns1/transit", "postern"));
        assert_eq!(parsed.origin, "https://bao.example:8200");
        parse("http://127.0.0.1:8200/transit/keys/postern").unwrap();
        for wrong in [
            "bao",
            "https://bao/transit/postern",
            "https://bao/keys/postern",
            "https://bao/transit/keys/",
            "https://bao/transit/keys/a/b",
            "https://bao/../keys/a",
            "https://bao/transit/keys/a?b=c",
            "http://bao/transit/keys/a",
            "ftp://bao/transit/keys/a",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

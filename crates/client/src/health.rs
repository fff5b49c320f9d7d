//! Whether a server or an agent is ready, by its health endpoint. It needs no access key.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use postern_kinds::BASE_PATH;
use tokio::task::JoinSet;

use crate::connection;
use crate::error::Error;
use crate::proxy::Proxy;
use crate::server_url::ServerUrl;
use crate::trust::Trust;

/// The longest text of a health endpoint that is read, in bytes.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// The response of a health endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether all checks pass.
    pub is_ready: bool,
    /// The endpoint's text: the checks, one on a line, if one of them fails.
    pub text: String,
}

/// Reads `/readyz` of a server or an agent, through `proxy` if there is one.
///
/// # Errors
/// A connection that cannot be made or is lost, and no complete response within `timeout`.
pub async fn health(
    url: &ServerUrl,
    proxy: Option<&Proxy>,
    trust: &Trust,
    timeout: Duration,
) -> Result<Health, Error> {
    let tls = trust.tls()?;
    let address = url.authority();
    let read = async {
        let mut tasks = JoinSet::new();
        let mut sender = connection::open(url, proxy, None, &tls, &mut tasks).await?;
        let lost = |reason: String| Error::Lost { address: url.authority(), reason };
        let prefix = url.base_path().strip_suffix(BASE_PATH).unwrap_or_default();
        let request = Request::get(format!("{prefix}/readyz"))
            .header(header::HOST, url.authority())
            .body(Full::<Bytes>::default())
            .map_err(|error| lost(error.to_string()))?;
        let response =
            sender.send_request(request).await.map_err(|error| lost(error.to_string()))?;
        let is_ready = response.status().is_success();
        let body = Limited::new(response.into_body(), MAX_TEXT_BYTES).collect().await;
        let body = body.map_err(|error| lost(error.to_string()))?.to_bytes();
        Ok(Health { is_ready, text: String::from_utf8_lossy(&body).trim_end().to_owned() })
    };
    let late = || Error::Timeout { address, after: timeout };
    tokio::time::timeout(timeout, read).await.map_err(|_| late())?
}

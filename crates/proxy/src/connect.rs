//! Opening a connection to an upstream: the dialler, TLS on top, HTTP/1.1 on top of that.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::dial::{Stream, Target};
use crate::error::ProxyError;
use crate::link::Link;
use crate::shared::Shared;
use crate::upstream::Inner;

/// Opens a connection. `may_stall` says that its peer may take nothing for long.
pub(crate) async fn connect(
    shared: &Arc<Shared>,
    upstream: &Inner,
    may_stall: bool,
) -> Result<Link, ProxyError> {
    let counted = shared.connection()?;
    let address = || upstream.origin.address.to_string();
    let limits = &shared.limits;
    let target = Target {
        host: &upstream.origin.dialled,
        port: upstream.origin.port,
        addresses: &upstream.addresses,
        may_stall,
    };
    let late = |after| ProxyError::ConnectTimeout { address: address(), after };
    let stream = timeout(limits.connect_timeout, shared.dial.dial(target))
        .await
        .map_err(|_| late(limits.connect_timeout))??;
    let stream: Box<dyn Stream> = match &upstream.tls {
        None => stream,
        Some((config, name)) => {
            let shaken = TlsConnector::from(config.clone()).connect(name.clone(), stream);
            let shaken = timeout(limits.handshake_timeout, shaken)
                .await
                .map_err(|_| late(limits.handshake_timeout))?;
            Box::new(shaken.map_err(|error| ProxyError::Tls {
                address: address(),
                reason: error.to_string(),
            })?)
        }
    };
    Link::start(shared, stream, counted)
        .await
        .map_err(|error| ProxyError::Lost { address: address(), reason: error.to_string() })
}

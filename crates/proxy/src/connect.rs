//! Opening a connection to an upstream: the dialler, TLS on top, HTTP/1.1 on top of that, with an upgrade before the
//! first long head. Where the upstream opens the
//! connections itself, a request waits for the next one.

use std::sync::Arc;

use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::dial::{Stream, Target};
use crate::error::ProxyError;
use crate::link::Link;
use crate::long_heads::Opening;
use crate::shared::Shared;
use crate::upstream::Inner;

/// The connection that a request needs.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Whether the request asks for an upgrade, after which the peer may take nothing for long.
    pub(crate) is_upgrade: bool,
    /// How it is opened for long heads, if the request has one.
    pub(crate) opening: Option<&'a Opening>,
}

/// Opens a connection for a request that began at `begun`.
pub(crate) async fn connect(
    shared: &Arc<Shared>,
    upstream: &Inner,
    wanted: Wanted<'_>,
    begun: Instant,
) -> Result<Link, ProxyError> {
    if upstream.pool.is_of_tunnels() {
        return next_tunnel(shared, upstream, begun).await;
    }
    let counted = shared.connection()?;
    let address = || upstream.origin.address.to_string();
    let limits = &shared.limits;
    let target = Target {
        host: &upstream.origin.dialled,
        port: upstream.origin.port,
        addresses: &upstream.addresses,
        may_stall: wanted.is_upgrade,
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
    let stream = match wanted.opening {
        None => stream,
        Some(opening) => timeout(limits.handshake_timeout, opening.open(stream, &upstream.origin))
            .await
            .map_err(|_| late(limits.handshake_timeout))??,
    };
    let (link, driven) = Link::start(shared, stream, counted)
        .await
        .map_err(|error| ProxyError::Lost { address: address(), reason: error.to_string() })?;
    shared.tasks.spawn(driven);
    Ok(link)
}

/// Waits for a connection that the upstream has opened. A request that has waited for a dead one does not wait as long
/// once more.
async fn next_tunnel(
    shared: &Arc<Shared>,
    upstream: &Inner,
    begun: Instant,
) -> Result<Link, ProxyError> {
    let after = shared.limits.connect_timeout.saturating_sub(begun.elapsed());
    let none = || ProxyError::NoTunnel { address: upstream.origin.address.to_string() };
    let Some(next) = upstream.pool.wait() else { return Err(none()) };
    tokio::select! {
        biased;
        next = timeout(after, next) => next.map_err(|_| none())?.map_err(|_| none()),
        () = shared.draining.cancelled() => Err(ProxyError::Draining),
    }
}

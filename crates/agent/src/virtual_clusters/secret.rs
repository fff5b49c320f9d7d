//! Reads the Secret with the kubeconfig of a virtual cluster, by the agent's own credential.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::uri::PathAndQuery;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use postern_kinds::kubeconfig::Kubeconfig;
use postern_kinds::{SecretText, secret};
use postern_meta::decode::decode_typed;
use postern_meta::names::{dns1123_label, dns1123_subdomain};
use postern_proxy::{Forward, Proxy, Upstream};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::VirtualClusterRef;
use super::service::{Address, ClusterDomain, NotInNamespace};
use crate::upstream::{self, ClusterUpstream};

/// The key of the Secret that has the kubeconfig.
const KEY: &str = "config";

/// How long the cluster has for the head of its answer, and for all of it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// The most bytes of an answer: a Secret has 1 MiB, in base64, and its metadata.
const MAX_ANSWER_BYTES: usize = 3 * 1024 * 1024;

/// Secrets that are read at once.
const MAX_READING: usize = 8;

/// Reads Secrets of the agent's cluster.
pub(crate) struct Reader {
    proxy: Proxy,
    cluster: ClusterUpstream,
    allow_local: bool,
    domain: ClusterDomain,
    reading: Semaphore,
}

/// The route to a virtual cluster.
#[derive(Debug)]
pub(super) struct ResolvedRoute {
    pub(super) upstream: Upstream,
    /// The kubeconfig that it was made from, as it is in the Secret.
    config: SecretText,
}

/// The reason why there is no route. `Display` is for callers: it has names, and no data from the
/// Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// The cluster does not respond. The reason is for the log.
    Silent(String),
    /// The obstacle, and further details for the log.
    Because { why: String, detail: String },
}

impl NoRoute {
    pub(super) fn silent(why: impl Into<String>) -> Self {
        Self::Silent(why.into())
    }

    fn because(why: impl Into<String>) -> Self {
        Self::Because { why: why.into(), detail: String::new() }
    }

    /// Whether the same attempt may succeed a moment later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Silent(_))
    }

    /// The whole reason.
    pub(super) fn for_log(&self) -> String {
        match self {
            Self::Because { detail, .. } if detail.is_empty() => self.to_string(),
            Self::Silent(detail) | Self::Because { detail, .. } => format!("{self}: {detail}"),
        }
    }
}

impl fmt::Display for NoRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(_) => f.write_str(
                "the cluster does not say where the virtual cluster is: it gives no answer",
            ),
            Self::Because { why, .. } => f.write_str(why),
        }
    }
}

impl Reader {
    /// A reader with the credential of a kubeconfig of the cluster. With `allow_local`, virtual clusters may be on
    /// loopback and link-local addresses. Its Services are in this domain.
    pub(crate) fn new(
        proxy: Proxy,
        cluster: ClusterUpstream,
        allow_local: bool,
        domain: ClusterDomain,
    ) -> Self {
        Self { proxy, cluster, allow_local, domain, reading: Semaphore::new(MAX_READING) }
    }

    /// Waits until a Secret may be read. A waiting caller keeps no virtual cluster in use.
    pub(super) async fn read_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.reading.acquire().await.ok()
    }

    /// The route to a virtual cluster; `None` when it is the last one. It takes a [permit](Reader::read_permit).
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn resolve(
        &self,
        place: &VirtualClusterRef,
        last: Option<&ResolvedRoute>,
    ) -> Result<Option<ResolvedRoute>, NoRoute> {
        let read = timeout(READ_TIMEOUT, self.read(place)).await;
        let config = read.map_err(|_| NoRoute::silent("it took too long"))??;
        if last.is_some_and(|last| last.config == config) {
            return Ok(None);
        }
        let (place, allow_local, domain) = (place.clone(), self.allow_local, self.domain.clone());
        // Certificates are read, and perhaps the system's from disk.
        let made =
            tokio::task::spawn_blocking(move || route_from(config, &place, allow_local, &domain));
        let made = made.await;
        made.map_err(|_| NoRoute::silent("the kubeconfig could not be read"))?.map(Some)
    }

    /// The kubeconfig in the Secret, as it is there.
    async fn read(&self, place: &VirtualClusterRef) -> Result<SecretText, NoRoute> {
        let (namespace, name) = (&place.namespace, place.secret());
        let are_names = dns1123_label(namespace).is_ok() && dns1123_subdomain(&name).is_ok();
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let path = path.parse::<PathAndQuery>().ok().filter(|_| are_names);
        let path = path.ok_or_else(|| NoRoute::because("its namespace or name is invalid"))?;
        let silent = |why: String| NoRoute::Silent(why);
        let request = Request::get(path.as_str())
            .header(ACCEPT, "application/json")
            .body(Empty::<Bytes>::new())
            .map_err(|error| silent(error.to_string()))?;
        let forward = Forward { answer_timeout: Some(ANSWER_TIMEOUT), ..Forward::new(path) };
        let answer = self.proxy.forward(&self.cluster.current(), request, forward).await;
        let answer = answer.map_err(|error| silent(error.to_string()))?;
        let of = format!("the Secret {name:?} in the namespace {namespace:?} of the cluster");
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err(NoRoute::because(format!(
                    "its kubeconfig must be in {of}, which does not exist"
                )));
            }
            StatusCode::FORBIDDEN => {
                return Err(NoRoute::because(format!(
                    "the agent may not read {of}: the user in the kubeconfig of --upstream needs the verb \
                     get on it"
                )));
            }
            code => return Err(silent(format!("it answers with {} about {of}", code.as_u16()))),
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let bytes = body.map_err(|error| silent(error.to_string()))?.to_bytes();
        let spec: secret::Spec =
            decode_typed(&bytes).map_err(|_| silent("its answer is no Secret".to_owned()))?;
        let config = spec.data.get(KEY).cloned();
        config.ok_or_else(|| NoRoute::because(format!("{of} has no key {KEY:?}")))
    }
}

/// Makes the route from the kubeconfig in a Secret. No error has a value of it but the server, for the log.
fn route_from(
    config: SecretText,
    place: &VirtualClusterRef,
    allow_local: bool,
    domain: &ClusterDomain,
) -> Result<ResolvedRoute, NoRoute> {
    let (name, namespace) = (place.secret(), &place.namespace);
    let of = format!("the kubeconfig in the Secret {name:?} in the namespace {namespace:?}");
    let unusable = |why: String| NoRoute::because(format!("{of} cannot be used: {why}"));
    let data = [(KEY.to_owned(), config.clone())].into();
    let spec = secret::Spec { data, ..secret::Spec::default() };
    let kubeconfig = Kubeconfig::of_secret(&spec, KEY);
    let kubeconfig = kubeconfig.map_err(|error| unusable(error.to_string()))?;
    let address = Address::of(&kubeconfig, place, allow_local, domain);
    let Address { url, server_name, addresses } =
        address.map_err(|NotInNamespace| NoRoute::Because {
            why: format!("{of} names another server than a Service of this namespace"),
            detail: format!("its server is {}", kubeconfig.server),
        })?;
    let upstream = upstream::of(&kubeconfig, url, Some(server_name), addresses);
    let upstream = upstream.map_err(|error| NoRoute::Because {
        why: format!("{of} cannot be used"),
        detail: error.to_string(),
    })?;
    Ok(ResolvedRoute { upstream, config })
}

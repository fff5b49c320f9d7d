//! By which address and credential a target is reached: upstreams that are made from kubeconfigs, and kept
//! until these change.

use std::collections::HashMap;

use parking_lot::Mutex;
use postern_kinds::kubeconfig::Kubeconfig;
use postern_kinds::secret;
use postern_meta::status::ApiError;
use postern_proxy::{ClientCertificate, SecretBytes, Upstream, UpstreamAddresses, UpstreamConfig};
use postern_registry::registry::Registry;
use postern_store::Position;

use super::agent::AgentRoute;
use super::place::{Found, SecretKey, Way, secret_of};

/// Upstreams that are kept. With more, an arbitrary one is made anew when it is next needed.
const MAX_KEPT: usize = 10_000;

/// Seconds after which a client may try again, when a way is just being changed.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The source of an upstream.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Origin {
    /// Namespace, name and key of a Secret.
    Secret(String, String, String),
    Agent(AgentRoute),
}

/// The upstreams that have been made.
pub(super) struct Upstreams {
    addresses: UpstreamAddresses,
    kept: Mutex<HashMap<Origin, (Option<Position>, Upstream)>>,
}

impl Upstreams {
    pub(super) fn new(addresses: UpstreamAddresses) -> Self {
        Self { addresses, kept: Mutex::default() }
    }

    /// The upstream of a target.
    ///
    /// # Errors
    /// 503 that says which way is missing, or why it cannot be taken.
    pub(super) async fn of(
        &self,
        registry: &Registry,
        found: &Found,
    ) -> Result<Upstream, ApiError> {
        match found.way() {
            Way::Kubeconfig(key) => self.by_kubeconfig(registry, key).await,
            Way::Agent(route) => self.by_agent(route).await,
            Way::None(why) => Err(no_way(why)),
        }
    }

    async fn by_kubeconfig(
        &self,
        registry: &Registry,
        key: &SecretKey,
    ) -> Result<Upstream, ApiError> {
        let at = format!("the key {:?} of the Secret {:?}", key.key, key.name);
        if key.position.is_none() {
            return Err(no_way(&format!("its kubeconfig is to be in {at}, which is not there")));
        }
        let origin = Origin::Secret(key.namespace.clone(), key.name.clone(), key.key.clone());
        if let Some(upstream) = self.kept(&origin, key.position) {
            return Ok(upstream);
        }
        let changed = || {
            let message = "the kubeconfig of the target is just being changed";
            ApiError::unavailable(message, Some(RETRY_AFTER_SECONDS))
        };
        let secret = secret_of(registry, key)?.ok_or_else(changed)?;
        let (name, addresses) = (key.key.clone(), self.addresses.clone());
        let upstream = elsewhere(move || {
            let secret = secret.part().map_err(|_| "the Secret cannot be read".to_owned())?;
            made(&secret, &name, addresses)
        });
        let upstream = upstream.await;
        let upstream = upstream
            .map_err(|why| no_way(&format!("the kubeconfig in {at} cannot be used: {why}")))?;
        self.keep(origin, key.position, &upstream);
        Ok(upstream)
    }

    async fn by_agent(&self, route: &AgentRoute) -> Result<Upstream, ApiError> {
        let origin = Origin::Agent(route.clone());
        if let Some(upstream) = self.kept(&origin, None) {
            return Ok(upstream);
        }
        let (of, addresses) = (route.clone(), self.addresses.clone());
        let upstream = elsewhere(move || {
            Upstream::new(of.config(addresses)?).map_err(|error| error.to_string())
        });
        let upstream = upstream.await;
        let upstream =
            upstream.map_err(|why| no_way(&format!("its agent cannot be reached: {why}")))?;
        self.keep(origin, None, &upstream);
        Ok(upstream)
    }

    fn kept(&self, origin: &Origin, position: Option<Position>) -> Option<Upstream> {
        let kept = self.kept.lock();
        let (of, upstream) = kept.get(origin)?;
        (*of == position).then(|| upstream.clone())
    }

    fn keep(&self, origin: Origin, position: Option<Position>, upstream: &Upstream) {
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT
            && !kept.contains_key(&origin)
            && let Some(other) = kept.keys().next().cloned()
        {
            kept.remove(&other);
        }
        kept.insert(origin, (position, upstream.clone()));
    }
}

/// Makes an upstream on a thread that may block: it reads certificates, and perhaps the system's
/// from disk.
async fn elsewhere(
    work: impl FnOnce() -> Result<Upstream, String> + Send + 'static,
) -> Result<Upstream, String> {
    let made = tokio::task::spawn_blocking(work).await;
    made.unwrap_or_else(|_| Err("it cannot be read".to_owned()))
}

/// The 503 of a target that has no usable route. It does not ask the client to try again: an operator has
/// to act first, and clients would retry for minutes before they report the reason.
fn no_way(why: &str) -> ApiError {
    ApiError::unavailable(format!("there is no way to the target: {why}"), None)
}

/// Makes an upstream from the kubeconfig in a Secret. No error has a value of it.
fn made(
    secret: &secret::Spec,
    key: &str,
    addresses: UpstreamAddresses,
) -> Result<Upstream, String> {
    let kubeconfig = Kubeconfig::of_secret(secret, key).map_err(|error| error.to_string())?;
    let url = kubeconfig.server.parse().map_err(|_| "server is no URL".to_owned())?;
    let bytes = |text: &str| SecretBytes::new(text.as_bytes().to_vec());
    let authorization = kubeconfig.token.as_ref().map(|token| bearer(token.expose()));
    let certificate = kubeconfig.client_certificate.map(|certificate| ClientCertificate {
        certificate_pem: certificate.chain_pem.into_bytes(),
        key_pem: bytes(certificate.key_pem.expose()),
    });
    let config = UpstreamConfig {
        ca_pem: kubeconfig.ca_pem.map(String::into_bytes),
        server_name: kubeconfig.tls_server_name,
        insecure: kubeconfig.is_insecure,
        client_certificate: certificate,
        authorization,
        addresses,
        ..UpstreamConfig::new(url)
    };
    Upstream::new(config).map_err(|error| error.to_string())
}

/// The value of `Authorization`. It is written once, so that no copy stays in memory.
fn bearer(token: &str) -> SecretBytes {
    const SCHEME: &str = "Bearer ";
    let mut value = Vec::with_capacity(SCHEME.len() + token.len());
    value.extend_from_slice(SCHEME.as_bytes());
    value.extend_from_slice(token.as_bytes());
    SecretBytes::new(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kubeconfig: &str) -> secret::Spec {
        use base64::Engine as _;
        let data = base64::engine::general_purpose::STANDARD.encode(kubeconfig);
        serde_json::from_value(serde_json::json!({ "data": { "config": data } })).unwrap()
    }

    fn kubeconfig(server: &str, user: &str) -> String {
        format!(
            "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\", insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        )
    }

    #[test]
    fn an_upstream_is_made_from_what_is_written_in_a_kubeconfig() {
        let of = |text: &str| made(&spec(text), "config", UpstreamAddresses::default());
        let upstream = of(&kubeconfig("https://10.0.0.1:6443/k8s", "{token: hunter2}")).unwrap();
        assert_eq!(upstream.address(), "10.0.0.1:6443");
        assert!(!format!("{upstream:?}").contains("hunter2"));
        for (user, word) in [("{exec: {command: x}}", "exec"), ("{tokenFile: /x}", "tokenFile")] {
            let error = of(&kubeconfig("https://10.0.0.1", user)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(made(&spec("x"), "other", UpstreamAddresses::default()).is_err());
        let error = of("token: hunter2").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

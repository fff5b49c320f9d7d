//! The cache of identity providers: their discovery documents and keys.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use postern_kinds::base64_text;
use postern_oidc::discovery::{self, Discovery};
use postern_oidc::jwks::{self, KeySet};
use postern_proxy::{Proxy, UpstreamAddresses};
use postern_registry::actions::exchanges::IssuingCluster;
use postern_registry::clock::Source;
use postern_registry::registry::Registry;
use postern_telemetry::log_limited;

use super::document::{Document, Wanted};
use super::fetch::{Asked, Failed, Route};
use postern_gateway::Gateway;

/// The most providers that are kept. There are few connectors and trusted issuers. One more takes the place of the one
/// that was used longest ago.
const MAX_PROVIDERS: usize = 200;

/// All providers.
pub(super) struct Providers {
    proxy: Proxy,
    addresses: UpstreamAddresses,
    source: Arc<dyn Source>,
    known: Mutex<Known>,
}

/// The providers that are kept.
#[derive(Default)]
struct Known {
    /// Each with the number of its last use.
    providers: HashMap<Key, (u64, Arc<Provider>)>,
    uses: u64,
}

impl Known {
    /// The provider of a key, which `made` makes if it is not known.
    fn get_or(&mut self, key: Key, made: impl FnOnce() -> Provider) -> Arc<Provider> {
        self.uses += 1;
        if let Some((used, provider)) = self.providers.get_mut(&key) {
            *used = self.uses;
            return provider.clone();
        }
        if self.providers.len() >= MAX_PROVIDERS
            && let Some(oldest) = self.providers.values().map(|(used, _)| *used).min()
        {
            self.providers.retain(|_, (used, _)| *used != oldest);
        }
        let provider = Arc::new(made());
        self.providers.insert(key, (self.uses, provider.clone()));
        provider
    }
}

/// The key of a provider in the cache.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    /// The issuer and the certificate authorities of a connector.
    Login(String, String),
    /// Those of a trusted issuer.
    Issuer(String, String),
    /// The Cluster.
    Cluster(IssuingCluster),
}

impl Providers {
    pub(super) fn new(proxy: Proxy, addresses: UpstreamAddresses, source: Arc<dyn Source>) -> Self {
        Self { proxy, addresses, source, known: Mutex::default() }
    }

    /// The provider of a connector. `ca_data` has the certificate authorities for the issuer.
    pub(super) fn of_connector(&self, issuer: &str, ca_data: &str) -> Arc<Provider> {
        let key = Key::Login(issuer.to_owned(), ca_data.to_owned());
        self.known_or(key, || (issuer, self.route(ca_data)))
    }

    /// The provider of a trusted issuer. `ca_data` has the certificate authorities for the issuer.
    pub(super) fn of_issuer(&self, issuer: &str, ca_data: &str) -> Arc<Provider> {
        let key = Key::Issuer(issuer.to_owned(), ca_data.to_owned());
        self.known_or(key, || (issuer, self.route(ca_data)))
    }

    /// The connected cluster.
    pub(super) fn of_cluster(
        &self,
        gateway: &Arc<Gateway>,
        registry: &Arc<Registry>,
        cluster: &IssuingCluster,
    ) -> Arc<Provider> {
        let name = cluster.name.as_str();
        let route = || Route::to_cluster(gateway.clone(), registry.clone(), name);
        self.known_or(Key::Cluster(cluster.clone()), || (name, route()))
    }

    fn route(&self, ca_data: &str) -> Route {
        let ca_pem = base64_text::decode(ca_data).ok().filter(|pem| !pem.is_empty());
        let ca_pem = ca_pem.map(|pem| pem.to_vec());
        Route::new(self.proxy.clone(), self.addresses.clone(), ca_pem)
    }

    fn known_or<'a>(&self, key: Key, made: impl FnOnce() -> (&'a str, Route)) -> Arc<Provider> {
        let is_login = matches!(key, Key::Login(..));
        self.known.lock().get_or(key, || {
            let (name, route) = made();
            Provider {
                at: Arc::new(ProviderAddress { issuer: name.to_owned(), route }),
                is_login,
                source: self.source.clone(),
                discovery: Document::default(),
                keys_at: Document::default(),
                keys: Document::default(),
            }
        })
    }
}

/// Where a provider is.
pub(super) struct ProviderAddress {
    /// The issuer as it is configured; for a cluster, its name.
    pub(super) issuer: String,
    pub(super) route: Route,
}

/// One provider.
pub(super) struct Provider {
    pub(super) at: Arc<ProviderAddress>,
    is_login: bool,
    source: Arc<dyn Source>,
    discovery: Document<Discovery>,
    keys_at: Document<String>,
    keys: Document<KeySet>,
}

impl Provider {
    /// The discovery document.
    ///
    /// # Errors
    /// The reason why there is none, as text for the user.
    pub(super) async fn discovery(&self) -> Result<Arc<Discovery>, String> {
        self.wanted_discovery(Wanted::Recent).await
    }

    /// The discovery document as it is now, unless it was asked for just before: for a test.
    ///
    /// # Errors
    /// See [`Provider::discovery`].
    pub(super) async fn newest_discovery(&self) -> Result<Arc<Discovery>, String> {
        self.wanted_discovery(Wanted::Newest).await
    }

    async fn wanted_discovery(&self, wanted: Wanted) -> Result<Arc<Discovery>, String> {
        let fetch = || {
            let at = self.at.clone();
            async move {
                let bytes = at.get(&at.discovery()?, discovery::MAX_BYTES).await?;
                Discovery::parse(&bytes, &at.issuer).map_err(|refused| refused.to_string())
            }
        };
        self.discovery.get(wanted, || self.now(), fetch).await
    }

    /// The keys.
    ///
    /// # Errors
    /// See [`Provider::discovery`].
    pub(super) async fn keys(&self) -> Result<Arc<KeySet>, String> {
        self.wanted_keys(Wanted::Recent).await
    }

    /// The keys as they are now, unless they were asked for just before: for a token with a key that is not known.
    ///
    /// # Errors
    /// See [`Provider::discovery`].
    pub(super) async fn newest_keys(&self) -> Result<Arc<KeySet>, String> {
        self.wanted_keys(Wanted::Newest).await
    }

    /// The address of the keys.
    async fn keys_at(&self) -> Result<Arc<String>, String> {
        if self.is_login {
            return Ok(Arc::new(self.discovery().await?.jwks_uri.clone()));
        }
        let fetch = || self.at.clone().keys_at();
        self.keys_at.get(Wanted::Recent, || self.now(), fetch).await
    }

    async fn wanted_keys(&self, wanted: Wanted) -> Result<Arc<KeySet>, String> {
        let keys_at = self.keys_at().await?;
        let fetch = || {
            let (at, known) = (self.at.clone(), keys_at.clone());
            async move { at.keys(&known).await }
        };
        self.keys.get(wanted, || self.now(), fetch).await
    }

    fn now(&self) -> i64 {
        self.source.now().unix_seconds()
    }
}

impl ProviderAddress {
    /// The address of the discovery document.
    fn discovery(&self) -> Result<String, String> {
        discovery::address(&self.issuer).ok_or_else(|| "the issuer is no https URL".to_owned())
    }

    async fn keys_at(self: Arc<Self>) -> Result<String, String> {
        if self.route.is_to_cluster() {
            return Ok(jwks::OF_CLUSTER.to_owned());
        }
        let bytes = self.get(&self.discovery()?, discovery::MAX_BYTES).await?;
        let keys = discovery::keys_of_issuer(&bytes, &self.issuer);
        keys.map_err(|refused| refused.to_string())
    }

    /// The keys at an address. If they are missing, the provider may have moved them.
    async fn keys(self: Arc<Self>, known: &str) -> Result<KeySet, String> {
        let mut bytes = self.fetch(known, jwks::MAX_BYTES).await;
        if matches!(bytes, Err(Failed::Status(_) | Failed::Redirect)) {
            let present = self.clone().keys_at().await?;
            if present != known {
                bytes = self.fetch(&present, jwks::MAX_BYTES).await;
            }
        }
        let bytes = bytes.map_err(|failed| self.reported(failed))?;
        KeySet::parse(&bytes).map_err(|refused| refused.to_string())
    }

    async fn get(&self, address: &str, max_bytes: usize) -> Result<bytes::Bytes, String> {
        self.fetch(address, max_bytes).await.map_err(|failed| self.reported(failed))
    }

    async fn fetch(&self, address: &str, max_bytes: usize) -> Result<bytes::Bytes, Failed> {
        let asked = Asked { address, authorization: None, form: None, max_bytes };
        self.route.fetch(asked).await.map(|(_, bytes)| bytes)
    }

    /// The text of a failure for the user. The log has the address.
    pub(super) fn reported(&self, failed: Failed) -> String {
        let text = failed.to_string();
        if let Failed::Unreachable(why) = failed {
            let issuer = &self.issuer;
            log_limited!(warn, for issuer, issuer, "cannot reach an identity provider: {why}");
        }
        text
    }
}

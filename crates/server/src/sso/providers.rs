//! What is known of identity providers: their discovery documents and keys, fetched when they are needed, and kept.
//!
//! One request of a kind to a provider is under way at a time. After a failure, nothing is asked for a while, and what was
//! good last is used for a day.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use postern_auth::oidc::discovery::{self, Discovery};
use postern_auth::oidc::jwks::{self, KeySet};
use postern_proxy::{Proxy, UpstreamAddresses};
use postern_registry::clock::Source;
use postern_registry::registry::Registry;

use super::fetch::{Asked, Failed, Route};
use crate::gateway::Gateway;

/// The seconds after which a document is fetched again.
const FRESH_SECONDS: i64 = 3600;

/// The seconds for which a document counts if it cannot be fetched again.
const USABLE_SECONDS: i64 = 24 * 3600;

/// The least seconds between two fetches of a document.
const PAUSE_SECONDS: i64 = 10;

/// The most providers that are kept. There are few connectors and trusted issuers.
const MAX_PROVIDERS: usize = 200;

/// All providers.
pub(super) struct Providers {
    proxy: Proxy,
    addresses: UpstreamAddresses,
    source: Arc<dyn Source>,
    known: Mutex<HashMap<Key, Arc<Provider>>>,
}

/// What a provider is known by.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    /// The issuer and the certificate authorities of a connector.
    Login(String, String),
    /// Those of a trusted issuer.
    Issuer(String, String),
    /// The uid of a Cluster.
    Cluster(String),
}

impl Providers {
    pub(super) fn new(proxy: Proxy, addresses: UpstreamAddresses, source: Arc<dyn Source>) -> Self {
        Self { proxy, addresses, source, known: Mutex::default() }
    }

    /// The provider of an issuer whose certificate is vouched for by these authorities.
    pub(super) fn of_connector(&self, issuer: &str, ca_data: &str) -> Arc<Provider> {
        let key = Key::Login(issuer.to_owned(), ca_data.to_owned());
        self.known_or(key, || (issuer, self.route(ca_data)))
    }

    /// The trusted issuer whose certificate is vouched for by these authorities.
    pub(super) fn of_issuer(&self, issuer: &str, ca_data: &str) -> Arc<Provider> {
        let key = Key::Issuer(issuer.to_owned(), ca_data.to_owned());
        self.known_or(key, || (issuer, self.route(ca_data)))
    }

    /// The connected cluster of this name and uid.
    pub(super) fn of_cluster(
        &self,
        gateway: &Arc<Gateway>,
        registry: &Arc<Registry>,
        (name, uid): (&str, &str),
    ) -> Arc<Provider> {
        let route = || Route::to_cluster(gateway.clone(), registry.clone(), name);
        self.known_or(Key::Cluster(uid.to_owned()), || (name, route()))
    }

    fn route(&self, ca_data: &str) -> Route {
        let ca_pem = STANDARD.decode(ca_data).ok().filter(|pem| !pem.is_empty());
        Route::new(self.proxy.clone(), self.addresses.clone(), ca_pem)
    }

    fn known_or<'a>(&self, key: Key, made: impl FnOnce() -> (&'a str, Route)) -> Arc<Provider> {
        let is_login = matches!(key, Key::Login(..));
        let mut known = self.known.lock();
        if let Some(provider) = known.get(&key) {
            return provider.clone();
        }
        if known.len() >= MAX_PROVIDERS {
            known.clear();
        }
        let (name, route) = made();
        let provider = Arc::new(Provider {
            issuer: name.to_owned(),
            route,
            is_login,
            source: self.source.clone(),
            discovery: Document::default(),
            keys_at: Document::default(),
            keys: Document::default(),
        });
        known.insert(key, provider.clone());
        provider
    }
}

/// One provider.
pub(super) struct Provider {
    /// The issuer as it is configured; for a cluster, its name.
    pub(super) issuer: String,
    pub(super) route: Route,
    is_login: bool,
    source: Arc<dyn Source>,
    discovery: Document<Discovery>,
    keys_at: Document<KeysAt>,
    keys: Document<KeySet>,
}

/// The issuer that tokens must name, and the address of its keys.
#[derive(Clone)]
pub(super) struct KeysAt {
    pub(super) issuer: String,
    address: String,
}

/// A document of a provider.
struct Document<T> {
    kept: Mutex<CachedDocument<T>>,
    /// Held while it is fetched.
    fetching: tokio::sync::Mutex<()>,
}

impl<T> Default for Document<T> {
    fn default() -> Self {
        Self { kept: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }
}

struct CachedDocument<T> {
    /// The last good one, and when it was fetched, in seconds since 1970.
    good: Option<(Arc<T>, i64)>,
    /// When it was last asked for, in seconds since 1970.
    asked: Option<i64>,
    /// When it was last asked for because something in it was missing, in seconds since 1970.
    asked_newest: Option<i64>,
    /// Why the last fetch failed.
    failure: Option<String>,
}

impl<T> Default for CachedDocument<T> {
    fn default() -> Self {
        Self { good: None, asked: None, asked_newest: None, failure: None }
    }
}

impl<T> CachedDocument<T> {
    /// The document, if it counts at a time.
    fn usable(&self, now: i64, seconds: i64) -> Option<Arc<T>> {
        let (good, fetched) = self.good.as_ref()?;
        (now.saturating_sub(*fetched) < seconds).then(|| good.clone())
    }

    /// The document that answers without a fetch; `None` if it must be fetched.
    fn without_fetch(&self, now: i64, wanted: Wanted) -> Option<Result<Arc<T>, String>> {
        // A clock that was set back ends the pause.
        let is_recent = |asked: Option<i64>| {
            asked.is_some_and(|asked| (0..PAUSE_SECONDS).contains(&now.saturating_sub(asked)))
        };
        let is_paused = match wanted {
            Wanted::Recent => {
                if let Some(recent) = self.usable(now, FRESH_SECONDS) {
                    return Some(Ok(recent));
                }
                is_recent(self.asked)
            }
            Wanted::Newest => is_recent(self.asked_newest),
        };
        is_paused.then(|| {
            let failure = self.failure.clone().unwrap_or_default();
            self.usable(now, USABLE_SECONDS).ok_or(failure)
        })
    }
}

/// Which document is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// One that was fetched within the hour.
    Recent,
    /// The present one, because something is missing in the one that is kept.
    Newest,
}

impl Provider {
    /// The discovery document.
    ///
    /// # Errors
    /// Why there is none, for the person who logs in.
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
        self.document(&self.discovery, wanted, || async {
            let address = discovery::address(&self.issuer).ok_or("the issuer is no https URL")?;
            let bytes = self.get(&address, discovery::MAX_BYTES).await?;
            Discovery::parse(&bytes, &self.issuer).map_err(|refused| refused.to_string())
        })
        .await
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

    /// The issuer that tokens must name, and where its keys are.
    ///
    /// # Errors
    /// See [`Provider::discovery`].
    pub(super) async fn keys_at(&self) -> Result<Arc<KeysAt>, String> {
        if self.is_login {
            let discovery = self.discovery().await?;
            let (issuer, address) = (self.issuer.clone(), discovery.jwks_uri.clone());
            return Ok(Arc::new(KeysAt { issuer, address }));
        }
        self.document(&self.keys_at, Wanted::Recent, || async {
            if self.route.is_to_cluster() {
                let bytes = self.get(discovery::OF_CLUSTER, discovery::MAX_BYTES).await?;
                let issuer = discovery::issuer_of_cluster(&bytes);
                let issuer = issuer.map_err(|refused| refused.to_string())?;
                return Ok(KeysAt { issuer, address: jwks::OF_CLUSTER.to_owned() });
            }
            let address = discovery::address(&self.issuer).ok_or("the issuer is no https URL")?;
            let bytes = self.get(&address, discovery::MAX_BYTES).await?;
            let keys = discovery::keys_of_issuer(&bytes, &self.issuer);
            let address = keys.map_err(|refused| refused.to_string())?;
            Ok(KeysAt { issuer: self.issuer.clone(), address })
        })
        .await
    }

    async fn wanted_keys(&self, wanted: Wanted) -> Result<Arc<KeySet>, String> {
        let at = self.keys_at().await?;
        self.document(&self.keys, wanted, || async {
            let bytes = self.get(&at.address, jwks::MAX_BYTES).await?;
            KeySet::parse(&bytes).map_err(|refused| refused.to_string())
        })
        .await
    }

    /// A document, fetched if it must be.
    async fn document<T, F>(
        &self,
        document: &Document<T>,
        wanted: Wanted,
        fetch: impl FnOnce() -> F + Send,
    ) -> Result<Arc<T>, String>
    where
        T: Send + Sync,
        F: Future<Output = Result<T, String>> + Send,
    {
        let now = || self.source.now().unix_seconds();
        if let Some(known) = document.kept.lock().without_fetch(now(), wanted) {
            return known;
        }
        let _fetching = document.fetching.lock().await;
        {
            let mut kept = document.kept.lock();
            // Another request may have fetched it, or tried to.
            if let Some(known) = kept.without_fetch(now(), wanted) {
                return known;
            }
            kept.asked = Some(now());
            if wanted == Wanted::Newest {
                kept.asked_newest = Some(now());
            }
        }
        let fetched = fetch().await;
        let mut kept = document.kept.lock();
        match fetched {
            Ok(good) => {
                let good = Arc::new(good);
                kept.good = Some((good.clone(), now()));
                kept.failure = None;
                Ok(good)
            }
            Err(failure) => {
                kept.failure = Some(failure.clone());
                kept.usable(now(), USABLE_SECONDS).ok_or(failure)
            }
        }
    }

    async fn get(&self, address: &str, max_bytes: usize) -> Result<bytes::Bytes, String> {
        let asked = Asked { address, authorization: None, form: None, max_bytes };
        let fetched = self.route.fetch(asked).await;
        fetched.map(|(_, bytes)| bytes).map_err(|failed| self.reported(failed))
    }

    /// The text of a failure for the person who logs in. The log has the address.
    pub(super) fn reported(&self, failed: Failed) -> String {
        let text = failed.to_string();
        if let Failed::Unreachable(why) = failed {
            tracing::warn!(issuer = self.issuer, "cannot reach an identity provider: {why}");
        }
        text
    }
}

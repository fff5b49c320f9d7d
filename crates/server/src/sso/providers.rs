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

use super::fetch::{Asked, Failed, Way};

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
    known: Mutex<HashMap<(String, String), Arc<Provider>>>,
}

impl Providers {
    pub(super) fn new(
        proxy: Proxy,
        addresses: UpstreamAddresses,
        source: Arc<dyn Source>,
    ) -> Self {
        Self { proxy, addresses, source, known: Mutex::default() }
    }

    /// The provider of an issuer whose certificate is vouched for by these authorities.
    pub(super) fn of(&self, issuer: &str, ca_data: &str) -> Arc<Provider> {
        let key = (issuer.to_owned(), ca_data.to_owned());
        let mut known = self.known.lock();
        if let Some(provider) = known.get(&key) {
            return provider.clone();
        }
        if known.len() >= MAX_PROVIDERS {
            known.clear();
        }
        let ca_pem = STANDARD.decode(ca_data).ok().filter(|pem| !pem.is_empty());
        let provider = Arc::new(Provider {
            issuer: issuer.to_owned(),
            way: Way::new(self.proxy.clone(), self.addresses.clone(), ca_pem),
            source: self.source.clone(),
            discovery: Document::default(),
            keys: Document::default(),
        });
        known.insert(key, provider.clone());
        provider
    }
}

/// One provider.
pub(super) struct Provider {
    pub(super) issuer: String,
    pub(super) way: Way,
    source: Arc<dyn Source>,
    discovery: Document<Discovery>,
    keys: Document<KeySet>,
}

/// A document of a provider.
struct Document<T> {
    kept: Mutex<Kept<T>>,
    /// Held while it is fetched.
    fetching: tokio::sync::Mutex<()>,
}

impl<T> Default for Document<T> {
    fn default() -> Self {
        Self { kept: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }
}

struct Kept<T> {
    /// The last good one, and when it was fetched, in seconds since 1970.
    good: Option<(Arc<T>, i64)>,
    /// When it was last asked for, in seconds since 1970.
    asked: Option<i64>,
    /// Why the last fetch failed.
    failure: Option<String>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { good: None, asked: None, failure: None }
    }
}

impl<T> Kept<T> {
    /// The document, if it counts at a time.
    fn usable(&self, now: i64, seconds: i64) -> Option<Arc<T>> {
        let (good, fetched) = self.good.as_ref()?;
        (now.saturating_sub(*fetched) < seconds).then(|| good.clone())
    }

    /// Whether it was asked for just now.
    fn is_paused(&self, now: i64) -> bool {
        // A clock that was set back ends the pause.
        self.asked.is_some_and(|asked| (0..PAUSE_SECONDS).contains(&now.saturating_sub(asked)))
    }
}

impl Provider {
    /// The discovery document.
    ///
    /// # Errors
    /// Why there is none, for the person who logs in.
    pub(super) async fn discovery(&self) -> Result<Arc<Discovery>, String> {
        self.document(&self.discovery, FRESH_SECONDS, || async {
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
        self.keys_fetched_within(FRESH_SECONDS).await
    }

    /// The keys as they are now, unless they were asked for just before: for a token with a key that is not known.
    ///
    /// # Errors
    /// See [`Provider::discovery`].
    pub(super) async fn newest_keys(&self) -> Result<Arc<KeySet>, String> {
        self.keys_fetched_within(PAUSE_SECONDS).await
    }

    async fn keys_fetched_within(&self, seconds: i64) -> Result<Arc<KeySet>, String> {
        let discovery = self.discovery().await?;
        self.document(&self.keys, seconds, || async {
            let bytes = self.get(&discovery.jwks_uri, jwks::MAX_BYTES).await?;
            KeySet::parse(&bytes).map_err(|refused| refused.to_string())
        })
        .await
    }

    /// A document that was fetched within so many seconds, if it can be fetched.
    async fn document<T, F>(
        &self,
        document: &Document<T>,
        seconds: i64,
        fetch: impl FnOnce() -> F + Send,
    ) -> Result<Arc<T>, String>
    where
        T: Send + Sync,
        F: Future<Output = Result<T, String>> + Send,
    {
        let now = || self.source.now().unix_seconds();
        if let Some(fresh) = document.kept.lock().usable(now(), seconds) {
            return Ok(fresh);
        }
        let _fetching = document.fetching.lock().await;
        {
            let kept = document.kept.lock();
            // Another request may have fetched it, or tried to.
            if let Some(fresh) = kept.usable(now(), seconds) {
                return Ok(fresh);
            }
            if kept.is_paused(now()) {
                let failure = kept.failure.clone().unwrap_or_default();
                return kept.usable(now(), USABLE_SECONDS).ok_or(failure);
            }
        }
        document.kept.lock().asked = Some(now());
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
        let fetched = self.way.fetch(asked).await;
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

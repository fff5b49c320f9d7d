//! Asks providers again about users who are active: their groups, and whether they may still log in. It runs on every
//! server, and each key is claimed by one of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use postern_kinds::connector::Connector;
use postern_kinds::principal::ConnectorRef;
use postern_registry::actions::logins::LoginFor;
use postern_registry::actions::refreshes::{self, Claimed};
use serde_json::Value;

use super::redeem::{Client, INVALID_GRANT};
use super::{About, Refused, Sso, StoredConnector};

/// The longest and the shortest time between two looks at the keys, in seconds.
const LONGEST_PAUSE_SECONDS: i64 = 5;
const SHORTEST_PAUSE_SECONDS: i64 = 1;

/// The most connectors.
const MAX_CONNECTORS: usize = 200;

/// Runs until it is dropped.
pub(crate) async fn run(sso: Arc<Sso>) {
    loop {
        let connectors = sso.registry.page_to_decide(&Connector, None, MAX_CONNECTORS);
        let connectors: Vec<StoredConnector> =
            connectors.iter().filter_map(|one| one.part().ok()).collect();
        let enabled = connectors.iter().filter(|one| !one.spec.disabled);
        // A slow provider holds up its own connector only.
        let next = join_all(enabled.map(|connector| sso.refresh_all(connector))).await;
        for connector in &connectors {
            let dropped =
                refreshes::drop_stale_groups(&sso.registry, &connector.metadata.name).await;
            if let Err(error) = dropped {
                tracing::warn!(inner = error.inner(), "old groups could not be removed");
            }
        }
        let next = next.into_iter().flatten().min();
        let pause = next.map_or(LONGEST_PAUSE_SECONDS, |next| next.saturating_sub(sso.now()));
        let pause = pause.clamp(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS);
        tokio::time::sleep(Duration::from_secs(pause.unsigned_abs())).await;
    }
}

impl Sso {
    /// Refreshes the keys of a connector that are due. Returns when the next one is, in seconds since 1970.
    async fn refresh_all(&self, connector: &StoredConnector) -> Option<i64> {
        let metadata = &connector.metadata;
        let of = ConnectorRef { name: metadata.name.clone(), uid: metadata.uid.clone() };
        let interval = connector.spec.refresh_interval;
        let due = refreshes::due(&self.registry, &of, interval);
        if !due.now.is_empty() {
            self.registry.servers().turn("sso-refresh").await;
        }
        for name in due.now {
            let claimed = refreshes::claim(&self.registry, &of, interval, &name).await;
            let refreshed = match claimed {
                Ok(Some(claimed)) => self.refresh(connector, &claimed).await,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(inner = error.inner(), "a login could not be refreshed");
                    continue;
                }
            };
            let why = refreshed.as_ref().err();
            if let Some(Refused { about: About::Login, text, .. }) = why {
                // It says nothing about the provider, and nothing about the next key.
                tracing::warn!(key = name, reason = text, "a login could not be refreshed");
                continue;
            }
            let why = why.map(|refused| refused.text.as_str());
            if let Err(error) = refreshes::note_reachable(&self.registry, &of, why).await {
                tracing::warn!(inner = error.inner(), "a condition could not be written");
            }
            if refreshed.is_err() {
                // The provider is not asked once more for each key.
                break;
            }
        }
        due.next
    }

    /// Asks the provider about the user of a key. The key ends if the provider or the connector no longer lets the user
    /// in, and for no other reason.
    ///
    /// # Errors
    /// Why the user could not be asked about. Then the key lives on to its end.
    async fn refresh(&self, connector: &StoredConnector, claimed: &Claimed) -> Result<(), Refused> {
        let by = LoginFor {
            connector: &connector.metadata.name,
            connector_uid: &connector.metadata.uid,
            spec: &connector.spec,
            browser: None,
        };
        let Err(refused) = self.ask(&by, claimed).await else { return Ok(()) };
        if refused.about != About::User {
            return Err(refused);
        }
        let reason = if refused.text == INVALID_GRANT {
            "the provider does not accept the refresh token"
        } else {
            refused.text.as_str()
        };
        tracing::info!(key = claimed.key.name, reason, "a login has ended");
        Ok(refreshes::end(&self.registry, &claimed.key).await?)
    }

    /// Asks the provider, and stores what it says.
    async fn ask(&self, by: &LoginFor<'_>, claimed: &Claimed) -> Result<(), Refused> {
        let spec = by.spec;
        let provider = self.providers.of_connector(&spec.issuer, &spec.ca_data);
        let client =
            Client { registry: &self.registry, provider: &provider, spec, now: self.now() };
        let refresh_token = claimed.refresh_token.expose();
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        let mut tokens = client.tokens(&fields).await?;
        if let Some(new) = &tokens.refresh_token {
            // Before anything can fail: often, the one before no longer counts.
            refreshes::keep_refresh_token(&self.registry, claimed, new).await?;
        }
        if tokens.id_token.is_none() {
            // The provider has only said that the user may still log in (OpenID Connect Core section 12.2).
            return Ok(());
        }
        let claims = client.claims(&tokens, None).await?;
        if claims.all.get("sub").and_then(Value::as_str) != Some(&claimed.subject) {
            return Err(Refused::of_user("the refreshed ID token is about another user"));
        }
        // Not every provider gives a new one.
        tokens.refresh_token.get_or_insert_with(|| claimed.refresh_token.clone());
        let person = self.person(&client, &tokens, &claims).await?;
        match refreshes::store(&self.registry, by, claimed, person).await {
            Err(error) if error.code() == 403 => Err(Refused::of_user(&error.status().message)),
            stored => Ok(stored?),
        }
    }
}

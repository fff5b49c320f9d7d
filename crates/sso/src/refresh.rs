//! Asks providers again about active users: their groups, and whether they may still log in. It
//! runs on every server, and one of the servers claims each key. Each connector has its own task,
//! so that a provider that does not respond delays no other provider.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use postern_kinds::connector::Connector;
use postern_kinds::principal::ConnectorRef;
use postern_registry::actions::logins::{Groups, LoginFor, set_groups};
use postern_registry::actions::refreshes::{self, Claimed, DueKeys};
use postern_telemetry::log_limited;
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::connector::StoredConnector;
use super::person::{
    check_allowed, groups_of, has_groups_in_user_info, known_groups, person_of, without_groups,
};
use super::redeem::{Client, INVALID_GRANT, Tokens};
use super::refused::{About, Refused};
use super::sso::Sso;

/// The longest and the shortest time between two looks at the keys of a connector.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The time between two looks for new connectors, and for groups to remove.
const CONNECTORS_PAUSE: Duration = Duration::from_secs(5);

/// The time for which groups may count too long.
const GROUPS_PAUSE: Duration = Duration::from_secs(1);

/// The connectors that are read at once.
const PAGE: usize = 100;

/// The keys of one connector that are refreshed at once. If a provider answers in 100 ms, these are 70 in a second.
const AT_ONCE: usize = 8;

/// Runs until it is dropped.
pub async fn run(sso: Arc<Sso>) {
    // Neither a provider nor the store holds this up.
    let forget = async {
        loop {
            sso.registry.forget_old_groups();
            tokio::time::sleep(GROUPS_PAUSE).await;
        }
    };
    tokio::join!(forget, refresh_connectors(&sso));
}

async fn refresh_connectors(sso: &Arc<Sso>) {
    let mut tasks = JoinSet::new();
    let mut running: HashMap<String, AbortHandle> = HashMap::new();
    loop {
        // A task ends with its connector, or by a failure, which the log has.
        while tasks.try_join_next().is_some() {}
        running.retain(|_, task| !task.is_finished());
        for of in sso.connectors() {
            running.entry(of.uid.clone()).or_insert_with(|| {
                let sso = sso.clone();
                tasks.spawn(async move { sso.refresh_connector(&of).await })
            });
        }
        if let Err(error) = refreshes::drop_stale_groups(&sso.registry).await {
            tracing::warn!(inner = error.inner(), "old groups could not be removed");
        }
        tokio::time::sleep(CONNECTORS_PAUSE).await;
    }
}

impl Sso {
    /// All connectors.
    fn connectors(&self) -> Vec<ConnectorRef> {
        let mut all = Vec::new();
        let mut page = self.registry.page_to_decide(&Connector, None, PAGE);
        while let Some(last) = page.last() {
            let next = self.registry.page_to_decide(&Connector, Some(last), PAGE);
            let read = page.iter().filter_map(|one| one.part::<StoredConnector>().ok());
            all.extend(read.map(|one| one.reference()));
            page = next;
        }
        all
    }

    /// Refreshes the keys of a connector whenever one is due, until the connector is gone.
    async fn refresh_connector(&self, of: &ConnectorRef) {
        let mut running = FuturesUnordered::new();
        let mut names = HashSet::new();
        let mut waiting = VecDeque::new();
        let mut next_look = Instant::now();
        // One key shows whether the provider can be asked, before there are several at once.
        let mut can_ask = false;
        loop {
            if Instant::now() >= next_look {
                let Some(connector) = self.stored_connector(of).map(Arc::new) else { break };
                let due = self.due(&connector, of);
                next_look = Instant::now() + self.pause_until(due.next);
                let keys = due.now.into_iter().filter(|name| !names.contains(name));
                waiting = keys.map(|name| (connector.clone(), name)).collect();
            }
            while running.len() < if can_ask { AT_ONCE } else { 1 } {
                let Some((connector, name)) = waiting.pop_front() else { break };
                names.insert(name.clone());
                running.push(async move {
                    let can_ask = self.refresh_key(&connector, of, &name).await;
                    (name, can_ask)
                });
            }
            tokio::select! {
                Some((name, answers)) = running.next(), if !running.is_empty() => {
                    names.remove(&name);
                    can_ask = answers;
                    if !can_ask {
                        // The provider is not asked once more for each key. The next look finds them again.
                        waiting.clear();
                    }
                }
                () = tokio::time::sleep_until(next_look) => {}
            }
        }
        // A refresh token that the provider has replaced must be stored.
        while running.next().await.is_some() {}
    }

    fn stored_connector(&self, of: &ConnectorRef) -> Option<StoredConnector> {
        let found = self.registry.read_to_decide(&Connector, None, &of.name).ok()??;
        found.part::<StoredConnector>().ok().filter(|found| found.metadata.uid == of.uid)
    }

    /// The keys of a connector that are due. A disabled connector has none.
    fn due(&self, connector: &StoredConnector, of: &ConnectorRef) -> DueKeys {
        if !connector.is_enabled() {
            return DueKeys { now: Vec::new(), next: None };
        }
        refreshes::due(&self.registry, of, connector.spec.refresh_interval)
    }

    /// The time to the next look at the keys, if the next one is due at this time, in seconds since 1970.
    fn pause_until(&self, next: Option<i64>) -> Duration {
        let Some(next) = next else { return LONGEST_PAUSE };
        let now = self.source.now_micro().unix_microseconds();
        let left = next.saturating_mul(1_000_000).saturating_sub(now);
        let left = Duration::from_micros(u64::try_from(left).unwrap_or_default());
        left.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    /// Refreshes a key, if no other server does. Returns whether the provider can be asked about others.
    async fn refresh_key(
        &self,
        connector: &StoredConnector,
        of: &ConnectorRef,
        name: &str,
    ) -> bool {
        self.registry.servers().turn("sso-refresh").await;
        let interval = connector.spec.refresh_interval;
        let refreshed = match refreshes::claim(&self.registry, of, interval, name).await {
            Ok(Some(claimed)) => self.refresh(connector, &claimed).await,
            Ok(None) => return true,
            Err(error) => {
                log_limited!(warn, inner = error.inner(), "a login could not be refreshed");
                return true;
            }
        };
        let why = refreshed.as_ref().err();
        if let Some(Refused { about: About::Login, text, .. }) = why {
            // It says nothing about the provider, and nothing about the next key.
            log_limited!(warn, for &of.name, key = name, reason = text, "a login could not be refreshed");
            return true;
        }
        let why = why.map(|refused| refused.text.as_str());
        if let Err(error) = refreshes::note_reachable(&self.registry, of, why).await {
            log_limited!(warn, inner = error.inner(), "a condition could not be written");
        }
        refreshed.is_ok()
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
        log_limited!(info, key = claimed.key.name, reason, "a login has ended");
        if refused.text != INVALID_GRANT {
            // The user is gone at the provider, and not this login alone.
            let (of, issuer) = (connector.reference(), &connector.spec.issuer);
            refreshes::take_groups(&self.registry, &of, issuer, &claimed.subject).await?;
        }
        Ok(refreshes::end(&self.registry, &claimed.key).await?)
    }

    /// Asks the provider, and stores its response.
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
            return self.ask_user_info(by, &client, &tokens, claimed).await;
        }
        let claims = client.claims(&tokens, None).await?;
        if claims.all.get("sub").and_then(Value::as_str) != Some(&claimed.subject) {
            return Err(Refused::of_user("the refreshed ID token is about another user"));
        }
        // Not every provider gives a new one.
        tokens.refresh_token.get_or_insert_with(|| claimed.refresh_token.clone());
        let said = self.said(&client, &tokens, &claims).await?;
        match person_of(spec, &tokens, &claims, &said) {
            Ok(person) => {
                self.store_groups(by, claimed, Groups::Are(&person.groups)).await?;
                Ok(refreshes::keep_tokens(&self.registry, claimed, person).await?)
            }
            Err(refused) => {
                self.take_groups(by, claimed, said.known_groups()).await?;
                Err(refused)
            }
        }
    }

    /// Asks for the groups if the provider has sent no ID token. A response without one only
    /// confirms that the user may still log in (OpenID Connect Core 1.0 section 12.2).
    async fn ask_user_info(
        &self,
        by: &LoginFor<'_>,
        client: &Client<'_>,
        tokens: &Tokens,
        claimed: &Claimed,
    ) -> Result<(), Refused> {
        if !has_groups_in_user_info(by.spec) {
            return Ok(());
        }
        let info = client.user_info(tokens, &claimed.subject).await?;
        let groups = groups_of(by.spec, &info);
        let needs_email = by.spec.allow.as_ref().is_some_and(|of| !of.email_domains.is_empty());
        let allowed = match &groups {
            Err(refused) => Err(without_groups(*refused)),
            // Nothing new is known about an address that is verified in ID tokens.
            Ok(_) if needs_email && !info.contains_key("email_verified") => Ok(()),
            Ok(groups) => check_allowed(by.spec, &info, &groups.accepted),
        };
        match (allowed, &groups) {
            (Ok(()), Ok(groups)) => {
                self.store_groups(by, claimed, Groups::Are(&groups.accepted)).await
            }
            (allowed, groups) => {
                self.take_groups(by, claimed, known_groups(groups)).await?;
                allowed
            }
        }
    }

    /// Takes the groups that a user no longer has at the provider from the other keys of the user, too, although the login
    /// is refused.
    async fn take_groups(
        &self,
        by: &LoginFor<'_>,
        claimed: &Claimed,
        known: Option<&[String]>,
    ) -> Result<(), Refused> {
        let Some(groups) = known else { return Ok(()) };
        self.store_groups(by, claimed, Groups::AtMost(groups)).await
    }

    async fn store_groups(
        &self,
        by: &LoginFor<'_>,
        claimed: &Claimed,
        groups: Groups<'_>,
    ) -> Result<(), Refused> {
        let said = (claimed.subject.as_str(), groups);
        match set_groups(&self.registry, by, said, &claimed.user).await {
            Err(error) if error.code() == 403 => Err(Refused::of_user(&error.status().message)),
            stored => Ok(stored?),
        }
    }
}

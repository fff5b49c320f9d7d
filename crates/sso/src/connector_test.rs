//! The test of a connector: the checks that need no person, and the result of a trial login.
//! Neither makes a user, a key or a session.

use http::{Response, StatusCode};
use postern_kinds::connector::Connector;
use postern_kinds::connector_test::{Check, Spec};
use postern_meta::status::ApiError;
use postern_oidc::jwt::Claims;
use postern_oidc::mapping;
use postern_registry::actions::logins::{LoginFor, try_log_in};
use serde_json::{Map, Value, json};

use super::connector::StoredConnector;
use super::person::person_of;
use super::redeem::{Client, Tokens};
use super::refused::Refused;
use super::sso::{CONNECTORS, Sso};
use postern_http::wire::body::Body;
use postern_http::wire::respond;

/// The most users that a check names.
const MAX_LISTED_USERS: usize = 50;

/// The return path of a trial login.
pub(super) const TRIAL_PATH: &str = "/auth/trial";

impl Sso {
    /// Tests a connector. The documents of the provider are fetched again, but not more often than every 10 s.
    ///
    /// # Errors
    /// 404 if there is none of this name.
    pub async fn test(&self, name: &str) -> Result<Spec, ApiError> {
        self.registry.cache().wait_until_current().await?;
        let found = self.registry.read_to_decide(&Connector, None, name)?;
        let found = found.ok_or_else(|| {
            use postern_kinds::AnyKind as _;
            ApiError::not_found(Connector.info().group_resource(), name)
        })?;
        let connector: StoredConnector = found.part()?;
        let spec = &connector.spec;
        let provider = self.providers.of_connector(&spec.issuer, &spec.ca_data);
        let mut checks = vec![check(
            "Enabled",
            match connector.is_enabled() {
                true => Ok("users can log in"),
                false if spec.disabled => Err("spec.disabled is true"),
                false => Err("the connector is being deleted"),
            },
        )];
        let discovery = provider.newest_discovery().await;
        let endpoint = discovery.as_ref().map(|found| &found.authorization_endpoint);
        let endpoint = endpoint.map(|at| format!("users log in at {at}"));
        checks.push(check("Discovery", endpoint.map_err(String::as_str)));
        let keys = match &discovery {
            Ok(_) => provider.newest_keys().await,
            Err(_) => Err("there is no discovery document".to_owned()),
        };
        let count = |keys: usize| format!("{keys} keys that can verify ID tokens");
        let counted = keys.map(|keys| keys.len());
        checks.push(check(
            "Keys",
            match &counted {
                Ok(0) => Err("the provider has no key with RS256, PS256, ES256 or ES384"),
                Ok(keys) => Ok(count(*keys)),
                Err(why) => Err(why.as_str()),
            },
        ));
        let client =
            Client { registry: &self.registry, provider: &provider, spec, now: self.now() };
        let secret = client.secret();
        checks.push(check(
            "ClientSecret",
            match &secret {
                Ok(Some(_)) => {
                    Ok("the Secret has it; only a trial login shows whether it is right")
                }
                Ok(None) => Ok("none: the client is public"),
                Err(refused) => Err(refused.text.as_str()),
            },
        ));
        if spec.has_groups_in_user_info()
            && let Ok(discovery) = &discovery
        {
            let endpoint = discovery.userinfo_endpoint.as_deref();
            checks.push(check("UserInfo", endpoint.ok_or("the provider has no UserInfo endpoint")));
        }
        checks.push(self.check_user_names(&spec.issuer, name));
        let trial_url = format!("{}{CONNECTORS}{name}/start?return={TRIAL_PATH}", self.own_url());
        let offers_logout = discovery.is_ok_and(|found| found.end_session_endpoint.is_some());
        let logout_uri = offers_logout.then(|| self.logout_redirect_uri());
        let (redirect_uri, logout_redirect_uri) =
            (self.redirect_uri(name), logout_uri.unwrap_or_default());
        Ok(Spec { redirect_uri, logout_redirect_uri, trial_url, checks })
    }

    /// Lists the users of the connector if their names in access decisions do not begin with its
    /// name. The check passes, because an administrator may have chosen the names.
    fn check_user_names(&self, issuer: &str, connector: &str) -> Check {
        let principals = self.registry.cache().principals();
        let others = principals.users_without_prefix(issuer, connector);
        let names: Vec<&str> = others.iter().copied().take(MAX_LISTED_USERS).collect();
        check(
            "UserNames",
            Ok(match others.len() {
                0 => format!("in access decisions, all users are {connector}:NAME"),
                count => format!(
                    "in access decisions, {count} users are not {connector}:NAME, so a binding or a key can name them by chance: \
                     check what names them, then set spec.subject. They are {}",
                    names.join(", ")
                ),
            }),
        )
    }

    /// The page of a trial login: the claims of the person, and the outcome of a login.
    pub(super) async fn trial(
        &self,
        by: &LoginFor<'_>,
        client: &Client<'_>,
        tokens: &Tokens,
        claims: &Claims,
    ) -> Response<Body> {
        let outcome = self.outcome(by, client, tokens, claims).await;
        let outcome =
            outcome.unwrap_or_else(|Refused { text, .. }| json!({ "allowed": false, "why": text }));
        let mut page = json!({ "trial": outcome, "claims": Value::Object(claims.all.clone()) });
        match user_info_of(client, tokens, claims).await {
            Ok(Some(claims)) => page["userInfo"] = Value::Object(claims),
            Ok(None) => {}
            Err(Refused { text, .. }) => page["userInfoError"] = json!(text),
        }
        respond::value(StatusCode::OK, &page, true)
    }
}

impl Sso {
    /// The outcome of a login, without a change.
    ///
    /// # Errors
    /// Why it would be refused.
    async fn outcome(
        &self,
        by: &LoginFor<'_>,
        client: &Client<'_>,
        tokens: &Tokens,
        claims: &Claims,
    ) -> Result<Value, Refused> {
        let said = self.said(client, tokens, claims).await?;
        let person = person_of(client.spec, tokens, claims, &said)?;
        let user = try_log_in(&self.registry, by, &person).await?;
        let group_of = |group: &String| mapping::group_name(by.connector, group);
        let groups: Vec<String> = person.groups.iter().map(group_of).collect();
        let principals = self.registry.cache().principals();
        let (new, known) =
            if user.is_new { (Some(user.name), None) } else { (None, Some(user.name)) };
        Ok(json!({
            "allowed": true,
            "user": known,
            "nameOfNewUser": new,
            "teams": principals.teams_with_groups(&groups, by.connector_uid),
            "groups": groups,
            "hasRefreshToken": person.refresh_token.is_some(),
        }))
    }
}

/// The claims of the UserInfo endpoint, if there is one, whether the connector uses them or not.
async fn user_info_of(
    client: &Client<'_>,
    tokens: &Tokens,
    claims: &Claims,
) -> Result<Option<Map<String, Value>>, Refused> {
    if !client.has_user_info(tokens).await? {
        return Ok(None);
    }
    let subject = claims.subject().map_err(Refused::forbidden)?;
    client.user_info(tokens, subject).await.map(Some)
}

fn check(name: &str, found: Result<impl Into<String>, &str>) -> Check {
    let passed = found.is_ok();
    let message = found.map_or_else(str::to_owned, Into::into);
    Check { name: name.to_owned(), passed, message }
}

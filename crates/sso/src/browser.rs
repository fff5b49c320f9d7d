//! The login of a browser: to the provider, and back with a code, for which the browser gets a session of the console.

use std::net::IpAddr;

use http::header::{LOCATION, USER_AGENT};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use postern_oidc::jwt::Claims;
use postern_oidc::login::{Client as LoginClient, Login, StateRefused};
use postern_oidc::mapping;
use postern_registry::actions::logins::{Groups, LoginFor, log_in, set_groups};
use postern_registry::actions::sessions;

use super::connector::StoredConnector;
use super::connector_test::TRIAL_PATH;
use super::form::Form;
use super::login_cookie;
use super::person::{UserClaims, groups_of, has_groups_in_user_info, lacks_claims, person_of};
use super::redeem::{Client, Tokens, unavailable};
use super::refused::{Refused, refusal};
use super::sso::Sso;
use postern_audit::SignIn;
use postern_http::stages::session_cookie;
use postern_http::wire::body::Body;
use postern_http::wire::respond;

/// The maximum length of a recorded `User-Agent`, in characters.
const MAX_AGENT_CHARS: usize = 256;

impl Sso {
    /// Sends the browser to the provider.
    ///
    /// # Errors
    /// If the connector or the provider cannot be used.
    pub(super) async fn start(&self, name: &str, head: &Parts) -> Result<Response<Body>, Refused> {
        let connector = self.connector(name).await?;
        let query = Form::parse(head.uri.query().unwrap_or_default()).ok();
        let query = query.ok_or_else(|| Refused::new(StatusCode::BAD_REQUEST, BAD_QUERY))?;
        let provider = self.providers.of_connector(&connector.spec.issuer, &connector.spec.ca_data);
        let discovery = provider.discovery().await.map_err(unavailable)?;
        let random = [self.random(), self.random(), self.random()];
        let (uid, now) = (&connector.metadata.uid, self.now());
        let login = Login::begin(&random, uid, query.get("return"), now);
        let sealed = login.seal(&self.state_key, self.random());
        let sealed = sealed.ok_or_else(|| {
            Refused::new(StatusCode::BAD_REQUEST, "the path in return is too long")
        })?;
        let client = LoginClient {
            id: &connector.spec.client_id,
            redirect_uri: &self.redirect_uri(name),
            scope: &connector.spec.scope(),
        };
        let address = login.address(&discovery.authorization_endpoint, &client);
        let mut response = redirect(&address)?;
        let cookies = login_cookie::begin(&head.headers, &self.state_key, &login, &sealed, now);
        login_cookie::add(response.headers_mut(), cookies);
        Ok(response)
    }

    /// Serves the answer of the provider, which the browser brings.
    pub(super) async fn callback(
        &self,
        name: &str,
        head: &Parts,
        address: IpAddr,
        mut record: SignIn,
    ) -> Response<Body> {
        let state = Form::parse(head.uri.query().unwrap_or_default()).ok();
        let suffix = state.as_ref().and_then(|query| query.get("state")?.get(..8));
        let served = self.answered(name, head, address, &mut record).await;
        let mut response = match served {
            Ok(response) => {
                record.end(response.status(), None);
                response
            }
            Err(refused) => {
                record.end(refused.code, Some(&refused.text));
                refusal(&refused)
            }
        };
        // The state counts once, also if the login fails.
        let used = suffix.filter(|suffix| login_cookie::sealed(&head.headers, suffix).is_some());
        login_cookie::add(response.headers_mut(), used.and_then(login_cookie::removed));
        response
    }

    async fn answered(
        &self,
        name: &str,
        head: &Parts,
        address: IpAddr,
        record: &mut SignIn,
    ) -> Result<Response<Body>, Refused> {
        let connector = self.connector(name).await?;
        record.set_connector(&connector.metadata.name);
        let query = Form::parse(head.uri.query().unwrap_or_default()).ok();
        let query = query.ok_or_else(|| Refused::new(StatusCode::BAD_REQUEST, BAD_QUERY))?;
        let login = self.login_of(&connector, &query, head)?;
        let provider = self.providers.of_connector(&connector.spec.issuer, &connector.spec.ca_data);
        let discovery = provider.discovery().await.map_err(unavailable)?;
        if !discovery.is_answer_of(&connector.spec.issuer, query.get("iss")) {
            let text = "the answer is not of the provider of this connector (iss)";
            return Err(Refused::forbidden(text));
        }
        let code = code_in(&query)?;
        let client = Client {
            registry: &self.registry,
            provider: &provider,
            spec: &connector.spec,
            now: self.now(),
        };
        let tokens = client
            .tokens(&[
                ("grant_type", "authorization_code"),
                ("code", code),
                ("redirect_uri", &self.redirect_uri(name)),
                ("code_verifier", login.verifier()),
            ])
            .await?;
        let claims = client.claims(&tokens, Some(login.nonce())).await?;
        let browser = sessions::Login { address: address.to_string(), user_agent: agent_of(head) };
        let by = LoginFor {
            connector: &connector.metadata.name,
            connector_uid: &connector.metadata.uid,
            spec: &connector.spec,
            browser: Some(browser),
        };
        if login.return_path() == TRIAL_PATH {
            return Ok(self.trial(&by, &client, &tokens, &claims).await);
        }
        let said = self.said(&client, &tokens, &claims).await?;
        let subject = claims.subject().map_err(Refused::forbidden)?;
        let person = match person_of(&connector.spec, &tokens, &claims, &said) {
            Ok(person) => person,
            Err(refused) => {
                self.keep_groups(&by, subject, &said, record).await?;
                return Err(refused);
            }
        };
        record.admit(self.user_of(&by, subject).as_deref())?;
        let made = match log_in(&self.registry, &by, person).await {
            Ok(made) => made,
            Err(error) => {
                // The User may have been created before the login failed.
                record.set_user(&self.user_of(&by, subject).unwrap_or_default(), "");
                return Err(error.into());
            }
        };
        record.set_user(&made.user, &made.access_key);
        let mut response = redirect(login.return_path())?;
        let cookie = session_cookie::set(&made.value);
        login_cookie::add(response.headers_mut(), cookie);
        Ok(response)
    }

    /// The login that the answer of a provider is to, by the cookie of the browser.
    fn login_of(
        &self,
        connector: &StoredConnector,
        query: &Form,
        head: &Parts,
    ) -> Result<Login, Refused> {
        let state = query.get("state");
        let state = state.ok_or_else(|| Refused::forbidden("the answer has no state"))?;
        let suffix = state.get(..8).unwrap_or_default();
        let sealed = login_cookie::sealed(&head.headers, suffix);
        let sealed = sealed.ok_or_else(|| {
            Refused::forbidden("this login did not begin in this browser, or it has ended")
        })?;
        let login = Login::open(&self.state_key, sealed, self.now());
        let login = login.map_err(|refused| {
            Refused::forbidden(match refused {
                StateRefused::Forged => "the cookie of this login is not from this server",
                StateRefused::Expired => "the login took more than 10 minutes",
            })
        })?;
        if !login.is_answered_by(state) {
            return Err(Refused::forbidden("the answer is to another login (state)"));
        }
        if login.connector() != connector.metadata.uid {
            return Err(Refused::forbidden("the login began with another connector"));
        }
        Ok(login)
    }

    /// The User that is linked with an identity at the provider of a connector.
    fn user_of(&self, by: &LoginFor<'_>, subject: &str) -> Option<String> {
        let principals = self.registry.cache().principals();
        principals.user_of_identity(&by.spec.issuer, subject).map(str::to_owned)
    }

    /// Removes groups from the other keys of a user if the user no longer has them at the provider.
    /// It does so even if the user may not log in.
    async fn keep_groups(
        &self,
        by: &LoginFor<'_>,
        subject: &str,
        said: &UserClaims,
        record: &mut SignIn,
    ) -> Result<(), Refused> {
        let user = self.user_of(by, subject);
        let (Some(user), Some(groups)) = (user, said.known_groups()) else { return Ok(()) };
        record.admit(Some(&user))?;
        let at_most = (subject, Groups::AtMost(groups));
        match set_groups(&self.registry, by, at_most, &user).await {
            // The user is disabled, or linked no longer. Then the groups do not count.
            Err(error) if error.code() != 403 => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The provider's claims about the user of an ID token.
    ///
    /// # Errors
    /// If more claims are needed, and the provider does not give them.
    pub(super) async fn said(
        &self,
        client: &Client<'_>,
        tokens: &Tokens,
        claims: &Claims,
    ) -> Result<UserClaims, Refused> {
        let spec = client.spec;
        let subject = claims.subject().map_err(Refused::forbidden)?;
        let is_asked = has_groups_in_user_info(spec)
            || (lacks_claims(spec, &claims.all) && client.has_user_info(tokens).await?);
        let info = if is_asked { Some(client.user_info(tokens, subject).await?) } else { None };
        let groups_in = info.as_ref().filter(|_| has_groups_in_user_info(spec));
        let groups = groups_of(spec, groups_in.unwrap_or(&claims.all));
        let all = mapping::with_user_info(&claims.all, info.unwrap_or_default());
        Ok(UserClaims { all, groups })
    }
}

/// The code that the browser brings from the provider.
///
/// # Errors
/// The error that it brings instead.
fn code_in(query: &Form) -> Result<&str, Refused> {
    if let Some(error) = query.get("error") {
        return Err(Refused::forbidden(meaning_of(error)));
    }
    query.get("code").ok_or_else(|| Refused::forbidden("the answer of the provider has no code"))
}

/// The meaning of an error that the browser brings from the provider (RFC 6749 section 4.1.2.1, OpenID Connect Core 1.0
/// section 3.1.2.6).
fn meaning_of(error: &str) -> &'static str {
    match error {
        "access_denied" => "the provider did not let the user log in",
        "invalid_scope" => {
            "the provider does not know a scope, or does not allow it: check scopes of the connector"
        }
        "unauthorized_client" | "unsupported_response_type" => {
            "the client may not log users in at the provider: allow it the authorization code flow there"
        }
        "invalid_request" => {
            "the provider does not accept the request: check clientId and scopes of the connector, and the redirect URI \
             at the provider"
        }
        "server_error" | "temporarily_unavailable" => {
            "the provider has a problem of its own: try again later"
        }
        "login_required"
        | "interaction_required"
        | "account_selection_required"
        | "consent_required" => "the provider wants the user to do something there first",
        _ => "the provider answered with an error",
    }
}

pub(super) const BAD_QUERY: &str = "the query is too large, not UTF-8, or has a name twice";

/// A redirect of the browser with GET.
pub(super) fn redirect(address: &str) -> Result<Response<Body>, Refused> {
    let mut response = respond::empty(StatusCode::SEE_OTHER);
    let location = HeaderValue::from_str(address)
        .map_err(|_| Refused::forbidden("the address to go to has invalid characters"))?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// The browser of a request, without control characters.
pub(super) fn agent_of(head: &Parts) -> String {
    let agent = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    let printable = |c: &char| c.is_ascii_graphic() || *c == ' ';
    agent.unwrap_or_default().chars().filter(printable).take(MAX_AGENT_CHARS).collect()
}

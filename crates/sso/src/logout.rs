//! Logouts. One at the provider ends sessions here: the provider sends a logout token (OpenID Connect Back-Channel
//! Logout 1.0). One here continues at the provider, if it offers that.

use std::net::IpAddr;
use std::time::Duration;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use postern_listen::network;
use postern_oidc::id_token::{Party, verify_logout_token};
use postern_oidc::login::logout_address;
use postern_registry::actions::refreshes;
use serde_json::json;

use postern_registry::actions::refreshes::ProviderSession;

use super::redeem::unavailable;
use super::refused::allowed;
use super::refused::{About, Refused, refusal};
use super::sso::{Sso, session_hash};
use postern_audit::SignIn;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;
use postern_http::wire::respond;

/// How long a logout waits for the address at the provider.
const ADDRESS_WAIT: Duration = Duration::from_secs(2);

impl Sso {
    /// The address where a browser ends its session at the provider (OpenID Connect RP-Initiated
    /// Logout 1.0). `None` if the provider does not offer it or cannot be asked, or if the
    /// connector is disabled.
    pub async fn logout_address(&self, session: &ProviderSession) -> Option<String> {
        // The session on this server has ended. Neither the provider nor the store delays the
        // response.
        tokio::time::timeout(ADDRESS_WAIT, self.find_logout_address(session)).await.ok()?
    }

    async fn find_logout_address(&self, session: &ProviderSession) -> Option<String> {
        let connector = self.connector(&session.connector.name).await.ok()?;
        if connector.metadata.uid != session.connector.uid {
            return None;
        }
        let spec = &connector.spec;
        let provider = self.providers.of_connector(&spec.issuer, &spec.ca_data);
        let discovery = provider.discovery().await.ok()?;
        let endpoint = discovery.end_session_endpoint.as_ref()?;
        let token = session.id_token.expose();
        Some(logout_address(endpoint, token, &spec.client_id, &self.logout_redirect_uri()))
    }

    /// Where the provider sends the browser after a logout: the login page of the console.
    pub(super) fn logout_redirect_uri(&self) -> String {
        format!("{}/ui/", self.own_url())
    }

    /// Ends the keys of the sessions that a logout token names.
    pub(super) async fn logout(
        &self,
        name: &str,
        head: &Parts,
        address: IpAddr,
        body: IncomingBody,
        mut record: SignIn,
    ) -> Response<Body> {
        match self.logged_out(name, head, address, body, &mut record).await {
            Ok(()) => {
                record.end(StatusCode::OK, None);
                respond::empty(StatusCode::OK)
            }
            Err(refused) => {
                record.end(refused.code, Some(&refused.text));
                if refused.about == About::Server {
                    return refusal(&refused);
                }
                let code = if refused.code.is_server_error() {
                    refused.code
                } else {
                    StatusCode::BAD_REQUEST
                };
                respond::value(code, &json!({ "error": "invalid_request" }), false)
            }
        }
    }

    async fn logged_out(
        &self,
        name: &str,
        head: &Parts,
        address: IpAddr,
        body: IncomingBody,
        record: &mut SignIn,
    ) -> Result<(), Refused> {
        allowed(&head.method, &Method::POST)?;
        let form = self.arriving.form(head, body, network(address)).await;
        let form = form.map_err(|refused| Refused::forbidden(refused.reason))?;
        let _place = self.logouts.take(name, network(address)).await?;
        let connector = self.connector(name).await?;
        record.set_connector(&connector.metadata.name);
        let token = form.get("logout_token");
        let token = token.ok_or_else(|| Refused::forbidden("logout_token is missing"))?;
        let spec = &connector.spec;
        let provider = self.providers.of_connector(&spec.issuer, &spec.ca_data);
        let party = Party { issuer: &spec.issuer, client_id: &spec.client_id, now: self.now() };
        let keys = provider.keys().await.map_err(unavailable)?;
        let verified = match verify_logout_token(token, &keys, party) {
            Err(refused) if refused.may_need_newer_keys() => {
                let newest = provider.newest_keys().await.map_err(unavailable)?;
                verify_logout_token(token, &newest, party)
            }
            verified => verified,
        };
        let ended = verified.map_err(Refused::forbidden)?;
        let of = connector.reference();
        let session = ended.session.as_deref().map(session_hash);
        let keys = refreshes::logged_out(
            &self.registry,
            &of,
            &spec.issuer,
            ended.subject.as_deref(),
            session.as_deref(),
        );
        let everywhere = ended.subject.filter(|_| session.is_none());
        if !keys.is_empty() || everywhere.is_some() {
            // The record comes before the change.
            record.admit(Some("system:postern"))?;
        }
        if let Some(subject) = everywhere {
            refreshes::take_groups(&self.registry, &of, &spec.issuer, &subject).await?;
        }
        for key in keys {
            refreshes::end(&self.registry, &key).await?;
        }
        Ok(())
    }
}

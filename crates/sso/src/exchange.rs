//! The exchange of a workload's token for an access key (RFC 8693), `docs/reference/workload-identity.md`.

use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use postern_flow::Requester;
use postern_flow::Slot;
use postern_kinds::Verb;
use postern_listen::network;
use postern_meta::decode::{Format, decode};
use postern_meta::status::ApiError;
use postern_oidc::jwks::KeySet;
use postern_oidc::jwt::{Claims, Expected, MAX_TOKEN_BYTES, TokenRefused, verify};
use postern_registry::actions::exchanges::{
    NoKey, TokenIssuer, accepting, enabled_issuer, exchange,
};
use serde_json::{Value, json};

use super::command_line::{AUTHORIZATION_CODE, DEVICE_CODE};
use super::form::Form;
use super::places::Busy;
use super::providers::Provider;
use super::refused::TOO_MANY;
use super::sso::{ANY_ADDRESS, EXCHANGES, Sso};
use super::token_error::{PENDING, TokenError, answered};
use postern_audit::SignIn;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;

/// The path of exchanges. With the address of the server, it is the audience that tokens must have.
pub(super) const PATH: &str = "/auth/token";

/// The grant type (RFC 8693 section 2.1).
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// The types of tokens that are exchanged (RFC 8693 section 3).
const SUBJECT_TYPES: [&str; 2] =
    ["urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"];

/// The type of the token that is given.
const ISSUED_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";

/// The fields that are not supported, with the errors for them (RFC 8693 section 2.2.2).
const UNSUPPORTED: [(&str, &str); 4] = [
    ("actor_token", "invalid_request"),
    ("actor_token_type", "invalid_request"),
    ("scope", "invalid_scope"),
    ("resource", "invalid_target"),
];

/// The bytes that an exchange adds to the write rate of the owner. This is about the size of the
/// access key with its most usual scope.
const EXCHANGE_BYTES: usize = 4 * 1024;

/// The types that the header of a token may name.
const HEADER_TYPES: &[&str] = &["jwt"];

impl Sso {
    /// Serves a request for a key.
    pub(super) async fn exchange(
        &self,
        head: &Parts,
        body: IncomingBody,
        address: IpAddr,
        mut record: SignIn,
    ) -> Response<Body> {
        match self.given(head, body, address, &mut record).await {
            Ok(answer) => {
                record.end(StatusCode::OK, None);
                answered(StatusCode::OK, &answer)
            }
            Err(refused) => {
                if refused.error != PENDING {
                    record.end(refused.code, Some(&refused.reason));
                }
                refused.response()
            }
        }
    }

    async fn given(
        &self,
        head: &Parts,
        body: IncomingBody,
        address: IpAddr,
        record: &mut SignIn,
    ) -> Result<Value, TokenError> {
        if head.method != Method::POST {
            let reason = "use POST on this path";
            return Err(TokenError::of(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", reason));
        }
        let form = self.arriving.form(head, body, network(address)).await?;
        // Only the work of the store takes a place. Issuers have separate places, so that no
        // exchange waits for a place while it holds another.
        let grant = form.get("grant_type");
        let place = || self.logins.take(EXCHANGES, network(address));
        let _place = if grant == Some(TOKEN_EXCHANGE) { None } else { Some(place().await?) };
        match grant {
            Some(TOKEN_EXCHANGE) => self.exchanged(&form, address, record).await,
            Some(AUTHORIZATION_CODE) => self.given_for_code(&form, head, address, record).await,
            Some(DEVICE_CODE) => self.given_for_device(&form, head, address, record).await,
            Some(_) => {
                let reason = "grant_type must be that of a token exchange, a code or a device code";
                let error = "unsupported_grant_type";
                Err(TokenError::of(StatusCode::BAD_REQUEST, error, reason))
            }
            None => Err(TokenError::request("grant_type is missing")),
        }
    }

    async fn exchanged(
        &self,
        form: &Form,
        address: IpAddr,
        record: &mut SignIn,
    ) -> Result<Value, TokenError> {
        let required = |name: &str| {
            form.get(name).ok_or_else(|| TokenError::request(&format!("{name} is missing")))
        };
        let (token, name) = (required("subject_token")?, required("audience")?);
        if !SUBJECT_TYPES.contains(&required("subject_token_type")?) {
            return Err(TokenError::request(
                "subject_token_type must be that of a JWT or an ID token",
            ));
        }
        for (other, error) in UNSUPPORTED {
            if form.get(other).is_some() {
                let reason = format!("{other} is not supported");
                return Err(TokenError::of(StatusCode::BAD_REQUEST, error, reason));
            }
        }
        if form.get("requested_token_type").is_some_and(|wanted| wanted != ISSUED_TYPE) {
            return Err(TokenError::request(
                "requested_token_type must be that of an access token",
            ));
        }
        let accepting = match accepting(&self.registry, name).await {
            Err(NoKey::Failed(error)) => return Err(NoKey::Failed(error).into()),
            accepting => accepting,
        };
        // The token alone decides which issuer is asked. So an issuer that does not answer, or answers late, does not tell
        // which workload identities exist.
        let claimed =
            claimed_issuer(token).ok_or_else(|| TokenError::grant(TokenRefused::Malformed))?;
        let issuer = match &accepting {
            Ok(by) if by.issuer.spec.issuer == claimed => Some(by.issuer.clone()),
            _ => enabled_issuer(&self.registry, &claimed),
        };
        let issuer = issuer.ok_or_else(|| TokenError::grant(TokenRefused::Issuer))?;
        let claims = self.verified(&issuer, token).await;
        if accepting.is_ok() {
            record.set_connector(name);
        }
        let (claims, by) = (claims?, accepting?);
        if by.issuer.spec.issuer != claimed {
            return Err(TokenError::grant(TokenRefused::Issuer));
        }
        by.check(&claims.all)?;
        let _place = self.logins.take(EXCHANGES, network(address)).await?;
        let owner = by.owner_name(&self.registry)?;
        let admitted = record.admit(Some(&owner));
        admitted.map_err(|error| TokenError::unavailable(&error.status().message))?;
        let _slot = self.slot_of(&owner).await?;
        let given = exchange(&self.registry, &by, &claims.all).await?;
        record.set_user(&given.owner, &given.access_key);
        Ok(json!({
            "access_token": given.value.expose(),
            "issued_token_type": ISSUED_TYPE,
            "token_type": "Bearer",
            "expires_in": given.ttl_seconds,
        }))
    }

    /// A slot for the write of an exchange. The write counts in the write rate of the key's owner,
    /// like a create by the owner.
    async fn slot_of(&self, owner: &str) -> Result<Slot, TokenError> {
        let busy = |error: ApiError| TokenError::from(&error).uncounted();
        let requester = Requester { account: self.flow.account(owner), is_system: false };
        self.flow.write_rate.check(&requester.account).map_err(busy)?;
        let slot = self.flow.acquire(Some(Verb::Create), &requester).await.map_err(busy)?;
        self.flow.write_rate.count(&requester.account, EXCHANGE_BYTES);
        Ok(slot)
    }

    /// The claims of a token of a trusted issuer.
    async fn verified(&self, issuer: &TokenIssuer, token: &str) -> Result<Claims, TokenError> {
        let Some(cluster) = &issuer.cluster else {
            let _place = self.issuers.take(&issuer.spec.issuer, ANY_ADDRESS).await?;
            let provider = self.providers.of_issuer(&issuer.spec.issuer, &issuer.spec.ca_data);
            return self.verified_by(issuer, &provider, token).await;
        };
        // Every failure has the answer of a token that does not count: a tenant does not learn which clusters exist.
        let place = self.issuers.take(&cluster.uid, ANY_ADDRESS).await;
        let _place = place.map_err(|Busy| TokenError::grant(TOO_MANY))?;
        let provider = self.providers.of_cluster(&self.gateway, &self.registry, cluster);
        let verified = self.verified_by(issuer, &provider, token).await;
        verified.map_err(|refused| TokenError::grant(refused.reason))
    }

    async fn verified_by(
        &self,
        by: &TokenIssuer,
        provider: &Provider,
        token: &str,
    ) -> Result<Claims, TokenError> {
        let keys = provider.keys().await.map_err(TokenError::of_issuer)?;
        let (audience, now) = (format!("{}{PATH}", self.own_url()), self.now());
        let issuer = by.spec.issuer.as_str();
        let check = |keys: &KeySet| {
            let expected = Expected { issuer, audience: &audience, types: HEADER_TYPES, now };
            match &by.cluster {
                None => verify(token, keys, &expected),
                // The agent, or a change of the Cluster, may have told other keys.
                Some(_) => verify(token, &keys.only(&by.spec.key_thumbprints), &expected),
            }
        };
        let verified = match check(&keys) {
            Err(refused) if refused.may_need_newer_keys() => {
                check(&*provider.newest_keys().await.map_err(TokenError::of_issuer)?)
            }
            verified => verified,
        };
        verified.map_err(TokenError::grant)
    }
}

/// The issuer that a token names. Nothing has verified it: it decides only which keys are asked for.
fn claimed_issuer(token: &str) -> Option<String> {
    let payload = token.split('.').nth(1).filter(|payload| payload.len() <= MAX_TOKEN_BYTES)?;
    let payload = decode(&BASE64URL.decode(payload).ok()?, Format::Json).ok()?;
    payload.value.get("iss")?.as_str().map(str::to_owned)
}

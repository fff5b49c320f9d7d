//! The exchange of a workload's token for an access key (RFC 8693), `docs/reference/workload-identity.md`.

use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ALLOW, CONTENT_TYPE, PRAGMA, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use postern_auth::oidc::jwks::KeySet;
use postern_auth::oidc::jwt::{Claims, Expected, verify};
use postern_meta::status::ApiError;
use postern_registry::actions::exchanges::{Accepting, NoKey, accepting, exchange};
use serde_json::{Value, json};

use super::command_line::{AUTHORIZATION_CODE, DEVICE_CODE, PENDING};
use super::form::{Form, MAX_FORM_BYTES};
use super::{MAX_EXCHANGES, MAX_EXCHANGES_OF_ISSUER, RETRY_AFTER_SECONDS, Sso, StillPending};
use crate::audit::SignIn;
use crate::wire::body::Body;
use crate::wire::incoming::IncomingBody;
use crate::wire::respond;

/// The path of exchanges. With the address of the server, it is the audience that tokens must have.
pub(super) const PATH: &str = "/auth/token";

/// How long a body may take. Without this limit, a client without a body would hold one of the few places for logins.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

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

/// The seconds after which a client may ask again if something else must change first.
const UNAVAILABLE_SECONDS: u32 = 10;

/// Why there is no key if too many exchanges wait for one issuer.
const TOO_MANY_OF_ISSUER: &str =
    "too many exchanges of tokens of this trusted issuer at once: try again later";

/// The types that the header of a token may name.
const HEADER_TYPES: &[&str] = &["jwt"];

/// Why a request gets no key: the error for the caller (RFC 6749 section 5.2), and the reason for the audit record.
pub(super) struct NotGiven {
    pub(super) code: StatusCode,
    pub(super) error: &'static str,
    pub(super) reason: String,
    retry_after_seconds: Option<u32>,
}

impl NotGiven {
    pub(super) fn request(reason: &str) -> Self {
        Self::of(StatusCode::BAD_REQUEST, "invalid_request", reason)
    }

    #[expect(clippy::needless_pass_by_value, reason = "most callers have an error to give away")]
    pub(super) fn of(code: StatusCode, error: &'static str, reason: impl ToString) -> Self {
        Self { code, error, reason: reason.to_string(), retry_after_seconds: None }
    }

    /// The refusal of a token. The caller does not learn why: the workload identity may be of others.
    pub(super) fn grant(reason: impl ToString) -> Self {
        Self::of(StatusCode::BAD_REQUEST, "invalid_grant", reason)
    }

    pub(super) fn unavailable(reason: impl ToString) -> Self {
        Self::later(StatusCode::SERVICE_UNAVAILABLE, reason, UNAVAILABLE_SECONDS)
    }

    /// A refusal of now: the same request may succeed after some seconds.
    fn later(code: StatusCode, reason: impl ToString, seconds: u32) -> Self {
        let refused = Self::of(code, "temporarily_unavailable", reason);
        Self { retry_after_seconds: Some(seconds), ..refused }
    }

    /// The response. The caller learns no reason of `invalid_grant`.
    pub(super) fn response(self) -> Response<Body> {
        let mut answer = json!({ "error": self.error });
        if self.error != "invalid_grant" {
            answer["error_description"] = Value::String(self.reason);
        }
        let mut response = answered(self.code, &answer);
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if self.code == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        }
        if self.error == PENDING {
            response.extensions_mut().insert(StillPending);
        }
        response
    }
}

/// A response to a request for a key. Old caches know `Pragma` only (RFC 6749 section 5.1).
fn answered(code: StatusCode, answer: &Value) -> Response<Body> {
    let mut response = respond::value(code, answer, false);
    response.headers_mut().insert(PRAGMA, HeaderValue::from_static("no-cache"));
    response
}

impl From<&ApiError> for NotGiven {
    fn from(error: &ApiError) -> Self {
        let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let seconds = error.retry_after_seconds().unwrap_or(UNAVAILABLE_SECONDS);
        Self::later(code, &error.status().message, seconds)
    }
}

impl From<NoKey> for NotGiven {
    fn from(no_key: NoKey) -> Self {
        match no_key {
            NoKey::Unusable(why) => Self::grant(why),
            NoKey::Mismatch(mismatch) => Self::grant(mismatch),
            NoKey::TooMany(why) => {
                Self::later(StatusCode::TOO_MANY_REQUESTS, why, UNAVAILABLE_SECONDS)
            }
            NoKey::Failed(error) => Self::unavailable(&error.status().message),
        }
    }
}

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
    ) -> Result<Value, NotGiven> {
        if head.method != Method::POST {
            let reason = "use POST on this path";
            return Err(NotGiven::of(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", reason));
        }
        let form = form_of(head, body).await?;
        match form.get("grant_type") {
            Some(TOKEN_EXCHANGE) => self.exchanged(&form, record).await,
            Some(AUTHORIZATION_CODE) => self.given_for_code(&form, (head, address), record).await,
            Some(DEVICE_CODE) => self.given_for_device(&form, (head, address), record).await,
            Some(_) => {
                let reason = "grant_type must be that of a token exchange, a code or a device code";
                let error = "unsupported_grant_type";
                Err(NotGiven::of(StatusCode::BAD_REQUEST, error, reason))
            }
            None => Err(NotGiven::request("grant_type is missing")),
        }
    }

    async fn exchanged(&self, form: &Form, record: &mut SignIn) -> Result<Value, NotGiven> {
        let required = |name: &str| {
            form.get(name).ok_or_else(|| NotGiven::request(&format!("{name} is missing")))
        };
        let (token, name) = (required("subject_token")?, required("audience")?);
        if !SUBJECT_TYPES.contains(&required("subject_token_type")?) {
            return Err(NotGiven::request(
                "subject_token_type must be that of a JWT or an ID token",
            ));
        }
        for (other, error) in UNSUPPORTED {
            if form.get(other).is_some() {
                let reason = format!("{other} is not supported");
                return Err(NotGiven::of(StatusCode::BAD_REQUEST, error, reason));
            }
        }
        if form.get("requested_token_type").is_some_and(|wanted| wanted != ISSUED_TYPE) {
            return Err(NotGiven::request("requested_token_type must be that of an access token"));
        }
        let by = accepting(&self.registry, name).await?;
        record.set_connector(name);
        let claims = self.verified(&by, token).await?;
        by.check(&claims.all)?;
        let owner = by.owner_name(&self.registry)?;
        let admitted = record.admit(Some(&owner));
        admitted.map_err(|error| NotGiven::unavailable(&error.status().message))?;
        let given = exchange(&self.registry, &by, &claims.all).await?;
        record.set_user(&given.owner, &given.access_key);
        Ok(json!({
            "access_token": given.value.expose(),
            "issued_token_type": ISSUED_TYPE,
            "token_type": "Bearer",
            "expires_in": given.ttl_seconds,
        }))
    }

    /// The claims of a token of the trusted issuer.
    async fn verified(&self, by: &Accepting, token: &str) -> Result<Claims, NotGiven> {
        let (issuer, max) = (by.issuer_name(), MAX_EXCHANGES_OF_ISSUER);
        let _place = self.issuers.take(issuer, MAX_EXCHANGES, max).ok_or_else(|| {
            let code = StatusCode::TOO_MANY_REQUESTS;
            NotGiven::later(code, TOO_MANY_OF_ISSUER, RETRY_AFTER_SECONDS)
        })?;
        let provider = match &by.cluster {
            None => self.providers.of_issuer(&by.issuer.issuer, &by.issuer.ca_data),
            Some(cluster) => self.providers.of_cluster(&self.gateway, &self.registry, cluster),
        };
        let keys = provider.keys().await.map_err(NotGiven::unavailable)?;
        let (audience, now) = (format!("{}{PATH}", self.own_url()), self.now());
        let issuer = by.issuer.issuer.as_str();
        let check = |keys: &KeySet| {
            let expected = Expected { issuer, audience: &audience, types: HEADER_TYPES, now };
            match &by.cluster {
                None => verify(token, keys, &expected),
                // The agent or a change of the Cluster may have said other keys.
                Some(_) => verify(token, &keys.only(&by.issuer.key_thumbprints), &expected),
            }
        };
        let verified = match check(&keys) {
            Err(refused) if refused.may_need_newer_keys() => {
                check(&*provider.newest_keys().await.map_err(NotGiven::unavailable)?)
            }
            verified => verified,
        };
        verified.map_err(NotGiven::grant)
    }
}

/// The form in a body.
pub(super) async fn form_of(head: &Parts, mut body: IncomingBody) -> Result<Form, NotGiven> {
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(NotGiven::request("Content-Type must be application/x-www-form-urlencoded"));
    }
    let whole = tokio::time::timeout(BODY_TIMEOUT, bytes_of(&mut body)).await;
    let whole = whole.map_err(|_| NotGiven::request("the body did not arrive in time"))??;
    let text =
        std::str::from_utf8(&whole).map_err(|_| NotGiven::request("the body is not UTF-8"))?;
    Form::parse(text).map_err(|invalid| NotGiven::request(&format!("the body {invalid}")))
}

async fn bytes_of(body: &mut IncomingBody) -> Result<BytesMut, NotGiven> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| NotGiven::request("the body is incomplete"))?;
        let data = frame.into_data().unwrap_or_else(|_| Bytes::new());
        if whole.len() + data.len() > MAX_FORM_BYTES {
            return Err(NotGiven::request("the body is too large"));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}

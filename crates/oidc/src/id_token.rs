//! The ID token and the logout token of `OpenID` Connect. A provider sends them at a login, and at
//! the end of its session. Both are JWTs.

use aws_lc_rs::digest::{SHA256, SHA384, digest};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use serde_json::Value;

use super::jwks::{Algorithm, KeySet};
use super::jwt::{Claims, Expected, TokenRefused, verify};

/// The member of `events` of a logout token (`OpenID` Connect Back-Channel Logout 1.0 section 2.4).
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The provider and the client of a login.
#[derive(Clone, Copy, Debug)]
pub struct Party<'a> {
    /// The issuer of the provider, as it is configured.
    pub issuer: &'a str,
    /// The client id at the provider.
    pub client_id: &'a str,
    /// The time, in seconds since 1970.
    pub now: i64,
}

impl Party<'_> {
    fn expected<'a>(&'a self, types: &'a [&'a str]) -> Expected<'a> {
        Expected { issuer: self.issuer, audience: self.client_id, types, now: self.now }
    }
}

/// Verifies the ID token of a login.
///
/// `nonce` is that of the login; `None` for a refresh, because its token need not have one.
/// `access_token` came with it.
///
/// # Errors
/// See [`TokenRefused`].
pub fn verify_id_token(
    token: &str,
    keys: &KeySet,
    party: Party<'_>,
    nonce: Option<&str>,
    access_token: Option<&str>,
) -> Result<Claims, TokenRefused> {
    let claims = verify(token, keys, &party.expected(&["jwt"]))?;
    check_party(&claims, party)?;
    claims.subject()?;
    if claims.all.contains_key("events") {
        return Err(TokenRefused::LogoutToken);
    }
    if nonce.is_some_and(|nonce| claims.text("nonce") != Some(nonce)) {
        return Err(TokenRefused::Nonce);
    }
    if let (Some(sent), Some(access_token)) = (claims.all.get("at_hash"), access_token)
        && sent.as_str() != Some(&hash_of(access_token, claims.algorithm))
    {
        return Err(TokenRefused::AccessTokenHash);
    }
    Ok(claims)
}

/// Checks that a token was issued to this client: it need not be the only audience.
fn check_party(claims: &Claims, party: Party<'_>) -> Result<(), TokenRefused> {
    let is_required = claims.audiences().len() > 1;
    match claims.all.get("azp") {
        None if is_required => Err(TokenRefused::AuthorizedParty),
        None => Ok(()),
        Some(azp) if azp.as_str() == Some(party.client_id) => Ok(()),
        Some(_) => Err(TokenRefused::AuthorizedParty),
    }
}

/// The left half of the hash of an access token (`OpenID` Connect Core 1.0 section 3.1.3.6).
fn hash_of(access_token: &str, algorithm: Algorithm) -> String {
    let hash = match algorithm {
        Algorithm::Es384 => &SHA384,
        Algorithm::Rs256 | Algorithm::Ps256 | Algorithm::Es256 => &SHA256,
    };
    let hash = digest(hash, access_token.as_bytes());
    let half = hash.as_ref().get(..hash.as_ref().len() / 2).unwrap_or_default();
    BASE64URL.encode(half)
}

/// The sessions that end: those of a subject, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedOut {
    /// The subject at the provider.
    pub subject: Option<String>,
    /// The session at the provider.
    pub session: Option<String>,
}

/// Verifies a logout token.
///
/// # Errors
/// See [`TokenRefused`].
pub fn verify_logout_token(
    token: &str,
    keys: &KeySet,
    party: Party<'_>,
) -> Result<LoggedOut, TokenRefused> {
    let claims = verify(token, keys, &party.expected(&["jwt", "logout+jwt"]))?;
    check_party(&claims, party)?;
    let event = claims.all.get("events").and_then(|events| events.get(LOGOUT_EVENT));
    let is_logout = event.is_some_and(Value::is_object)
        && !claims.all.contains_key("nonce")
        && claims.text("jti").is_some_and(|id| !id.is_empty());
    let text = |name| claims.text(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let ended = LoggedOut { subject: text("sub"), session: text("sid") };
    if is_logout && (ended.subject.is_some() || ended.session.is_some()) {
        Ok(ended)
    } else {
        Err(TokenRefused::NoLogoutToken)
    }
}

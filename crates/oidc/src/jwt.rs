//! A signed token of a provider (JWT, RFC 7519): its form, its signature, and the claims that each token has.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use postern_meta::decode::{Format, decode};
use serde_json::{Map, Value};

use super::SKEW_SECONDS;
use super::jwks::{Algorithm, KeySet, SignatureRefused};

/// Bytes of a token. One with hundreds of groups has some 8 KiB.
pub const MAX_TOKEN_BYTES: usize = 32 * 1024;

/// Characters of an issuer and of a subject.
const MAX_NAME_CHARS: usize = 255;

/// The conditions that a token must meet.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The issuer, byte for byte.
    pub issuer: &'a str,
    /// An audience that it is for.
    pub audience: &'a str,
    /// The types that its header may name, in lower case. A header need not name one.
    pub types: &'a [&'a str],
    /// The time, in seconds since 1970.
    pub now: i64,
}

/// The claims of a token, after its signature, issuer, audience and times were checked. Their
/// values are not printed.
#[derive(Clone, PartialEq)]
pub struct Claims {
    /// All claims.
    pub all: Map<String, Value>,
    /// The algorithm of the signature.
    pub algorithm: Algorithm,
    /// The end of the token, in seconds since 1970.
    pub expires: i64,
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").field("names", &self.all.keys()).finish_non_exhaustive()
    }
}

impl Claims {
    /// The text of a claim; `None` if it is missing or no text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.all.get(name).and_then(Value::as_str)
    }

    /// The audiences.
    pub fn audiences(&self) -> Vec<&str> {
        texts(self.all.get("aud"))
    }

    /// The subject.
    ///
    /// # Errors
    /// [`TokenRefused::Subject`] if it is missing, empty, or has more than 255 characters.
    pub fn subject(&self) -> Result<&str, TokenRefused> {
        let subject = self.text("sub").ok_or(TokenRefused::Subject)?;
        let is_valid = !subject.is_empty()
            && subject.chars().count() <= MAX_NAME_CHARS
            && !subject.chars().any(char::is_control);
        if is_valid { Ok(subject) } else { Err(TokenRefused::Subject) }
    }
}

/// Why a token is refused. `Display` is for a log and for audit records: it has nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenRefused {
    /// It has more than [`MAX_TOKEN_BYTES`].
    TooLong,
    /// It is not three parts in base64url.
    Malformed,
    /// Its header is no JSON object, or has a field twice.
    Header,
    /// Its header has `crit`: extensions that must be understood, and there are none.
    CriticalHeader,
    /// It has a token in it (`cty`).
    Nested,
    /// Its `alg` is none of those that are accepted.
    Algorithm,
    /// Its `typ` is that of another kind of token.
    Type,
    /// No key of the provider has its `kid`, or none is for its algorithm.
    UnknownKey,
    /// It has no `kid`, and several keys could be meant.
    AmbiguousKey,
    /// The signature is wrong.
    Signature,
    /// Its claims are no JSON object, or a claim occurs twice.
    Claims,
    /// It is of another issuer.
    Issuer,
    /// It is for another audience.
    Audience,
    /// It names another party that it was issued to (`azp`).
    AuthorizedParty,
    /// It has expired, or has no end.
    Expired,
    /// It does not count yet.
    NotYetValid,
    /// It does not have the time when it was issued, or that time is in the future.
    IssuedAt,
    /// Its subject is missing or too long.
    Subject,
    /// It was issued for another login.
    Nonce,
    /// It was issued with another access token.
    AccessTokenHash,
    /// It is a logout token, where an ID token is expected.
    LogoutToken,
    /// It is no logout token, where one is expected.
    NoLogoutToken,
}

impl TokenRefused {
    /// Whether the token may be accepted with newer keys of the provider: it may have replaced them, also under the same
    /// `kid` or without one.
    pub fn may_need_newer_keys(self) -> bool {
        matches!(self, Self::UnknownKey | Self::AmbiguousKey | Self::Signature)
    }
}

impl fmt::Display for TokenRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the token has more than 32 KiB",
            Self::Malformed => "the token is not three parts in base64url",
            Self::Header => "the token header is not a JSON object, or has a field twice",
            Self::CriticalHeader => "the token header has critical extensions",
            Self::Nested => "the token contains a nested token",
            Self::Algorithm => "the algorithm is none of RS256, PS256, ES256 and ES384",
            Self::Type => "the token is of another type",
            Self::UnknownKey => {
                "the provider has no key with the kid and the algorithm of the token"
            }
            Self::AmbiguousKey => "the token has no kid, and the provider has several keys",
            Self::Signature => "the signature is wrong",
            Self::Claims => "the token payload is not a JSON object, or has a claim twice",
            Self::Issuer => "the token is of another issuer",
            Self::Audience => "the token is for another audience",
            Self::AuthorizedParty => "the token was issued to another party (azp)",
            Self::Expired => "the token has expired, or has no exp",
            Self::NotYetValid => "the token is not valid yet (nbf)",
            Self::IssuedAt => "the token has no iat, or was issued in the future",
            Self::Subject => "the token has no subject, or one that is too long",
            Self::Nonce => "the token was issued for another login (nonce)",
            Self::AccessTokenHash => "the token was issued with another access token (at_hash)",
            Self::LogoutToken => "the token is a logout token, and not an ID token",
            Self::NoLogoutToken => "the token is not a logout token",
        })
    }
}

impl std::error::Error for TokenRefused {}

/// Verifies a token. Nothing that is signed is read before its signature was verified.
///
/// # Errors
/// See [`TokenRefused`].
pub fn verify(token: &str, keys: &KeySet, expected: &Expected<'_>) -> Result<Claims, TokenRefused> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenRefused::TooLong);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenRefused::Malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(TokenRefused::Malformed)?;
    if payload.contains('.') || payload.is_empty() || signature.is_empty() {
        return Err(TokenRefused::Malformed);
    }
    let part = |part: &str| BASE64URL.decode(part).map_err(|_| TokenRefused::Malformed);
    let header = object(&part(header)?).ok_or(TokenRefused::Header)?;
    let algorithm = check_header(&header, expected.types)?;
    let key_id = header.get("kid").map(|id| id.as_str().ok_or(TokenRefused::Header)).transpose()?;
    keys.verify(algorithm, key_id, signed.as_bytes(), &part(signature)?).map_err(|refused| {
        match refused {
            SignatureRefused::UnknownKey => TokenRefused::UnknownKey,
            SignatureRefused::Ambiguous => TokenRefused::AmbiguousKey,
            SignatureRefused::Wrong => TokenRefused::Signature,
        }
    })?;
    let all = object(&part(payload)?).ok_or(TokenRefused::Claims)?;
    check_claims(all, algorithm, expected)
}

/// Checks the header, and returns the algorithm. Keys in a header, and addresses of keys, are never used.
fn check_header(header: &Map<String, Value>, types: &[&str]) -> Result<Algorithm, TokenRefused> {
    if header.contains_key("crit") {
        return Err(TokenRefused::CriticalHeader);
    }
    if header.contains_key("cty") {
        return Err(TokenRefused::Nested);
    }
    let algorithm = header.get("alg").and_then(Value::as_str).and_then(Algorithm::named);
    let algorithm = algorithm.ok_or(TokenRefused::Algorithm)?;
    if let Some(named) = header.get("typ") {
        let named = named.as_str().ok_or(TokenRefused::Type)?.to_ascii_lowercase();
        let named = named.strip_prefix("application/").unwrap_or(&named);
        if !types.contains(&named) {
            return Err(TokenRefused::Type);
        }
    }
    Ok(algorithm)
}

fn check_claims(
    all: Map<String, Value>,
    algorithm: Algorithm,
    expected: &Expected<'_>,
) -> Result<Claims, TokenRefused> {
    if all.get("iss").and_then(Value::as_str) != Some(expected.issuer) {
        return Err(TokenRefused::Issuer);
    }
    if !texts(all.get("aud")).contains(&expected.audience) {
        return Err(TokenRefused::Audience);
    }
    let expires = seconds(all.get("exp")).ok_or(TokenRefused::Expired)?;
    if expires.saturating_add(SKEW_SECONDS) <= expected.now {
        return Err(TokenRefused::Expired);
    }
    let latest = expected.now.saturating_add(SKEW_SECONDS);
    if let Some(begin) = all.get("nbf")
        && seconds(Some(begin)).is_none_or(|begin| begin > latest)
    {
        return Err(TokenRefused::NotYetValid);
    }
    if seconds(all.get("iat")).is_none_or(|issued| issued > latest) {
        return Err(TokenRefused::IssuedAt);
    }
    Ok(Claims { all, algorithm, expires })
}

/// A JSON object in which no field occurs twice.
fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    let decoded = decode(bytes, Format::Json).ok()?;
    match decoded.value {
        Value::Object(object) if decoded.duplicates.is_empty() => Some(object),
        _ => None,
    }
}

/// The texts of a claim that is a text or a list of texts. None if one of them is no text.
pub(super) fn texts(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => {
            list.iter().map(Value::as_str).collect::<Option<_>>().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// A time in seconds since 1970, without fractions of a second.
fn seconds(time: Option<&Value>) -> Option<i64> {
    let time = time?;
    let whole = || {
        let time = time.as_f64()?.floor();
        // Beyond these, a number has no seconds; the year 9999 is far below.
        #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
        (0.0..1e15).contains(&time).then_some(time as i64)
    };
    time.as_i64().or_else(whole)
}

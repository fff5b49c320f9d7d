//! Authentication, from `Parsed` to `Authenticated`: finds the owner of the access key.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use postern_auth::attributes::Attributes;
use postern_auth::bearer::{self, BearerToken, Refusal};
use postern_auth::digest::{Digest, Digester};
use postern_auth::endpoint_token::looks_like_endpoint_token;
use postern_auth::policy::Policy;
use postern_auth::principal_index::PrincipalIndex;
use postern_kinds::owned_access_key::MIN_KEY_CHARS;
use postern_kinds::principal::KeyUse;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_registry::credential::{Credential, is_key, refused, unauthorized};
use postern_registry::registry::activity::KeyUses;
use zeroize::Zeroizing;

use super::{session_cookie, websocket};
use crate::stages::parse::{Parsed, Target};

/// An authenticated request. Only [`authenticate`] makes one.
pub struct Authenticated {
    parsed: Parsed,
    credential: Credential,
}

/// A failed authentication.
pub struct Unauthenticated {
    /// The 401 with the reason.
    pub error: ApiError,
    /// The name of the access key that was sent, if it is known.
    pub key: Option<String>,
}

impl Authenticated {
    /// The credential of the sender.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The request and its credential, for the next stage.
    pub fn into_parts(self) -> (Parsed, Credential) {
        (self.parsed, self.credential)
    }
}

/// The input of authentication.
pub struct AuthenticationView<'a> {
    /// Computes the digests of access keys.
    pub digester: &'a Digester,
    /// The access keys and their owners.
    pub principals: &'a PrincipalIndex,
    /// Decides whether the creators of a key may still impersonate as they did.
    pub policy: &'a Policy,
    /// The version of keys and policy, read before the principals.
    pub version: u64,
    /// The current time.
    pub now: Timestamp,
    /// Notes the use of the key.
    pub uses: &'a KeyUses,
    /// The address of the server, if it is known. Pages of another origin cannot use the session cookie.
    pub own_url: &'a str,
}

/// The advice for a client that sends an endpoint token to the central server.
const OF_ENDPOINT: &str = "this is a direct cluster endpoint token, which counts at the endpoints of clusters alone: use an \
                           access key here";

/// The credential of a connection's last request, with its digest. Most often the next request has the same one. The
/// result of the authentication is not stored, only the digest. It has no `Debug`.
#[derive(Default)]
pub struct LastCredential(Mutex<Option<(Zeroizing<Vec<u8>>, Digest)>>);

impl LastCredential {
    /// The digest of the credential in this header, if the last request had the same header.
    fn digest_of(&self, header: &[u8]) -> Option<Digest> {
        let last = self.0.lock();
        let (known, digest) = last.as_ref()?;
        verify_slices_are_equal(known, header).is_ok().then_some(*digest)
    }

    fn set(&self, header: &[u8], digest: Digest) {
        *self.0.lock() = Some((Zeroizing::new(header.to_vec()), digest));
    }
}

/// Looks up the key by its digest, and records that it was used.
///
/// # Errors
/// 401 with the reason. No message contains the key.
pub fn authenticate(
    parsed: Parsed,
    view: &AuthenticationView<'_>,
    last: &LastCredential,
) -> Result<Authenticated, Unauthenticated> {
    let AuthenticationView { digester, principals, policy, version, now, uses, own_url } = *view;
    let header = only_credential(&parsed);
    let known = header.and_then(|header| last.digest_of(header));
    let cookie = session_cookie::credential(&parsed, own_url);
    let digest = match (known, &cookie) {
        (Some(digest), _) => digest,
        (None, Some(token)) => digester.digest(token),
        (None, None) => {
            let token = token_of(&parsed).map_err(|error| Unauthenticated { error, key: None })?;
            digester.digest(&token)
        }
    };
    // The code of a login link can begin a session, or show the user of the session that it would
    // begin. It is never in a cookie.
    let key = if parsed.takes_code() && cookie.is_none() {
        principals.identify_or_code(&digest, now.unix_seconds(), policy)
    } else {
        principals.identify(&digest, now.unix_seconds(), policy)
    };
    let key = key.map_err(|refusal| {
        let key = principals.key_of(&digest).map(str::to_owned);
        let error = match refusal {
            Refusal::Unknown if is_endpoint_token(&parsed, own_url) => {
                unauthorized("Unauthorized", OF_ENDPOINT)
            }
            refusal => refused(refusal),
        };
        Unauthenticated { error, key }
    })?;
    if cookie.is_some() && key.used_as != KeyUse::Session {
        // Nothing but a login writes the cookie, so another page has written it.
        return Err(Unauthenticated { error: refused(Refusal::Missing), key: None });
    }
    if cookie.is_none() && key.used_as == KeyUse::Session {
        // A thief of the value would have a key without the conditions of the cookie.
        let advice = "the value of a session counts only in its cookie: use an access key";
        let key = principals.key_of(&digest).map(str::to_owned);
        return Err(Unauthenticated { error: unauthorized("Unauthorized", advice), key });
    }
    if let Some(header) = header.filter(|_| known.is_none()) {
        last.set(header, digest);
    }
    if cookie.is_none() || !session_cookie::is_background(parsed.headers()) {
        uses.note(&key, now.unix_seconds());
    }
    let credential = Credential::of_key(key.identity.clone(), digest).known_at(version);
    Ok(Authenticated { parsed, credential })
}

/// Whether the credential looks like an endpoint token of this server.
fn is_endpoint_token(parsed: &Parsed, own_url: &str) -> bool {
    token_of(parsed).is_ok_and(|token| looks_like_endpoint_token(token.expose(), own_url))
}

/// The value of `Authorization`; `None` if another header could also have a credential.
fn only_credential(parsed: &Parsed) -> Option<&[u8]> {
    if parsed.is_upgrade() {
        return None;
    }
    let mut values = parsed.headers().get_all(AUTHORIZATION).iter();
    values.next().filter(|_| values.next().is_none()).map(HeaderValue::as_bytes)
}

/// The credential of a request, from `Authorization` or from the WebSocket sub-protocols. Browsers cannot set
/// `Authorization` on a WebSocket.
fn token_of(parsed: &Parsed) -> Result<BearerToken, ApiError> {
    let headers = parsed.headers();
    let mut of_header = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    let token = match websocket::credential(headers) {
        websocket::Credential::None => bearer::parse(of_header),
        websocket::Credential::Unusable(advice) => {
            return Err(unauthorized("Unauthorized", advice));
        }
        websocket::Credential::Token(_) if of_header.next().is_some() => {
            let advice =
                "send one credential, either in Authorization or as a WebSocket sub-protocol";
            return Err(unauthorized("Unauthorized", advice));
        }
        websocket::Credential::Token(token) => {
            let header = Zeroizing::new(format!("Bearer {}", *token));
            bearer::parse(std::iter::once(header.as_bytes()))
        }
    };
    token.map_err(refused)
}

/// Whether the path contains the value of an access key instead of a name. Parsing has already rejected values that the
/// server generated, by their format. Values that clients chose may look like a name, or like several names if they
/// contain a slash.
pub fn names_a_key(parsed: &Parsed, digester: &Digester, principals: &PrincipalIndex) -> bool {
    let path = parsed.path();
    let is_key = |segment| is_encoded_key(segment, digester, principals);
    // An encoded key is not shorter.
    if parsed.longest_segment_bytes() >= MIN_KEY_CHARS && path.split('/').any(is_key) {
        return true;
    }
    match parsed.target() {
        // The names in a path with a problem are not logged.
        Target::Nothing => parsed.problem().is_none() && has_run(parsed, digester, principals),
        Target::Resource(target) if target.action.is_some() => {
            ends_with_key(path, digester, principals)
        }
        Target::Gateway(request) => match request.kube.attributes() {
            // Two segments can be a resource and a name.
            Attributes::Resource { subresource: "", .. } => {
                ends_with_key(path, digester, principals)
            }
            _ => has_run(parsed, digester, principals),
        },
        // Every segment was parsed, and is valid.
        Target::Resource(_) | Target::Document(_) => false,
    }
}

/// Whether the last two segments are a key, with or without a slash at the end.
fn ends_with_key(path: &str, digester: &Digester, principals: &PrincipalIndex) -> bool {
    let trimmed = path.trim_end_matches('/');
    let start = trimmed.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    [&path[start..], &trimmed[start..]].iter().any(|end| is_encoded_key(end, digester, principals))
}

/// Whether consecutive segments are a key.
fn has_run(parsed: &Parsed, digester: &Digester, principals: &PrincipalIndex) -> bool {
    if parsed.is_deep() {
        return false;
    }
    let path = parsed.path();
    let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
    let ends = || slashes.iter().copied().chain([path.len()]);
    let mut runs = slashes.iter().flat_map(|start| ends().map(move |end| (start + 1, end)));
    runs.any(|(start, end)| {
        path.get(start..end).is_some_and(|run| is_encoded_key(run, digester, principals))
    })
}

fn is_encoded_key(text: &str, digester: &Digester, principals: &PrincipalIndex) -> bool {
    // An encoded key is not shorter.
    text.len() >= MIN_KEY_CHARS
        && is_key(&percent_decode_str(text).decode_utf8_lossy(), digester, principals)
}

//! From `Parsed` to `Authenticated`: who is asking?

use std::sync::Arc;

use http::header::AUTHORIZATION;
use percent_encoding::percent_decode_str;
use postern_auth::attributes::Attributes;
use postern_auth::bearer::{self, BearerToken, Refusal};
use postern_auth::digest::{Digest, Digester};
use postern_auth::identity::Identity;
use postern_auth::impersonated::ImpersonatedIdentity;
use postern_auth::policy::Policy;

use postern_auth::principal_index::PrincipalIndex;
use postern_auth::resolved_key::ResolvedKey;
use postern_kinds::owned_access_key::MIN_KEY_CHARS;
use postern_kinds::{CallerKey, Impersonation};
use postern_meta::status::{ApiError, Reason, StatusCause};
use postern_meta::time::Timestamp;
use zeroize::Zeroizing;

use super::websocket;
use crate::stages::parse::{MAX_PATH_BYTES, MAX_PATH_SEGMENTS, Parsed, Target};

/// A request whose sender is known. Only [`authenticate`] makes one.
pub(crate) struct Authenticated {
    parsed: Parsed,
    credential: Credential,
}

/// The identity of a caller, and the key that proves it.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    identity: Arc<Identity>,
    digest: Option<Digest>,
    /// The version of what decides, as of which the identity is known.
    version: u64,
    /// Set while the caller impersonates: the requested impersonation, and the resulting identity.
    acting: Option<Arc<(Impersonation, Identity)>>,
}

impl Credential {
    /// The credential of the server itself, which has no key.
    pub(crate) fn of_server(identity: Identity) -> Self {
        Self { identity: Arc::new(identity), digest: None, version: 0, acting: None }
    }

    /// The credential of a caller with the key of a digest.
    pub(crate) fn of_key(identity: Arc<Identity>, digest: Digest) -> Self {
        Self { identity, digest: Some(digest), version: 0, acting: None }
    }

    /// The same credential while the caller impersonates another identity.
    pub(crate) fn acting_as(self, wanted: Impersonation, impersonated: Identity) -> Self {
        Self { acting: Some(Arc::new((wanted, impersonated))), ..self }
    }

    /// The identity whose rights count: the caller's own, or the impersonated one.
    pub(crate) fn identity(&self) -> &Identity {
        self.acting.as_ref().map_or(&self.identity, |acting| &acting.1)
    }

    /// The identity of the key's owner.
    pub(crate) fn bearer(&self) -> &Identity {
        &self.identity
    }

    /// The identity of the key's owner, which all requests with the key share until it
    /// changes.
    pub(crate) fn shared_bearer(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Whether it is the server's own.
    pub(crate) fn is_server(&self) -> bool {
        self.digest.is_none()
    }

    /// Whether the caller impersonates another identity.
    pub(crate) fn is_acting(&self) -> bool {
        self.acting.is_some()
    }

    /// The requested impersonation, if the caller impersonates.
    pub(crate) fn wanted(&self) -> Option<&Impersonation> {
        self.acting.as_ref().map(|acting| &acting.0)
    }

    /// The access key of the request, also while the caller impersonates: its limits hold. `None` for the
    /// server itself, which has no key.
    ///
    /// # Errors
    /// 401 that says why the key does not work any more.
    pub(crate) fn caller_key(
        &self,
        principals: &PrincipalIndex,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Option<CallerKey>, ApiError> {
        let Some(digest) = self.digest else { return Ok(None) };
        let key = principals.identify(&digest, now.unix_seconds(), policy).map_err(refused)?;
        Ok(Some(key.as_caller_key(self.wanted().cloned())))
    }

    /// The caller's identity now; `None` for the server itself, which has no key.
    ///
    /// # Errors
    /// 401 that says why the key does not work any more.
    pub(crate) fn current(
        &self,
        principals: &PrincipalIndex,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Option<CurrentIdentity>, ApiError> {
        let Some(digest) = self.digest else { return Ok(None) };
        let key = principals.identify(&digest, now.unix_seconds(), policy).map_err(refused)?;
        let acting = self.acting.as_ref();
        let impersonated = acting.map(|acting| principals.impersonate(&acting.0, &key.identity));
        Ok(Some(CurrentIdentity { key, impersonated }))
    }

    /// The credential of the same caller as they are now.
    pub(crate) fn renewed(&self, current: &CurrentIdentity) -> Self {
        let impersonated = current.impersonated.as_ref();
        let acting = self.acting.as_ref().zip(impersonated);
        Self {
            identity: current.key.identity.clone(),
            digest: self.digest,
            version: self.version,
            acting: acting.map(|(acting, now)| Arc::new((acting.0.clone(), now.identity.clone()))),
        }
    }

    /// The credential, known as of a version of what decides.
    pub(crate) fn known_at(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// Whether it is known as of this version of what decides.
    pub(crate) fn is_known_at(&self, version: u64) -> bool {
        self.version == version
    }

    /// The revision since which the caller is who they are now, as far as is known. Of a caller who impersonates,
    /// both identities count.
    pub(crate) fn since(&self, principals: &PrincipalIndex) -> u64 {
        let own = self.digest.map_or(0, |digest| principals.since(&digest));
        self.wanted().map_or(own, |wanted| principals.since_of(wanted).max(own))
    }

    /// Checks that the caller is still who they were when the request came in.
    ///
    /// # Errors
    /// 401 when the key does not work any more; 409 when the caller has other rights now.
    pub(crate) fn check(
        &self,
        principals: &PrincipalIndex,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let Some(current) = self.current(principals, policy, now)? else { return Ok(()) };
        let same = current.identity() == self.identity() && current.key.identity == self.identity;
        if same && !current.is_disabled() {
            return Ok(());
        }
        let message = "what the caller may do has changed while the request came in: send it again";
        Err(ApiError::new(409, Reason::Conflict, message))
    }
}

/// The identity of a caller at one moment.
pub(crate) struct CurrentIdentity {
    /// The caller's key.
    pub(crate) key: Arc<ResolvedKey>,
    impersonated: Option<ImpersonatedIdentity>,
}

impl CurrentIdentity {
    /// The identity whose rights count: the caller's own, or the impersonated one.
    pub(crate) fn identity(&self) -> &Identity {
        self.impersonated.as_ref().map_or(&*self.key.identity, |one| &one.identity)
    }

    /// Whether the caller impersonates a user who is disabled.
    pub(crate) fn is_disabled(&self) -> bool {
        self.impersonated.as_ref().is_some_and(|one| one.disabled)
    }
}

/// A request whose sender could not be authenticated.
pub(crate) struct Unauthenticated {
    /// 401 that says why.
    pub(crate) error: ApiError,
    /// The name of the access key that was sent, if there is one.
    pub(crate) key: Option<String>,
}

impl Authenticated {
    /// The credential of the sender.
    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The request and its credential, for the next stage.
    pub(crate) fn into_parts(self) -> (Parsed, Credential) {
        (self.parsed, self.credential)
    }
}

/// The input of authentication.
pub(crate) struct AuthenticationView<'a> {
    /// Makes the digests of access keys.
    pub(crate) digester: &'a Digester,
    /// The access keys and their owners.
    pub(crate) principals: &'a PrincipalIndex,
    /// Decides whether the makers of a key may still impersonate as they did.
    pub(crate) policy: &'a Policy,
    /// The version of what decides, read before the principals.
    pub(crate) version: u64,
    /// The time.
    pub(crate) now: Timestamp,
}

/// Looks up the key by its digest, and records that it was used.
///
/// # Errors
/// 401 that says why. No message contains the key.
pub(crate) fn authenticate(
    parsed: Parsed,
    view: &AuthenticationView<'_>,
) -> Result<Authenticated, Unauthenticated> {
    let AuthenticationView { digester, principals, policy, version, now } = *view;
    let token = token_of(&parsed).map_err(|error| Unauthenticated { error, key: None })?;
    let digest = digester.digest(&token);
    let key = principals.identify(&digest, now.unix_seconds(), policy).map_err(|refusal| {
        let key = principals.key_of(&digest).map(str::to_owned);
        Unauthenticated { error: refused(refusal), key }
    })?;
    key.activity.note(now.unix_seconds());
    let credential = Credential::of_key(key.identity.clone(), digest).known_at(version);
    Ok(Authenticated { parsed, credential })
}

/// The credential of a request: from `Authorization`, or, where a browser asks for a WebSocket and
/// cannot set that, from the sub-protocols.
fn token_of(parsed: &Parsed) -> Result<BearerToken, ApiError> {
    let headers = parsed.headers();
    let mut of_header = headers.get_all(AUTHORIZATION).iter().map(http::HeaderValue::as_bytes);
    let token = match websocket::credential(headers) {
        websocket::Credential::None => bearer::parse(of_header),
        websocket::Credential::Unusable(advice) => {
            return Err(unauthorized("Unauthorized", advice));
        }
        websocket::Credential::Token(_) if of_header.next().is_some() => {
            let advice = "there is a credential in Authorization, and another as a sub-protocol";
            return Err(unauthorized("Unauthorized", advice));
        }
        websocket::Credential::Token(token) => {
            let header = Zeroizing::new(format!("Bearer {}", *token));
            bearer::parse(std::iter::once(header.as_bytes()))
        }
    };
    token.map_err(refused)
}

/// Whether the path contains the value of an access key where a name belongs. Values that
/// the server generates have a form of their own, and parsing has rejected them already; values
/// that clients choose may look like a name, and with a slash in it like several.
pub(crate) fn names_a_key(
    parsed: &Parsed,
    digester: &Digester,
    principals: &PrincipalIndex,
) -> bool {
    let path = parsed.path();
    let mut segments = path.split('/');
    if segments.any(|segment| is_encoded_key(segment, digester, principals)) {
        return true;
    }
    match parsed.target() {
        // The names in a path with a problem are written nowhere.
        Target::Nothing => parsed.problem().is_none() && has_run(path, digester, principals),
        Target::Resource(target) if target.action.is_some() => {
            ends_with_key(path, digester, principals)
        }
        Target::Gateway(request) => match request.kube.attributes() {
            // Two segments could be a resource and its name there.
            Attributes::Resource { subresource: "", .. } => {
                ends_with_key(path, digester, principals)
            }
            _ => has_run(path, digester, principals),
        },
        // Every segment has been read, and is what it should be.
        Target::Resource(_) | Target::Document(_) => false,
    }
}

/// Whether a path is so long that keys which go over several of its segments are not looked for.
pub(crate) fn is_deep(path: &str) -> bool {
    path.len() > MAX_PATH_BYTES || path.matches('/').count() > MAX_PATH_SEGMENTS
}

/// Whether the last two segments are a key, with or without the slash at the end.
fn ends_with_key(path: &str, digester: &Digester, principals: &PrincipalIndex) -> bool {
    let trimmed = path.trim_end_matches('/');
    let start = trimmed.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    [&path[start..], &trimmed[start..]].iter().any(|end| is_encoded_key(end, digester, principals))
}

/// Whether segments that follow each other are a key.
fn has_run(path: &str, digester: &Digester, principals: &PrincipalIndex) -> bool {
    if is_deep(path) {
        return false;
    }
    let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
    let ends = || slashes.iter().copied().chain([path.len()]);
    let mut runs = slashes.iter().flat_map(|start| ends().map(move |end| (start + 1, end)));
    runs.any(|(start, end)| {
        path.get(start..end).is_some_and(|run| is_encoded_key(run, digester, principals))
    })
}

fn is_encoded_key(text: &str, digester: &Digester, principals: &PrincipalIndex) -> bool {
    // Encoded, it is no shorter.
    text.len() >= MIN_KEY_CHARS
        && is_key(&percent_decode_str(text).decode_utf8_lossy(), digester, principals)
}

/// Whether this is the value of an access key.
pub(crate) fn is_key(text: &str, digester: &Digester, principals: &PrincipalIndex) -> bool {
    let digest = || digester.digest(&BearerToken::of_key(&text.to_owned().into()));
    text.len() >= MIN_KEY_CHARS && principals.knows(&digest())
}

/// The 401 of a refusal, which says why.
pub(crate) fn refused(refusal: Refusal) -> ApiError {
    unauthorized(refusal.message(), refusal.advice())
}

fn unauthorized(message: &str, advice: &str) -> ApiError {
    let advice = StatusCause { message: advice.to_owned(), ..StatusCause::default() };
    ApiError::unauthorized(message).with_cause(advice)
}

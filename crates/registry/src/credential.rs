//! `Credential`: the access key that a caller has proved, and the identity with which it acts.
//!
//! Other crates decide where a credential comes from: headers, or the socket of the machine administrator.

use std::sync::Arc;

use postern_auth::attributes::Attributes;
use postern_auth::bearer::{BearerToken, Refusal};
use postern_auth::digest::{Digest, Digester};
use postern_auth::forbidden::forbidden_message;
use postern_auth::identity::Identity;
use postern_auth::impersonated::{self, ImpersonatedIdentity};
use postern_auth::policy::{Decision, Policy};
use postern_auth::principal_index::PrincipalIndex;
use postern_auth::resolved_key::ResolvedKey;
use postern_kinds::owned_access_key::MIN_KEY_CHARS;
use postern_kinds::{CallerKey, Impersonation, Right};
use postern_meta::gvk::GroupResource;
use postern_meta::status::{ApiError, Reason, StatusCause};
use postern_meta::time::Timestamp;

use crate::cache::Cache;

/// The identity of a caller, and the key that proves it.
#[derive(Clone, Debug)]
pub struct Credential {
    identity: Arc<Identity>,
    digest: Option<Digest>,
    /// The version of the access state at which the identity is known.
    version: u64,
    /// The requested impersonation and the resulting identity, if the caller impersonates.
    acting: Option<Arc<(Impersonation, Identity)>>,
}

impl Credential {
    /// The credential of the server itself, which has no key.
    pub(crate) fn of_server(identity: Identity) -> Self {
        Self { identity: Arc::new(identity), digest: None, version: 0, acting: None }
    }

    /// The credential of a caller with an access key, by its digest.
    pub fn of_key(identity: Arc<Identity>, digest: Digest) -> Self {
        Self { identity, digest: Some(digest), version: 0, acting: None }
    }

    /// The same credential while the caller impersonates another identity.
    #[must_use]
    pub fn acting_as(self, wanted: Impersonation, impersonated: Identity) -> Self {
        Self { acting: Some(Arc::new((wanted, impersonated))), ..self }
    }

    /// The identity with the permissions for the request: the caller's own, or the impersonated
    /// one.
    pub fn identity(&self) -> &Identity {
        self.acting.as_ref().map_or(&self.identity, |acting| &acting.1)
    }

    /// The identity of the key's owner.
    pub fn bearer(&self) -> &Identity {
        &self.identity
    }

    /// The identity of the key's owner. All requests with the key share it until it changes.
    pub fn shared_bearer(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Whether it belongs to the server itself.
    pub(crate) fn is_server(&self) -> bool {
        self.digest.is_none()
    }

    /// Whether the caller impersonates another identity.
    pub fn is_acting(&self) -> bool {
        self.acting.is_some()
    }

    /// The requested impersonation, if the caller impersonates.
    pub fn wanted(&self) -> Option<&Impersonation> {
        self.acting.as_ref().map(|acting| &acting.0)
    }

    /// The access key of the request; `None` for the server itself, which has no key. It is also set while the caller
    /// impersonates, because the limits of the key still apply.
    ///
    /// # Errors
    /// 401 with the reason why the key is no longer valid.
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

    /// The caller's present identity; `None` for the server itself, which has no key.
    ///
    /// # Errors
    /// 401 with the reason why the key is no longer valid; 503 while the store does not answer.
    pub fn current(
        &self,
        cache: &Cache,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Option<CurrentIdentity>, ApiError> {
        if self.digest.is_some() {
            cache.check_store()?;
        }
        self.current_in(&cache.principals(), policy, now)
    }

    /// The same for a caller that has just asked the store, and holds the index.
    ///
    /// # Errors
    /// 401 with the reason why the key is no longer valid.
    pub(crate) fn current_in(
        &self,
        principals: &PrincipalIndex,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Option<CurrentIdentity>, ApiError> {
        let Some(digest) = self.digest else { return Ok(None) };
        // Only a request that begins a session has the credential of a code.
        let key =
            principals.identify_or_code(&digest, now.unix_seconds(), policy).map_err(refused)?;
        let acting = self.acting.as_ref();
        let impersonated = acting.map(|acting| principals.impersonate(&acting.0, &key.identity));
        Ok(Some(CurrentIdentity { key, impersonated }))
    }

    /// The credential with the present identity of the same caller.
    #[must_use]
    pub fn renewed(&self, current: &CurrentIdentity) -> Self {
        let impersonated = current.impersonated.as_ref();
        let acting = self.acting.as_ref().zip(impersonated);
        Self {
            identity: current.key.identity.clone(),
            digest: self.digest,
            version: self.version,
            acting: acting.map(|(acting, now)| Arc::new((acting.0.clone(), now.identity.clone()))),
        }
    }

    /// The credential, known at a version of the access state.
    #[must_use]
    pub fn known_at(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// Whether it is known at this version of the access state.
    pub(crate) fn is_known_at(&self, version: u64) -> bool {
        self.version == version
    }

    /// The revision since which the identity of the caller is unchanged, as far as it is known. If the caller
    /// impersonates, both identities count.
    pub(crate) fn since(&self, principals: &PrincipalIndex) -> u64 {
        let own = self.digest.map_or(0, |digest| principals.since(&digest));
        self.wanted().map_or(own, |wanted| principals.since_of(wanted).max(own))
    }

    /// Checks that the caller's identity is the same as when the request came.
    ///
    /// # Errors
    /// 401 if the key is no longer valid; 409 if the identity has changed; 503 while the store does not answer.
    pub fn check(&self, cache: &Cache, policy: &Policy, now: Timestamp) -> Result<(), ApiError> {
        let current = self.current(cache, policy, now)?;
        current.map_or(Ok(()), |current| self.check_same(&current))
    }

    /// Checks that the caller's identity is still this one.
    ///
    /// # Errors
    /// 409 if it has changed.
    pub(crate) fn check_same(&self, current: &CurrentIdentity) -> Result<(), ApiError> {
        let same = current.identity() == self.identity() && current.key.identity == self.identity;
        if same && !current.is_disabled() {
            return Ok(());
        }
        let message = "the permissions of the caller changed during the request: try again";
        Err(ApiError::new(409, Reason::Conflict, message))
    }
}

/// The identity of a caller at one time.
pub struct CurrentIdentity {
    /// The caller's key.
    pub key: Arc<ResolvedKey>,
    impersonated: Option<ImpersonatedIdentity>,
}

impl CurrentIdentity {
    /// The identity with the permissions for the request: the caller's own, or the impersonated
    /// one.
    pub fn identity(&self) -> &Identity {
        self.impersonated.as_ref().map_or(&*self.key.identity, |one| &one.identity)
    }

    /// Whether the caller impersonates a disabled user.
    pub fn is_disabled(&self) -> bool {
        self.impersonated.as_ref().is_some_and(|one| one.disabled)
    }
}

/// Checks that the caller has every permission that its impersonation needs. Requests that continue check again (ADR
/// 0026), because a permission can end before the request.
///
/// # Errors
/// 403 in the words of kube-apiserver; no error for a caller that does not impersonate.
pub fn check_impersonation(credential: &Credential, policy: &Policy) -> Result<(), ApiError> {
    let Some(wanted) = credential.wanted() else { return Ok(()) };
    for right in impersonated::rights(wanted, credential.identity()) {
        check(policy, credential.bearer(), &right)?;
    }
    Ok(())
}

/// The resource of users in the permissions to impersonate, as upstream.
pub const USERS: GroupResource = GroupResource { group: "", resource: "users" };

fn check(policy: &Policy, bearer: &Identity, right: &Right) -> Result<(), ApiError> {
    let attributes = Attributes::from(right);
    if policy.decide(bearer, &attributes) == Decision::Allow {
        return Ok(());
    }
    let resource = GroupResource { group: right.group, resource: right.resource };
    Err(ApiError::forbidden(resource, &right.name, forbidden_message(bearer, &attributes)))
}

/// Whether the text is the value of an access key.
pub fn is_key(text: &str, digester: &Digester, principals: &PrincipalIndex) -> bool {
    let digest = || digester.digest(&BearerToken::of_key(&text.to_owned().into()));
    text.len() >= MIN_KEY_CHARS && principals.has_key(&digest())
}

/// The 401 for a rejected key, with the reason.
pub fn refused(refusal: Refusal) -> ApiError {
    unauthorized(refusal.message(), refusal.advice())
}

/// A 401 with advice as its cause.
pub fn unauthorized(message: &str, advice: &str) -> ApiError {
    let advice = StatusCause { message: advice.to_owned(), ..StatusCause::default() };
    ApiError::unauthorized(message).with_cause(advice)
}

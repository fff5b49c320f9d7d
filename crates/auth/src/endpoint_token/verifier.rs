//! Verifies tokens: is this JWT one that a published key has signed, for us, and does it still count?

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use aws_lc_rs::signature::ParsedPublicKey;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use foldhash::fast::RandomState;
use postern_meta::decode::decode_typed;

use super::cache::{Cache, Verified};
use super::claims::{VerifiedToken, keys_of};
use super::keys::Header;
use super::{ALGORITHM, Claims, JwkSet, MAX_TUNNEL_TOKEN_BYTES, SKEW_SECONDS, TYPE, TokenRefusal};

/// The maximum number of characters in the header of a token. Postern's headers have about 110.
const MAX_HEADER_CHARS: usize = 512;

/// The input of the checks: the public keys, and the revocations.
#[derive(Default)]
struct Known {
    keys: HashMap<Arc<str>, Arc<ParsedPublicKey>, RandomState>,
    /// For a uid, the revision from which on a token must be.
    revocations: HashMap<String, u64, RandomState>,
    /// It grows with each change. While it is the same, a token that was valid stays valid.
    version: u64,
}

/// Verifies tokens for one audience or several. All of its methods can be called at once.
pub struct Verifier {
    issuer: String,
    audiences: Vec<String>,
    known: RwLock<Known>,
    cache: RwLock<Cache>,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = read(&self.known);
        f.debug_struct("Verifier")
            .field("issuer", &self.issuer)
            .field("audiences", &self.audiences)
            .field("keys", &known.keys.keys())
            .field("revocations", &known.revocations.len())
            .finish_non_exhaustive()
    }
}

impl Verifier {
    /// A verifier of tokens that this issuer has issued for one of these audiences. It knows no
    /// keys yet, and so refuses all.
    pub fn new(issuer: impl Into<String>, audiences: impl IntoIterator<Item = String>) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: audiences.into_iter().collect(),
            known: RwLock::default(),
            cache: RwLock::default(),
        }
    }

    /// Replaces the public keys. Tokens of other keys become invalid, even if they were verified
    /// before. Keys that do not have Postern's format are left out.
    pub fn set_keys(&self, keys: &JwkSet) {
        let parsed = keys
            .keys
            .iter()
            .filter_map(|key| Some((Arc::from(key.kid.as_str()), Arc::new(key.parsed()?))));
        let parsed = parsed.collect();
        let mut known = write(&self.known);
        known.keys = parsed;
        known.version += 1;
    }

    /// Replaces all revocations. For the uid of a key, user or team, a token needs at least this
    /// revocation revision.
    pub fn set_revocations(&self, revocations: impl IntoIterator<Item = (String, u64)>) {
        let mut all = HashMap::default();
        for (uid, revocation_revision) in revocations {
            let newest = all.entry(uid).or_insert(revocation_revision);
            *newest = revocation_revision.max(*newest);
        }
        let mut known = write(&self.known);
        known.revocations = all;
        known.version += 1;
    }

    /// Adds one revocation: see [`Verifier::set_revocations`].
    pub fn revoke(&self, uid: &str, revocation_revision: u64) {
        let mut known = write(&self.known);
        let newest = known.revocations.entry(uid.to_owned()).or_default();
        *newest = revocation_revision.max(*newest);
        known.version += 1;
    }

    /// Checks a token. The result has the identity of its bearer.
    ///
    /// # Errors
    /// The reason to reject it, for the log alone: the client gets the same response for all reasons.
    pub fn verify(
        &self,
        token: &str,
        now_unix_seconds: i64,
    ) -> Result<Arc<VerifiedToken>, TokenRefusal> {
        if token.len() > MAX_TUNNEL_TOKEN_BYTES {
            return Err(TokenRefusal::TooLong);
        }
        let verified = match self.seen(token) {
            Some(verified) => verified,
            None => self.verify_signature(token)?,
        };
        let checked = self.check(&verified, now_unix_seconds);
        if checked.is_err() {
            write(&self.cache).remove(token);
        }
        checked.map(|()| verified.token.clone())
    }

    /// A token with a signature that was already verified.
    fn seen(&self, token: &str) -> Option<Arc<Verified>> {
        let cache = read(&self.cache);
        if let Some(verified) = cache.get(token) {
            return Some(verified.clone());
        }
        // Only a token that was verified is worth the lock for a change.
        let is_old = cache.has_old(token);
        drop(cache);
        is_old.then(|| write(&self.cache).reuse_old(token)).flatten()
    }

    /// Verifies a token that was not seen before. All cheap checks run before the signature, and no
    /// claim is read before it.
    fn verify_signature(&self, token: &str) -> Result<Arc<Verified>, TokenRefusal> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenRefusal::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenRefusal::Malformed)?;
        if payload.contains('.') || payload.is_empty() || signature.is_empty() {
            return Err(TokenRefusal::Malformed);
        }
        let (key_id, key) = self.key_of(header)?;
        let signature = BASE64URL.decode(signature).map_err(|_| TokenRefusal::Malformed)?;
        let payload = BASE64URL.decode(payload).map_err(|_| TokenRefusal::Malformed)?;
        key.verify_sig(signed.as_bytes(), &signature).map_err(|_| TokenRefusal::Signature)?;
        let claims: Claims = decode_typed(&payload).map_err(|_| TokenRefusal::Claims)?;
        // If the payload is not in our own form, it has a field that is unknown here, or one twice. That
        // field may be what narrows the token.
        if serde_json::to_vec(&claims).ok().as_ref() != Some(&payload) {
            return Err(TokenRefusal::Claims);
        }
        self.check_claims(&claims)?;
        let token_of = VerifiedToken {
            identity: Arc::new(claims.identity()),
            expires: claims.exp,
            token_id: claims.jti.clone(),
            claims,
        };
        let verified = Arc::new(Verified {
            token: Arc::new(token_of),
            key_id,
            checked_at: AtomicU64::default(),
        });
        write(&self.cache).insert(token, verified.clone());
        Ok(verified)
    }

    /// The key that a header names.
    fn key_of(&self, header: &str) -> Result<(Arc<str>, Arc<ParsedPublicKey>), TokenRefusal> {
        if header.len() > MAX_HEADER_CHARS {
            return Err(TokenRefusal::Header);
        }
        let bytes = BASE64URL.decode(header).map_err(|_| TokenRefusal::Malformed)?;
        let header: Header = decode_typed(&bytes).map_err(|_| TokenRefusal::Header)?;
        if header.crit.is_some() {
            return Err(TokenRefusal::CriticalHeader);
        }
        if header.cty.is_some() {
            return Err(TokenRefusal::Nested);
        }
        if header.alg != ALGORITHM {
            return Err(TokenRefusal::Algorithm);
        }
        if header.typ != TYPE {
            return Err(TokenRefusal::Type);
        }
        if serde_json::to_vec(&header).ok() != Some(bytes) {
            return Err(TokenRefusal::Header);
        }
        let known = read(&self.known);
        let found = known.keys.get_key_value(header.kid.as_str());
        found.map(|(id, key)| (id.clone(), key.clone())).ok_or(TokenRefusal::UnknownKey)
    }

    /// Checks the claims that stay the same for the lifetime of a token.
    fn check_claims(&self, claims: &Claims) -> Result<(), TokenRefusal> {
        if claims.iss != self.issuer {
            return Err(TokenRefusal::Issuer);
        }
        if !claims.aud.iter().any(|audience| self.audiences.contains(audience)) {
            return Err(TokenRefusal::Audience);
        }
        Ok(())
    }

    /// Checks the conditions that can change: the time, the keys, and the revocations.
    fn check(&self, verified: &Verified, now_unix_seconds: i64) -> Result<(), TokenRefusal> {
        let claims = &verified.token.claims;
        if claims.exp.saturating_add(SKEW_SECONDS) <= now_unix_seconds {
            return Err(TokenRefusal::Expired);
        }
        if claims.nbf.saturating_sub(SKEW_SECONDS) > now_unix_seconds {
            return Err(TokenRefusal::NotYetValid);
        }
        let known = read(&self.known);
        // The first version that has keys is 1: a new entry has not been checked.
        if verified.checked_at.load(Ordering::Relaxed) == known.version {
            return Ok(());
        }
        if !known.keys.contains_key(&verified.key_id) {
            return Err(TokenRefusal::UnknownKey);
        }
        let revocation_revision = claims.platform.revocation_revision;
        let is_older =
            |uid: &str| known.revocations.get(uid).is_some_and(|from| revocation_revision < *from);
        let keys_are_older = |owner: &str| is_older(&keys_of(owner));
        if claims.depends_on().any(is_older) || claims.key_owners().any(keys_are_older) {
            return Err(TokenRefusal::Revoked);
        }
        verified.checked_at.store(known.version, Ordering::Relaxed);
        Ok(())
    }

    /// How many tokens it has seen and not forgotten.
    #[cfg(test)]
    pub(super) fn cached(&self) -> usize {
        read(&self.cache).len()
    }
}

/// No code panics while it holds one of these locks.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

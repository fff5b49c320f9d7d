//! A bounded cache of verified tokens. The [`Verifier`](super::Verifier) checks each time whether
//! keys or revocations have changed since.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use foldhash::fast::RandomState;
use zeroize::Zeroizing;

use super::claims::VerifiedToken;

/// Bytes of tokens in one half of the cache. The decoded tokens take a few times as much.
pub(super) const HALF_BYTES: usize = 1024 * 1024;

/// Tokens in one half of the cache.
pub(super) const HALF_TOKENS: usize = 4096;

/// A token with a valid signature.
pub(super) struct Verified {
    /// The decoded token.
    pub(super) token: Arc<VerifiedToken>,
    /// The id of the key that signed it.
    pub(super) key_id: Arc<str>,
    /// The state of keys and revocations that it was checked against last.
    pub(super) checked_at: AtomicU64,
}

/// The text of a token, wiped when it is dropped.
#[derive(PartialEq, Eq)]
struct Text(Zeroizing<String>);

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        str::hash(&self.0, state);
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Tokens by their texts, which are compared as a whole: that takes less than a digest of them.
type Half = HashMap<Text, Arc<Verified>, RandomState>;

/// A cache in two halves. When the new half is full, it becomes the old half. Entries of the
/// previous old half that were not used since are dropped.
#[derive(Default)]
pub(super) struct Cache {
    new: Half,
    old: Half,
    new_bytes: usize,
}

impl fmt::Debug for Cache {
    /// Without the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} tokens)", self.len())
    }
}

impl Cache {
    /// A token in the newer half: it was used recently.
    pub(super) fn get(&self, token: &str) -> Option<&Arc<Verified>> {
        self.new.get(token)
    }

    /// Whether a token is in the older half of the cache.
    pub(super) fn has_old(&self, token: &str) -> bool {
        self.old.contains_key(token)
    }

    /// Moves a token from the older half of the cache to the newer half.
    pub(super) fn reuse_old(&mut self, token: &str) -> Option<Arc<Verified>> {
        let (text, found) = self.old.remove_entry(token)?;
        self.add(text, found.clone());
        Some(found)
    }

    /// Adds a token.
    pub(super) fn insert(&mut self, token: &str, verified: Arc<Verified>) {
        self.add(Text(Zeroizing::new(token.to_owned())), verified);
    }

    fn add(&mut self, text: Text, verified: Arc<Verified>) {
        let bytes = text.0.len();
        if self.new_bytes + bytes > HALF_BYTES || self.new.len() >= HALF_TOKENS {
            self.old = std::mem::take(&mut self.new);
            self.new_bytes = 0;
        }
        if self.new.insert(text, verified).is_none() {
            self.new_bytes += bytes;
        }
    }

    /// Forgets a token.
    pub(super) fn remove(&mut self, token: &str) {
        if self.new.remove(token).is_some() {
            self.new_bytes -= token.len();
        }
        self.old.remove(token);
    }

    pub(super) fn len(&self) -> usize {
        self.new.len() + self.old.len()
    }
}

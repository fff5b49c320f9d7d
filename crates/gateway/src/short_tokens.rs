//! A cache of the tokens for short requests to agents. The server uses each token several times,
//! because to sign and to verify one is a large part of the cost of a GET.

use std::collections::HashMap;

use http::HeaderValue;
use parking_lot::Mutex;
use postern_registry::registry::issued_tokens::TokenIdentity;

/// The most tokens that are kept, and their bytes. When there would be more, all are forgotten.
const MAX_TOKENS: usize = 10_000;
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The recently issued tokens.
#[derive(Default)]
pub(super) struct ShortTokens(Mutex<TokenTable>);

#[derive(Default)]
struct TokenTable {
    tokens: HashMap<Use, ShortToken>,
    bytes: usize,
}

/// For whom and where a token is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Use {
    /// The uid of the access key. An impersonated identity has none.
    pub(super) key_uid: String,
    /// The uid of the Cluster.
    pub(super) cluster_uid: String,
    /// The id of the key that signs now.
    pub(super) signer: String,
}

/// A token of a short request.
#[derive(Clone)]
pub(super) struct ShortToken {
    /// The value of the header `Authorization`.
    pub(super) value: HeaderValue,
    /// The store revision that the identity in it is of.
    pub(super) revocation_revision: u64,
    /// Its times, in seconds since 1970.
    pub(super) issued_at: i64,
    pub(super) expires_at: i64,
}

impl ShortTokens {
    /// A token that is still good for the same caller, and is valid for at least `seconds` more.
    pub(super) fn find(
        &self,
        of: &Use,
        identity: &TokenIdentity,
        now: i64,
        seconds: i64,
    ) -> Option<HeaderValue> {
        let kept = self.0.lock();
        kept.tokens
            .get(of)
            .filter(|token| token.is_good(identity.since, now, seconds))
            .map(|token| token.value.clone())
    }

    /// Keeps a token for further requests.
    pub(super) fn keep(&self, of: Use, token: ShortToken) {
        let mut kept = self.0.lock();
        if kept.tokens.len() >= MAX_TOKENS || kept.bytes + token.value.len() > MAX_BYTES {
            *kept = TokenTable::default();
        }
        kept.bytes += token.value.len();
        if let Some(last) = kept.tokens.insert(of, token) {
            kept.bytes -= last.value.len();
        }
    }
}

impl ShortToken {
    /// Whether the identity in it is unchanged since it was read, and its times allow another use. After the clock was
    /// set back, an agent would refuse it.
    fn is_good(&self, identity_since: u64, now: i64, seconds: i64) -> bool {
        self.revocation_revision >= identity_since
            && self.issued_at <= now
            && self.expires_at >= now + seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_while_the_identity_in_it_and_its_times_allow_it() {
        let token = ShortToken {
            value: HeaderValue::from_static("Bearer x"),
            revocation_revision: 7,
            issued_at: 100,
            expires_at: 160,
        };
        let table = [
            (5, 100, true),
            (7, 130, true),
            // The caller's key, user or team has changed since.
            (8, 100, false),
            // It ends too soon.
            (7, 131, false),
            // The clock was set back.
            (7, 99, false),
        ];
        for (since, now, is_good) in table {
            assert_eq!(token.is_good(since, now, 30), is_good, "{since} {now}");
        }
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let tokens = ShortTokens::default();
        let of = |number: usize| Use {
            key_uid: number.to_string(),
            cluster_uid: "c".to_owned(),
            signer: "s".to_owned(),
        };
        let token = ShortToken {
            value: HeaderValue::from_static("Bearer x"),
            revocation_revision: 7,
            issued_at: 100,
            expires_at: 160,
        };
        for number in 0..=MAX_TOKENS {
            tokens.keep(of(number), token.clone());
        }
        assert_eq!(tokens.0.lock().tokens.len(), 1);
        // Those of the largest identities are few.
        let long = "x".repeat(1024 * 1024);
        let token = ShortToken { value: long.parse().unwrap(), ..token };
        for number in 0..100 {
            tokens.keep(of(number), token.clone());
            tokens.keep(of(number), token.clone());
            let kept = tokens.0.lock();
            let bytes: usize = kept.tokens.values().map(|one| one.value.len()).sum();
            assert_eq!(kept.bytes, bytes);
            assert!(bytes <= MAX_BYTES);
        }
    }
}

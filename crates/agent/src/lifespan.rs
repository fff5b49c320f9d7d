//! The lifetime of watches and streams that a token (a JWT) has opened. Most of them end with the
//! token. If the gateway of the central server opened one with a token for one request, it
//! continues until the gateway ends it.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::Mutex;
use postern_auth::endpoint_token::{SKEW_SECONDS, VerifiedToken};
use postern_auth::kube_request::KubeRequest;

/// Tokens of the gateway that are remembered, of all owners and of one. Requests with further tokens end with
/// their tokens.
const MAX_REMEMBERED: usize = 100_000;
const MAX_REMEMBERED_OF_ONE: usize = MAX_REMEMBERED / 8;

/// The time at which a request must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifespan {
    /// At the end of its response.
    Answer,
    /// When the token expires.
    Token,
    /// When the access key expires.
    Key,
    /// When the gateway ends it.
    Gateway,
}

impl Lifespan {
    /// The lifespan of a request with a token. `is_first` is whether this is the first request with
    /// the token, in case that it is for one request.
    pub(crate) fn of(kube: &KubeRequest, token: &VerifiedToken, is_first: bool) -> Self {
        match (token.is_for_gateway_session(), kube.is_stream()) {
            _ if !kube.is_long() => Self::Answer,
            (true, _) if is_first => Self::Gateway,
            (false, true) => Self::Key,
            (true, _) | (false, false) => Self::Token,
        }
    }
}

/// The used tokens that the gateway issued for one request each. Only the first request with such a
/// token outlives it. Otherwise, a thief could open requests with it that the gateway never ends.
#[derive(Debug, Default)]
pub(crate) struct GatewayTokens {
    seen: Mutex<SeenTokens>,
}

#[derive(Debug, Default)]
struct SeenTokens {
    ids: HashSet<String>,
    /// In the order of arrival.
    order: VecDeque<Remembered>,
    /// The number of tokens of each owner.
    of_owners: HashMap<String, usize>,
}

/// A token that is remembered until a time, in seconds since 1970.
#[derive(Debug)]
struct Remembered {
    until: i64,
    id: String,
    owner: String,
}

impl SeenTokens {
    fn forget_ended(&mut self, now: i64) {
        while let Some(Remembered { id, owner, .. }) =
            self.order.pop_front_if(|first| first.until <= now)
        {
            self.ids.remove(&id);
            if let Some(count) = self.of_owners.get_mut(&owner) {
                *count -= 1;
                if *count == 0 {
                    self.of_owners.remove(&owner);
                }
            }
        }
    }
}

impl GatewayTokens {
    /// Notes a token, at a time in seconds since 1970. The result is whether the token is new.
    pub(crate) fn note(&self, token: &VerifiedToken, now: i64) -> bool {
        let mut seen = self.seen.lock();
        seen.forget_ended(now);
        let (id, owner) = (token.token_id.clone(), token.owner().to_owned());
        let of_owner = seen.of_owners.get(&owner).copied().unwrap_or_default();
        if seen.ids.len() >= MAX_REMEMBERED || of_owner >= MAX_REMEMBERED_OF_ONE {
            tracing::debug!(
                owner,
                "too many tokens of the gateway: what this one opens ends with it"
            );
            return false;
        }
        if !seen.ids.insert(id.clone()) {
            return false;
        }
        seen.of_owners.insert(owner.clone(), of_owner + 1);
        // At this time, the token is no longer valid.
        let until = token.expires.saturating_add(SKEW_SECONDS);
        seen.order.push_back(Remembered { until, id, owner });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postern_auth::endpoint_token::Claims;
    use postern_auth::identity::Identity;

    use super::*;
    use crate::testing::{NOW, claims};

    fn token(id: usize) -> VerifiedToken {
        VerifiedToken {
            identity: Arc::new(Identity::default()),
            expires: NOW + 60,
            token_id: id.to_string(),
            claims: Claims { sub: format!("user-{}", id / 10_000), ..claims() },
        }
    }

    #[test]
    fn a_token_comes_first_once_and_what_is_remembered_is_bounded() {
        let tokens = GatewayTokens::default();
        assert!(tokens.note(&token(0), NOW) && !tokens.note(&token(0), NOW));
        assert!(!tokens.note(&token(0), NOW + 60 + SKEW_SECONDS - 1));
        for id in 1..MAX_REMEMBERED {
            assert!(tokens.note(&token(id), NOW));
        }
        assert!(!tokens.note(&token(MAX_REMEMBERED), NOW), "no more are remembered");
        assert!(tokens.note(&token(MAX_REMEMBERED), NOW + 60 + SKEW_SECONDS));
        assert_eq!(tokens.seen.lock().ids.len(), 1);
    }

    /// No owner can use up the room of the others.
    #[test]
    fn of_one_owner_only_a_share_is_remembered() {
        let tokens = GatewayTokens::default();
        let of = |sub: &str, id: usize| VerifiedToken {
            claims: Claims { sub: sub.to_owned(), ..claims() },
            ..token(id)
        };
        for id in 0..MAX_REMEMBERED_OF_ONE {
            assert!(tokens.note(&of("ada", id), NOW));
        }
        assert!(!tokens.note(&of("ada", MAX_REMEMBERED), NOW));
        assert!(tokens.note(&of("bob", MAX_REMEMBERED), NOW));
    }
}

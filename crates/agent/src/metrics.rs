//! The agent's counts of requests and of their tokens, each of which is a JWT. `scrape` serves them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use postern_auth::endpoint_token::TokenRefusal;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// How many answers there were by verb and code. Both are from short lists.
    answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// Accepted tokens.
    accepted: AtomicU64,
    /// Tokens that were refused, by the reason.
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

impl Metrics {
    /// The counts of answers, each with its labels.
    pub(crate) fn answers(&self) -> Vec<(String, u64)> {
        let answers = self.answers.lock();
        let labels = |(verb, code): &(&str, u16)| format!("{{verb=\"{verb}\",code=\"{code}\"}}");
        answers.iter().map(|(of, count)| (labels(of), *count)).collect()
    }

    /// The number of accepted tokens.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// The counts of refused tokens, each with its labels.
    pub(crate) fn refused(&self) -> Vec<(String, u64)> {
        let refused = self.refused.lock();
        let labels = |reason: &str| format!("{{reason=\"{reason}\"}}");
        refused.iter().map(|(reason, count)| (labels(reason), *count)).collect()
    }

    /// Counts an answer; without a verb, of a request that could not be read.
    pub(crate) fn count_answer(&self, verb: Option<&'static str>, code: u16) {
        *self.answers.lock().entry((verb.unwrap_or("unknown"), code)).or_default() += 1;
    }

    /// Counts a token.
    pub(crate) fn count_token(&self, refusal: Option<TokenRefusal>) {
        match refusal {
            None => {
                self.accepted.fetch_add(1, Ordering::Relaxed);
            }
            Some(refusal) => *self.refused.lock().entry(reason_of(refusal)).or_default() += 1,
        }
    }
}

/// The label of a reason.
pub(crate) fn reason_of(refusal: TokenRefusal) -> &'static str {
    match refusal {
        TokenRefusal::TooLong => "too_long",
        TokenRefusal::Malformed => "malformed",
        TokenRefusal::Header
        | TokenRefusal::CriticalHeader
        | TokenRefusal::Nested
        | TokenRefusal::Type => "header",
        TokenRefusal::Algorithm => "algorithm",
        TokenRefusal::UnknownKey => "unknown_key",
        TokenRefusal::Signature => "signature",
        TokenRefusal::Claims => "content",
        TokenRefusal::Issuer => "issuer",
        TokenRefusal::Audience => "audience",
        TokenRefusal::Expired => "expired",
        TokenRefusal::NotYetValid => "not_yet_valid",
        TokenRefusal::Revoked => "revoked",
    }
}

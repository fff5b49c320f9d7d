//! The `continue` token: the position at which the next page of a list starts. Opaque to clients.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::decode::decode_typed;
use crate::names::path_segment;
use crate::status::ApiError;

/// The longest token that is decoded, in bytes: a namespace and a name need far less.
pub const MAX_TOKEN_BYTES: usize = 2048;

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// The position at which the next page starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinueToken {
    /// The `resourceVersion` of the list's first page; 0 for the newest state.
    pub resource_version: u64,
    /// The last key of the page before, without the prefix that all keys of the list have.
    pub start: String,
    /// How many objects were left after that page, where the list tells it (`remainingItemCount`). So the next
    /// page need not count them anew.
    pub remaining: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: String,
    rv: u64,
    start: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
}

impl ContinueToken {
    /// The token of the newest state, from the same object on.
    #[must_use]
    pub fn newest(&self) -> Self {
        Self { resource_version: 0, start: self.start.clone(), remaining: None }
    }

    /// The token as text.
    pub fn encode(&self) -> String {
        let wire = Wire {
            v: TOKEN_VERSION.to_owned(),
            rv: self.resource_version,
            start: self.start.clone(),
            remaining: self.remaining,
        };
        URL_SAFE_NO_PAD.encode(crate::object::json_bytes(&wire))
    }

    /// Decodes a token. `start` must be a valid end of a key, so that no token points outside of
    /// its list.
    ///
    /// # Errors
    /// 400 for anything that [`ContinueToken::encode`] does not return.
    pub fn decode(token: &str) -> Result<Self, ApiError> {
        let invalid =
            |why: &str| ApiError::bad_request(format!("continue key is not valid: {why}"));
        if token.len() > MAX_TOKEN_BYTES {
            return Err(invalid("it is too long"));
        }
        let json = URL_SAFE_NO_PAD.decode(token.trim_end_matches('='));
        let json = json.map_err(|_| invalid("it is not base64"))?;
        let wire: Wire = decode_typed(&json).map_err(|_| invalid("it is not a token"))?;
        if wire.v != TOKEN_VERSION {
            return Err(invalid("unknown version"));
        }
        let is_name = |part: &str| !part.is_empty() && path_segment(part).is_ok();
        if !wire.start.split('/').all(is_name) || wire.start.contains('\0') {
            return Err(invalid("it does not point to an object of this list"));
        }
        let Wire { rv, start, remaining, .. } = wire;
        Ok(Self { resource_version: rv, start, remaining })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_that_point_outside_of_their_list_are_refused() {
        for start in ["", "/a", "a/", "../a", "a/../b", "a//b", "%2e", ".", "a\0"] {
            let token =
                ContinueToken { resource_version: 1, start: start.to_owned(), remaining: None }
                    .encode();
            let error = ContinueToken::decode(&token).unwrap_err();
            assert_eq!(error.code(), 400, "{start}");
            assert!(error.status().message.starts_with("continue key is not valid: "));
        }
        for garbage in ["", "!", "e30", "bnVsbA", &"A".repeat(5000)] {
            assert_eq!(ContinueToken::decode(garbage).unwrap_err().code(), 400, "{garbage}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            rv: u64,
            start in "[a-z0-9.-]{0,20}[a-z0-9](/[a-z0-9.-]{0,20}[a-z0-9])?",
            remaining: Option<u64>,
        ) {
            let token = ContinueToken { resource_version: rv, start, remaining };
            prop_assert_eq!(ContinueToken::decode(&token.encode()).unwrap(), token);
        }

        #[test]
        fn never_panics(text in ".{0,200}") {
            if let Err(error) = ContinueToken::decode(&text) {
                prop_assert_eq!(error.code(), 400);
            }
        }
    }
}

//! A token of another identity provider.
#![no_main]

use std::sync::LazyLock;

use postern_oidc::id_token::{Party, verify_id_token, verify_logout_token};
use postern_oidc::jwks::KeySet;

/// A key set with a key of each type, so that each path up to the signature is taken.
const KEYS: &str = r#"{"keys":[
    {"kty":"EC","kid":"a","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}
]}"#;

static SET: LazyLock<KeySet> = LazyLock::new(|| KeySet::parse(KEYS.as_bytes()).unwrap());

libfuzzer_sys::fuzz_target!(|token: &str| {
    let party = Party { issuer: "https://a", client_id: "b", now: 1_800_000_000 };
    // No signature of these inputs is good.
    assert!(verify_id_token(token, &SET, party, None, None).is_err());
    assert!(verify_logout_token(token, &SET, party).is_err());
});

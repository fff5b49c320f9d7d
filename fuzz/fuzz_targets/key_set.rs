//! The public keys of another identity provider.
#![no_main]

use postern_oidc::jwks::{Algorithm, KeySet, MAX_KEYS};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(keys) = KeySet::parse(bytes) else { return };
    assert!((1..=MAX_KEYS).contains(&keys.len()));
    for algorithm in Algorithm::ALL {
        assert!(keys.verify(algorithm, None, b"message", b"signature").is_err());
    }
});

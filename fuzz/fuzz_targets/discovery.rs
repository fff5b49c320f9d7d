//! The document in which another identity provider describes itself.
#![no_main]

use postern_oidc::discovery::Discovery;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(found) = Discovery::parse(bytes, "https://a") else { return };
    for address in [found.authorization_endpoint, found.token_endpoint, found.jwks_uri] {
        assert!(address.starts_with("https://"));
    }
});

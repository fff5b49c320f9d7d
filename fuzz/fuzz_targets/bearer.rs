//! An Authorization header.
#![no_main]

use postern_auth::bearer;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(token) = bearer::parse(std::iter::once(bytes)) {
        assert!(!token.expose().is_empty());
    }
});

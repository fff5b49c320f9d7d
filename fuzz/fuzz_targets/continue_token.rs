//! A continue token. A decoded one has only names in it.
#![no_main]

use postern_meta::continue_token::ContinueToken;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(token) = ContinueToken::decode(text) {
        assert!(!token.start.starts_with('/') && !token.start.split('/').any(|part| part == ".."));
    }
});

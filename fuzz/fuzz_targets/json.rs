//! A JSON body. A decoded value can be encoded, and is then decoded to the same.
#![no_main]

use postern_meta::{Format, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(decoded) = decode(bytes, Format::Json) {
        let again = decode(decoded.value.to_string().as_bytes(), Format::Json);
        assert!(again.is_ok_and(|again| again.value == decoded.value));
    }
});

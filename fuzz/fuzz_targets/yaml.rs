//! A YAML body. A decoded value can be encoded, and is then decoded to the same.
#![no_main]

use postern_meta::{Format, decode, encode_yaml};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(decoded) = decode(bytes, Format::Yaml) {
        let again = decode(encode_yaml(&decoded.value).as_bytes(), Format::Yaml);
        assert!(again.is_ok_and(|again| again.value == decoded.value));
    }
});

//! A YAML body. What is decoded can be encoded and decoded again.
#![no_main]

use postern_meta::{Format, decode, encode_yaml};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(decoded) = decode(bytes, Format::Yaml) {
        let again = decode(encode_yaml(&decoded.value).as_bytes(), Format::Yaml);
        assert!(again.is_ok_and(|again| again.value == decoded.value));
    }
});

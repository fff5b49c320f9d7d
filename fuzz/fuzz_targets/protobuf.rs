//! A body in protobuf.
#![no_main]

use postern_meta::decode::{BodyFormat, decode_body};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = decode_body(bytes, BodyFormat::Protobuf);
});

//! A body in protobuf.
#![no_main]

use postern_meta::protobuf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = protobuf::decode(bytes);
});

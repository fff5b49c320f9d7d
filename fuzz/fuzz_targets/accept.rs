//! Accept and Content-Type headers.
#![no_main]

use postern_meta::accept::{Offered, PatchType, content_type_of_body, negotiate, patch_type};

libfuzzer_sys::fuzz_target!(|text: &str| {
    for offered in [Offered::Object, Offered::List, Offered::Document, Offered::JsonDocument] {
        let _ = negotiate(&[text], offered);
    }
    let _ = content_type_of_body(Some(text));
    let _ = patch_type(Some(text), &[PatchType::Json, PatchType::Merge]);
});

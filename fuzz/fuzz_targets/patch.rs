//! JSON Patch, merge patch and strategic merge patch on one object. Errors have 4xx codes.
#![no_main]

use postern_meta::object::ObjectMeta;
use postern_meta::patch::{
    apply_json_patch, apply_json_patch_unread, apply_merge_patch, apply_strategic_merge_patch,
};
use postern_meta::schema::Schema;
use postern_meta::{Format, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(patch) = decode(bytes, Format::Json) else { return };
    let object = br#"{"metadata":{"name":"a"},"spec":{"data":{"k":"dg=="},"access":[{},{}]}}"#;
    let Ok(object) = decode(object, Format::Json) else { return };
    for patched in [
        apply_json_patch(object.value.clone(), &patch.value),
        apply_json_patch_unread(object.value.clone(), &patch.value, &[&["spec", "data"]]),
        apply_merge_patch(object.value.clone(), &patch.value),
        // Its finalizers are a set, its owners have keys.
        apply_strategic_merge_patch(object.value, &patch.value, &Schema::of::<ObjectMeta>()),
    ] {
        assert!(patched.is_ok() || patched.is_err_and(|error| error.code() < 500));
    }
});

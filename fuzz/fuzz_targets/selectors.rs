//! Label and field selectors.
#![no_main]

use std::collections::BTreeMap;

use postern_meta::selector::{FieldSelector, LabelSelector};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        let _ = selector.matches(&BTreeMap::new());
    }
    if let Ok(selector) = FieldSelector::parse(text, &["metadata.name"]) {
        let _ = selector.matches(|_| Some("a"));
    }
});

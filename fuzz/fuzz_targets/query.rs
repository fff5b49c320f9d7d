//! A query string, and the options in it.
#![no_main]

use postern_meta::options::{
    DeleteOptions, DeletionOf, GetOptions, ListOptions, Query, WriteKind, WriteOptions,
};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(query) = Query::parse(text) else { return };
    let _ = GetOptions::parse(&query);
    let _ = ListOptions::parse(&query, &["metadata.name"]);
    let _ = ListOptions::parse_of_deletion(&query, &["metadata.name"]);
    let _ = WriteOptions::parse(&query, WriteKind::Patch);
    let _ = DeleteOptions::from_query(&query, DeletionOf::Object);
});

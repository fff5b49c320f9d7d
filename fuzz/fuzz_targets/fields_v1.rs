//! Field sets in the FieldsV1 format. A decoded set is encoded so that it is decoded to the same.
#![no_main]

use postern_meta::apply::{FieldSet, PathElement};
use postern_meta::{Format, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(decoded) = decode(bytes, Format::Json) else { return };
    let Ok(set) = FieldSet::from_fields_v1(&decoded.value) else { return };
    let mut difference = set.clone();
    assert!(difference.subtract(&set) != set.is_empty() && difference.is_empty());
    // The last digit of a long fraction can change.
    let is_exact = |element: &&PathElement| match element {
        PathElement::Field(_) | PathElement::Index(_) => true,
        PathElement::Key(_) | PathElement::Value(_) => !element.to_text().contains(['.', 'e']),
    };
    let mut all_exact = true;
    set.for_each(&mut |path| all_exact &= path.iter().all(is_exact));
    if all_exact {
        assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()), Ok(set));
    }
});

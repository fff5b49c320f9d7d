//! Field sets in the FieldsV1 form: what is read is written so that it reads the same.
#![no_main]

use postern_meta::apply::{FieldSet, PathElement};
use postern_meta::{Format, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(decoded) = decode(bytes, Format::Json) else { return };
    let Ok(set) = FieldSet::from_fields_v1(&decoded.value) else { return };
    let mut nothing = set.clone();
    assert!(nothing.subtract(&set) != set.is_empty() && nothing.is_empty());
    // The last digit of a long fraction is not sure to survive.
    let is_exact = |step: &&PathElement| match step {
        PathElement::Field(_) | PathElement::Index(_) => true,
        PathElement::Key(_) | PathElement::Value(_) => !step.to_text().contains(['.', 'e']),
    };
    let mut all_exact = true;
    set.for_each(&mut |path| all_exact &= path.iter().all(is_exact));
    if all_exact {
        assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()), Ok(set));
    }
});

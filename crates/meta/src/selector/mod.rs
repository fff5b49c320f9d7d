//! Label and field selectors. See `docs/reference/api.md#field-selectors`.

mod fields;
mod labels;

pub use fields::FieldSelector;
pub use labels::LabelSelector;

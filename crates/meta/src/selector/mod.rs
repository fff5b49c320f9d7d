//! Label and field selectors (wire contract 1.4).

mod fields;
mod labels;

pub use fields::FieldSelector;
pub use labels::LabelSelector;

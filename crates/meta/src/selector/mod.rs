//! Label and field selectors (wire contract 1.4).

pub mod field;
pub mod label;

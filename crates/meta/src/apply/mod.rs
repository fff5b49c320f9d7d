//! Ownership of fields: field sets in the FieldsV1 format, the comparison of
//! objects along their schema, `managedFields` as writes change it, and server-side
//! apply.
//!
//! All of it is driven by the schema that OpenAPI has, and is pure: time is passed
//! in. No value but what identifies a list's item gets into a set, and with it into
//! `managedFields` and errors: so a list of secrets must be atomic in its schema.

mod compare;
mod conflicts;
mod element;
mod fields_v1;
mod last_applied;
mod lists;
mod managers;
mod merge;
mod metadata;
mod nulls;
mod ownership;
mod prune;
mod server_side;
mod set;
#[cfg(test)]
mod tests;
mod track;

pub use compare::{Comparison, compare};
pub use conflicts::Conflicts;
pub use element::{InvalidFields, MAX_ELEMENT_BYTES, Number, PathElement, Scalar};
pub use fields_v1::{MAX_ELEMENTS, MAX_SET_DEPTH};
pub use lists::check_lists;
pub use managers::{
    ANCIENT_CHANGES, BEFORE_FIRST_APPLY, MAX_ENTRIES, MAX_UPDATE_MANAGERS, ManagedSet, Manager,
    Managers, equal_except_times,
};
pub use nulls::nulls_of;
pub use ownership::set_of;
pub use server_side::{Apply, apply, apply_with_nulls, track_apply};
pub use set::FieldSet;
pub use track::{TrackedKind, track_update};

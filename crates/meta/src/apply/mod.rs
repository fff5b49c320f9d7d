//! Ownership of fields: field sets in the FieldsV1 format, the comparison of
//! objects along their schema, and `managedFields` as writes change it.
//!
//! Server-side apply is not here yet. What it builds on is: the set of a
//! configuration ([`set_of`]), the comparison ([`compare`]), and the entries
//! with their sets ([`Managers`]).

mod compare;
mod element;
mod fields_v1;
mod managers;
mod ownership;
mod set;
#[cfg(test)]
mod tests;
mod track;

pub use compare::{Comparison, compare};
pub use element::{Number, PathElement, Scalar};
pub use fields_v1::{InvalidFields, MAX_ELEMENT_BYTES, MAX_ELEMENTS, MAX_SET_DEPTH};
pub use managers::{
    ANCIENT_CHANGES, MAX_ENTRIES, MAX_UPDATE_MANAGERS, ManagedSet, Manager, Managers,
    equal_except_times,
};
pub use ownership::set_of;
pub use set::FieldSet;
pub use track::{TrackedKind, track_update};

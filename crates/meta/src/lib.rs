//! What every API object is made of: names, times, metadata, errors, the
//! decoding of bodies and queries, schemas, selectors, patches, and the shapes
//! of lists, tables, events and discovery documents.
//!
//! Pure functions and data. This crate does no I/O and reads no clock; time and
//! randomness are passed in. It knows none of the product's kinds.

pub mod decode;
pub mod field;
pub mod gvk;
pub mod names;
pub mod object;
mod path;
pub mod quote;
pub mod schema;
pub mod status;
pub mod time;

pub use decode::{DecodeError, Decoded, Format, decode, decode_typed, encode_yaml};
pub use field::{BadValue, FieldError, FieldErrorKind, FieldErrors};
pub use gvk::{GroupKind, GroupResource, GroupVersion};
pub use object::{ListMeta, ManagedFieldsEntry, Object, ObjectMeta, Operation, OwnerReference};
pub use schema::{Schema, TypeMismatch};
pub use status::{ApiError, Reason, Status, StatusCause, StatusDetails};
pub use time::{MicroTimestamp, Timestamp, human_duration};

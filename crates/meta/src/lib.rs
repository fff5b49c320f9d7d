//! The parts of every API object: names, times, metadata, errors, the decoding of bodies and queries, schemas,
//! selectors, patches, the shapes of tables and watch events, and managed fields.
//!
//! Pure functions and data. This crate does no I/O and reads no clock; time and randomness are passed in. It knows none
//! of the product's kinds.

pub mod accept;
pub mod apply;
pub mod continue_token;
pub mod decode;
pub mod event;
pub mod field;
pub mod gvk;
pub mod names;
mod number;
pub mod object;
pub mod options;
pub mod patch;
mod path;
pub mod printable;
pub mod quote;
pub mod schema;
pub mod selector;
pub mod status;
pub mod table;
pub mod time;
pub mod validate;

pub use decode::{DecodeError, Decoded, Format, decode, decode_typed, encode_yaml};
pub use field::{BadValue, FieldError, FieldErrorKind, FieldErrors};
pub use gvk::{GroupKind, GroupResource, GroupVersion};
pub use object::{ListMeta, ManagedFieldsEntry, Object, ObjectMeta, Operation, OwnerReference};
pub use schema::{Schema, TypeMismatch};
pub use status::{ApiError, Reason, Status, StatusCause, StatusDetails};
pub use time::{MicroTimestamp, Timestamp, human_duration};

//! The OpenAPI documents. Version 3 has a document for each group and version, made from the list of kinds. Version 2
//! has one document, made from those of version 3.
//!
//! Both are also available in protobuf, as gnostic messages, for Go clients.

mod deletions;
mod failures;
mod gnostic_v2;
mod gnostic_v3;

mod protobuf;

pub mod v2;
pub mod v3;

//! OpenAPI: version 3, a document for each group and version, made from the list of kinds; and
//! version 2, one document for everything, made from those.
//!
//! Both also come in protobuf, in the messages of gnostic, which Go clients read.

mod deletions;
mod failures;
mod gnostic_v2;
mod gnostic_v3;

mod protobuf;

pub mod v2;
pub mod v3;

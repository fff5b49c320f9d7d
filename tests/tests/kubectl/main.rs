//! kubectl, newest, as a person uses it: on the manifests in `examples/`, and as the README says.
#![expect(clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod changing;
mod deleting;
mod documents;
mod reading;

//! The newest kubectl as users run it: with the manifests in `examples/`, and as in the tutorial.
#![expect(clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod applying;
mod changing;
mod deleting;
mod documents;
mod reading;

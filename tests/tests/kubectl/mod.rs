//! The newest kubectl as users run it: with the manifests in `examples/`, and as in the README.

mod applying;
mod changing;
mod deleting;
mod documents;
mod reading;

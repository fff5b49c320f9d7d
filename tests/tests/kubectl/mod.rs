//! The newest kubectl as users run it: with the manifests in `examples/`, and as in the tutorial.

mod applying;
mod changing;
mod deleting;
mod documents;
mod reading;

//! Holes that were found, as requests over HTTP: ways to get or keep what one must not have, and ways to lose what is
//! one's own. What is tested at another level is not repeated here.
#![expect(clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod child_keys;
mod clusters;
mod deputies;
mod impersonation;
mod made_for;
mod migration;
mod options;
mod past;
mod scene;
mod scoped_siblings;
mod wire;

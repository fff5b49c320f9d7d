//! The parts that the artefacts share. `cargo xtask dist` and `cargo xtask image` put them together.
//!
//! [`release`] says which commit is built, [`program`] builds it, and [`archive`] writes archives of the same bytes
//! each time. [`dependencies`] finds the crates in the program, for [`licences`] and [`sbom`].

pub(crate) mod archive;
pub(crate) mod dependencies;
pub(crate) mod licences;
pub(crate) mod program;
pub(crate) mod release;
pub(crate) mod sbom;

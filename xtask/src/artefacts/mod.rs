//! The parts that the artefacts share. `cargo xtask dist` and `cargo xtask image` put them together.
//!
//! [`release`] says which commit is built, [`program`] builds it, and [`archive`] writes archives of the same bytes
//! each time. [`dependencies`] finds the crates in the program, and [`npm`] the packages in the web console, for [`licences`]
//! and [`sbom`]. [`krew`] writes the manifest of the kubectl plugin.

pub(crate) mod archive;
pub(crate) mod dependencies;
pub(crate) mod krew;
pub(crate) mod licences;
pub(crate) mod npm;
pub(crate) mod program;
pub(crate) mod release;
pub(crate) mod sbom;

//! Bugs that other systems of this kind have had, each as a test that has its name.
//!
//! Not here are bugs that have a test of another purpose (`cve_2019_11202` is with the restarts),
//! and bugs about clusters, which are not reached yet.

mod leaks;
mod names;
mod remains;
mod scopes;
mod subresources;

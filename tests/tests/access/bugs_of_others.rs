//! Bugs that other systems of this kind have had, each as a test that has its name.
//!
//! What does not live here: bugs that have a test of another purpose (`cve_2019_11202` is with the
//! restarts), and those about clusters, which are not reached yet.

mod leaks;
mod names;
mod remains;
mod scopes;
mod subresources;

//! Builds the crate again when the files of the web console have changed.

use std::path::Path;

/// The files that `npm run build` makes in `console/`. They are not committed.
const BUILT: &str = "../../console/dist";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_CONSOLE").is_none() {
        return;
    }
    // A path that is missing would make each build run this script again. So the directory is created, empty.
    if Path::new(BUILT).is_dir() || std::fs::create_dir_all(BUILT).is_ok() {
        println!("cargo:rerun-if-changed={BUILT}");
    }
}

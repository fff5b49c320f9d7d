//! Lists the files of the web console for `src/endpoints/console.rs`, which has them in the program.

#![expect(clippy::disallowed_methods, reason = "a build script writes its file")]

use std::path::{Path, PathBuf};

/// The files that `npm run build` makes in `console/`. They are not committed.
const BUILT: &str = "../../console/dist";

/// The committed files among them.
const COMMITTED: &str = "../../console/public";

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name| std::env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let mut list = String::new();
    if std::env::var_os("CARGO_FEATURE_CONSOLE").is_some() {
        // A debug build reads the files when they are requested. Its list has the committed ones, so that each build
        // compiles a list.
        let is_debug = variable("PROFILE") == Path::new("debug");
        let listed = if is_debug { COMMITTED } else { BUILT };
        let directory = variable("CARGO_MANIFEST_DIR").join(listed);
        // A path that is missing would make each build run this script again. So the directory is created, empty.
        std::fs::create_dir_all(&directory)?;
        println!("cargo:rerun-if-changed={listed}");
        let mut files = Vec::new();
        add_files(&directory, &mut files)?;
        // In one order, so that two builds of one commit are equal.
        files.sort();
        let entries = files.iter().map(|file| {
            let name = file.strip_prefix(&directory).unwrap_or(file).to_string_lossy();
            let path = file.to_string_lossy();
            format!("({name:?}, include_bytes!({path:?}).as_slice()),\n")
        });
        list = entries.collect();
    }
    std::fs::write(variable("OUT_DIR").join("console.rs"), format!("&[{list}]"))
}

/// Adds all files below a directory.
fn add_files(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            add_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

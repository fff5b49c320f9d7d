//! Finds the files that the checks read. Their content is not looked at here.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Directories with Rust source of this repository, including those that do not exist yet.
const RUST_DIRECTORIES: &[&str] = &["crates", "tests", "xtask", "fuzz", "benches"];

/// Names of directories with generated or foreign files.
pub(super) const SKIPPED: &[&str] = &["target", "corpus", "artifacts"];

/// Documents outside of `docs/`. The change log is left out: its entries stay as they were.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "fuzz/README.md",
    "xtask/src/bench/notes.md",
];

/// Every Rust file of the project, sorted, each by its path from the workspace's root.
pub(super) fn rust(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for directory in RUST_DIRECTORIES {
        files.extend(with_extension(root, directory, "rs")?);
    }
    files.sort();
    Ok(files)
}

/// Every document of the project in Markdown, by its path from the workspace's root.
pub(super) fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> =
        DOCUMENTS.iter().map(PathBuf::from).filter(|path| root.join(path).exists()).collect();
    files.extend(with_extension(root, "docs", "md")?);
    Ok(files)
}

/// The files below `directory` with this extension, sorted, each by its path from `root`. A
/// directory that does not exist has no files.
pub(super) fn with_extension(
    root: &Path,
    directory: &str,
    extension: &str,
) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(&root.join(directory), extension, &mut files)?;
    let mut files: Vec<_> = files
        .into_iter()
        .map(|path| path.strip_prefix(root).map(Path::to_path_buf).unwrap_or(path))
        .collect();
    files.sort();
    Ok(files)
}

/// The text of a file, given by its path from `root`.
pub(super) fn read(root: &Path, path: &Path) -> Result<String> {
    std::fs::read_to_string(root.join(path))
        .with_context(|| format!("cannot read {}", path.display()))
}

fn collect(directory: &Path, extension: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                collect(&path, extension, files)?;
            }
        } else if path.extension().is_some_and(|own| own == extension) {
            files.push(path);
        }
    }
    Ok(())
}

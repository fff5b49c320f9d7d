//! The rules of the architecture about form, as a check that fails.
//!
//! [`edges`] checks which crates depend on which, [`circles`] the modules inside each crate,
//! [`unused`] dependencies that nothing uses, [`source`] the files, [`words`] their words, and
//! [`sentences`] the length of their sentences. [`paths`] checks the files that documents name,
//! [`conformance`] the tests that the list of what clients expect names, and [`pages`] some pages of
//! the documentation. Each finding says where it is and what to do about it.

mod circles;
mod conformance;
mod edges;
mod files;
mod lengths;
mod modules;
mod pages;
mod paths;
mod prose;
mod references;
mod sentences;
mod source;
mod unused;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;

/// One thing that is not as it should be.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: PathBuf,
    line: usize,
    /// The error, and what to do about it.
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

/// Runs every check, prints every finding, and then how long the functions of the product are.
pub(crate) fn check(root: &Path) -> Result<()> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()
        .context("cargo metadata failed")?;
    let mut findings = edges::check(root, &metadata)?;
    let (files, in_files) = source::check(root)?;
    findings.extend(in_files);
    let crates = modules::crates(root, &metadata);
    findings.extend(circles::check(&crates));
    findings.extend(unused::check(root, &metadata, &crates)?);
    findings.extend(words::check(root)?);
    findings.extend(sentences::check(root)?);
    findings.extend(paths::check(root)?);
    findings.extend(conformance::check(root)?);
    findings.extend(pages::check(root, &crates)?);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    println!("    crates/ without its tests: {}", lengths_in_crates(&crates));
    if !findings.is_empty() {
        bail!("the layout check found {} thing(s) to mend", findings.len());
    }
    println!("    layout: {files} files, dependencies as drawn");
    Ok(())
}

/// How long the functions of the product are: those of the libraries and programs under `crates/`.
fn lengths_in_crates(crates: &[modules::Crate]) -> lengths::Summary {
    let files = crates.iter().filter(|one| one.is_in("crates")).flat_map(|one| &one.files);
    lengths::Summary::of(files.flat_map(lengths::outside_of_tests).collect())
}

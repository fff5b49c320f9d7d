//! The rules of the architecture about form, as a check that fails.
//!
//! [`manifests`] checks the dependencies, [`circles`] the modules inside each crate, [`source`] the
//! files, [`words`] their words, and [`sentences`] the length of their sentences. clippy checks
//! functions (`clippy.toml`). [`paths`] checks the files that documents name, [`conformance`] the
//! tests that the list of clients' requirements names, and [`pages`] some pages of the
//! documentation. Each finding says where it is and what to do about it.

mod circles;
mod conformance;
mod files;
mod manifests;
mod modules;
mod pages;
mod paths;
mod prose;
mod references;
mod sentences;
mod source;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;

/// One violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: PathBuf,
    line: usize,
    /// The error, and its remedy.
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

/// Runs every check, and prints every finding.
pub(crate) fn check(root: &Path) -> Result<()> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()
        .context("cargo metadata failed")?;
    let mut findings = manifests::check(root, &metadata)?;
    let (files, in_files) = source::check(root)?;
    findings.extend(in_files);
    let crates = modules::crates(root, &metadata);
    findings.extend(circles::check(&crates));
    findings.extend(words::check(root)?);
    findings.extend(sentences::check(root)?);
    findings.extend(paths::check(root)?);
    findings.extend(conformance::check(root)?);
    findings.extend(pages::check(root, &crates)?);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("the layout check found {} thing(s) to mend", findings.len());
    }
    println!("    layout: {files} files, no cycle, no unused dependency");
    Ok(())
}

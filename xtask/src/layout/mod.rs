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

use anyhow::{Context, Result, anyhow, bail};
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
    let (files, mut findings) = std::thread::scope(|scope| {
        let in_files = scope.spawn(|| source::check(root));
        let texts = [
            scope.spawn(|| manifests::check(root, &metadata)),
            scope.spawn(|| words::check(root)),
            scope.spawn(|| sentences::check(root)),
            scope.spawn(|| paths::check(root)),
            scope.spawn(|| conformance::check(root)),
        ];
        // Parsed modules stay on the thread that parsed them.
        let crates = modules::crates(root, &metadata);
        let mut findings = circles::check(&crates);
        findings.extend(pages::check(root, &crates)?);
        for check in texts {
            findings.extend(check.join().map_err(|_| anyhow!("a check panicked"))??);
        }
        let (files, more) = in_files.join().map_err(|_| anyhow!("a check panicked"))??;
        findings.extend(more);
        anyhow::Ok((files, findings))
    })?;
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

//! What the architecture says about form, as a check that fails.
//!
//! [`edges`] looks at who depends on whom, [`source`] at the files themselves. Each finding says
//! where it is and what to do about it.

mod edges;
mod source;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// One thing that is not as it should be.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: PathBuf,
    line: usize,
    /// What is wrong, and what to do.
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

/// Runs every check and prints every finding.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut findings = edges::check(root)?;
    let (files, in_files) = source::check(root)?;
    findings.extend(in_files);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("the layout check found {} thing(s) to mend", findings.len());
    }
    println!("    layout: {files} files, dependencies as drawn");
    Ok(())
}

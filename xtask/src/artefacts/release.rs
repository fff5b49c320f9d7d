//! The identity of a release: its version, target, commit and time. An artefact contains nothing
//! else of the machine or of the moment.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use cargo_metadata::MetadataCommand;

use crate::shell;

/// The package of the program.
pub(crate) const PACKAGE: &str = "postern";

/// Features that released programs have, if the package has them.
const RELEASED_FEATURES: &[&str] = &["otel"];

/// The source of a release: its version, target, commit and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) version: String,
    /// The licence of the program, as an SPDX expression.
    pub(crate) licence: String,
    /// The address of the repository, or nothing.
    pub(crate) repository: Option<String>,
    /// The target triple.
    pub(crate) target: String,
    pub(crate) commit: String,
    /// The time of the commit in seconds since 1970, which is the time of each file.
    pub(crate) epoch: u64,
    /// The time of the commit in RFC 3339.
    pub(crate) date: String,
    /// The features of the package that are switched on.
    pub(crate) features: Vec<String>,
}

impl Release {
    /// Reads the manifest, git and the toolchain. Outside of a git repository, `POSTERN_COMMIT` and
    /// `SOURCE_DATE_EPOCH` replace git, as they do in the build script of the program.
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
        let package = metadata
            .packages
            .iter()
            .find(|package| package.name == PACKAGE)
            .with_context(|| format!("the workspace has no package {PACKAGE}"))?;
        let own = |feature: &&&str| package.features.contains_key(**feature);
        let git = |format: &str| {
            let mut command = Command::new("git");
            shell::output_of(command.current_dir(root).args(["show", "-s", format, "HEAD"]))
        };
        let commit = std::env::var("POSTERN_COMMIT").or_else(|_| git("--format=%H"));
        let epoch = std::env::var("SOURCE_DATE_EPOCH").or_else(|_| git("--format=%ct"));
        let epoch = epoch.context("without git, set POSTERN_COMMIT and SOURCE_DATE_EPOCH")?;
        let epoch = epoch.parse().with_context(|| format!("{epoch} is no number of seconds"))?;
        Ok(Self {
            version: package.version.to_string(),
            licence: package.license.clone().context("the package has no licence")?,
            repository: package.repository.clone().filter(|address| !address.is_empty()),
            target: host()?,
            commit: commit.context("without git, set POSTERN_COMMIT")?,
            epoch,
            date: rfc3339(epoch)?,
            features: RELEASED_FEATURES.iter().filter(own).map(ToString::to_string).collect(),
        })
    }

    /// The name of the archive and of the directory in it: `postern-VERSION-TARGET`.
    pub(crate) fn name(&self) -> String {
        format!("{PACKAGE}-{}-{}", self.version, self.target)
    }
}

/// Prints a warning if files differ from the commit: an artefact of them belongs to no commit.
pub(crate) fn warn_of_changes(root: &Path) {
    let mut command = Command::new("git");
    command.current_dir(root).args(["status", "--porcelain"]);
    if shell::output_of(&mut command).is_ok_and(|changes| !changes.is_empty()) {
        println!("    warning: the work tree has changes that are not committed");
    }
}

/// A time in RFC 3339, UTC.
fn rfc3339(epoch: u64) -> Result<String> {
    let seconds = i64::try_from(epoch).context("the time is too large")?;
    let time = jiff::Timestamp::from_second(seconds).context("the time is too large")?;
    Ok(time.to_string())
}

/// The target triple of this machine.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = shell::output_of(Command::new(rustc).arg("-vV"))?;
    host_in(&version).map(str::to_owned).context("rustc does not say for which target it builds")
}

fn host_in(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("host: "))
}

/// A release for tests.
#[cfg(test)]
pub(crate) fn example() -> Release {
    Release {
        version: "0.2.0".to_owned(),
        licence: "Apache-2.0".to_owned(),
        repository: None,
        target: "x86_64-unknown-linux-gnu".to_owned(),
        commit: "0123abcd".to_owned(),
        epoch: 9,
        date: "1970-01-01T00:00:09Z".to_owned(),
        features: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc() {
        for (epoch, expected) in
            [(0, "1970-01-01T00:00:00Z"), (1_795_723_391, "2026-11-26T20:03:11Z")]
        {
            assert_eq!(rfc3339(epoch).unwrap(), expected);
        }
        assert!(rfc3339(u64::MAX).is_err());
    }

    #[test]
    fn the_target_is_the_one_of_the_compiler() {
        let version =
            "rustc 1.95.0\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0";
        assert_eq!(host_in(version), Some("x86_64-unknown-linux-gnu"));
        assert_eq!(host_in("rustc 1.95.0"), None);
    }
}

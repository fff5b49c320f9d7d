//! The build of the program, as all tasks share it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::shell;

/// A profile of cargo.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Profile {
    /// The profile that developers build.
    Debug,
    /// The profile that users run.
    Release,
}

/// Builds the binary once, with the features that the test build has. Returns its path.
pub(crate) fn build_server(root: &Path, profile: Profile) -> Result<PathBuf> {
    let mut command = shell::cargo();
    command.current_dir(root).args(["build", "--workspace", "--bin", "postern"]);
    let directory = match profile {
        Profile::Debug => "debug",
        Profile::Release => {
            command.arg("--release");
            "release"
        }
    };
    shell::run(&mut command)?;
    let binary = shell::target_directory(root)?.join(directory).join("postern");
    if !binary.exists() {
        bail!("the build left no {}", binary.display());
    }
    Ok(binary)
}

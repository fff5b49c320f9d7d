//! Kubeconfigs: where they are, what they say, and changing them without losing anything.

mod edit;
mod read;

use std::path::PathBuf;

pub(crate) use edit::{Login, login, logout};
pub(crate) use read::{Kubeconfig, Place};

use crate::failure::Failure;
use crate::surroundings::Surroundings;

/// The largest kubeconfig that is read.
const FILE_MAX_BYTES: usize = 8 * 1024 * 1024;

/// The files that together are the kubeconfig, in the order in which they count.
pub(crate) struct Files {
    /// At least one.
    pub(crate) paths: Vec<PathBuf>,
    /// Was this one file named on the command line? Then it must be there.
    pub(crate) must_exist: bool,
}

impl Files {
    /// `--kubeconfig`, else the list in `KUBECONFIG`, else `~/.kube/config`.
    pub(crate) fn find(
        flag: Option<&PathBuf>,
        surroundings: &Surroundings,
    ) -> Result<Self, Failure> {
        if let Some(path) = flag {
            return Ok(Self { paths: vec![path.clone()], must_exist: true });
        }
        if let Some(list) = surroundings.variable("KUBECONFIG") {
            let given = std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty());
            let paths: Vec<_> = given.collect();
            if !paths.is_empty() {
                return Ok(Self { paths, must_exist: false });
            }
        }
        let Some(home) = surroundings.variable("HOME") else {
            return Err(Failure::new("there is no home directory to look for a kubeconfig in")
                .hint("name the file with --kubeconfig"));
        };
        Ok(Self { paths: vec![PathBuf::from(home).join(".kube/config")], must_exist: false })
    }
}

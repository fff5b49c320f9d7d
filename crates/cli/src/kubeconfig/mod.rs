//! Kubeconfigs: their location, their content, and changes without losing anything. `session.rs`
//! chooses the server and the key of a command.

mod connection;
mod edit;
#[cfg(test)]
mod merging;
mod read;

use std::path::PathBuf;

pub(crate) use connection::{Connection, Credential, Plugin, Writing, connect, make_absolute};
pub(crate) use edit::{Login, OtherLogins, WrittenLogin, is_login, login, logout, may_create_in};
pub(crate) use read::{ENTRY_PREFIX, Kubeconfig, LoginEntries, ResolvedContext, some_of};

use crate::error::CliError;
use crate::process::Process;

/// The files that together are the kubeconfig; earlier ones win.
pub(crate) struct Files {
    /// At least one.
    pub(crate) paths: Vec<PathBuf>,
    /// The source of the list.
    pub(crate) origin: Origin,
}

/// The source of the list of kubeconfig files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The command line.
    Flag,
    /// The environment variable `KUBECONFIG`.
    Environment,
    /// Nothing: it is the default, which need not exist.
    Default,
}

impl Files {
    /// The file of `--kubeconfig`, else the list in `KUBECONFIG`, else `~/.kube/config`.
    pub(crate) fn find(flag: Option<&PathBuf>, process: &Process) -> Result<Self, CliError> {
        if let Some(path) = flag {
            return Ok(Self { paths: vec![path.clone()], origin: Origin::Flag });
        }
        if let Some(list) = process.variable("KUBECONFIG") {
            let given = std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty());
            let paths: Vec<_> = given.collect();
            if !paths.is_empty() {
                return Ok(Self { paths, origin: Origin::Environment });
            }
        }
        let Some(home) = process.variable("HOME") else {
            return Err(CliError::new("there is no home directory to look for a kubeconfig in")
                .hint("name the file with --kubeconfig"));
        };
        let paths = vec![PathBuf::from(home).join(".kube/config")];
        Ok(Self { paths, origin: Origin::Default })
    }
}

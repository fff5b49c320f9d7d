//! The directory of one test: the server's data, its output, and the client's caches. The
//! directories of the playground stay.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

/// A directory for servers that run on it one after the other. A temporary one is deleted when the last clone
/// is dropped.
#[derive(Clone, Debug)]
pub struct Home {
    directory: Arc<Directory>,
}

#[derive(Debug)]
enum Directory {
    Temporary(TempDir),
    Lasting(PathBuf),
}

impl Home {
    /// A new, empty one.
    #[expect(clippy::new_without_default, reason = "it makes a directory, which is no default")]
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("postern-test-").tempdir().unwrap();
        Self { directory: Arc::new(Directory::Temporary(directory)) }
    }

    /// A directory that stays. It is created if it does not exist.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        std::fs::create_dir_all(path)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        let path = path.canonicalize().unwrap();
        Self { directory: Arc::new(Directory::Lasting(path)) }
    }

    /// The directory itself, where a test can put its own files.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &*self.directory {
            Directory::Temporary(directory) => directory.path(),
            Directory::Lasting(path) => path,
        }
    }

    /// The value of `--data-dir`. The directory does not exist before the first start.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// The kubeconfig that the first start writes.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.data().join("admin.kubeconfig")
    }

    /// The audit log, at its default path.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.data().join("audit/audit.log")
    }

    /// The records in the audit log so far.
    #[must_use]
    pub fn records(&self) -> Vec<Value> {
        records_in(&self.audit_log())
    }

    /// The records that agents have reported so far.
    #[must_use]
    pub fn reported_records(&self) -> Vec<Value> {
        records_in(&self.data().join("audit/audit-agents.log"))
    }

    pub(crate) fn stdout(&self) -> PathBuf {
        self.path().join("stdout.log")
    }

    pub(crate) fn stderr(&self) -> PathBuf {
        self.path().join("stderr.log")
    }

    /// The standard output of all servers on this directory so far.
    #[must_use]
    pub fn printed(&self) -> String {
        std::fs::read_to_string(self.stdout()).unwrap_or_default()
    }

    /// The log of all servers on this directory so far.
    #[must_use]
    pub fn logged(&self) -> String {
        std::fs::read_to_string(self.stderr()).unwrap_or_default()
    }
}

fn records_in(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may be about to be written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a record is JSON")).collect()
}

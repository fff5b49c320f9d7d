//! The mark of a disk that has failed: an empty file next to the database.
//!
//! When a sync fails, the kernel marks the pages as clean although they were not written, and goes on serving
//! them from its cache, also to the next process. So a database must then be read from the disk, which takes
//! many times as long. The mark need not be durable: it is needed for as long as that cache is there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The mark. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultMark {
    /// The path of the mark; `None` for a database that is in no file.
    path: Option<PathBuf>,
    /// Whether it was set by this process: a disk that fails may not take the file.
    is_set: Arc<AtomicBool>,
}

impl FaultMark {
    /// The place of the mark of a database.
    pub(super) fn of(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(".fault");
        Self { path: Some(PathBuf::from(name)), ..Self::default() }
    }

    /// Whether the disk has failed since the database was opened last. If that cannot be known, it counts as
    /// failed.
    pub(super) fn is_set(&self) -> bool {
        let exists = |path: &PathBuf| path.try_exists().unwrap_or(true);
        self.is_set.load(Ordering::SeqCst) || self.path.as_ref().is_some_and(exists)
    }

    /// Notes that the disk has failed.
    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        let Some(path) = &self.path else { return };
        if let Err(error) = File::create(path) {
            tracing::error!(path = %path.display(), %error, "the fault of the disk cannot be noted");
        }
    }

    /// Notes that the database was read from the disk after a fault.
    pub(super) fn clear(&self) {
        self.is_set.store(false, Ordering::SeqCst);
        let Some(path) = self.path.as_ref().filter(|_| self.is_set()) else { return };
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(path = %path.display(), %error, "the mark of a fault was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stays_until_it_is_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let mark = FaultMark::of(&directory.path().join("db"));
        mark.clear();
        assert!(!mark.is_set());
        mark.set();
        mark.set();
        assert!(mark.is_set() && FaultMark::of(&directory.path().join("db")).is_set());
        mark.clear();
        assert!(!mark.is_set());
        let none = FaultMark::default();
        none.set();
        assert!(none.is_set());
        none.clear();
        assert!(!none.is_set());
    }
}

//! The mark of a store that is being moved, or was moved: no server starts on it.

use std::fmt;

/// How the source of a restore from a backup begins.
const BACKUP: &str = "backup:";

/// Why no server may start on a store. A store is named as on the command line: `etcd://…` or `file:…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationMark {
    /// The store is being filled from another store, or from a backup.
    Unfinished {
        /// The other store.
        from: String,
    },
    /// The data was moved to another store, which goes on with it.
    Moved {
        /// The other store.
        to: String,
    },
}

impl MigrationMark {
    /// The mark of a store that is being filled from a backup with this checksum.
    pub(crate) fn of_restore(checksum: &[u8]) -> Self {
        Self::Unfinished { from: format!("{BACKUP}{}", hex::encode(checksum)) }
    }

    /// The mark in a text; `None` if it is not one that was written.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end();
        if let Some(from) = text.strip_prefix("unfinished from ") {
            return Some(Self::Unfinished { from: from.to_owned() });
        }
        text.strip_prefix("moved to ").map(|to| Self::Moved { to: to.to_owned() })
    }

    /// Says why the store `here` cannot be used, and what to do.
    pub fn explain(&self, here: &str) -> String {
        match self {
            Self::Unfinished { from } if from.starts_with(BACKUP) => format!(
                "a restore to {here} is not complete: run postern storage restore again with the same backup"
            ),
            Self::Unfinished { from } => format!(
                "a migration to {here} is not complete: run postern storage migrate --from {from} --to {here} \
                 again"
            ),
            Self::Moved { to } => format!(
                "the data of {here} was moved to {to}; to move it back, run postern storage migrate --from {to} \
                 --to {here}"
            ),
        }
    }
}

impl fmt::Display for MigrationMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished { from } => write!(f, "unfinished from {from}"),
            Self::Moved { to } => write!(f, "moved to {to}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let (from, to) = ("file:/a b".to_owned(), "etcd://a:1/p".to_owned());
        for mark in [
            MigrationMark::Unfinished { from },
            MigrationMark::Moved { to },
            MigrationMark::of_restore(&[1, 2]),
        ] {
            assert_eq!(MigrationMark::parse(&format!("{mark}\n")), Some(mark));
        }
        assert_eq!(MigrationMark::parse("postern 1"), None);
    }
}

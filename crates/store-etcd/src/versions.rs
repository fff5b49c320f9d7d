//! The versions of etcd in which known faults are fixed. This is the only place that has them.

use std::fmt;

/// For each minor version that still gets fixes, the first patch with some fixes. Newer minor versions have them, too.
pub(crate) struct Versions(&'static [(u32, u32, u32)]);

/// Without known loss of events or of data. Older ones are refused.
pub(crate) const SAFE: Versions = Versions(&[(3, 4, 31), (3, 5, 13), (3, 6, 0)]);

/// Watches deliver a deletion at the revision of a compaction.
pub(crate) const DELIVERING: Versions = Versions(&[(3, 4, 36), (3, 5, 18), (3, 6, 0)]);

/// Without known faults of authentication, leases and transactions. Older ones lead to a warning.
pub(crate) const RECOMMENDED: Versions = Versions(&[(3, 4, 42), (3, 5, 28), (3, 6, 9)]);

impl Versions {
    /// Whether a version is at least the listed one of its minor version, or newer than all of them.
    pub(crate) fn includes(&self, version: &str) -> bool {
        let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        let version = (next(), next(), next());
        let Self(list) = self;
        let same_minor = list.iter().find(|one| (one.0, one.1) == (version.0, version.1));
        same_minor
            .map_or_else(|| list.last().is_some_and(|last| version > *last), |one| version >= *one)
    }
}

/// The versions, as in `3.4.31, 3.5.13 and 3.6.0`.
impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (major, minor, patch)) in self.0.iter().enumerate() {
            let before = match index {
                0 => "",
                _ if index + 1 == self.0.len() => " and ",
                _ => ", ",
            };
            write!(f, "{before}{major}.{minor}.{patch}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_known_faults_are_not_included() {
        for (version, safe, recommended) in [
            ("3.4.23", false, false),
            ("3.4.31", true, false),
            ("3.4.41", true, false),
            ("3.4.42", true, true),
            ("3.5.1", false, false),
            ("3.5.13", true, false),
            ("3.5.13+git", true, false),
            ("3.5.28", true, true),
            ("3.6.0", true, false),
            ("3.6.0-rc.1", true, false),
            ("3.6.8", true, false),
            ("3.6.9", true, true),
            ("3.7.2", true, true),
            ("4.0.0", true, true),
            ("3.3.27", false, false),
            ("2.3.8", false, false),
            ("", false, false),
        ] {
            assert_eq!(SAFE.includes(version), safe, "{version}");
            assert_eq!(RECOMMENDED.includes(version), recommended, "{version}");
        }
        assert_eq!(RECOMMENDED.to_string(), "3.4.42, 3.5.28 and 3.6.9");
    }
}

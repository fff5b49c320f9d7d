//! An access key that may get in: whose it is, how long it lives, when it was used.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use postern_kinds::principal::Lifetime;

use crate::bearer::Refusal;
use crate::identity::Identity;

/// When a key was used last, in seconds since 1970; shared by everything that must know.
#[derive(Debug, Default)]
pub struct Activity(AtomicI64);

impl Activity {
    /// Returns an activity at a time; 0 stands for never.
    pub fn at(unix_seconds: i64) -> Self {
        Self(AtomicI64::new(unix_seconds))
    }

    /// Records a use. A clock that goes backwards changes nothing.
    pub fn note(&self, now_unix_seconds: i64) {
        self.0.fetch_max(now_unix_seconds, Ordering::Relaxed);
    }

    /// Returns the last use; `None` for never.
    pub fn last(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0)
    }
}

/// An access key that may get in.
#[derive(Debug)]
pub struct ResolvedKey {
    /// The identity of its owner.
    pub identity: Arc<Identity>,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// When it was used last.
    pub activity: Arc<Activity>,
}

impl ResolvedKey {
    /// Returns when it ends, in seconds since 1970; `None` for never.
    pub fn ends_at(&self) -> Option<i64> {
        self.lifetime.ends_at(self.activity.last())
    }

    /// Checks that the key still works.
    ///
    /// # Errors
    /// [`Refusal::Expired`], when it has expired.
    pub fn check(&self, now_unix_seconds: i64) -> Result<(), Refusal> {
        match self.ends_at() {
            Some(end) if end <= now_unix_seconds => Err(Refusal::Expired),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_second_is_not_lived() {
        let lifetime =
            Lifetime { created_unix_seconds: 0, ttl_seconds: 300, after_last_activity: true };
        let activity = Arc::new(Activity::at(100));
        let key = ResolvedKey { identity: Arc::default(), lifetime, activity: activity.clone() };
        assert_eq!(key.check(399), Ok(()));
        assert_eq!(key.check(400), Err(Refusal::Expired));
        activity.note(399);
        activity.note(50);
        assert_eq!(key.check(400), Ok(()));
    }
}

//! How a key stands: whom it shows, how long it lives, when it was used.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::bearer::Refusal;
use crate::identity::Identity;

/// When a key was used last, in seconds since 1970; shared by everything that must know.
#[derive(Debug, Default)]
pub struct Activity(AtomicI64);

impl Activity {
    /// Used last at a time; 0 stands for never.
    pub fn at(unix_seconds: i64) -> Self {
        Self(AtomicI64::new(unix_seconds))
    }

    /// Notes a use. Time that goes backwards is not believed.
    pub fn note(&self, now_unix_seconds: i64) {
        self.0.fetch_max(now_unix_seconds, Ordering::Relaxed);
    }

    /// The last use; `None` for never.
    pub fn last(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0)
    }
}

/// How long a key lives (decision 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// When the key was made, in seconds since 1970.
    pub created_unix_seconds: i64,
    /// How long it lives; 0 is for ever.
    pub ttl_seconds: i64,
    /// Counted from its last use, or from its creation while it has none?
    pub after_last_activity: bool,
}

impl Lifetime {
    /// When the key ends, in seconds since 1970; `None` for never.
    pub fn ends_at(&self, activity: &Activity) -> Option<i64> {
        if self.ttl_seconds <= 0 {
            return None;
        }
        let used = if self.after_last_activity { activity.last() } else { None };
        let from = used.unwrap_or(self.created_unix_seconds).max(self.created_unix_seconds);
        Some(from.saturating_add(self.ttl_seconds))
    }
}

/// How a key that may get in stands.
#[derive(Debug)]
pub struct ResolvedKey {
    /// Whom it shows.
    pub identity: Arc<Identity>,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// When it was used last.
    pub activity: Arc<Activity>,
}

impl ResolvedKey {
    /// When it ends, in seconds since 1970; `None` for never.
    pub fn ends_at(&self) -> Option<i64> {
        self.lifetime.ends_at(&self.activity)
    }

    /// Does the key live?
    ///
    /// # Errors
    /// [`Refusal::Expired`], when its time is over.
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
    fn a_life_ends_when_it_should() {
        let lifetime = |ttl_seconds, after_last_activity| Lifetime {
            created_unix_seconds: 1000,
            ttl_seconds,
            after_last_activity,
        };
        for (lifetime, used, end) in [
            (life(0, false), 0, None),
            (life(0, true), 5000, None),
            (life(300, false), 0, Some(1300)),
            (life(300, false), 1200, Some(1300)),
            (life(300, true), 0, Some(1300)),
            (life(300, true), 1200, Some(1500)),
            // A use that is noted before the creation is none: clocks of a restored backup.
            (life(300, true), 900, Some(1300)),
            (life(i64::MAX, false), 0, Some(i64::MAX)),
        ] {
            assert_eq!(lifetime.ends_at(&Activity::at(used)), end, "{lifetime:?} used at {used}");
        }
    }

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

//! An access key that gives access: the identity of its owner, its lifetime, its last use. How it is
//! resolved is in [`crate::principal_index`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use postern_kinds::principal::{KeyUse, Lifetime};
use postern_kinds::{CallerKey, Impersonation, Owner};

use crate::bearer::Refusal;
use crate::identity::Identity;

/// When a key was last used, in seconds since 1970. Shared by every index and request that has the
/// key.
#[derive(Debug, Default)]
pub struct Activity(AtomicI64);

impl Activity {
    /// An activity at a time, in seconds since 1970; 0 is never.
    pub fn at(unix_seconds: i64) -> Self {
        Self(AtomicI64::new(unix_seconds))
    }

    /// Records a use. A clock that goes backwards changes nothing.
    pub fn note(&self, now_unix_seconds: i64) {
        self.0.fetch_max(now_unix_seconds, Ordering::Relaxed);
    }

    /// The last use; `None` for never.
    pub fn last(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0)
    }
}

/// A key in the chain of makers of another one, which ends with it.
#[derive(Clone, Debug)]
pub struct Ancestor {
    /// The name of the OwnedAccessKey.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The uid of the user or team that owns it; empty for another subject.
    pub owner_uid: String,
    /// How long it gives access.
    pub lifetime: Lifetime,
    /// When it was last used.
    pub activity: Arc<Activity>,
    /// The identity that it impersonated when it created the next key of the chain, if it did.
    pub impersonated: Option<Impersonation>,
    /// Whether it has the type `Login`.
    pub is_login: bool,
}

/// An access key that gives access until it expires.
#[derive(Debug, Default)]
pub struct ResolvedKey {
    /// Its uid.
    pub uid: String,
    /// The identity of its owner.
    pub identity: Arc<Identity>,
    /// How long it gives access.
    pub lifetime: Lifetime,
    /// Whether it has the type `Login`.
    pub is_login: bool,
    /// When it was last used.
    pub activity: Arc<Activity>,
    /// The keys that it ends with, its own maker first.
    pub ancestors: Vec<Ancestor>,
    /// Its use.
    pub used_as: KeyUse,
}

impl ResolvedKey {
    /// The time at which it expires, or the earlier end of a key that created it, in seconds since
    /// 1970; `None` for never.
    pub fn ends_at(&self) -> Option<i64> {
        let own = ends_at(&self.lifetime, &self.activity);
        let ends = self.ancestors.iter().map(|one| ends_at(&one.lifetime, &one.activity));
        ends.chain([own]).flatten().min()
    }

    /// The latest time at which the key expires, regardless of uses; `None` if uses can extend it
    /// without a limit.
    pub fn latest_end(&self) -> Option<i64> {
        let own = Lifetime { idle_seconds: 0, ..self.lifetime };
        let own = own.ends_at(None).filter(|_| !own.after_last_activity);
        let ends = self.ancestors.iter().map(|one| ends_at(&one.lifetime, &one.activity));
        ends.chain([own]).flatten().min()
    }

    /// The key of a request, for the kinds' hooks. `impersonated` is the identity that the request
    /// impersonates, if it does.
    ///
    /// A session acts as the key of its login: objects that this key creates in a session do not
    /// end with the session. A login of the command line acts as the session that consented. If it
    /// ends before that session, it acts as itself: its user asked for this lifetime, so the
    /// objects that it creates end with it.
    pub fn as_caller_key(&self, impersonated: Option<Impersonation>) -> CallerKey {
        let identity = &self.identity;
        let user = identity.user.clone().map(Owner::User);
        let team = || identity.team.clone().map(Owner::Team);
        let owner = user.or_else(team).unwrap_or_else(|| Owner::Subject(identity.name.clone()));
        let own = CallerKey {
            name: identity.access_key.clone(),
            owner: Some(owner),
            is_scoped: identity.is_scoped(),
            has_maker: !self.ancestors.is_empty(),
            impersonated,
            uid: self.uid.clone(),
            lifetime: self.lifetime,
            last_activity_unix_seconds: self.activity.last(),
            is_login: self.is_login,
        };
        let session = usize::from(self.used_as.is_command_line() && self.ancestors.len() > 1);
        let acts_as_login = self.used_as.is_session() && !self.ends_before_its_session();
        match self.ancestors.get(session).filter(|_| acts_as_login) {
            Some(login) => CallerKey {
                name: login.name.clone(),
                uid: login.uid.clone(),
                has_maker: self.ancestors.len() > session + 1,
                lifetime: login.lifetime,
                last_activity_unix_seconds: login.activity.last(),
                is_login: login.is_login,
                ..own
            },
            None => own,
        }
    }

    /// Whether this is a login of the command line with a shorter lifetime than the session that consented. The idleness of
    /// the session does not count.
    fn ends_before_its_session(&self) -> bool {
        let end = |lifetime: Lifetime| Lifetime { idle_seconds: 0, ..lifetime }.ends_at(None);
        let session = self.ancestors.first().filter(|_| self.used_as.is_command_line());
        let of_session = session.and_then(|session| end(session.lifetime));
        of_session.is_some_and(|of_session| end(self.lifetime).is_some_and(|own| own < of_session))
    }

    /// Checks that the key has not expired.
    ///
    /// # Errors
    /// [`Refusal::Expired`] from the second on in which it expires.
    pub fn check(&self, now_unix_seconds: i64) -> Result<(), Refusal> {
        match self.ends_at() {
            Some(end) if end <= now_unix_seconds => Err(Refusal::Expired),
            _ => Ok(()),
        }
    }
}

/// The end of a lifetime. The last use is looked up only where it counts. Each request asks, and with
/// many keys each look-up is one more wait for memory.
fn ends_at(lifetime: &Lifetime, activity: &Activity) -> Option<i64> {
    lifetime.ends_at(lifetime.counts_uses().then(|| activity.last()).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_expires_at_the_end_of_its_lifetime_and_a_use_extends_it() {
        let lifetime =
            Lifetime { ttl_seconds: 300, after_last_activity: true, ..Lifetime::default() };
        let activity = Arc::new(Activity::at(100));
        let key = ResolvedKey {
            uid: "k1".to_owned(),
            lifetime,
            activity: activity.clone(),
            ..ResolvedKey::default()
        };
        assert_eq!(key.check(399), Ok(()));
        assert_eq!(key.check(400), Err(Refusal::Expired));
        activity.note(399);
        activity.note(50);
        assert_eq!(key.check(400), Ok(()));
        assert_eq!(key.as_caller_key(None).ends_at(), key.ends_at());
    }
}

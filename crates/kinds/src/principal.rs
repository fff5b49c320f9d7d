//! Principals: users and teams, who own things, and the access keys that they come with.
//!
//! Here is what the kinds User, Team and OwnedAccessKey declare about themselves, so that
//! authentication follows any kind that declares the same. How the facts are put together into an
//! identity is decided in `auth`.

use postern_meta::object::ObjectMeta;

use crate::names::MANAGEMENT_V1;
use crate::right::Right;
use crate::verb::Verb;

/// A principal, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Principal<'a> {
    /// A User.
    User(&'a str),
    /// A Team.
    Team(&'a str),
}

/// Which principals there are, for a kind that prepares or validates an object.
pub trait Principals {
    /// Returns the uid of a user or team; `None` when there is none of that name.
    fn uid(&self, principal: Principal<'_>) -> Option<String>;

    /// Returns the names of the teams that a user is in.
    fn teams_of(&self, user: &str) -> Vec<String>;
}

/// Where there are no principals yet.
#[derive(Debug)]
pub struct NoPrincipals;

impl Principals for NoPrincipals {
    fn uid(&self, _: Principal<'_>) -> Option<String> {
        None
    }

    fn teams_of(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Whose an object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A User, by name.
    User(String),
    /// A Team, by name.
    Team(String),
    /// Another identity, which is no object.
    Subject(String),
}

impl Owner {
    /// Returns the owner as a principal; `None` for a raw subject.
    pub fn principal(&self) -> Option<Principal<'_>> {
        match self {
            Self::User(name) => Some(Principal::User(name)),
            Self::Team(name) => Some(Principal::Team(name)),
            Self::Subject(_) => None,
        }
    }
}

/// Rights on an owner that stand for rights on what they own: who may `getkey` the user `ada` may
/// read her access keys (decision 3).
#[derive(Clone, Copy, Debug)]
pub struct Delegation<Spec> {
    /// Whose the object is.
    pub owner: fn(&Spec) -> Option<Owner>,
    /// The verb on the owner that stands for a verb on the object.
    pub verb: fn(Verb) -> &'static str,
}

/// Returns the right on an owner that stands for a verb on the object; `None` for a raw subject,
/// on whom nobody can hold a right.
pub(crate) fn delegated_right(verb: &'static str, owner: &Owner) -> Option<Right> {
    let (resource, name) = match owner {
        Owner::User(name) => ("users", name),
        Owner::Team(name) => ("teams", name),
        Owner::Subject(_) => return None,
    };
    Some(Right::cluster(verb, MANAGEMENT_V1.group, resource, name))
}

/// How long an access key lives (decision 3).
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
    /// Returns when the key ends, in seconds since 1970, given its last use; `None` for never.
    pub fn ends_at(&self, last_activity_unix_seconds: Option<i64>) -> Option<i64> {
        if self.ttl_seconds <= 0 {
            return None;
        }
        let used = last_activity_unix_seconds.filter(|_| self.after_last_activity);
        let from = used.unwrap_or(self.created_unix_seconds).max(self.created_unix_seconds);
        Some(from.saturating_add(self.ttl_seconds))
    }
}

/// What of a User decides who gets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFacts {
    /// The object's uid.
    pub uid: String,
    /// The name that access decisions see in the place of the object's own; empty for none.
    pub subject: String,
    /// The groups on the object.
    pub groups: Vec<String>,
    /// Is the user disabled?
    pub disabled: bool,
}

/// What of a Team decides who gets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamFacts {
    /// The object's uid.
    pub uid: String,
    /// The users who are in it.
    pub users: Vec<String>,
    /// Groups that whoever is in it is in.
    pub groups: Vec<String>,
}

/// What of an access key decides who gets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFacts {
    /// The object's uid.
    pub uid: String,
    /// Whose key it is; `None` when it names nobody, which lets nobody in.
    pub owner: Option<Owner>,
    /// Groups beyond the owner's.
    pub groups: Vec<String>,
    /// Is the key disabled?
    pub disabled: bool,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Has it a scope?
    pub scoped: bool,
}

/// Which part an object has in authentication, and how its facts are read.
#[derive(Clone, Copy, Debug)]
pub enum AccessRole<Spec> {
    /// Its objects are users.
    User(fn(&ObjectMeta, &Spec) -> UserFacts),
    /// Its objects are teams.
    Team(fn(&ObjectMeta, &Spec) -> TeamFacts),
    /// Its objects are access keys.
    Key(fn(&ObjectMeta, &Spec) -> KeyFacts),
}

/// A change of one principal or access key, for whoever keeps an index of them: the new facts, or
/// `None` when the object is gone or lets nobody in any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// Of a user.
    User(Option<UserFacts>),
    /// Of a team.
    Team(Option<TeamFacts>),
    /// Of an access key.
    Key(Option<KeyFacts>),
}

impl<Spec> AccessRole<Spec> {
    /// Returns the change that an object means; one that is gone, or is being deleted, means that
    /// nobody gets in by it.
    pub(crate) fn change(&self, object: Option<(&ObjectMeta, &Spec)>) -> AccessChange {
        let object = object.filter(|(metadata, _)| !metadata.is_terminating());
        match self {
            Self::User(facts) => AccessChange::User(object.map(|(meta, spec)| facts(meta, spec))),
            Self::Team(facts) => AccessChange::Team(object.map(|(meta, spec)| facts(meta, spec))),
            Self::Key(facts) => AccessChange::Key(object.map(|(meta, spec)| facts(meta, spec))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_ends_when_it_should() {
        let lifetime = |ttl_seconds, after_last_activity| Lifetime {
            created_unix_seconds: 1000,
            ttl_seconds,
            after_last_activity,
        };
        for (lifetime, used, end) in [
            (lifetime(0, false), None, None),
            (lifetime(0, true), Some(5000), None),
            (lifetime(300, false), None, Some(1300)),
            (lifetime(300, false), Some(1200), Some(1300)),
            (lifetime(300, true), None, Some(1300)),
            (lifetime(300, true), Some(1200), Some(1500)),
            // A use that is noted before the creation is none: clocks of a restored backup.
            (lifetime(300, true), Some(900), Some(1300)),
            (lifetime(i64::MAX, false), None, Some(i64::MAX)),
        ] {
            assert_eq!(lifetime.ends_at(used), end, "{lifetime:?} used at {used:?}");
        }
    }
}

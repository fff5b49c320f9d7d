//! Who wrote something, remembered for as long as it has an effect: who takes data from an object that they
//! may read is asked again, whenever data is taken, whether they still may.
//!
//! It outlives a restart and a restore. Names come back and identities do not, so it has uids. It decides
//! nothing: it says whose rights a [`policy`](crate::policy) is to be asked for.

use std::sync::Arc;

use postern_kinds::Principal;
use postern_kinds::scope::Scope;
use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::principal_index::PrincipalIndex;
use crate::scope::ScopeRules;

/// Who wrote something, with which key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Writer {
    /// The User's name, if it is a user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The Team's name, if it is a team.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub team: String,
    /// The uid of the user or team; empty for another subject, who is known by the key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The name of the access key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The uid of the access key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_uid: String,
    /// Was it written in the name of somebody else than the key's owner?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub impersonated: bool,
    /// The scopes of the key, and of the keys that made it: they hold when it is gone, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Scope>,
}

impl Writer {
    /// Returns who writes; `None` for somebody who cannot be found again: an impersonated subject that is
    /// neither a user nor a team.
    pub fn of(identity: &Identity, bearer: &Identity, key_uid: &str) -> Option<Self> {
        let is_principal = identity.user.is_some() || identity.team.is_some();
        if identity.is_impersonated && (!is_principal || identity.uid.is_empty()) {
            return None;
        }
        Some(Self {
            user: identity.user.clone().unwrap_or_default(),
            team: identity.team.clone().unwrap_or_default(),
            uid: identity.uid.clone(),
            key: bearer.access_key.clone(),
            key_uid: key_uid.to_owned(),
            impersonated: identity.is_impersonated,
            scopes: bearer.scopes.iter().map(|scope| scope.source().clone()).collect(),
        })
    }

    fn principal(&self) -> Option<Principal<'_>> {
        match (self.user.as_str(), self.team.as_str()) {
            ("", "") => None,
            ("", team) => Some(Principal::Team(team)),
            (user, _) => Some(Principal::User(user)),
        }
    }

    /// Returns who it is now, with the groups and teams of now. `None` when they are gone or disabled, whoever
    /// has their name since, or when the key is disabled. A user or team is still who they are when the key is
    /// gone: people log out. What it allowed at most is remembered.
    pub fn identity_now(
        &self,
        principals: &PrincipalIndex,
        now_unix_seconds: i64,
    ) -> Option<Identity> {
        let is_there = principals.is_key(&self.key, &self.key_uid);
        if is_there && principals.is_disabled_key(&self.key) {
            return None;
        }
        let of_key = || principals.identity_of_key(&self.key).filter(|_| is_there);
        let mut identity = match self.principal() {
            None => {
                let key = principals.identify_by_name(&self.key, now_unix_seconds).ok()?;
                let is_it = is_there && key.uid == self.key_uid && key.identity.uid.is_empty();
                is_it.then(|| (*key.identity).clone())?
            }
            Some(principal) => {
                let own = of_key().filter(|own| !self.impersonated && own.uid == self.uid);
                let live = principals.identity_of_principal(principal, &self.uid)?;
                own.map_or(live, |own| (*own).clone())
            }
        };
        let of_key = of_key().into_iter().flat_map(|key| key.scopes.clone());
        let recorded = self.scopes.iter().map(|scope| Arc::new(ScopeRules::new(scope)));
        identity.scopes.extend(of_key.chain(recorded));
        identity.is_impersonated = self.impersonated;
        Some(identity)
    }
}

#[cfg(test)]
mod tests {
    use postern_kinds::principal::UserFacts;

    use super::*;

    fn index(uid: &str, disabled: bool) -> PrincipalIndex {
        let mut index = PrincipalIndex::default();
        let (groups, subject) = (Vec::new(), String::new());
        let user = UserFacts { uid: uid.to_owned(), subject, groups, disabled };
        index.set_user("ada", Some(user));
        index
    }

    #[test]
    fn a_namesake_or_a_disabled_user_is_nobody() {
        let writer = Writer { user: "ada".to_owned(), uid: "u1".to_owned(), ..Writer::default() };
        let now = |index: PrincipalIndex| writer.identity_now(&index, 0);
        assert_eq!(now(index("u1", false)).unwrap().user.as_deref(), Some("ada"));
        assert_eq!(now(index("u2", false)), None, "a namesake");
        assert_eq!(now(index("u1", true)), None, "disabled");
        assert_eq!(now(PrincipalIndex::default()), None, "gone");
        assert_eq!(Writer::default().identity_now(&index("u1", false), 0), None);
        let nobody = Writer { uid: String::new(), ..writer.clone() };
        assert_eq!(nobody.identity_now(&index("", false), 0), None, "nobody has no uid");
    }

    #[test]
    fn the_scopes_of_a_key_that_is_gone_hold() {
        let scopes = vec![Scope::default()];
        let writer =
            Writer { user: "ada".to_owned(), uid: "u1".to_owned(), scopes, ..Writer::default() };
        let identity = writer.identity_now(&index("u1", false), 0).unwrap();
        assert!(identity.is_scoped(), "and allows nothing");
    }

    #[test]
    fn who_cannot_be_found_again_is_not_remembered() {
        let bearer = Identity { access_key: "k".to_owned(), ..Identity::default() };
        let subject = Identity { name: "robot".to_owned(), ..Identity::default() };
        assert_eq!(Writer::of(&subject, &bearer, "k1").unwrap().key_uid, "k1");
        let impersonated = Identity { is_impersonated: true, ..subject };
        assert_eq!(Writer::of(&impersonated, &bearer, "k1"), None);
        let user = Some("ada".to_owned());
        let known = Identity { user, uid: "u1".to_owned(), ..impersonated };
        assert!(Writer::of(&known, &bearer, "k1").unwrap().impersonated);
    }
}

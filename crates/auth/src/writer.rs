//! The author of a write, stored for as long as the write has an effect. Some writes take data from an
//! object that the author may read. Each time data is taken, the author's permission is checked again.
//!
//! It outlives a restart and a restore. Names can be used again and uids cannot, so it has uids. It
//! decides nothing: it only names the identity for which a [`policy`](crate::policy) is asked.

use std::sync::Arc;

use postern_kinds::scope::Scope;
use postern_kinds::{CallerKey, Impersonation, Principal};
use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::impersonated;
use crate::policy::Policy;
use crate::principal_index::PrincipalIndex;
use crate::scope::ScopeRules;

/// The author of a write: the key, and the identity that the key impersonated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Writer {
    /// The name of the User that owns the key, if a User does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The name of the Team that owns the key, if a Team does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub team: String,
    /// The uid of that user or team. It is empty for another subject, which the key identifies.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The name of the access key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The uid of the access key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_uid: String,
    /// Whether the key had the type `Login`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_login: bool,
    /// The identity that the request impersonated, if it did: that one wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated: Option<Impersonation>,
    /// The scopes of the key, and of the keys that created it. They stay in force after the key is
    /// deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Scope>,
}

/// The state of a key of type `Login` when its owner deleted it or when it expired. Work that was
/// requested with the key continues within this scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Logout {
    /// Its scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

impl Writer {
    /// The writer of a request: `bearer` is the owner of its key.
    pub fn of(bearer: &Identity, key: &CallerKey) -> Self {
        Self {
            user: bearer.user.clone().unwrap_or_default(),
            team: bearer.team.clone().unwrap_or_default(),
            uid: bearer.uid.clone(),
            key: bearer.access_key.clone(),
            key_uid: key.uid.clone(),
            is_login: key.is_login,
            impersonated: key.impersonated.clone(),
            scopes: bearer.scopes.iter().map(|scope| scope.source().clone()).collect(),
        }
    }

    fn principal(&self) -> Option<Principal<'_>> {
        match (self.user.as_str(), self.team.as_str()) {
            ("", "") => None,
            ("", team) => Some(Principal::Team(team)),
            (user, _) => Some(Principal::User(user)),
        }
    }

    /// The identity that wrote, with its present groups, teams and scopes; `None` if that identity
    /// has ended. It ends with the key, with the owner of the key, and with the permission to
    /// impersonate. Only a key of type `Login` may expire or be deleted without that effect, since
    /// people log out. `logout` is the state of the key when its owner deleted it while it was
    /// enabled.
    pub fn identity_now(
        &self,
        principals: &PrincipalIndex,
        policy: &Policy,
        logout: Option<&Logout>,
        now_unix_seconds: i64,
    ) -> Option<Identity> {
        let mut bearer = self.bearer_now(principals, policy, logout, now_unix_seconds)?;
        let recorded = self.scopes.iter().map(|scope| Arc::new(ScopeRules::new(scope)));
        bearer.scopes.extend(recorded);
        let Some(wanted) = &self.impersonated else { return Some(bearer) };
        let impersonated = principals.impersonate(wanted, &bearer);
        let may = impersonated::may(&bearer, wanted, &impersonated, policy);
        may.then_some(impersonated.identity)
    }

    fn bearer_now(
        &self,
        principals: &PrincipalIndex,
        policy: &Policy,
        logout: Option<&Logout>,
        now_unix_seconds: i64,
    ) -> Option<Identity> {
        let is_there = principals.is_key(&self.key, &self.key_uid);
        if is_there
            && let Ok(key) = principals.identify_by_name(&self.key, now_unix_seconds, policy)
        {
            return (key.identity.uid == self.uid).then(|| (*key.identity).clone());
        }
        let expired = || {
            let key = principals.key_that_outlives_its_end(&self.key)?;
            Some(Logout { scope: key.scope.as_deref().cloned() })
        };
        let logout = if is_there { expired() } else { logout.cloned() };
        let logout = logout.filter(|_| self.is_login)?;
        let mut identity = principals.identity_of_principal(self.principal()?, &self.uid)?;
        identity.scopes.extend(logout.scope.map(|scope| Arc::new(ScopeRules::new(&scope))));
        Some(identity)
    }
}

#[cfg(test)]
mod tests {
    use postern_kinds::Owner;
    use postern_kinds::principal::{KeyFacts, Lifetime, UserFacts};

    use super::*;
    use crate::digest::Digest;
    use crate::principal_index::DigestRecord;

    /// An index with the user ada, and with this user's key, if there is one.
    fn index(uid: &str, is_user_disabled: bool, key: Option<KeyFacts>) -> PrincipalIndex {
        let mut index = PrincipalIndex::default();
        let (uid_of_user, disabled) = (uid.to_owned(), is_user_disabled);
        let user = UserFacts { uid: uid_of_user, disabled, ..UserFacts::default() };
        index.set_user("ada", Some(user));
        let digest = Digest::from_hex(&"0".repeat(64)).unwrap();
        let (name, key_uid, owner_uid) = ("k".to_owned(), "k1".to_owned(), uid.to_owned());
        index.set_record(digest, Some(DigestRecord { name, uid: key_uid, owner_uid }));
        index.set_key("k", key);
        index
    }

    fn key() -> KeyFacts {
        KeyFacts {
            uid: "k1".to_owned(),
            owner: Some(Owner::User("ada".to_owned())),
            owner_uid: "u1".to_owned(),
            lifetime: Lifetime { ttl_seconds: 100, ..Lifetime::default() },
            is_login: true,
            ..KeyFacts::default()
        }
    }

    fn writer() -> Writer {
        let [user, uid, key, key_uid] = ["ada", "u1", "k", "k1"].map(str::to_owned);
        Writer { user, uid, key, key_uid, is_login: true, ..Writer::default() }
    }

    fn is_known(writer: &Writer, index: &PrincipalIndex, has_logged_out: bool, now: i64) -> bool {
        let logout = has_logged_out.then(Logout::default);
        writer.identity_now(index, &Policy::default(), logout.as_ref(), now).is_some()
    }

    #[test]
    fn what_was_written_ends_with_the_key_but_for_a_logout() {
        let (login, other) = (writer(), Writer { is_login: false, ..writer() });
        let there = index("u1", false, Some(key()));
        let disabled = index("u1", false, Some(KeyFacts { disabled: true, ..key() }));
        let other_key = index("u1", false, Some(KeyFacts { is_login: false, ..key() }));
        let gone = index("u1", false, None);
        for (writer, index, has_logged_out, now, is_expected) in [
            (&login, &there, false, 0, true),
            (&other, &other_key, false, 0, true),
            // The key has expired.
            (&login, &there, false, 100, true),
            (&other, &other_key, false, 100, false),
            (&login, &disabled, false, 0, false),
            (&login, &disabled, false, 100, false),
            // It is gone: was it disabled before?
            (&login, &gone, true, 0, true),
            (&login, &gone, false, 0, false),
            (&other, &gone, true, 0, false),
        ] {
            let is_known = is_known(writer, index, has_logged_out, now);
            assert_eq!(is_known, is_expected, "{writer:?} {has_logged_out} {now}");
        }
    }

    #[test]
    fn a_namesake_or_a_disabled_user_is_nobody() {
        let known = |index: &PrincipalIndex| is_known(&writer(), index, true, 0);
        assert!(known(&index("u1", false, None)));
        assert!(!known(&index("u2", false, None)), "a namesake");
        assert!(!known(&index("u1", true, None)), "disabled");
        assert!(!known(&PrincipalIndex::default()), "gone");
        let without_uid = Writer { uid: String::new(), ..writer() };
        assert!(!is_known(&without_uid, &index("", false, None), true, 0), "no uid");
    }

    #[test]
    fn the_scopes_of_a_key_that_is_gone_hold() {
        let writer = Writer { scopes: vec![Scope::default()], ..writer() };
        let index = index("u1", false, None);
        let identity =
            writer.identity_now(&index, &Policy::default(), Some(&Logout::default()), 0).unwrap();
        assert!(identity.is_scoped(), "and allows nothing");
    }

    #[test]
    fn the_last_scope_of_a_key_holds_after_its_end() {
        let scoped = || KeyFacts { scope: Some(Arc::new(Scope::default())), ..key() };
        let gone = index("u1", false, None);
        let expired = index("u1", false, Some(scoped()));
        let logout = Logout { scope: Some(Scope::default()) };
        for (index, logout, now) in [(&gone, Some(&logout), 0), (&expired, None, 100)] {
            let identity = writer().identity_now(index, &Policy::default(), logout, now).unwrap();
            assert!(identity.is_scoped(), "it was narrowed after the write, at {now}");
        }
        let wide = writer().identity_now(&gone, &Policy::default(), Some(&Logout::default()), 0);
        assert!(!wide.unwrap().is_scoped());
        assert_eq!(postern_meta::decode::decode_typed::<Logout>(b"{}").unwrap(), Logout::default());
    }

    #[test]
    fn an_impersonated_writer_is_the_name_and_the_groups_and_ends_with_the_right() {
        let wanted = Impersonation {
            user: "robot".to_owned(),
            groups: vec!["helpers".to_owned()],
            ..Impersonation::default()
        };
        let writer = Writer { impersonated: Some(wanted), ..writer() };
        let mut masters = index("u1", false, Some(key()));
        assert!(!is_known(&writer, &masters, false, 0), "ada may not impersonate");
        let groups = vec!["system:masters".to_owned()];
        masters.set_key("k", Some(KeyFacts { groups, ..key() }));
        let identity = writer.identity_now(&masters, &Policy::default(), None, 0).unwrap();
        assert_eq!((identity.name.as_str(), &identity.user), ("robot", &None));
        assert!(identity.groups.contains(&"helpers".to_owned()));
        assert!(!identity.is_in("system:masters"), "the rights of the bearer are not its own");
    }
}

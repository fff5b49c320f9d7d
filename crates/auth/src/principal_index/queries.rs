//! Questions about many keys, users and teams, for reviews of access.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use postern_kinds::principal::{KeyFacts, KeyUse};
use postern_kinds::{KeyState, ObservedKey, Owner, Principal, Principals as _};
use postern_meta::time::Timestamp;

use super::PrincipalIndex;
use crate::bearer::Refusal;
use crate::digest::Digest;
use crate::identity::{
    ALL_USERS_GROUP, AUTHENTICATED_GROUP, Identity, PLATFORM_AUTHENTICATED_GROUP,
};
use crate::policy::Policy;
use crate::resolved_key::ResolvedKey;

impl PrincipalIndex {
    /// The names of the keys with an owner that no longer exists under the recorded uid. These keys
    /// give no access. The owner may exist but be unknown here, if it cannot be read or its
    /// deletion has begun.
    pub fn keys_without_owner(&self) -> impl Iterator<Item = &str> {
        let without_owner = |key: &KeyFacts| {
            let principal = key.owner.as_ref().and_then(Owner::principal);
            principal.is_some_and(|principal| self.uid(principal).as_ref() != Some(&key.owner_uid))
        };
        self.keys.iter().filter(move |(_, key)| without_owner(key)).map(|(name, _)| name.as_str())
    }

    /// The names of the keys with a maker or parent that no longer exists. These keys give no
    /// access. The maker may exist but be unknown here, if it cannot be read or its deletion has
    /// begun.
    pub fn keys_without_maker(&self) -> impl Iterator<Item = &str> {
        let is_without =
            |key: &KeyFacts| key.tied_to().any(|uid| !self.key_of_uid.contains_key(uid));
        self.keys.iter().filter(move |(_, key)| is_without(key)).map(|(name, _)| name.as_str())
    }

    /// The names of the codes of login links that an administrator made for a user who was disabled since, or is gone. They give
    /// no access.
    pub fn ended_codes(&self) -> impl Iterator<Item = &str> {
        let ended = self.keys.iter().filter(|(_, key)| self.is_ended_code(key));
        ended.map(|(name, _)| name.as_str())
    }

    pub(super) fn is_ended_code(&self, key: &KeyFacts) -> bool {
        let Some(count) = key.owner_disabled_count else { return false };
        let user = match &key.owner {
            Some(Owner::User(user)) => self.users.get(user),
            _ => None,
        };
        user.is_none_or(|user| user.disabled || user.disabled_count != count)
    }

    /// The key of a name, as its bearer would be identified at a time, in seconds since 1970.
    ///
    /// # Errors
    /// Why it gives no access.
    pub fn identify_by_name(
        &self,
        name: &str,
        now_unix_seconds: i64,
        policy: &Policy,
    ) -> Result<Arc<ResolvedKey>, Refusal> {
        let digests = self.digests_of.get(name);
        let digest = digests.and_then(|digests| digests.first()).ok_or(Refusal::Unknown)?;
        self.identify(digest, now_unix_seconds, policy)
    }

    /// The key of a uid, as its bearer would be identified at a time, in seconds since 1970.
    ///
    /// # Errors
    /// Why it gives no access.
    pub fn identify_by_uid(
        &self,
        uid: &str,
        now_unix_seconds: i64,
        policy: &Policy,
    ) -> Result<Arc<ResolvedKey>, Refusal> {
        let name = self.key_of_uid.get(uid).ok_or(Refusal::Unknown)?;
        self.identify_by_name(name, now_unix_seconds, policy)
    }

    /// The facts about the key of a name and uid at a time, in seconds since 1970; `None` if it is gone.
    pub fn observed_key(
        &self,
        name: &str,
        uid: &str,
        now_unix_seconds: i64,
        policy: &Policy,
    ) -> Option<ObservedKey> {
        let key = self.keys.get(name).filter(|key| key.uid == uid)?;
        let lifetime = self.workloads.lifetime_of(key);
        let own_end = lifetime.ends_at(self.last_activity(name, uid));
        let digest = self.digests_of.get(name).and_then(|digests| digests.first());
        let identified = digest.map(|digest| self.identify_any(digest, now_unix_seconds, policy));
        let (state, ends) = match identified {
            _ if key.disabled => (KeyState::Disabled, own_end),
            _ if own_end.is_some_and(|end| end <= now_unix_seconds) => (KeyState::Expired, own_end),
            _ if !self.has_owner(key) || self.is_disabled(key) => {
                (KeyState::OwnerDisabled, own_end)
            }
            Some(Ok(resolved)) => (KeyState::Active, resolved.ends_at()),
            Some(Err(_)) | None => (KeyState::MakerEnded, own_end),
        };
        let last_activity = self.last_activity(name, uid).map(Timestamp::from_unix_seconds);
        Some(ObservedKey { last_activity, ends: ends.map(Timestamp::from_unix_seconds), state })
    }

    /// At most `limit` names of keys, in order, from the first one after `after`.
    pub fn key_names_after(&self, after: Option<&str>, limit: usize) -> Vec<String> {
        let from = after.map_or(Unbounded, Excluded);
        let names = self.key_names.range::<str, _>((from, Unbounded));
        names.take(limit).cloned().collect()
    }

    /// The name of the user with this name in access decisions: its subject, or the object's own
    /// name.
    pub fn user_known_as(&self, name: &str) -> Option<&str> {
        let by_subject = self.user_of_subject.get(name).map(String::as_str);
        by_subject.or_else(|| {
            let (known, user) = self.users.get_key_value(name)?;
            user.subject.is_empty().then_some(known.as_str())
        })
    }

    /// Whether a user or team with this uid exists under the name.
    pub fn is_principal(&self, principal: Principal<'_>, uid: &str) -> bool {
        use postern_kinds::Principals as _;
        self.uid(principal).is_some_and(|known| known == uid)
    }

    /// The current identity of the user or team with a uid, without the groups that a key adds. It is
    /// `None` when the user or team is gone or disabled. A later one with the same name does not
    /// count.
    pub fn identity_of_principal(&self, principal: Principal<'_>, uid: &str) -> Option<Identity> {
        let mut identity = match principal {
            Principal::User(name) => {
                let is_disabled = self.users.get(name).is_some_and(|user| user.disabled);
                self.user_identity(name).filter(|_| !is_disabled)?
            }
            Principal::Team(name) => self.team_identity(name)?,
        };
        identity.add_groups([PLATFORM_AUTHENTICATED_GROUP, AUTHENTICATED_GROUP].map(str::to_owned));
        (!uid.is_empty() && identity.uid == uid).then_some(identity)
    }

    /// The key of this name, if work that was requested with it continues after it expires or is
    /// deleted. This is an enabled key of type `Login` that does not end with another key.
    pub fn key_that_outlives_its_end(&self, name: &str) -> Option<&KeyFacts> {
        self.keys.get(name).filter(|key| {
            key.is_login
                && key.tied_to().next().is_none()
                && self.has_owner(key)
                && !self.is_disabled(key)
        })
    }

    /// The uids of all users and teams.
    pub fn principal_uids(&self) -> impl Iterator<Item = &str> {
        let teams = self.teams.values().map(|team| team.uid.as_str());
        self.users.values().map(|user| user.uid.as_str()).chain(teams)
    }

    /// Whether an access key names this owner. The uid of the owner is not compared.
    pub fn has_keys_of(&self, owner: &Owner) -> bool {
        self.keys_of.get(owner).is_some_and(|keys| !keys.is_empty())
    }

    /// How many users there are.
    pub fn user_count(&self) -> usize {
        self.users.len()
    }

    /// How many users are in a team; `None` if the team does not exist.
    pub fn team_size(&self, team: &str) -> Option<usize> {
        self.teams.get(team).map(|team| team.users.len())
    }

    /// The names of the users in a team, in order, also by groups of single sign-on that count; at most `limit`.
    pub fn members_of(&self, team: &str, limit: usize) -> Vec<String> {
        let Some(facts) = self.teams.get(team) else { return Vec::new() };
        let is_user = |name: &&String| self.users.contains_key(*name);
        let listed = facts.users.iter().filter(is_user);
        let is_member = |name: &&String| {
            let user = self.users.get(*name);
            user.is_some_and(|user| self.sso.teams_of(user).any(|one| one == team))
        };
        let by_group = self.sso.users_with(&facts.sso_groups).filter(is_member);
        let mut members: BTreeSet<&String> = BTreeSet::new();
        for name in listed.chain(by_group) {
            // A user may be in several of the groups.
            if members.insert(name) && members.len() >= limit {
                break;
            }
        }
        members.into_iter().cloned().collect()
    }

    /// The number of users in a group: all users, or the members of the group, directly or through
    /// a team. The cost grows with the number of users and of members of teams.
    pub fn users_in_group(&self, group: &str) -> usize {
        if group == ALL_USERS_GROUP {
            return self.users.len();
        }
        let teams = self.teams.values().filter(|team| team.groups.iter().any(|one| one == group));
        let mut users: std::collections::HashSet<&str> =
            teams.flat_map(|team| team.users.iter().map(String::as_str)).collect();
        users.retain(|user| self.users.contains_key(*user));
        let own = self.users.iter().filter(|(_, user)| user.groups.iter().any(|one| one == group));
        users.extend(own.map(|(name, _)| name.as_str()));
        users.len()
    }

    /// The key with this digest, or the code of a login link. The caller ensures that it does nothing but begin the session.
    ///
    /// # Errors
    /// Those of [`PrincipalIndex::identify`]. The code of a login of the command line is unknown here: it needs a
    /// verifier.
    pub fn identify_or_code(
        &self,
        digest: &Digest,
        now_unix_seconds: i64,
        policy: &Policy,
    ) -> Result<Arc<ResolvedKey>, Refusal> {
        let key = self.identify_any(digest, now_unix_seconds, policy)?;
        if key.used_as == KeyUse::CommandLineCode { Err(Refusal::Unknown) } else { Ok(key) }
    }

    /// The code of a login of the command line. All other keys are unknown here. The caller ensures that it does nothing
    /// but become the key.
    ///
    /// # Errors
    /// Those of [`PrincipalIndex::identify`].
    pub fn identify_command_line_code(
        &self,
        digest: &Digest,
        now_unix_seconds: i64,
        policy: &Policy,
    ) -> Result<Arc<ResolvedKey>, Refusal> {
        let key = self.identify_any(digest, now_unix_seconds, policy)?;
        if key.used_as == KeyUse::CommandLineCode { Ok(key) } else { Err(Refusal::Unknown) }
    }

    /// Whether a key is a session of the console.
    pub fn is_session(&self, name: &str) -> bool {
        self.keys.get(name).is_some_and(|key| key.used_as.is_session())
    }

    /// The names of the keys of the command line to which the session with this uid has consented.
    pub fn command_lines_of(&self, uid: &str) -> impl Iterator<Item = &str> {
        let made = self.children_of.get(uid).into_iter().flatten().map(String::as_str);
        made.filter(|name| self.keys.get(*name).is_some_and(|key| key.used_as.is_command_line()))
    }

    /// How many sessions of the key with this uid have not ended at a time, in seconds since 1970.
    pub fn session_count(&self, key_uid: &str, now_unix_seconds: i64) -> usize {
        let made = self.children_of.get(key_uid).into_iter().flatten();
        let is_open = |name: &&String| !self.has_ended_before(name, now_unix_seconds);
        made.filter(|name| self.is_session(name)).filter(is_open).count()
    }

    /// How many sessions an owner has that have not ended at a time, in seconds since 1970, with the logins of the command
    /// line. A login by a connector does not count.
    pub fn all_session_count(&self, owner: &Owner, now_unix_seconds: i64) -> usize {
        self.count_keys(owner, |name, key| {
            key.used_as.is_session()
                && key.connector.is_none()
                && !self.has_ended_before(name, now_unix_seconds)
        })
    }

    /// How many logins an owner has by the connector with this uid that have not ended at a time, in seconds since 1970.
    pub fn login_count(&self, owner: &Owner, connector_uid: &str, now_unix_seconds: i64) -> usize {
        let is_of = |key: &KeyFacts| {
            key.connector.as_ref().is_some_and(|connector| connector.uid == connector_uid)
        };
        self.count_keys(owner, |name, key| {
            is_of(key) && !self.has_ended_before(name, now_unix_seconds)
        })
    }

    /// The number of access keys that count for the limit of an owner at a time (seconds since
    /// 1970). Keys of logins and sessions do not count. Keys of workloads count until they have
    /// ended.
    pub fn key_count(&self, owner: &Owner, now_unix_seconds: i64) -> usize {
        self.count_keys(owner, |name, key| {
            let is_live = || !self.has_ended_before(name, now_unix_seconds);
            !key.used_as.is_session()
                && key.connector.is_none()
                && (key.workload_uid.is_none() || is_live())
        })
    }

    /// Whether a user has another login by the connector with this uid, apart from the key with
    /// `key_uid`. The other login must be enabled and not have ended at a time (seconds since
    /// 1970). A login of an earlier user of the same name does not count. Neither does a login with
    /// an identity that the user is no longer linked with.
    pub fn has_other_login(
        &self,
        user: &str,
        connector_uid: &str,
        key_uid: &str,
        now_unix_seconds: i64,
    ) -> bool {
        let counts = |name: &str, key: &KeyFacts| {
            let connector = key.connector.as_ref();
            key.uid != key_uid
                && !key.disabled
                && self.has_owner(key)
                && self.is_linked(key)
                && connector.is_some_and(|connector| connector.uid == connector_uid)
                && !self.has_ended_before(name, now_unix_seconds + 1)
        };
        self.count_keys(&Owner::User(user.to_owned()), counts) > 0
    }

    /// The keys of a user, by name and uid.
    pub fn keys_of_user(&self, user: &str) -> impl Iterator<Item = (&str, &str)> {
        let names = self.keys_of.get(&Owner::User(user.to_owned())).into_iter().flatten();
        names.filter_map(|name| Some((name.as_str(), self.keys.get(name)?.uid.as_str())))
    }

    fn count_keys(&self, owner: &Owner, counts: impl Fn(&str, &KeyFacts) -> bool) -> usize {
        let names = self.keys_of.get(owner).into_iter().flatten();
        let keys = names.filter_map(|name| self.keys.get(name).map(|key| (name, key)));
        keys.filter(|(name, key)| counts(name, key)).count()
    }
}

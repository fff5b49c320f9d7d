//! An index of access keys, users and teams: it resolves a key's digest to the identity of its
//! owner.
//!
//! It is updated change by change, and resolves again only the keys that a change concerns. So a
//! request costs one lookup, and the cost of a change does not grow with the number of keys.
//!
//! Decisions about access, and reading the stored objects, are elsewhere.

mod concerned;
mod name_changes;
mod parents;
mod queries;
mod sso;
mod workloads;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use postern_kinds::principal::{AccessChange, KeyFacts, Maker, TeamFacts, UserFacts};
use postern_kinds::{Impersonation, Owner, Principal, Principals};
use serde::{Deserialize, Serialize};

use self::concerned::Concerned;
use self::name_changes::NameChanges;
use self::sso::SsoIndex;
use self::workloads::WorkloadIndex;
use crate::bearer::Refusal;
use crate::digest::Digest;
use crate::identity::{
    AUTHENTICATED_GROUP, Identity, PLATFORM_AUTHENTICATED_GROUP, TEAM_PREFIX, own_groups,
    team_group,
};
use crate::impersonated::{self, ImpersonatedIdentity};
use crate::policy::Policy;
use crate::resolved_key::{Activity, Ancestor, ResolvedKey};
use crate::scope::ScopeRules;

/// Which key has a digest. Stored under the digest, in the same transaction as the OwnedAccessKey
/// object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DigestRecord {
    /// The OwnedAccessKey's name.
    pub name: String,
    /// Its uid: a key that is created again under the same name is another key.
    pub uid: String,
    /// The uid of the user or team that owns the key; empty for other subjects. A user or team that
    /// is created again under the same name is another owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner_uid: String,
}

/// The most keys that a key can descend from: a longer chain gives no access.
const MAX_ANCESTORS: usize = 16;

/// When a key was last used. It is kept when the key changes.
#[derive(Debug)]
struct Use {
    uid: String,
    activity: Arc<Activity>,
    /// The last use that is stored, in seconds since 1970; 0 for none.
    stored_unix_seconds: i64,
}

impl Use {
    fn of(uid: &str) -> Self {
        Self { uid: uid.to_owned(), activity: Arc::default(), stored_unix_seconds: 0 }
    }
}

/// A map of digests. No client can choose a digest without the server's secret, so a quick hash is
/// enough.
type ByDigest<T> = HashMap<Digest, T, RandomState>;

/// Keys, users and teams, and the keys resolved by their digests.
#[derive(Debug, Default)]
pub struct PrincipalIndex {
    records: ByDigest<DigestRecord>,
    keys: HashMap<String, KeyFacts>,
    /// The names of the keys, in order.
    key_names: BTreeSet<String>,
    /// The scopes of the keys that have one, compiled once.
    scopes: HashMap<String, Arc<ScopeRules>>,
    key_of_uid: HashMap<String, String>,
    /// The keys that a key created and that end with it, by the uid of that key.
    children_of: HashMap<String, BTreeSet<String>>,
    users: HashMap<String, UserFacts>,
    teams: HashMap<String, TeamFacts>,
    uses: HashMap<String, Use>,
    digests_of: HashMap<String, BTreeSet<Digest>>,
    keys_of: HashMap<Owner, BTreeSet<String>>,
    teams_of: HashMap<String, BTreeSet<String>>,
    /// Connectors, identities and groups of single sign-on.
    sso: SsoIndex,
    workloads: WorkloadIndex,
    /// The users that have a `spec.subject`, by it.
    user_of_subject: HashMap<String, String>,
    resolved: ByDigest<Result<Arc<ResolvedKey>, Refusal>>,
    /// Since which revision a key has the identity that it has.
    since: ByDigest<u64>,
    /// Since which revision a name means the identity that it means.
    name_changes: NameChanges,
    /// The revision of the changes that are applied.
    revision: u64,
    /// The keys that a change affects and that are not resolved again yet.
    concerned: VecDeque<Concerned>,
    /// The keys with children that are noted since the last change, by uid, with their levels.
    noted: HashMap<String, usize>,
}

impl PrincipalIndex {
    /// The key with this digest, with the identity of its owner. The policy decides whether the keys that
    /// created it may still impersonate as they did then.
    ///
    /// # Errors
    /// Why it gives no access: [`Refusal::Unknown`], [`Refusal::Disabled`], [`Refusal::Expired`] or
    /// [`Refusal::ImpersonationEnded`]. The code of a login link is unknown here.
    pub fn identify(
        &self,
        digest: &Digest,
        now_unix_seconds: i64,
        policy: &Policy,
    ) -> Result<Arc<ResolvedKey>, Refusal> {
        let key = self.identify_any(digest, now_unix_seconds, policy)?;
        if key.used_as.is_code() { Err(Refusal::Unknown) } else { Ok(key) }
    }

    fn identify_any(
        &self,
        digest: &Digest,
        now_unix_seconds: i64,
        policy: &Policy,
    ) -> Result<Arc<ResolvedKey>, Refusal> {
        let key = self.resolved.get(digest).cloned().unwrap_or(Err(Refusal::Unknown))?;
        key.check(now_unix_seconds)?;
        for maker in &key.ancestors {
            if let Some(wanted) = &maker.impersonated
                && !self.has_right_to_impersonate(&maker.name, wanted, policy)
            {
                return Err(Refusal::ImpersonationEnded);
            }
        }
        Ok(key)
    }

    /// Whether an impersonation is still allowed at a time, in seconds since 1970. The access key
    /// with this name and uid must give access. Its owner must have every permission for the
    /// impersonation. The impersonated user must be enabled.
    pub fn may_impersonate(
        &self,
        key: &str,
        uid: &str,
        wanted: &Impersonation,
        now_unix_seconds: i64,
        policy: &Policy,
    ) -> bool {
        self.is_key(key, uid)
            && self.identify_by_name(key, now_unix_seconds, policy).is_ok()
            && self.has_right_to_impersonate(key, wanted, policy)
    }

    /// Whether the owner of a key holds every right that an impersonation takes, and whether the impersonated
    /// user is enabled. Whether the key gives access is not asked.
    fn has_right_to_impersonate(&self, key: &str, wanted: &Impersonation, policy: &Policy) -> bool {
        let Some(bearer) = self.identity_of_key(key) else { return false };
        impersonated::may(&bearer, wanted, &self.impersonate(wanted, &bearer), policy)
    }

    /// The name of the key with this digest, whether it gives access or not.
    pub fn key_of(&self, digest: &Digest) -> Option<&str> {
        self.records.get(digest).map(|record| record.name.as_str())
    }

    /// Whether a key has this digest, valid or not.
    pub fn has_key(&self, digest: &Digest) -> bool {
        self.records.contains_key(digest)
    }

    /// The last use of the key of a name and uid, in seconds since 1970; `None` for never.
    pub fn last_activity(&self, key: &str, uid: &str) -> Option<i64> {
        self.uses.get(key).filter(|used| used.uid == uid)?.activity.last()
    }

    /// Whether the key of this name still has this uid.
    pub fn is_key(&self, name: &str, uid: &str) -> bool {
        self.keys.get(name).is_some_and(|key| key.uid == uid)
    }

    /// The keys that were used: name, uid and last use, in seconds since 1970.
    pub fn activities(&self) -> impl Iterator<Item = (&str, &str, i64)> {
        self.uses.iter().filter_map(|(name, used)| {
            self.keys.get(name).filter(|key| key.uid == used.uid)?;
            Some((name.as_str(), used.uid.as_str(), used.activity.last()?))
        })
    }

    /// The keys with a last use that is not stored yet: name, uid and the use, in seconds
    /// since 1970.
    pub fn unstored_activities(&self) -> impl Iterator<Item = (&str, &str, i64)> {
        let stored = |name: &str| self.uses.get(name).map_or(0, |used| used.stored_unix_seconds);
        self.activities().filter(move |(name, _, at)| *at > stored(name))
    }

    /// The names of the keys that expired before a time, in seconds since 1970.
    pub fn ended_before(&self, unix_seconds: i64) -> impl Iterator<Item = &str> {
        let names = self.keys.keys().map(String::as_str);
        names.filter(move |name| self.has_ended_before(name, unix_seconds))
    }

    /// Whether the key expired before a time, in seconds since 1970.
    pub fn has_ended_before(&self, name: &str, unix_seconds: i64) -> bool {
        self.end_of(name).is_some_and(|end| end < unix_seconds)
    }

    /// The time at which a key expires, in seconds since 1970; `None` if it does not exist or never
    /// expires.
    pub fn end_of(&self, name: &str) -> Option<i64> {
        let key = self.keys.get(name)?;
        let mut lifetime = self.workloads.lifetime_of(key);
        if lifetime.idle_seconds > 0 && self.command_lines_of(&key.uid).next().is_some() {
            // The session gives no access after it was idle. It stays for the logins of the command line.
            lifetime.idle_seconds = 0;
        }
        lifetime.ends_at(self.last_activity(name, &key.uid))
    }

    /// The time at which a key expires for servers that know only its stored uses, in seconds since 1970; `None` if
    /// its uses do not count.
    pub fn stored_end_of(&self, name: &str) -> Option<i64> {
        let key = self.keys.get(name).filter(|key| key.lifetime.counts_uses())?;
        let used = self.uses.get(name).filter(|used| used.uid == key.uid);
        let stored = used.map(|used| used.stored_unix_seconds).filter(|seconds| *seconds > 0);
        key.lifetime.ends_at(stored)
    }

    /// The names of the teams that a user is in, in order: those that list the user, and those of the user's groups of
    /// single sign-on.
    pub fn team_names_of(&self, user: &str) -> impl Iterator<Item = &str> {
        let listed = self.teams_of.get(user).into_iter().flatten().map(String::as_str);
        let by_group = self.users.get(user).map(|user| self.sso.teams_of(user));
        listed.chain(by_group.into_iter().flatten()).collect::<BTreeSet<&str>>().into_iter()
    }

    /// The identity that the bearer of a key gets by an impersonation. The access key and its scope
    /// stay the bearer's: impersonation never widens a scope
    /// (`docs/reference/authentication.md#impersonation`).
    ///
    /// This decides nothing: [`impersonated::rights`] are the rights that the bearer must hold.
    pub fn impersonate(&self, wanted: &Impersonation, bearer: &Identity) -> ImpersonatedIdentity {
        let known = self.wanted_principal(wanted);
        let user = known.as_ref().and_then(|known| known.user.as_ref());
        let disabled = user.and_then(|user| self.users.get(user)).is_some_and(|user| user.disabled);
        let mut identity = impersonated::identity(wanted, known);
        identity.access_key.clone_from(&bearer.access_key);
        identity.scopes.clone_from(&bearer.scopes);
        ImpersonatedIdentity { identity, disabled }
    }

    /// The user or team that is wanted, if there is one. A user is found by `spec.subject`,
    /// or else by the object's name.
    fn wanted_principal(&self, wanted: &Impersonation) -> Option<Identity> {
        let name = &wanted.user;
        // With explicit groups, the identity is the name and these groups, and nothing that is
        // stored. The permission to use a user's name alone gives nothing that the user has. The
        // permission to impersonate a service account does not extend to a user with the same text
        // as its subject.
        if !wanted.groups.is_empty() || impersonated::service_account(wanted).is_some() {
            return None;
        }
        let known = match name.strip_prefix(TEAM_PREFIX) {
            Some(team) => self.team_identity(team),
            None => self.user_identity(self.user_of_subject.get(name).unwrap_or(name)),
        };
        // One with another uid is another principal of the same name.
        known.filter(|known| wanted.uid.is_empty() || known.uid == wanted.uid)
    }

    /// The identity of the owner of a key, even if the key gives no access. `None` if the key, its
    /// owner, or a key that created it does not exist.
    pub fn identity_of_key(&self, name: &str) -> Option<Arc<Identity>> {
        let key = self.keys.get(name)?;
        self.identity(name, key).map(Arc::new)
    }

    /// The names of the keys that a key ends with, its own maker first. Each has the record of it in the key
    /// that it created. `None` when one of them is gone, or there are more than [`MAX_ANCESTORS`].
    fn makers<'a>(&'a self, key: &'a KeyFacts) -> Option<Vec<(&'a str, &'a Maker)>> {
        let mut makers = Vec::new();
        let mut next = key.maker.as_deref();
        while let Some(maker) = next {
            let name = self.key_of_uid.get(&maker.uid).filter(|_| makers.len() < MAX_ANCESTORS)?;
            next = self.keys.get(name)?.maker.as_deref();
            makers.push((name.as_str(), maker));
        }
        Some(makers)
    }

    /// Whether the owner of a key exists with the same uid.
    fn has_owner(&self, key: &KeyFacts) -> bool {
        match key.owner.as_ref() {
            None => false,
            Some(Owner::Subject(_)) => key.owner_uid.is_empty(),
            Some(owner) => {
                let uid = owner.principal().and_then(|principal| self.uid(principal));
                uid.as_ref() == Some(&key.owner_uid)
            }
        }
    }

    /// Whether a key, its owner or its connector is disabled, or its owner is no longer linked with the identity that
    /// logged in. A code that an administrator made ends for good when its user is disabled.
    fn is_disabled(&self, key: &KeyFacts) -> bool {
        let user = match &key.owner {
            Some(Owner::User(user)) => self.users.get(user),
            _ => None,
        };
        let connector = key.connector.as_ref();
        key.disabled
            || user.is_some_and(|user| user.disabled)
            || self.is_ended_code(key)
            || !self.is_linked(key)
            || connector.is_some_and(|connector| !self.sso.is_enabled(connector))
    }

    /// Whether the owner of a key is still linked with the identity that logged in. A key without a login passes.
    fn is_linked(&self, key: &KeyFacts) -> bool {
        let Some(identity) = &key.identity else { return true };
        let Some(Owner::User(user)) = &key.owner else { return false };
        self.users.get(user).is_some_and(|user| user.identities.contains(identity))
    }

    /// The keys that a key ends with.
    fn ancestors(&mut self, key: &KeyFacts) -> Result<Vec<Ancestor>, Refusal> {
        let ties = self.ties(key).ok_or(Refusal::Unknown)?;
        let parents = ties.into_iter().filter_map(|(name, maker)| {
            let impersonated = maker.and_then(|maker| maker.impersonated.clone());
            Some((name.to_owned(), self.keys.get(name)?.clone(), impersonated))
        });
        let parents: Vec<(String, KeyFacts, Option<Impersonation>)> = parents.collect();
        let mut ancestors = Vec::with_capacity(parents.len());
        let mut is_of_command_line = key.used_as.is_command_line();
        for (name, parent, impersonated) in parents {
            if !self.has_owner(&parent) {
                return Err(Refusal::Unknown);
            }
            if self.is_disabled(&parent) {
                return Err(Refusal::Disabled);
            }
            self.workloads.check(&parent)?;
            let activity = self.activity_of(&name, &parent.uid);
            let mut lifetime = self.workloads.lifetime_of(&parent);
            let KeyFacts { uid, owner_uid, is_login, used_as, .. } = parent;
            if is_of_command_line && used_as.is_session() {
                // The idleness of a browser does not concern the command line.
                lifetime.idle_seconds = 0;
            }
            is_of_command_line |= used_as.is_command_line();
            ancestors.push(Ancestor {
                name,
                uid,
                owner_uid,
                lifetime,
                activity,
                impersonated,
                is_login,
            });
        }
        Ok(ancestors)
    }

    /// The record of the uses of a key.
    fn activity_of(&mut self, name: &str, uid: &str) -> Arc<Activity> {
        let used = self.uses.entry(name.to_owned()).or_insert_with(|| Use::of(uid));
        if used.uid != uid {
            *used = Use::of(uid);
        }
        used.activity.clone()
    }

    /// Applies a change of a user, a team or a key. [`PrincipalIndex::resolve_next`] resolves the keys
    /// that it affects: those of a user or team, and those that a key created.
    pub fn apply(&mut self, name: &str, change: AccessChange) {
        match change {
            AccessChange::User(user) => self.change_user(name, user),
            AccessChange::Team(team) => self.change_team(name, team),
            AccessChange::Key(key) => self.change_key(name, key),
            AccessChange::Connector(connector) => self.change_connector(name, connector),
            AccessChange::Workload(workload) => self.change_workload(name, workload),
        }
    }

    /// Sets the record of a digest; `None` removes it.
    pub fn set_record(&mut self, digest: Digest, record: Option<DigestRecord>) {
        if let Some(old) = self.records.remove(&digest) {
            remove_from(&mut self.digests_of, &old.name, &digest);
        }
        if let Some(record) = record {
            self.digests_of.entry(record.name.clone()).or_default().insert(digest);
            self.records.insert(digest, record);
        }
        self.resolve_digest(digest);
    }

    /// Sets a key, with all that follows; `None` removes it, and its last use.
    pub fn set_key(&mut self, name: &str, key: Option<KeyFacts>) {
        self.change_key(name, key);
        while self.resolve_next() {}
    }

    fn change_key(&mut self, name: &str, key: Option<KeyFacts>) {
        self.noted.clear();
        self.scopes.remove(name);
        self.key_names.remove(name);
        if let Some(old) = self.keys.remove(name) {
            self.sso.remove_key(name, &old);
            self.workloads.remove_key(name, &old);
            if let Some(owner) = &old.owner {
                remove_from(&mut self.keys_of, owner, name);
            }
            for tie in old.tied_to() {
                remove_from(&mut self.children_of, &tie.to_owned(), name);
            }
            if self.key_of_uid.get(&old.uid).is_some_and(|of| of == name) {
                self.key_of_uid.remove(&old.uid);
            }
            self.note_children(old.uid, 0);
        }
        match key {
            Some(key) => {
                if let Some(owner) = key.owner.clone() {
                    self.keys_of.entry(owner).or_default().insert(name.to_owned());
                }
                for tie in key.tied_to() {
                    self.children_of.entry(tie.to_owned()).or_default().insert(name.to_owned());
                }
                self.sso.add_key(name, &key);
                self.workloads.add_key(name, &key);
                if let Some(scope) = &key.scope {
                    self.scopes.insert(name.to_owned(), Arc::new(ScopeRules::new(scope)));
                }
                self.key_of_uid.insert(key.uid.clone(), name.to_owned());
                self.key_names.insert(name.to_owned());
                self.keys.insert(name.to_owned(), key);
            }
            None => {
                self.uses.remove(name);
            }
        }
        self.resolve_key(name, 0);
    }

    /// Sets a user, with all that follows; `None` removes it.
    pub fn set_user(&mut self, name: &str, user: Option<UserFacts>) {
        self.change_user(name, user);
        while self.resolve_next() {}
    }

    /// Sets a team, with all that follows; `None` removes it.
    pub fn set_team(&mut self, name: &str, team: Option<TeamFacts>) {
        self.change_team(name, team);
        while self.resolve_next() {}
    }

    fn change_user(&mut self, name: &str, user: Option<UserFacts>) {
        self.noted.clear();
        let old = self.users.remove(name);
        let old_subject = old.as_ref().map(|old| old.subject.clone()).unwrap_or_default();
        // It may be another user's by now.
        if self.user_of_subject.get(&old_subject).is_some_and(|of| of == name) {
            self.user_of_subject.remove(&old_subject);
        }
        let is_same = self.sso.is_same(old.as_ref(), user.as_ref());
        if !is_same {
            let subject = user.as_ref().map(|user| user.subject.clone()).unwrap_or_default();
            self.note_names([name, &old_subject, &subject]);
        }
        if let Some(old) = &old {
            self.sso.remove_user(name, old);
        }
        if let Some(user) = user {
            self.sso.add_user(name, &user);
            if !user.subject.is_empty() {
                self.user_of_subject.insert(user.subject.clone(), name.to_owned());
            }
            self.users.insert(name.to_owned(), user);
        }
        // Each login confirms the groups of its user, and most often they are the same.
        if !is_same {
            self.concerned.push_back(Concerned::keys_of(Owner::User(name.to_owned())));
        }
    }

    fn change_team(&mut self, name: &str, team: Option<TeamFacts>) {
        self.noted.clear();
        let old = self.teams.remove(name);
        let groups = |team: &Option<TeamFacts>| {
            team.as_ref().map(|team| team.sso_groups.clone()).unwrap_or_default()
        };
        let (had, has) = (groups(&old), groups(&team));
        let of_all = |team: &Option<TeamFacts>| {
            team.as_ref()
                .map(|team| (team.uid.clone(), team.groups.clone(), team.connectors.clone()))
        };
        let is_same_for_all = of_all(&old) == of_all(&team);
        let users_of = |team: Option<&TeamFacts>| -> BTreeSet<String> {
            team.iter().flat_map(|team| team.users.iter().cloned()).collect()
        };
        let (mut before, mut after) = (users_of(old.as_ref()), users_of(team.as_ref()));
        for user in &before {
            remove_from(&mut self.teams_of, user, name);
        }
        for user in &after {
            self.teams_of.entry(user.clone()).or_default().insert(name.to_owned());
        }
        before.extend(self.sso.users_with(&had).cloned());
        after.extend(self.sso.users_with(&has).cloned());
        self.sso.set_team(name, old.as_ref(), team.as_ref());
        if let Some(team) = team {
            self.teams.insert(name.to_owned(), team);
        }
        if !is_same_for_all {
            self.note_names([team_group(name).as_str()]);
        }
        self.concerned.push_back(Concerned::keys_of(Owner::Team(name.to_owned())));
        for user in &(&before | &after) {
            if !is_same_for_all || before.contains(user) != after.contains(user) {
                let subject = self.users.get(user).map(|user| user.subject.clone());
                self.note_names([user.as_str(), subject.as_deref().unwrap_or_default()]);
            }
            self.concerned.push_back(Concerned::keys_of(Owner::User(user.clone())));
        }
    }

    /// Notes that names of users and teams mean other identities from now on.
    fn note_names<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let known = self.users.len() + self.teams.len();
        for name in names {
            self.name_changes.note(name, self.revision, known);
        }
    }

    /// Sets a last use that is stored, in seconds since 1970. A later one that is known stays.
    pub fn set_last_activity(&mut self, key: &str, uid: &str, unix_seconds: i64) {
        let is_known = self.uses.get(key).is_some_and(|used| used.uid == uid);
        if !is_known {
            self.uses.insert(key.to_owned(), Use::of(uid));
        }
        if let Some(used) = self.uses.get_mut(key) {
            used.activity.note(unix_seconds);
            used.stored_unix_seconds = used.stored_unix_seconds.max(unix_seconds);
        }
        if !is_known {
            self.noted.clear();
            self.resolve_key(key, 0);
        }
    }

    /// Records a last use that is not stored yet, in seconds since 1970, for a key that is known.
    pub fn note_activity(&mut self, key: &str, uid: &str, unix_seconds: i64) {
        if let Some(used) = self.uses.get(key).filter(|used| used.uid == uid) {
            used.activity.note(unix_seconds);
        }
    }

    fn resolve_digest(&mut self, digest: Digest) {
        let Some(record) = self.records.get(&digest).cloned() else {
            self.resolved.remove(&digest);
            self.since.remove(&digest);
            return;
        };
        let key = self.resolve(&record);
        let identity_of = |key: &Result<Arc<ResolvedKey>, Refusal>| {
            key.as_ref().ok().map(|key| key.identity.clone())
        };
        let identity = identity_of(&key);
        let old = self.resolved.insert(digest, key);
        if old.as_ref().and_then(identity_of) != identity {
            self.since.insert(digest, self.revision);
        }
    }

    /// Sets the revision of the changes that follow.
    pub fn set_revision(&mut self, revision: u64) {
        self.name_changes.begin(revision);
        self.revision = revision;
    }

    /// The revision since which the key with this digest has its present identity, as far as this
    /// index knows.
    pub fn since(&self, digest: &Digest) -> u64 {
        self.since.get(digest).copied().unwrap_or(self.revision)
    }

    /// The revision since which an impersonation gives its present identity, as far as this index
    /// knows. With explicit groups, the identity is always the same.
    pub fn since_of(&self, wanted: &Impersonation) -> u64 {
        let is_stored = wanted.groups.is_empty() && impersonated::service_account(wanted).is_none();
        if is_stored { self.name_changes.since(&wanted.user) } else { 0 }
    }

    fn resolve(&mut self, record: &DigestRecord) -> Result<Arc<ResolvedKey>, Refusal> {
        let key = self.keys.get(&record.name).filter(|key| key.uid == record.uid);
        let key = key.cloned().ok_or(Refusal::Unknown)?;
        let identity = self.identity(&record.name, &key).ok_or(Refusal::Unknown)?;
        if identity.uid != record.owner_uid {
            return Err(Refusal::Unknown);
        }
        if self.is_disabled(&key) {
            return Err(Refusal::Disabled);
        }
        self.workloads.check(&key)?;
        let ancestors = self.ancestors(&key)?;
        let activity = self.activity_of(&record.name, &record.uid);
        let lifetime = self.workloads.lifetime_of(&key);
        let KeyFacts { uid, is_login, used_as, .. } = key;
        let identity = Arc::new(identity);
        Ok(Arc::new(ResolvedKey {
            uid,
            identity,
            lifetime,
            is_login,
            activity,
            ancestors,
            used_as,
        }))
    }

    /// The identity of the owner of a key. It is `None` when the owner is gone, or a key that
    /// created this one is. A later owner with the same name does not count.
    fn identity(&self, name: &str, key: &KeyFacts) -> Option<Identity> {
        let mut identity = match key.owner.as_ref()? {
            Owner::User(user) => self.user_identity(user)?,
            Owner::Team(team) => self.team_identity(team)?,
            Owner::Subject(subject) => Identity { name: subject.clone(), ..Identity::default() },
        };
        if identity.uid != key.owner_uid {
            return None;
        }
        name.clone_into(&mut identity.access_key);
        let makers = self.makers(key)?;
        for name in std::iter::once(name).chain(makers.into_iter().map(|(name, _)| name)) {
            let of_workload = self.keys.get(name).and_then(|key| self.workloads.other_scope(key));
            identity.scopes.extend(self.scopes.get(name).cloned().into_iter().chain(of_workload));
        }
        identity.groups.splice(0..0, self.groups_of_key(key));
        identity.add_groups([PLATFORM_AUTHENTICATED_GROUP, AUTHENTICATED_GROUP].map(str::to_owned));
        Some(identity)
    }

    /// The groups that a key adds to those of its owner. A key from a scoped maker adds only groups
    /// that the maker has now. The caller must check that the makers of the key exist.
    fn groups_of_key(&self, key: &KeyFacts) -> Vec<String> {
        let maker = key.maker_uid().filter(|_| !key.groups.is_empty());
        let Some(maker) = maker else { return key.groups.clone() };
        let name = self.key_of_uid.get(maker);
        let maker = name.and_then(|name| self.identity(name, self.keys.get(name)?));
        let Some(maker) = maker else { return Vec::new() };
        if !maker.is_scoped() {
            return key.groups.clone();
        }
        let held: HashSet<&String> = maker.groups.iter().collect();
        key.groups.iter().filter(|group| held.contains(group)).cloned().collect()
    }

    /// The identity of a user, without the additions of a key; `None` if no user has the name.
    fn user_identity(&self, name: &str) -> Option<Identity> {
        let user = self.users.get(name)?;
        let subject = if user.subject.is_empty() { name } else { &user.subject };
        let mut identity = Identity {
            name: subject.to_owned(),
            uid: user.uid.clone(),
            user: Some(name.to_owned()),
            teams: self.team_names_of(name).map(str::to_owned).collect(),
            ..Identity::default()
        };
        identity.principal_uids.push(user.uid.clone());
        let teams = identity.teams.iter().filter_map(|team| self.teams.get(team));
        identity.principal_uids.extend(teams.map(|team| team.uid.clone()));
        identity.groups.extend(user.groups.iter().cloned());
        identity.groups.extend(self.sso.groups_of(user).map(str::to_owned));
        identity.groups.extend(self.groups_of_teams(name));
        identity.groups.extend(own_groups(name));
        Some(identity)
    }

    /// The identity of a team, without the additions of a key; `None` if no team has the name.
    fn team_identity(&self, name: &str) -> Option<Identity> {
        let team = self.teams.get(name)?;
        let mut identity = Identity {
            name: team_group(name),
            uid: team.uid.clone(),
            team: Some(name.to_owned()),
            principal_uids: vec![team.uid.clone()],
            ..Identity::default()
        };
        identity.groups.extend(team.groups.iter().cloned());
        identity.groups.push(team_group(name));
        Some(identity)
    }

    fn groups_of_teams(&self, user: &str) -> Vec<String> {
        let mut groups = Vec::new();
        for name in self.team_names_of(user) {
            groups.push(team_group(name));
            groups.extend(self.teams.get(name).into_iter().flat_map(|team| team.groups.clone()));
        }
        groups
    }
}

impl Principals for PrincipalIndex {
    fn uid(&self, principal: Principal<'_>) -> Option<String> {
        match principal {
            Principal::User(name) => self.users.get(name).map(|user| user.uid.clone()),
            Principal::Team(name) => self.teams.get(name).map(|team| team.uid.clone()),
        }
    }

    fn teams_of(&self, user: &str) -> Vec<String> {
        self.team_names_of(user).map(str::to_owned).collect()
    }

    fn teams_that_list(&self, user: &str) -> Vec<String> {
        self.teams_of.get(user).into_iter().flatten().cloned().collect()
    }

    fn uids_with_sso_groups(&self, groups: &[String]) -> Vec<String> {
        let users: BTreeSet<String> = self.sso.users_with(groups).cloned().collect();
        self.uids_of_users(users)
    }

    fn uids_of_connector(&self, connector: &str) -> Vec<String> {
        let keys = self.sso.keys_of(connector).filter_map(|name| self.keys.get(name));
        let keys: Vec<String> = keys.map(|key| key.uid.clone()).collect();
        let users = self.sso.users_of(connector).cloned();
        keys.into_iter().chain(self.uids_of_users(users)).collect()
    }

    fn uids_of_workload(&self, name: &str) -> Vec<String> {
        let keys = self.workloads.keys_of_name(name).filter_map(|name| self.keys.get(name));
        keys.map(|key| key.uid.clone()).collect()
    }

    fn parent_uid(&self, name: &str, owner: &Owner, child_uid: &str) -> Option<String> {
        self.uid_of_parent(name, owner, child_uid)
    }

    fn is_made_by(&self, key_uid: &str, maker_uid: &str) -> bool {
        let key = self.key_of_uid.get(key_uid).and_then(|name| self.keys.get(name));
        let makers = key.and_then(|key| self.makers(key)).unwrap_or_default();
        makers.iter().any(|(_, maker)| maker.uid == maker_uid)
    }
}

/// Removes a value from a set, and the set if it is then empty.
fn remove_from<K, V, Q>(map: &mut HashMap<K, BTreeSet<V>>, key: &K, value: &Q)
where
    K: std::hash::Hash + Eq,
    V: Ord + std::borrow::Borrow<Q>,
    Q: Ord + ?Sized,
{
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;

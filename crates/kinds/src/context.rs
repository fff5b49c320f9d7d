//! The input of a kind's hooks besides the object: the caller, the time, the principals, the
//! operator's settings. No clock, no storage.

use postern_meta::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bound::BoundGrant;
use crate::impersonation::Impersonation;
use crate::instance_location::{InstanceKind, InstanceLocation};
use crate::named_identities::{NamedIdentities, NobodyNamed};
use crate::principal::{Lifetime, Owner, Principal, Principals};

/// The caller of a write, as far as a kind may know: for defaults such as an object's owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The name of the User, if the caller is one.
    pub user: Option<String>,
    /// The name of the Team, if the caller is one.
    pub team: Option<String>,
    /// The uid of that User or Team, as it was authenticated; empty for neither.
    pub uid: String,
}

impl Caller {
    /// Whether the caller is this user or team.
    pub(crate) fn is(&self, principal: Principal<'_>) -> bool {
        match principal {
            Principal::User(name) => self.user.as_deref() == Some(name),
            Principal::Team(name) => self.team.as_deref() == Some(name),
        }
    }
}

/// The access key that a request was sent with, as far as a kind may know it: for the limits on its
/// changes of other keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerKey {
    /// Its name.
    pub name: String,
    /// The owner of the key, also if the caller acts as another identity.
    pub owner: Option<Owner>,
    /// Whether it, or a key that created it, has a scope.
    pub is_scoped: bool,
    /// Whether it ends with the key that created it.
    pub has_maker: bool,
    /// The identity that the request impersonates, if it does.
    pub impersonated: Option<Impersonation>,
    /// Its uid.
    pub uid: String,
    /// How long it gives access.
    pub lifetime: Lifetime,
    /// Its last use, in seconds since 1970.
    pub last_activity_unix_seconds: Option<i64>,
    /// Whether it has the type `Login`.
    pub is_login: bool,
}

impl CallerKey {
    /// The end of the key by its present lifetime, in seconds since 1970; `None` for a key that never ends.
    pub fn ends_at(&self) -> Option<i64> {
        self.lifetime.ends_at(self.last_activity_unix_seconds)
    }
}

/// The name of an object that others keep with its uid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamedObject<'a> {
    /// A Cluster.
    Cluster(&'a str),
    /// A Connector.
    Connector(&'a str),
}

/// Whether the caller of a write may read the object that it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// They may, or there is no such object yet.
    Allowed,
    /// They may write it alone.
    Refused,
}

/// The users and teams that a caller may name in access rules without the verb `bind` on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// Each user and team.
    Everyone,
    /// The caller, the caller's teams and their users. In a project of which the caller is a member, also its members.
    #[default]
    Teams,
    /// Only those on which the caller has `bind`.
    Bind,
}

/// The role of the caller of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriterKind {
    /// A client, which may change no reserved objects.
    Client,
    /// A member of `system:masters`, which may also change reserved objects.
    Master,
    /// The server itself.
    Server,
    /// The garbage collector of the server, which deletes an object because all owners of it are gone. It acts for the
    /// writer of the owner references.
    Collector,
}

/// The input of a kind's hooks besides the object.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The time of the write.
    pub now: Timestamp,
    /// The users and teams.
    pub principals: &'a dyn Principals,
    /// Whom something that is stored names.
    pub named: &'a dyn NamedIdentities,
    /// The uid of an object that other objects name; `None` if there is none.
    pub uid_of_object: &'a dyn Fn(NamedObject<'_>) -> Option<String>,
    /// The location of an instance in the namespace of the object; `None` if there is none, or if it is being deleted.
    pub instance: &'a dyn Fn(InstanceKind, &str) -> Option<InstanceLocation>,
    /// The maximum `ttl` of an access key in seconds, which then also is the default; `None` for no
    /// limit.
    pub access_key_max_ttl_seconds: Option<i64>,
    /// Whom callers may name in access rules.
    pub sharing: Sharing,
    /// The access key of the request, also if the caller impersonates another user. `None` for the server itself, which
    /// has no limits.
    pub caller_key: Option<&'a CallerKey>,
    /// The role of the caller.
    pub writer: WriterKind,
    /// The project that the object's namespace belongs to; `None` for a namespace of no project, and
    /// for an object without a namespace.
    pub project_of_namespace: Option<&'a str>,
    /// Whether an update gives the object another credential than the stored one. The caller that
    /// sets it can use it.
    pub has_new_credential: bool,
    /// The paths of the write-only fields other than the credential that the write sets to new values.
    pub new_secrets: &'a [&'static [&'static str]],
    /// Whether the caller may read the object that an update changes. Otherwise the caller learns
    /// nothing of it.
    pub reading: Reading,
    /// Whom the access rules and members of the object name, by the uids from when they were added.
    pub bound: &'a [BoundGrant],
    /// The uid of the owner of the object before an update; `None` for an object without one.
    pub owner_uid: Option<&'a str>,
    /// Whether the client itself sends other `managedFields`. They decide which fields the next apply of a manager removes.
    pub changes_managers: bool,
}

impl<'a> Context<'a> {
    /// The context of a write by a caller that is neither the server nor a master. The object is
    /// outside of projects, and the caller may read it. There is no maximum `ttl` of access keys,
    /// no new credential, no Cluster, and no instance.
    pub fn of(caller: &'a Caller, now: Timestamp, principals: &'a dyn Principals) -> Self {
        Self {
            caller,
            now,
            principals,
            named: &NobodyNamed,
            uid_of_object: &|_| None,
            instance: &|_, _| None,
            access_key_max_ttl_seconds: None,
            sharing: Sharing::default(),
            caller_key: None,
            writer: WriterKind::Client,
            project_of_namespace: None,
            has_new_credential: false,
            new_secrets: &[],
            reading: Reading::Allowed,
            bound: &[],
            owner_uid: None,
            changes_managers: false,
        }
    }
}

impl Context<'_> {
    /// The uid of a user or team; `None` if there is none. Callers keep the uid with which they were authenticated,
    /// even if another user has their name by now.
    pub(crate) fn uid_of(&self, principal: Principal<'_>) -> Option<String> {
        let own = Some(&self.caller.uid).filter(|uid| self.caller.is(principal) && !uid.is_empty());
        own.cloned().or_else(|| self.principals.uid(principal))
    }

    /// Whether the caller may name a user or team in an access rule by the setting for sharing alone. A key with a scope
    /// names only those on which it has `bind`: what it grants would outlive the scope.
    pub(crate) fn may_name(&self, principal: Principal<'_>) -> bool {
        if self.caller_key.is_some_and(|key| key.is_scoped) {
            return false;
        }
        match self.sharing {
            Sharing::Everyone => true,
            Sharing::Teams => self.is_of_own_teams(principal) || self.is_fellow_member(principal),
            Sharing::Bind => false,
        }
    }

    /// Whether this is the caller, a team of the caller, or a user of such a team.
    fn is_of_own_teams(&self, principal: Principal<'_>) -> bool {
        let own = self.caller.user.iter().flat_map(|user| self.principals.teams_of(user));
        let mut own = own.chain(self.caller.team.clone());
        self.caller.is(principal)
            || match principal {
                Principal::Team(team) => own.any(|one| one == team),
                Principal::User(user) => {
                    let teams = self.principals.teams_of(user);
                    own.any(|one| teams.contains(&one))
                }
            }
    }

    /// Whether the object is in the namespace of a project that has both the caller and this user or team as members.
    fn is_fellow_member(&self, principal: Principal<'_>) -> bool {
        let Some(project) = self.project_of_namespace else { return false };
        let user = self.caller.user.as_deref().map(Principal::User);
        let caller = user.or(self.caller.team.as_deref().map(Principal::Team));
        caller.is_some_and(|caller| self.named.is_member(project, caller))
            && self.named.is_named_member(project, principal)
    }

    /// Whether the server itself writes, which may set reserved fields.
    pub fn is_server(&self) -> bool {
        matches!(self.writer, WriterKind::Server | WriterKind::Collector)
    }

    /// Whether the caller may change reserved objects: the server itself, or a member of `system:masters`.
    pub fn may_change_servers_own(&self) -> bool {
        self.writer != WriterKind::Client
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("caller", self.caller).field("now", &self.now).finish()
    }
}

/// Whether an access key gives access, and if not, why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "sh.platform.management.v1.AccessKeyState")]
pub enum KeyState {
    /// It gives access.
    Active,
    /// Its own lifetime is over.
    Expired,
    /// It is disabled itself.
    Disabled,
    /// Its owner is disabled or gone, or the login or connector that it came from is. An invitation stays so after its user is
    /// enabled again.
    OwnerDisabled,
    /// The access key or the workload identity that created it has ended, or may no longer impersonate.
    MakerEnded,
}

/// The facts about an access key at the time of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObservedKey {
    /// The last use; `None` for never.
    pub last_activity: Option<Timestamp>,
    /// When it ends by its lifetime or by that of the keys that created it; `None` for never.
    pub ends: Option<Timestamp>,
    /// Whether it gives access.
    pub state: KeyState,
}

/// The facts that the server adds to an object when it returns it.
pub trait Observations {
    /// The facts about the access key of a name and uid; `None` if the key is gone.
    fn key(&self, name: &str, uid: &str) -> Option<ObservedKey>;

    /// Whether the caller requested the extended form of the object, with the caller's permissions.
    fn is_extended(&self) -> bool {
        false
    }

    /// Whether the caller has a permission on the returned object.
    fn caller_may(&self, verb: &str) -> bool;
}

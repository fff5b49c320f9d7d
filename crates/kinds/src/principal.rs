//! Principals: users and teams, and the access keys that they own.
//!
//! Kinds declare here which of these their objects are, so that authentication works with any kind
//! that declares it. How an identity is made from these facts is decided in `auth`.

use std::sync::Arc;

use postern_meta::object::{ObjectMeta, OwnerReference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::impersonation::Impersonation;
use crate::names::MANAGEMENT_V1;
use crate::right::Right;
use crate::scope::Scope;
use crate::verb::Verb;

/// A principal, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Principal<'a> {
    /// A User.
    User(&'a str),
    /// A Team.
    Team(&'a str),
}

impl Principal<'_> {
    /// The group that is this user alone, or this team with its members.
    pub fn group(self) -> String {
        match self {
            Self::User(name) => format!("platform:user:{name}"),
            Self::Team(name) => format!("platform:team:{name}"),
        }
    }

    /// The kind: `user` or `team`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Team(_) => "team",
        }
    }

    /// Kind and name, for messages.
    pub fn described(self) -> String {
        let (Self::User(name) | Self::Team(name)) = self;
        format!("{} \"{name}\"", self.kind())
    }

    /// A right on the user or team.
    pub fn right(self, verb: &'static str) -> Right {
        match self {
            Self::User(name) => Right::cluster(verb, MANAGEMENT_V1.group, "users", name),
            Self::Team(name) => Right::cluster(verb, MANAGEMENT_V1.group, "teams", name),
        }
    }
}

/// The principals that exist, for a kind that prepares or validates an object.
pub trait Principals {
    /// The uid of a user or team; `None` if there is none of that name.
    fn uid(&self, principal: Principal<'_>) -> Option<String>;

    /// The names of the teams that a user is in, also by groups of single sign-on.
    fn teams_of(&self, user: &str) -> Vec<String>;

    /// The names of the teams that list a user.
    fn teams_that_list(&self, user: &str) -> Vec<String> {
        self.teams_of(user)
    }

    /// The uids of the users with one of these groups of single sign-on.
    fn uids_with_sso_groups(&self, _groups: &[String]) -> Vec<String> {
        Vec::new()
    }

    /// The uids of the access keys that a connector made, and of the users with groups of it.
    fn uids_of_connector(&self, _connector: &str) -> Vec<String> {
        Vec::new()
    }

    /// The uids of the access keys that tokens were exchanged for by the workload identity of a name.
    fn uids_of_workload(&self, _name: &str) -> Vec<String> {
        Vec::new()
    }

    /// The uid of the access key of a name, if it is of this owner and can be the parent of the key of another uid. A parent
    /// does not end with its child, nor with too many other keys.
    fn parent_uid(&self, _name: &str, _owner: &Owner, _child_uid: &str) -> Option<String> {
        None
    }

    /// Whether an access key was created by another one, or by a key that was: both are uids, and the chain of
    /// makers decides. A key did not create itself.
    fn is_made_by(&self, _key_uid: &str, _maker_uid: &str) -> bool {
        false
    }
}

/// The principals of a server that has none yet.
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

/// The owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A User, by name.
    User(String),
    /// A Team, by name.
    Team(String),
    /// A raw subject, which has no object.
    Subject(String),
}

impl Owner {
    /// The owner as a principal; `None` for a raw subject.
    pub fn principal(&self) -> Option<Principal<'_>> {
        match self {
            Self::User(name) => Some(Principal::User(name)),
            Self::Team(name) => Some(Principal::Team(name)),
            Self::Subject(_) => None,
        }
    }

    /// Whether an owner reference names this user or team. Its uid may be that of another one of
    /// the same name.
    pub(crate) fn is_named_by(&self, reference: &OwnerReference) -> bool {
        let (kind, name) = match self {
            Self::User(name) => ("User", name),
            Self::Team(name) => ("Team", name),
            Self::Subject(_) => return false,
        };
        reference.kind == kind
            && reference.name == *name
            && reference.api_version == MANAGEMENT_V1.to_string()
    }

    /// The uid in the only owner reference that names this user or team. `None` for a raw subject.
    pub(crate) fn uid_in<'a>(&self, metadata: &'a ObjectMeta) -> Option<&'a str> {
        metadata.only_owner_uid(|one| self.is_named_by(one))
    }
}

/// The owner of a stored object, with its uid when the object was made. A later user or team of the same name is
/// another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedBy {
    /// The owner, by name.
    pub owner: Owner,
    /// The uid of the user or team; empty for a raw subject, and when the object has lost its owner.
    pub uid: String,
}

/// The right to a verb on an owner; `None` for a raw subject, on which there are no rights.
pub(crate) fn delegated_right(verb: &'static str, owner: &Owner) -> Option<Right> {
    owner.principal().map(|principal| principal.right(verb))
}

/// The verb on a user or team that counts as a verb on its keys, and on the workload identities that get some. See
/// `docs/reference/access-keys.md#permission`.
pub(crate) fn key_verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "createkey",
        Verb::Get | Verb::List | Verb::Watch => "getkey",
        Verb::Update | Verb::Patch => "updatekey",
        Verb::Delete | Verb::DeleteCollection => "deletekey",
    }
}

/// The lifetime of an access key. See `docs/reference/access-keys.md#lifetime`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// When the key was created, in seconds since 1970.
    pub created_unix_seconds: i64,
    /// Its time to live in seconds; 0 for no limit.
    pub ttl_seconds: i64,
    /// Whether it counts from the last use, if there is one, instead of the creation.
    pub after_last_activity: bool,
    /// The seconds without a use after which the key expires even earlier; 0 for no such limit.
    pub idle_seconds: i64,
}

impl Lifetime {
    /// The time at which the key expires, given its last use, both in seconds since 1970; `None` for never.
    pub fn ends_at(&self, last_activity_unix_seconds: Option<i64>) -> Option<i64> {
        let last_use = last_activity_unix_seconds
            .map_or(self.created_unix_seconds, |used| used.max(self.created_unix_seconds));
        let from = if self.after_last_activity { last_use } else { self.created_unix_seconds };
        let by_ttl = (self.ttl_seconds > 0).then(|| from.saturating_add(self.ttl_seconds));
        let by_idleness =
            (self.idle_seconds > 0).then(|| last_use.saturating_add(self.idle_seconds));
        by_ttl.into_iter().chain(by_idleness).min()
    }

    /// Whether uses extend it.
    pub fn counts_uses(&self) -> bool {
        self.after_last_activity || self.idle_seconds > 0
    }
}

/// The facts about a Connector that authentication needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectorFacts {
    /// The object's uid.
    pub uid: String,
    /// Whether the connector is disabled. Then its keys and its groups do not count.
    pub disabled: bool,
}

/// A connector, by name and uid. A later connector of the same name is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ConnectorReference")]
pub struct ConnectorRef {
    /// The name of the Connector.
    pub name: String,
    /// The uid of the Connector.
    pub uid: String,
}

/// The facts about a WorkloadIdentity that authentication with its keys needs. They hold from the next request on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadFacts {
    /// The object's uid.
    pub uid: String,
    /// Whether it is disabled. Then its keys give no access.
    pub disabled: bool,
    /// The most that its keys may do; `None` for everything that their owner may do.
    pub scope: Option<Arc<Scope>>,
    /// The longest lifetime of its keys, in seconds.
    pub ttl_seconds: i64,
}

/// The groups of a user by one connector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsoGroups {
    /// The connector.
    pub connector: ConnectorRef,
    /// The groups, each with the name of the connector and a colon in front.
    pub groups: Vec<String>,
    /// When the provider last confirmed them, in seconds since 1970; 0 for never.
    pub confirmed_unix_seconds: i64,
}

/// The facts about a User that authentication needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserFacts {
    /// The object's uid.
    pub uid: String,
    /// The name that access decisions see; empty for the object's own name.
    pub subject: String,
    /// The groups on the object.
    pub groups: Vec<String>,
    /// Whether the user is disabled.
    pub disabled: bool,
    /// How often the user was disabled.
    pub disabled_count: i64,
    /// The identities at providers of single sign-on: issuer and subject of each.
    pub identities: Vec<(String, String)>,
    /// The groups of single sign-on.
    pub sso: Vec<SsoGroups>,
}

impl UserFacts {
    /// Whether other facts about the same user give the same permissions. That a provider has confirmed the groups again
    /// changes none.
    pub fn is_same_access(&self, other: &Self) -> bool {
        let without_times = |user: &Self| {
            let mut user = user.clone();
            user.sso.iter_mut().for_each(|of| of.confirmed_unix_seconds = 0);
            user
        };
        without_times(self) == without_times(other)
    }
}

/// The facts about a Team that authentication needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TeamFacts {
    /// The object's uid.
    pub uid: String,
    /// The names of its members.
    pub users: Vec<String>,
    /// The groups that its members are in.
    pub groups: Vec<String>,
    /// The groups of single sign-on that give membership of the team.
    pub sso_groups: Vec<String>,
    /// The connectors of these groups, as they were when the groups were added. Teams from earlier versions have none:
    /// then the name of the connector counts.
    pub connectors: Vec<ConnectorRef>,
}

/// The use of an access key. Only the server makes a key for another use than [`KeyUse::Key`]. The type `Login` is no use:
/// a key of any use can have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyUse {
    /// An access key that is sent in a header.
    #[default]
    Key,
    /// A session of the console. Its value is in a cookie. It acts as the key that made it.
    Session,
    /// The code of a login link. It can do nothing but become a session of the console.
    LoginCode,
    /// A login of the command line. It is in no cookie, and the idleness of the session that consented does not end it.
    CommandLine,
    /// The code of a login of the command line. It can do nothing but become this login.
    CommandLineCode,
}

impl KeyUse {
    /// Whether the key is a session: of the console or of the command line, or the code of one.
    pub fn is_session(self) -> bool {
        self != Self::Key
    }

    /// Whether the key is a code that a session begins with.
    pub fn is_code(self) -> bool {
        matches!(self, Self::LoginCode | Self::CommandLineCode)
    }

    /// Whether the key is a login of the command line, or the code of one.
    pub fn is_command_line(self) -> bool {
        matches!(self, Self::CommandLine | Self::CommandLineCode)
    }
}

/// The facts about an access key that authentication needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFacts {
    /// The object's uid.
    pub uid: String,
    /// Its owner; `None` if none is named, and then the key gives no access.
    pub owner: Option<Owner>,
    /// The uid of the user or team that owns it; empty for a raw subject, and when it has lost its
    /// owner.
    pub owner_uid: String,
    /// Groups beyond the owner's.
    pub groups: Vec<String>,
    /// Whether the key is disabled.
    pub disabled: bool,
    /// How long it gives access.
    pub lifetime: Lifetime,
    /// Whether it has the type `Login`.
    pub is_login: bool,
    /// The scope of the key; `None` for everything that its owner may do.
    pub scope: Option<Arc<Scope>>,
    /// The key that made it, if it ends with that key.
    pub maker: Option<Arc<Maker>>,
    /// The uid of its parent, with which it ends, too.
    pub parent_uid: Option<String>,
    /// The use of the key.
    pub used_as: KeyUse,
    /// How often its owner had been disabled when it was created, for a code that an administrator made. The code is invalid
    /// after the next time.
    pub owner_disabled_count: Option<i64>,
    /// The uid of the workload identity that made it for a token.
    pub workload_uid: Option<String>,
    /// The connector that made it at a login. It ends with the connector.
    pub connector: Option<ConnectorRef>,
    /// The identity at the provider with which the user logged in: issuer and subject. The key works only while the user is
    /// linked with it.
    pub identity: Option<(String, String)>,
}

impl KeyFacts {
    /// The uids of the keys that it ends with: its maker and its parent.
    pub fn tied_to(&self) -> impl Iterator<Item = &str> {
        self.maker_uid().into_iter().chain(self.parent_uid.as_deref())
    }

    /// The uid of the key that made it, if it ends with that key.
    pub fn maker_uid(&self) -> Option<&str> {
        self.maker.as_ref().map(|maker| maker.uid.as_str())
    }
}

/// The access key that created another one. The server records it when the creating key is limited: it has
/// a scope, was limited by its own maker, or was used to impersonate. The created key is valid only as long
/// as its maker is, within the maker's scope, and as long as the maker may impersonate so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeyMaker")]
pub struct Maker {
    /// The name of the OwnedAccessKey.
    pub name: String,
    /// The uid of the OwnedAccessKey.
    pub uid: String,
    /// The identity that the request impersonated, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated: Option<Impersonation>,
}

/// The role of the objects of a kind in authentication, with the function that reads their facts.
#[derive(Clone, Copy, Debug)]
pub enum AccessRole<Spec, Status> {
    /// Its objects are users.
    User(fn(&ObjectMeta, &Spec, &Status) -> UserFacts),
    /// Its objects are teams.
    Team(fn(&ObjectMeta, &Spec, &Status) -> TeamFacts),
    /// Its objects are access keys.
    Key(fn(&ObjectMeta, &Spec, &Status) -> KeyFacts),
    /// Its objects are connectors to identity providers.
    Connector(fn(&ObjectMeta, &Spec) -> ConnectorFacts),
    /// Its objects are workload identities.
    Workload(fn(&ObjectMeta, &Spec) -> WorkloadFacts),
}

/// A change of one principal or access key, for an index of them: the new facts, or `None` if the
/// object was removed or gives no access any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// Of a user.
    User(Option<UserFacts>),
    /// Of a team.
    Team(Option<TeamFacts>),
    /// Of an access key.
    Key(Option<KeyFacts>),
    /// Of a connector.
    Connector(Option<ConnectorFacts>),
    /// Of a workload identity.
    Workload(Option<WorkloadFacts>),
}

impl<Spec, Status> AccessRole<Spec, Status> {
    /// The change that an object is. One that was removed or is being deleted gives no access.
    pub(crate) fn change(&self, object: Option<(&ObjectMeta, &Spec, &Status)>) -> AccessChange {
        let object = object.filter(|(metadata, ..)| !metadata.is_terminating());
        match self {
            Self::User(facts) => {
                AccessChange::User(object.map(|(meta, spec, status)| facts(meta, spec, status)))
            }
            Self::Team(facts) => {
                AccessChange::Team(object.map(|(meta, spec, status)| facts(meta, spec, status)))
            }
            Self::Connector(facts) => {
                AccessChange::Connector(object.map(|(meta, spec, _)| facts(meta, spec)))
            }
            Self::Workload(facts) => {
                AccessChange::Workload(object.map(|(meta, spec, _)| facts(meta, spec)))
            }
            Self::Key(facts) => {
                AccessChange::Key(object.map(|(meta, spec, status)| facts(meta, spec, status)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_ends_after_its_ttl_from_creation_or_last_use() {
        let lifetime = |ttl_seconds, after_last_activity| Lifetime {
            created_unix_seconds: 1000,
            ttl_seconds,
            after_last_activity,
            idle_seconds: 0,
        };
        for (lifetime, used, end) in [
            (lifetime(0, false), None, None),
            (lifetime(0, true), Some(5000), None),
            (lifetime(300, false), None, Some(1300)),
            (lifetime(300, false), Some(1200), Some(1300)),
            (lifetime(300, true), None, Some(1300)),
            (lifetime(300, true), Some(1200), Some(1500)),
            // A use before the creation does not count: a restored backup can have one.
            (lifetime(300, true), Some(900), Some(1300)),
            (lifetime(i64::MAX, false), None, Some(i64::MAX)),
        ] {
            assert_eq!(lifetime.ends_at(used), end, "{lifetime:?} used at {used:?}");
        }
    }

    #[test]
    fn a_lifetime_with_an_idle_time_ends_at_the_earlier_of_two_times() {
        let session = Lifetime {
            created_unix_seconds: 1000,
            ttl_seconds: 500,
            idle_seconds: 60,
            ..Lifetime::default()
        };
        for (used, end) in [(None, 1060), (Some(900), 1060), (Some(1030), 1090), (Some(1490), 1500)]
        {
            assert_eq!(session.ends_at(used), Some(end), "{used:?}");
        }
        let endless = Lifetime { ttl_seconds: 0, ..session };
        assert_eq!(endless.ends_at(Some(9000)), Some(9060));
        assert!(session.counts_uses() && !Lifetime::default().counts_uses());
    }
}

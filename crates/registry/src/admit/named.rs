//! The identities that stored objects name. A new principal with such a name would get the permissions of that name.
//! So a new User or Team, or a change of its name for access decisions, needs the permission for the name.

use std::collections::HashSet;

use postern_auth::principal_index::PrincipalIndex;
use postern_kinds::access::ALL_USERS_GROUP;
use postern_kinds::project::Project;
use postern_kinds::{AnyKind, BoundGrant, NamedIdentities, Owner, Principal, Principals as _, all};

use crate::cache::{Cache, PolicyAt};
use crate::storage_key;

/// Looks names up in the cache.
pub(super) struct NameLookup<'a> {
    pub(super) cache: &'a Cache,
    pub(super) policy: &'a PolicyAt,
    pub(super) principals: &'a PrincipalIndex,
}

impl NamedIdentities for NameLookup<'_> {
    fn names_user(&self, name: &str) -> bool {
        self.policy.names_user(name)
            || self.principals.has_keys_of(&Owner::Subject(name.to_owned()))
    }

    fn names_group(&self, group: &str) -> bool {
        self.policy.names_group(group)
    }

    fn names_owner(&self, owner: Principal<'_>) -> bool {
        let of_keys = match owner {
            Principal::User(name) => Owner::User(name.to_owned()),
            Principal::Team(name) => Owner::Team(name.to_owned()),
        };
        self.principals.has_keys_of(&of_keys) || self.owns_an_object(owner)
    }

    fn is_member(&self, project: &str, principal: Principal<'_>) -> bool {
        let is_user = matches!(principal, Principal::User(_));
        let is_of_all = |grant: &BoundGrant| grant.is_of_member() && grant.group == ALL_USERS_GROUP;
        let by_all = || {
            let key = storage_key::bound_names(Project.info(), None, project);
            let names = self.cache.bound_names(&key);
            names.is_some_and(|names| names.grants.iter().any(is_of_all))
        };
        self.is_named_member(project, principal)
            || (is_user && self.principals.uid(principal).is_some() && by_all())
    }

    fn is_named_member(&self, project: &str, principal: Principal<'_>) -> bool {
        let key = storage_key::bound_names(Project.info(), None, project);
        let Some(names) = self.cache.bound_names(&key) else { return false };
        let is_named = |one: Principal<'_>| {
            let (group, uid) = (one.group(), self.principals.uid(one));
            let is_it = |grant: &BoundGrant| {
                grant.is_of_member() && grant.group == group && Some(&grant.uid) == uid.as_ref()
            };
            uid.is_some() && names.grants.iter().any(is_it)
        };
        let by_team = |user: &str| {
            self.principals.teams_of(user).iter().any(|team| is_named(Principal::Team(team)))
        };
        is_named(principal) || matches!(principal, Principal::User(user) if by_team(user))
    }
}

impl NameLookup<'_> {
    /// Whether an object names this user or team as its owner although the principal no longer exists. For each
    /// missing owner, one object is enough to tell the name.
    fn owns_an_object(&self, owner: Principal<'_>) -> bool {
        let there: HashSet<&str> = self.principals.principal_uids().collect();
        let gone = self.policy.owners().filter(|owned| !there.contains(owned.uid));
        gone.into_iter().any(|owned| {
            let mut kinds = all().iter();
            let is_it = |kind: &&&dyn AnyKind| kind.info().group_resource() == owned.kind;
            let Some(kind) = kinds.find(is_it) else { return false };
            let namespace = Some(owned.namespace).filter(|namespace| !namespace.is_empty());
            let key = storage_key::object(kind.info(), namespace, owned.name);
            let Ok(Some(object)) = self.cache.of(kind.info()).get(&key) else { return false };
            let Ok(object) = object.decode() else { return false };
            let named = kind.ownership(&object).and_then(|ownership| ownership.owner);
            named.is_some_and(|named| match owner {
                Principal::User(name) => named.user == name,
                Principal::Team(name) => named.team == name,
            })
        })
    }
}

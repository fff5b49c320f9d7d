//! The objects of a kind on which an identity holds a verb, found at once. The cost is that of the
//! identity's permissions. The result equals [`Policy::decide`], object by object.

use std::collections::{BTreeMap, BTreeSet};

use postern_kinds::{MANAGEMENT_V1, Owner};

use super::Policy;
use crate::attributes::Attributes;
use crate::identity::{Identity, MASTERS_GROUP};
use crate::implicit_rights::{self, KEY_VERBS, OWN_VERBS};
use crate::kind_scope::has_namespaces;
use crate::object_set::ObjectSet;
use crate::rbac::role_grants::{GrantedObjects, OnKind};

/// The objects of a kind on which an identity holds a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readable {
    /// All of them.
    All,
    /// Some of them: the union of three parts, of which each set in `within` has to have an object as
    /// well.
    Some {
        /// Every object in these namespaces.
        namespaces: BTreeSet<String>,
        /// Single objects, by namespace and name.
        objects: BTreeSet<(String, String)>,
        /// Objects of these names, in any namespace or in none.
        names: BTreeSet<String>,
        /// Sets that would be too long to intersect. Mostly there is none.
        within: Vec<ObjectSet>,
    },
}

impl Readable {
    /// Whether this object is one of them. The namespace is empty for an object without one.
    pub fn contains(&self, namespace: &str, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some { namespaces, objects, names, within } => {
                let listed = namespaces.contains(namespace)
                    || names.contains(name)
                    || (!objects.is_empty()
                        && objects.contains(&(namespace.to_owned(), name.to_owned())));
                listed && within.iter().all(|set| set.contains(namespace, name))
            }
        }
    }

    /// Whether no object can be in it.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::All => false,
            Self::Some { namespaces, objects, names, within } => {
                (namespaces.is_empty() && objects.is_empty() && names.is_empty())
                    || within.iter().any(ObjectSet::is_empty)
            }
        }
    }
}

/// The owners for which an identity holds a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelegatedOwners {
    /// All users and all teams.
    All,
    /// Some of them.
    Some {
        /// Whether all users are included.
        all_users: bool,
        /// Whether all teams are included.
        all_teams: bool,
        /// Single users and teams. The permissions of an identity on itself count under its uid
        /// alone.
        owners: Vec<Owner>,
    },
}

impl Policy {
    /// Whether an identity holds a verb on any user or team.
    pub fn has_right_on_any_owner(&self, identity: &Identity, verb: &str) -> bool {
        match self.delegated_owners(identity, verb) {
            DelegatedOwners::All => true,
            DelegatedOwners::Some { all_users, all_teams, owners } => {
                all_users || all_teams || !owners.is_empty()
            }
        }
    }

    /// Whether an identity may do something to any user or team, within its scopes.
    pub fn may_on_any_owner(&self, identity: &Identity, verb: &str) -> bool {
        let may = |kind| !self.readable(identity, verb, MANAGEMENT_V1.group, kind).is_empty();
        may("users") || may("teams")
    }

    /// The objects of a kind on which an identity holds a verb, by roles, without one, and within
    /// its scopes.
    pub fn readable(
        &self,
        identity: &Identity,
        verb: &str,
        group: &str,
        resource: &str,
    ) -> Readable {
        let mut sets = vec![self.held(identity, verb, group, resource)];
        if !implicit_rights::is_open(identity, &on_kind(verb, group, resource)) {
            let holder = identity.scope_holder();
            let of_scope = |scope: &crate::scope::ScopeRules| {
                scope.objects(verb, group, resource, &holder, &self.projects)
            };
            sets.extend(identity.scopes.iter().map(|scope| of_scope(scope)));
        }
        let mut both = ObjectSet::all();
        let mut within = Vec::new();
        for mut set in sets {
            set.name_projects(&both, &self.projects);
            if both.all {
                both = set;
                continue;
            }
            match both.intersection(&set) {
                Some(intersection) => both = intersection,
                None => within.push(set),
            }
        }
        if both.all && within.is_empty() {
            return Readable::All;
        }
        let ObjectSet { namespaces, objects, names, .. } = both;
        Readable::Some { namespaces, objects, names, within }
    }

    /// The objects of a kind on which an identity holds a verb, its scopes aside.
    fn held(&self, identity: &Identity, verb: &str, group: &str, resource: &str) -> ObjectSet {
        let mut set = own_objects(identity, verb, group, resource);
        if set.all {
            return set;
        }
        let possible = has_namespaces(group, resource);
        let question = OnKind { verb, group, resource };
        let concerned = self.index.of(identity);
        // A role in a namespace is also about the Namespace itself.
        let is_namespaces = (group, resource) == ("", "namespaces");
        let can_be_in_one = is_namespaces || possible != Some(false);
        let concerned = concerned.filter(|all| all.concern(group, resource, can_be_in_one));
        let granted: Vec<_> = concerned.flat_map(|grants| grants.granted(question)).collect();
        let mut objects = Named::default();
        for (namespace, granted) in &granted {
            match namespace {
                Some(namespace) if is_namespaces => {
                    let is_named = granted.names.iter().any(|name| **name == **namespace);
                    let itself = (granted.every || is_named).then(|| (*namespace).to_owned());
                    set.names.extend(itself);
                }
                _ => add_granted(*namespace, granted, &mut set, &mut objects),
            }
        }
        for (namespace, names) in self.owners.of(identity, group, resource).flat_map(|of| of.iter())
        {
            objects.entry(namespace).or_default().extend(names.keys().map(|name| &**name));
        }
        set.objects = in_order(objects);
        set.keep_possible(possible);
        set
    }

    /// The owners for which an identity holds a verb, without regard to its scopes. The scopes are
    /// checked for the owned objects.
    pub fn delegated_owners(&self, identity: &Identity, verb: &str) -> DelegatedOwners {
        let [users, teams] =
            ["users", "teams"].map(|kind| self.held(identity, verb, MANAGEMENT_V1.group, kind));
        if users.all && teams.all {
            return DelegatedOwners::All;
        }
        let users_named = users.names.into_iter().map(Owner::User);
        let teams_named = teams.names.into_iter().map(Owner::Team);
        DelegatedOwners::Some {
            all_users: users.all,
            all_teams: teams.all,
            owners: users_named.chain(teams_named).collect(),
        }
    }
}

/// A question about a kind, without a name.
fn on_kind<'a>(verb: &'a str, group: &'a str, resource: &'a str) -> Attributes<'a> {
    Attributes::Resource { verb, group, resource, subresource: "", namespace: "", name: "" }
}

/// The objects on which an identity holds a verb without a role.
fn own_objects(identity: &Identity, verb: &str, group: &str, resource: &str) -> ObjectSet {
    if identity.is_in(MASTERS_GROUP)
        || implicit_rights::is_open(identity, &on_kind(verb, group, resource))
    {
        return ObjectSet::all();
    }
    let mut set = ObjectSet::default();
    let (is_own, is_key) = (OWN_VERBS.contains(&verb), KEY_VERBS.contains(&verb));
    if group != MANAGEMENT_V1.group || !(is_own || is_key) {
        return set;
    }
    let holder = identity.holder();
    match resource {
        "users" => set.names.extend(holder.user.map(str::to_owned)),
        "teams" => {
            set.names.extend(holder.team.map(str::to_owned));
            if is_own {
                set.names.extend(holder.teams.iter().cloned());
            }
        }
        _ => {}
    }
    set
}

/// Names of objects by namespace, in the order of the input.
type Named<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// The set of these objects. It is made faster from all of them, in order, than one by one.
#[expect(clippy::stable_sort_primitive, reason = "it makes use of the runs that names come in")]
fn in_order(objects: Named<'_>) -> BTreeSet<(String, String)> {
    let in_order = objects.into_iter().flat_map(|(namespace, mut names)| {
        names.sort();
        names.dedup();
        names.into_iter().map(move |name| (namespace.to_owned(), name.to_owned()))
    });
    in_order.collect()
}

/// Adds the objects on which roles give a verb, where they are held.
fn add_granted<'a>(
    namespace: Option<&'a str>,
    granted: &'a GrantedObjects,
    set: &mut ObjectSet,
    objects: &mut Named<'a>,
) {
    let Some(namespace) = namespace else {
        set.all |= granted.every;
        set.names.extend(granted.names.iter().map(ToString::to_string));
        return;
    };
    if granted.every {
        set.namespaces.insert(namespace.to_owned());
    }
    if !granted.names.is_empty() {
        objects.entry(namespace).or_default().extend(granted.names.iter().map(|name| &**name));
    }
}

//! The ways in: the access keys with every permission, before and after changes of access keys, users, teams, roles and
//! bindings. It computes with objects that `lockout.rs` has read, and sends no request.

use std::collections::{BTreeMap, BTreeSet};

use postern_client::decode_fields;
use postern_kinds::cluster_role::{self, ClusterRole};
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::connector::Connector;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::rbac::{ALL, PolicyRule, Subject};
use postern_kinds::team::{self, Team};
use postern_kinds::user::User;
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_kinds::{Info, Kind, Owner};
use postern_meta::object::Object;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::key_list::{ListedKey, with_dependents};
use crate::role_bindings::{Binding, GROUP_SUBJECT, Identities, Who, remove_subjects};

/// How long a key must still be valid to count as a way in. A shorter one may end before it has restored another.
const LASTING_SECONDS: i64 = 24 * 60 * 60;
/// The group with every permission, without a binding.
const MASTERS_GROUP: &str = "system:masters";
/// How deeply aggregated roles may be nested.
const NESTED_MAX: usize = 8;

/// The kinds of objects that decide which keys have every permission, each with the fields that matter.
const DECIDING: [(&Info, &[&str]); 5] = [
    (
        &OwnedAccessKey::INFO,
        &[
            "/spec/disabled",
            "/spec/ttl",
            "/spec/ttlAfterLastActivity",
            "/spec/scope",
            "/spec/groups",
        ],
    ),
    (&User::INFO, &["/spec/disabled", "/spec/groups", "/spec/subject", "/status/sso"]),
    (&Team::INFO, &["/spec/users", "/spec/groups", "/spec/ssoGroups"]),
    (&ClusterRoleBinding::INFO, &["/roleRef", "/subjects"]),
    (&ClusterRole::INFO, &["/rules", "/aggregationRule", "/metadata/labels"]),
];

/// The kinds of objects that are read.
pub(super) fn kinds() -> impl Iterator<Item = &'static Info> {
    DECIDING.into_iter().map(|(info, _)| info)
}

/// Whether a write of an object of this kind can take permissions from a key.
pub(super) fn decides(info: &Info) -> bool {
    kinds().any(|one| is_kind(one, info))
}

/// Whether the deletion of an object of this kind can end a key, or take permissions from one.
pub(super) fn decides_if_deleted(info: &Info) -> bool {
    decides(info) || is_kind(&WorkloadIdentity::INFO, info) || is_kind(&Connector::INFO, info)
}

/// Whether two objects of a kind differ in a field that matters.
pub(super) fn differs(info: &Info, before: &Value, after: &Value) -> bool {
    let fields = DECIDING.into_iter().find(|(one, _)| is_kind(one, info)).map(|(_, fields)| fields);
    fields.unwrap_or_default().iter().any(|field| before.pointer(field) != after.pointer(field))
}

/// Whether two kinds are the same. ClusterRoles and Roles have one group, and kinds of two groups can have one name.
pub(super) fn is_kind(one: &Info, other: &Info) -> bool {
    one.kind == other.kind && one.version.group == other.version.group
}

/// What happens to an object.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// It is deleted.
    Delete,
    /// It is disabled.
    Disable,
    /// It is replaced by this one.
    Write(Box<Object>),
    /// A binding loses a user or team.
    Unbind(Identities),
}

/// A change of an object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) info: &'static Info,
    pub(super) name: String,
    pub(super) effect: Effect,
}

/// The objects that decide which keys have every permission.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    objects: BTreeMap<&'static str, BTreeMap<String, Object>>,
    now_unix_seconds: i64,
}

/// What changes do to the ways in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Whether a key that lasts has every permission after the changes.
    pub(super) is_any_left: bool,
    /// The keys that are no ways in any more, or end sooner.
    pub(super) lost: BTreeSet<String>,
}

impl World {
    /// A world without objects.
    pub(super) fn new(now_unix_seconds: i64) -> Self {
        Self { now_unix_seconds, ..Self::default() }
    }

    /// Adds or replaces an object.
    pub(super) fn insert(&mut self, info: &Info, object: Object) {
        let of_kind = self.objects.entry(info.kind).or_default();
        of_kind.insert(object.metadata.name.clone(), object);
    }

    /// The object of a kind and name, if it was read.
    pub(super) fn get(&self, info: &Info, name: &str) -> Option<&Object> {
        self.objects.get(info.kind)?.get(name)
    }

    fn all(&self, info: &Info) -> impl Iterator<Item = &Object> {
        self.objects.get(info.kind).into_iter().flat_map(BTreeMap::values)
    }

    /// All access keys.
    pub(super) fn keys(&self) -> Vec<ListedKey> {
        let key = |object| ListedKey::new(object, self.now_unix_seconds);
        self.all(&OwnedAccessKey::INFO).filter_map(key).collect()
    }

    /// The ways in that changes take.
    pub(super) fn outcome(&self, changes: &[Change]) -> Outcome {
        let mut after = self.clone();
        for change in changes {
            after.change(change);
        }
        let keys = self.keys();
        let ends = |key: &ListedKey| self.is_open(key) && after.ends(key, changes);
        let ended = with_dependents(&keys, ends).into_iter().map(|key| key.name.clone());
        let ended: BTreeSet<String> = ended.collect();
        let mut left = after.ways_in();
        left.retain(|name, _| !ended.contains(name));
        let is_lost = |(name, lasts): &(String, bool)| {
            left.get(name).is_none_or(|still_lasts| *lasts && !still_lasts)
        };
        let lost = self.ways_in().into_iter().filter(is_lost).map(|(name, _)| name).collect();
        Outcome { is_any_left: left.values().any(|lasts| *lasts), lost }
    }

    fn change(&mut self, Change { info, name, effect }: &Change) {
        let Some(objects) = self.objects.get_mut(info.kind) else { return };
        match effect {
            Effect::Delete => drop(objects.remove(name)),
            Effect::Disable => {
                if let Some(object) = objects.get_mut(name) {
                    let spec = object.fields.entry("spec").or_insert_with(|| json!({}));
                    spec["disabled"] = true.into();
                }
            }
            Effect::Write(after) => drop(objects.insert(name.clone(), (**after).clone())),
            Effect::Unbind(identities) => {
                if let Some(object) = objects.get_mut(name) {
                    let _ = remove_subjects(&mut object.fields, identities);
                }
            }
        }
    }

    /// Whether a key gives access now: it and its owner are enabled.
    fn is_open(&self, key: &ListedKey) -> bool {
        key.is_alive
            && match &key.owner {
                Some(Owner::User(name)) => self.user(name).is_some_and(|user| !user.spec.disabled),
                Some(Owner::Team(name)) => self.get(&Team::INFO, name).is_some(),
                Some(Owner::Subject(_)) | None => true,
            }
    }

    /// Whether a key that gave access gives none after the changes.
    fn ends(&self, key: &ListedKey, changes: &[Change]) -> bool {
        let of_key = self.get(&OwnedAccessKey::INFO, &key.name);
        let now = of_key.and_then(|object| ListedKey::new(object, self.now_unix_seconds));
        let is_made_by = |change: &Change| {
            matches!(change.effect, Effect::Delete) && key.is_made_by(change.info, &change.name)
        };
        now.is_none_or(|now| !self.is_open(&now)) || changes.iter().any(is_made_by)
    }

    /// The keys without a scope that give access and have every permission, each with whether it lasts.
    fn ways_in(&self) -> BTreeMap<String, bool> {
        let powers = self.powers();
        let teams = self.teams();
        let mut by_owner: BTreeMap<Option<Owner>, bool> = BTreeMap::new();
        let keys = self.keys().into_iter().filter(|key| !key.is_scoped && self.is_open(key));
        let has_everything = |key: &ListedKey| {
            let is_by_owner = *by_owner.entry(key.owner.clone()).or_insert_with(|| {
                let identities = self.identities_of(key.owner.as_ref(), &teams);
                powers.iter().any(|subject| identities.includes(subject))
            });
            let by_group =
                |one: &Subject| one.kind == GROUP_SUBJECT && key.groups.contains(&one.name);
            is_by_owner || powers.iter().any(by_group)
        };
        let lasts = |key: &ListedKey| {
            let until = self.now_unix_seconds.saturating_add(LASTING_SECONDS);
            !key.is_session && key.end_unix_seconds.is_none_or(|end| end >= until)
        };
        let mut has_everything = has_everything;
        let ways = keys.filter(|key| has_everything(key)).map(|key| {
            let lasts = lasts(&key);
            (key.name, lasts)
        });
        ways.collect()
    }

    /// Whether a user or team that was read has every permission.
    pub(super) fn has_everything(&self, who: &Who) -> bool {
        let owner = match who {
            Who::User(name) => Owner::User(name.clone()),
            Who::Team(name) => Owner::Team(name.clone()),
        };
        let identities = self.identities_of(Some(&owner), &self.teams());
        self.powers().iter().any(|subject| identities.includes(subject))
    }

    fn identities_of(&self, owner: Option<&Owner>, teams: &[(String, team::Spec)]) -> Identities {
        match owner {
            Some(Owner::User(name)) => {
                Identities::of_user(name, &self.user(name).unwrap_or_default(), teams)
            }
            Some(Owner::Team(name)) => {
                let of_team = teams.iter().find(|(team, _)| team == name);
                of_team.map(|(name, spec)| Identities::of_team(name, spec)).unwrap_or_default()
            }
            Some(Owner::Subject(name)) => Identities::of_subject(name),
            None => Identities::default(),
        }
    }

    fn user(&self, name: &str) -> Option<postern_kinds::user::Fields> {
        decode_fields::<User>(self.get(&User::INFO, name)?).ok()
    }

    fn teams(&self) -> Vec<(String, team::Spec)> {
        let team = |object: &Object| {
            Some((object.metadata.name.clone(), decode_fields::<Team>(object).ok()?.spec))
        };
        self.all(&Team::INFO).filter_map(team).collect()
    }

    /// The subjects with every permission.
    fn powers(&self) -> Vec<Subject> {
        let masters = Subject {
            kind: GROUP_SUBJECT.to_owned(),
            name: MASTERS_GROUP.to_owned(),
            ..Subject::default()
        };
        let bindings = self.all(&ClusterRoleBinding::INFO);
        let bindings = bindings.filter_map(|object| Binding::of(&object.clone().into_value()));
        let giving = bindings.filter(|binding| {
            self.get(&ClusterRole::INFO, &binding.role.name)
                .is_some_and(|role| self.gives_everything(role, NESTED_MAX))
        });
        giving.flat_map(|binding| binding.subjects).chain([masters]).collect()
    }

    /// Whether a ClusterRole gives every permission. The rules of an aggregated one are those of the others.
    fn gives_everything(&self, role: &Object, depth: usize) -> bool {
        let Some(spec) = role_spec(role) else { return false };
        let Some(aggregation) = &spec.aggregation_rule else {
            return spec.rules.iter().any(is_everything);
        };
        let others = self.all(&ClusterRole::INFO).filter(|other| {
            other.metadata.name != role.metadata.name && aggregation.selects(&other.metadata.labels)
        });
        depth > 0 && { others }.any(|other| self.gives_everything(other, depth - 1))
    }
}

fn role_spec(role: &Object) -> Option<cluster_role::Spec> {
    cluster_role::Spec::deserialize(Value::Object(role.fields.clone())).ok()
}

/// Whether a ClusterRole gives every permission by the rules that are in it. The server keeps those of an aggregated one.
pub(super) fn has_rule_for_everything(role: &Object) -> bool {
    role_spec(role).is_some_and(|spec| spec.rules.iter().any(is_everything))
}

fn is_everything(rule: &PolicyRule) -> bool {
    let has_all = |list: &[String]| list.iter().any(|one| one == ALL);
    has_all(&rule.verbs)
        && has_all(&rule.api_groups)
        && has_all(&rule.resources)
        && rule.resource_names.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    fn named(name: &str, mut fields: Value) -> Object {
        fields["metadata"]["name"] = name.into();
        fields["metadata"]["uid"] = name.into();
        fields["metadata"]["creationTimestamp"] = "1970-01-12T13:46:40Z".into();
        object(fields)
    }

    /// A key of ada, whom a team gives every permission by a role that aggregates another.
    fn world() -> World {
        let mut world = World::new(NOW);
        let all = json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] });
        for (info, name, fields) in [
            (&User::INFO, "ada", json!({ "spec": {} })),
            (&Team::INFO, "ops", json!({ "spec": { "users": ["ada"] } })),
            (&OwnedAccessKey::INFO, "key", json!({ "spec": { "user": "ada" } })),
            (
                &ClusterRole::INFO,
                "part",
                json!({ "metadata": { "labels": { "in": "all" } }, "rules": [all] }),
            ),
            (
                &ClusterRole::INFO,
                "all",
                json!({ "rules": [all], "aggregationRule": { "clusterRoleSelectors": [
                    { "matchLabels": { "in": "all" } }] } }),
            ),
            (
                &ClusterRoleBinding::INFO,
                "ops",
                json!({ "roleRef": { "apiGroup": "", "kind": "ClusterRole", "name": "all" },
                        "subjects": [{ "kind": "Group", "name": "platform:team:ops" }] }),
            ),
        ] {
            world.insert(info, named(name, fields));
        }
        world
    }

    fn write(info: &'static Info, name: &str, fields: Value) -> Change {
        let effect = Effect::Write(Box::new(named(name, fields)));
        Change { info, name: name.to_owned(), effect }
    }

    fn delete(info: &'static Info, name: &str) -> Change {
        Change { info, name: name.to_owned(), effect: Effect::Delete }
    }

    #[test]
    fn each_object_that_gives_the_power_can_take_it() {
        let world = world();
        let disable = |info| Change { info, name: "ada".to_owned(), effect: Effect::Disable };
        let of_ada = |fields: Value| {
            let mut spec = json!({ "user": "ada" });
            spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            write(&OwnedAccessKey::INFO, "key", json!({ "spec": spec }))
        };
        let (all, no_labels) = (
            json!({ "rules": [] }),
            json!({ "rules": [
            { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }] }),
        );
        for (change, is_lost) in [
            (delete(&OwnedAccessKey::INFO, "key"), true),
            (delete(&User::INFO, "ada"), true),
            (delete(&Team::INFO, "ops"), true),
            (delete(&ClusterRole::INFO, "all"), true),
            (delete(&ClusterRole::INFO, "part"), true),
            (delete(&ClusterRoleBinding::INFO, "ops"), true),
            (delete(&ClusterRoleBinding::INFO, "other"), false),
            (disable(&User::INFO), true),
            (write(&Team::INFO, "ops", json!({ "spec": { "users": ["bob"] } })), true),
            (write(&ClusterRole::INFO, "all", all), true),
            (write(&ClusterRole::INFO, "part", no_labels), true),
            (of_ada(json!({ "disabled": true })), true),
            (of_ada(json!({ "scope": {} })), true),
            (of_ada(json!({ "ttl": 120 })), true),
            (of_ada(json!({ "ttl": LASTING_SECONDS })), false),
            (of_ada(json!({ "displayName": "x" })), false),
        ] {
            let outcome = world.outcome(std::slice::from_ref(&change));
            assert_eq!(!outcome.lost.is_empty(), is_lost, "{change:?}");
            assert_eq!(outcome.is_any_left, !is_lost, "{change:?}");
        }
    }

    #[test]
    fn only_keys_that_last_and_have_no_scope_are_other_ways_in() {
        for (fields, is_left) in [
            (json!({}), true),
            (json!({ "ttl": LASTING_SECONDS }), true),
            (json!({ "ttl": LASTING_SECONDS - 1 }), false),
            (json!({ "scope": {} }), false),
            (json!({ "disabled": true }), false),
        ] {
            let mut world = world();
            let mut spec = json!({ "user": "ada" });
            spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            world.insert(&OwnedAccessKey::INFO, named("second", json!({ "spec": spec })));
            let outcome = world.outcome(&[delete(&OwnedAccessKey::INFO, "key")]);
            assert_eq!(outcome.is_any_left, is_left, "{fields}");
        }
    }
}

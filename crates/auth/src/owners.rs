//! The owners of objects. The owner of an object holds every verb on it, and on each subresource that its
//! kind has (`docs/reference/access-rules.md#owner`). The owner is a user, or the members of a team and its
//! keys, known by uid.
//!
//! It is part of a snapshot, as roles and bindings are. A change copies only the path to the changed
//! entry, so its cost does not depend on the number of other objects.

use std::collections::HashSet;
use std::hash::Hash;
use std::panic::resume_unwind;
use std::sync::Arc;

use postern_kinds::GroupResource;

use crate::identity::Identity;
use crate::shared_map::{SharedMap, SharedSet};

/// Names of objects by their namespace, which is empty where there is none.
pub(crate) type OwnedNames = SharedMap<Arc<str>, SharedSet<Arc<str>>>;

/// The owners of objects, by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    /// The owned objects of each kind. Only few kinds have owners.
    kinds: Vec<Arc<OfKind>>,
}

/// The owners of the objects of one kind.
#[derive(Clone, Debug)]
struct OfKind {
    kind: GroupResource,
    subresources: Arc<[&'static str]>,
    /// The uid of the owner, by namespace and name.
    owners: SharedMap<Arc<str>, SharedMap<Arc<str>, Arc<str>>>,
    /// The objects of each owner, by uid.
    owned: SharedMap<Arc<str>, OwnedNames>,
}

/// An object, and the uid of its owner, with texts that others have, too.
struct Owned {
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Arc<str>,
}

/// An object, and the uid of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedObject<'a> {
    /// The uid of the user or team.
    pub uid: &'a str,
    /// The kind of the object.
    pub kind: GroupResource,
    /// Its namespace; empty where it has none.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl Owners {
    /// The owners of objects, built from all objects: the kind, the namespace, the name, and the
    /// uid of the owner, if any. Each object occurs once.
    pub(crate) fn of_all(
        objects: Vec<(GroupResource, Option<String>, String, Option<String>)>,
    ) -> Self {
        let (mut texts, mut kinds) = (HashSet::new(), Vec::<(GroupResource, Vec<Owned>)>::new());
        for (kind, namespace, name, uid) in objects {
            // No owner has the empty uid.
            let Some(uid) = uid.filter(|uid| !uid.is_empty()) else { continue };
            let [namespace, uid] =
                [namespace.unwrap_or_default(), uid].map(|text| shared(&mut texts, text));
            let owned = Owned { namespace, name: name.into(), uid };
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, objects)) => objects.push(owned),
                None => kinds.push((kind, vec![owned])),
            }
        }
        let of_kind = |(kind, objects): (_, Vec<_>)| Arc::new(OfKind::of(kind, &objects));
        Self { kinds: kinds.into_iter().map(of_kind).collect() }
    }

    /// Sets the uid of the owner of an object; `None` when it has no owner, or is gone. The namespace is
    /// empty where there is none.
    pub(crate) fn set(
        &mut self,
        kind: GroupResource,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) {
        // No owner has the empty uid.
        let uid = uid.filter(|uid| !uid.is_empty());
        let before = self.owner(kind.group, kind.resource, namespace, name);
        if before == uid {
            return;
        }
        let has_owner = before.is_some();
        let at = self.kinds.iter().position(|one| one.kind == kind).unwrap_or_else(|| {
            self.kinds.push(Arc::new(OfKind::new(kind)));
            self.kinds.len() - 1
        });
        if let Some(of_kind) = self.kinds.get_mut(at).map(Arc::make_mut) {
            if has_owner {
                of_kind.remove(namespace, name);
            }
            if let Some(uid) = uid {
                of_kind.add(namespace, name, uid);
            }
        }
    }

    /// The uid of the owner of an object.
    pub(crate) fn owner(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<&str> {
        let of_kind = self.of_kind(group, resource)?;
        of_kind.owners.get(namespace)?.get(name).map(|uid| &**uid)
    }

    /// The subresources of a kind, on which owners of its objects hold every verb, too.
    pub(crate) fn subresources(&self, group: &str, resource: &str) -> &[&'static str] {
        self.of_kind(group, resource).map_or(&[], |of_kind| &of_kind.subresources)
    }

    /// The owners of objects, each once for each kind, with one of their objects.
    pub(crate) fn one_of_each(&self) -> impl Iterator<Item = OwnedObject<'_>> {
        self.kinds.iter().flat_map(|of_kind| {
            of_kind.owned.iter().filter_map(move |(uid, owned)| {
                let (namespace, names) = owned.iter().next()?;
                let name = names.keys().next()?;
                Some(OwnedObject { uid, kind: of_kind.kind, namespace, name })
            })
        })
    }

    /// The kinds that have objects with owners.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = GroupResource> {
        self.kinds.iter().map(|of_kind| of_kind.kind)
    }

    /// The objects of a kind that an identity owns, as a user or by a team.
    pub(crate) fn of<'a>(
        &'a self,
        identity: &'a Identity,
        group: &str,
        resource: &str,
    ) -> impl Iterator<Item = &'a OwnedNames> + 'a {
        self.of_kind(group, resource).into_iter().flat_map(|of_kind| {
            identity.principal_uids.iter().filter_map(|uid| of_kind.owned.get(uid.as_str()))
        })
    }

    /// How many objects of a kind in a namespace this user or team owns.
    pub(crate) fn count(&self, kind: GroupResource, namespace: &str, uid: &str) -> usize {
        let owned = self.of_kind(kind.group, kind.resource).and_then(|of| of.owned.get(uid));
        owned.and_then(|owned| owned.get(namespace)).map_or(0, |names| names.size())
    }

    /// Whether an identity owns the same objects of a kind in another snapshot.
    pub(crate) fn is_same_for(
        &self,
        other: &Self,
        identity: &Identity,
        group: &str,
        resource: &str,
    ) -> bool {
        let [old, new] = [self, other].map(|owners| owners.of_kind(group, resource));
        identity.principal_uids.iter().all(|uid| {
            let [old, new] = [old, new].map(|of_kind| of_kind?.owned.get(uid.as_str()));
            match (old, new) {
                (None, None) => true,
                (Some(old), Some(new)) => old.ptr_eq(new),
                _ => false,
            }
        })
    }

    fn of_kind(&self, group: &str, resource: &str) -> Option<&OfKind> {
        let is_it = |one: &&Arc<OfKind>| one.kind.resource == resource && one.kind.group == group;
        self.kinds.iter().find(is_it).map(|one| &**one)
    }
}

impl OfKind {
    fn new(kind: GroupResource) -> Self {
        let mut served = postern_kinds::all().iter().map(|served| served.info());
        let info = served.find(|info| info.group_resource() == kind);
        Self {
            kind,
            subresources: info.into_iter().flat_map(postern_kinds::Info::subresources).collect(),
            owners: SharedMap::default(),
            owned: SharedMap::default(),
        }
    }

    /// The owners of these objects. Both maps are made at the same time: with many objects, a start waits for
    /// them.
    fn of(kind: GroupResource, objects: &[Owned]) -> Self {
        let mut of_kind = Self::new(kind);
        let Self { owners, owned, .. } = &mut of_kind;
        std::thread::scope(|scope| {
            let reverse = scope.spawn(|| {
                for object in objects {
                    object.add_to_owned(owned);
                }
            });
            for object in objects {
                object.add_to_owners(owners);
            }
            reverse.join().unwrap_or_else(|panic| resume_unwind(panic));
        });
        of_kind
    }

    fn add(&mut self, namespace: &str, name: &str, uid: &str) {
        // Texts that already exist are shared.
        let (namespace, uid) = (known(&self.owners, namespace), known(&self.owned, uid));
        let object = Owned { namespace, name: name.into(), uid };
        object.add_to_owned(&mut self.owned);
        object.add_to_owners(&mut self.owners);
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        let Some((namespace, owners)) = self.owners.get_key_value(namespace) else { return };
        let Some(uid) = owners.get(name).cloned() else { return };
        let namespace = namespace.clone();
        change(&mut self.owners, &namespace, |owners| {
            owners.remove_mut(name);
        });
        change(&mut self.owned, &uid, |owned| {
            change(owned, &namespace, |names| {
                names.remove_mut(name);
            });
        });
    }
}

impl Owned {
    fn add_to_owners(&self, owners: &mut SharedMap<Arc<str>, SharedMap<Arc<str>, Arc<str>>>) {
        change(owners, &self.namespace, |owners| {
            owners.insert_mut(self.name.clone(), self.uid.clone());
        });
    }

    fn add_to_owned(&self, owned: &mut SharedMap<Arc<str>, OwnedNames>) {
        change(owned, &self.uid, |owned| {
            change(owned, &self.namespace, |names| names.insert_mut(self.name.clone(), ()));
        });
    }
}

/// A text as those before it are, if one of them is the same.
fn shared(texts: &mut HashSet<Arc<str>>, text: String) -> Arc<str> {
    if let Some(known) = texts.get(text.as_str()) {
        return known.clone();
    }
    let new = Arc::<str>::from(text);
    texts.insert(new.clone());
    new
}

/// A key as a map has it, or a new one.
fn known<V>(map: &SharedMap<Arc<str>, V>, key: &str) -> Arc<str> {
    map.get_key_value(key).map_or_else(|| Arc::from(key), |(known, _)| known.clone())
}

/// Changes the map that is the value of a key, and removes it when it is empty then. Parts that no other
/// snapshot shares are changed in place. Otherwise, loading many objects would copy a path for each.
fn change<K: Eq + Hash + Clone, V: Clone>(
    map: &mut SharedMap<Arc<str>, SharedMap<K, V>>,
    key: &Arc<str>,
    change: impl FnOnce(&mut SharedMap<K, V>),
) {
    if !map.contains_key(key) {
        map.insert_mut(key.clone(), SharedMap::default());
    }
    let is_empty = map.get_mut(key).is_none_or(|value| {
        change(value);
        value.is_empty()
    });
    if is_empty {
        map.remove_mut(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRETS: GroupResource = GroupResource::new("management.platform.sh", "sharedsecrets");
    const PROJECTS: GroupResource = GroupResource::new("management.platform.sh", "projects");

    fn identity(uids: &[&str]) -> Identity {
        let principal_uids = uids.iter().map(|&uid| uid.to_owned()).collect();
        Identity { principal_uids, ..Identity::default() }
    }

    fn names(owners: &Owners, uid: &str) -> Vec<String> {
        let identity = identity(&[uid]);
        let of = |kind: GroupResource| owners.of(&identity, kind.group, kind.resource);
        let mut names: Vec<String> = [SECRETS, PROJECTS]
            .into_iter()
            .flat_map(|kind| of(kind).flat_map(|names| names.iter()).collect::<Vec<_>>())
            .flat_map(|(namespace, names)| {
                names.keys().map(move |name| format!("{namespace}/{name}"))
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn an_object_has_one_owner_and_nothing_is_left_of_one_that_is_gone() {
        let mut owners = Owners::default();
        owners.set(SECRETS, "n", "a", Some("u1"));
        owners.set(SECRETS, "m", "a", Some("u1"));
        owners.set(SECRETS, "n", "b", Some("u2"));
        owners.set(PROJECTS, "", "a", Some("u1"));
        assert_eq!(names(&owners, "u1"), ["/a", "m/a", "n/a"]);
        let before = owners.clone();
        owners.set(SECRETS, "n", "a", Some("u2"));
        assert_eq!(
            (names(&owners, "u1"), names(&owners, "u2")),
            (vec!["/a".to_owned(), "m/a".to_owned()], vec!["n/a".to_owned(), "n/b".to_owned()],)
        );
        assert_eq!(names(&before, "u2"), ["n/b"], "a snapshot stays what it was");
        for (namespace, name) in [("n", "a"), ("n", "b"), ("m", "a")] {
            owners.set(SECRETS, namespace, name, None);
        }
        owners.set(PROJECTS, "", "a", Some(""));
        assert!(owners.kinds.iter().all(|one| one.owners.is_empty() && one.owned.is_empty()));
    }

    proptest! {
        #[test]
        fn owners_of_all_objects_are_those_that_are_set_one_by_one(
            objects in prop::collection::btree_map(
                (any::<bool>(), "[nm]?", "[a-z]{1,2}"),
                prop::option::of("[uvw]?"),
                0..60,
            ),
        ) {
            let kind_of = |is_secret| if is_secret { SECRETS } else { PROJECTS };
            let mut one_by_one = Owners::default();
            let mut rows = Vec::new();
            for ((is_secret, namespace, name), uid) in objects {
                let kind = kind_of(is_secret);
                one_by_one.set(kind, &namespace, &name, uid.as_deref());
                let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
                rows.push((kind, namespace, name, uid));
            }
            let at_once = Owners::of_all(rows.clone());
            for uid in ["u", "v", "w", ""] {
                prop_assert_eq!(names(&at_once, uid), names(&one_by_one, uid));
            }
            for (kind, namespace, name, uid) in rows {
                let namespace = namespace.unwrap_or_default();
                let owner = at_once.owner(kind.group, kind.resource, &namespace, &name);
                prop_assert_eq!(owner, uid.as_deref().filter(|uid| !uid.is_empty()));
            }
        }
    }

    #[test]
    fn a_change_for_somebody_else_is_seen_to_be_one() {
        let mut owners = Owners::default();
        owners.set(SECRETS, "n", "a", Some("u1"));
        let before = owners.clone();
        owners.set(SECRETS, "n", "b", Some("u2"));
        owners.set(PROJECTS, "", "a", Some("u1"));
        let same = |uids: &[&str], kind: GroupResource| {
            before.is_same_for(&owners, &identity(uids), kind.group, kind.resource)
        };
        assert!(same(&["u1"], SECRETS) && same(&["u3"], SECRETS) && same(&["u2"], PROJECTS));
        assert!(
            !same(&["u2"], SECRETS) && !same(&["u3", "u2"], SECRETS) && !same(&["u1"], PROJECTS)
        );
    }
}

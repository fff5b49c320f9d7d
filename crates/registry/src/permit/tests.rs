//! Tests of the limits of a permit, and of the uses of the server's own permits.

use std::fs;
use std::path::{Path, PathBuf};

use postern_auth::identity::{AUTHENTICATED_GROUP, Identity, MASTERS_GROUP};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project_members::ProjectMembers;
use postern_kinds::selves::SelfKind;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_meta::event::WatchEventType;
use postern_meta::object::Object;
use postern_store::Position;
use postern_store::memory::Memory;
use serde_json::json;

use super::*;
use crate::cache::{CacheEntry, to_stored};
use crate::registry::EncodedObject;

/// The uses of [`Permit::for_server`] outside tests: the file, the number of uses, and their purpose.
const USES: &[(&str, usize, &str)] = &[
    (
        "registry/src/actions/exchanges.rs",
        2,
        "access keys for the tokens of workloads, and the issuer of their identity",
    ),
    (
        "registry/src/actions/logins.rs",
        3,
        "users, groups and access keys of logins through identity providers",
    ),
    ("registry/src/actions/refreshes.rs", 6, "keys and groups of logins, as the provider says"),
    ("registry/src/actions/sessions.rs", 3, "sessions of the console, and codes of login links"),
    ("registry/src/admit/deletion.rs", 1, "changes of other objects by a removal"),
    ("registry/src/admit/dependents.rs", 1, "dependents in the transaction of their object"),
    ("registry/src/admit/migrate.rs", 3, "the other half of a migration"),
    (
        "registry/src/controllers/connected_agents.rs",
        1,
        "the agents that are connected to a Cluster",
    ),
    ("registry/src/controllers/events.rs", 1, "expired Events"),
    ("registry/src/controllers/garbage/collect.rs", 1, "the garbage collector"),
    ("registry/src/controllers/namespaces.rs", 3, "the content of a terminating namespace"),
    ("registry/src/controllers/offers.rs", 1, "the condition of offers"),
    ("registry/src/controllers/phases.rs", 1, "the phases of clusters and instances"),
    ("registry/src/controllers/probes.rs", 1, "the results of probes"),
    ("registry/src/controllers/project_secrets/copy.rs", 2, "secret sync"),
    ("registry/src/controllers/project_secrets/mirror.rs", 2, "the mirrors of project secrets"),
    ("registry/src/controllers/reaper.rs", 1, "objects whose grace period is over"),
    ("registry/src/controllers/roles.rs", 2, "the roles of access rules, and aggregated roles"),
    ("registry/src/default_namespaces.rs", 2, "the permanent namespaces"),
    ("registry/src/default_roles.rs", 4, "the default roles"),
    ("registry/src/events.rs", 2, "Events of the server"),
    (
        "registry/src/operations/access_keys.rs",
        5,
        "expired access keys, keys without an owner or maker, and login links of disabled users",
    ),
    ("registry/src/operations/delete.rs", 1, "corrupt objects that the server creates again"),
    (
        "registry/src/secret_subscriptions/offers.rs",
        1,
        "the uid of a namespace that a secret is offered to",
    ),
    ("server/src/admin/reset_key.rs", 5, "the administrator of the machine"),
];

/// Code that actions must not contain: reads of the cache without a permit.
const PAST_A_PERMIT: [&str; 4] = ["cache().of(", "cache.of(", "ResourceCache", ".list_intact("];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The source files under a directory without tests and test modules.
#[expect(clippy::disallowed_methods, reason = "a test that reads the source")]
fn sources(directory: &Path, into: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|one| one.unwrap()).collect();
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if path.is_dir() && name != "tests" {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs"
        {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            let name = path.strip_prefix(crates()).unwrap().to_str().unwrap().to_owned();
            into.push((name, code));
        }
    }
}

#[test]
fn every_use_of_the_servers_own_permit_is_listed() {
    let mut all = Vec::new();
    sources(&crates().join("registry/src"), &mut all);
    sources(&crates().join("server/src"), &mut all);
    let count = |code: &str| code.matches("Permit::for_server(").count();
    let found: Vec<(&str, usize)> = all
        .iter()
        .map(|(name, code)| (name.as_str(), count(code)))
        .filter(|one| one.1 > 0)
        .collect();
    let listed: Vec<(&str, usize)> = USES.iter().map(|(file, count, _)| (*file, *count)).collect();
    assert_eq!(found, listed);
    let made: Vec<&str> = all
        .iter()
        .filter(|(_, code)| code.contains("Credential::of_server("))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(made, ["registry/src/permit/server.rs"]);
}

#[test]
fn no_action_reads_the_cache_past_a_permit() {
    let mut all = Vec::new();
    sources(&crates().join("registry/src/actions"), &mut all);
    assert!(all.len() > 5);
    for (name, code) in all {
        for text in PAST_A_PERMIT {
            assert!(!code.contains(text), "{name} has {text}");
        }
    }
}

fn cached(kind: &'static dyn AnyKind, namespace: Option<&str>, name: &str) -> Arc<CachedObject> {
    owned(kind, namespace, name, &json!({}), &json!([]))
}

fn owned(
    kind: &'static dyn AnyKind,
    namespace: Option<&str>,
    name: &str,
    spec: &serde_json::Value,
    owners: &serde_json::Value,
) -> Arc<CachedObject> {
    let info = kind.info();
    let mut object = Object::from_value(json!({
        "apiVersion": info.version.to_string(),
        "kind": info.kind,
        "metadata": { "name": name, "uid": format!("uid-{name}"), "ownerReferences": owners },
        "spec": spec,
    }))
    .unwrap();
    object.metadata.namespace = namespace.unwrap_or_default().to_owned();
    let key = storage_key::object(info, namespace, name);
    let cache = Cache::new(Arc::new(Memory::new()));
    let (position, added) = (Position::new(1, 0), WatchEventType::Added);
    let entry = cache.of(info).to_entry(&key, position, added, &to_stored(object));
    let CacheEntry::Intact(object) = entry else { panic!("{key}") };
    object
}

fn master(target: ResourceTarget) -> Permit {
    let groups = [MASTERS_GROUP, AUTHENTICATED_GROUP].map(str::to_owned).to_vec();
    let identity = Identity { name: "admin".to_owned(), groups, ..Identity::default() };
    Permit::decide(PolicyAt::built_in(), Credential::of_server(identity), target).unwrap()
}

fn collection(verb: Verb, namespace: Option<&str>, name: Option<&str>) -> ResourceTarget {
    let target = ResourceTarget::object(&SharedSecret, verb, namespace, "");
    ResourceTarget { name: name.map(str::to_owned), ..target }
}

#[test]
fn a_permit_for_a_collection_becomes_one_for_an_object_in_it_and_for_deleting_alone() {
    let deletes = Verb::DeleteCollection;
    let in_n = cached(&SharedSecret, Some("n"), "a");
    for (target, object, is_within) in [
        (collection(deletes, Some("n"), None), &in_n, true),
        (collection(deletes, None, None), &in_n, true),
        (collection(deletes, Some("n"), Some("a")), &in_n, true),
        (collection(deletes, Some("m"), None), &in_n, false),
        (collection(deletes, Some("n"), Some("b")), &in_n, false),
        (collection(deletes, None, Some("b")), &in_n, false),
        (collection(deletes, None, None), &cached(&User, None, "a"), false),
        (collection(Verb::List, Some("n"), None), &in_n, false),
        (collection(Verb::Get, Some("n"), Some("a")), &in_n, false),
        (collection(Verb::Delete, Some("n"), Some("a")), &in_n, false),
    ] {
        let permit = master(target);
        let one = permit.one_of(object);
        let (verb, namespace) = (permit.target().verb, permit.target().namespace.as_deref());
        assert_eq!(one.is_ok(), is_within, "{verb:?} {namespace:?} {}", permit.name());
        let Ok(one) = one else { continue };
        let ResourceTarget { verb, namespace, name, .. } = one.target();
        assert_eq!(*verb, Verb::Delete);
        assert_eq!((namespace.as_deref(), name.as_deref()), (Some("n"), Some("a")));
    }
}

fn keys_of(kind: &'static dyn AnyKind, name: &str) -> ResourceTarget {
    let action = kind.info().action("accesskeys", Verb::Get);
    assert!(action.is_some());
    ResourceTarget { action, ..ResourceTarget::object(kind, Verb::Get, None, name) }
}

#[test]
fn a_permit_for_the_keys_of_an_owner_covers_those_alone() {
    let (ada, team) = (cached(&User, None, "ada"), cached(&Team, None, "ada"));
    for (target, owner, is_it) in [
        (keys_of(&User, "ada"), &ada, true),
        (keys_of(&Team, "ada"), &team, true),
        (keys_of(&User, "ada"), &team, false),
        (keys_of(&User, "bob"), &ada, false),
        (ResourceTarget::object(&User, Verb::Get, None, "ada"), &ada, false),
    ] {
        assert_eq!(master(target).keys_of(owner).is_ok(), is_it, "{owner:?}");
    }
    let keys = master(keys_of(&User, "ada")).keys_of(&ada).unwrap();
    assert!(!keys.covers_all() && keys.target().verb == Verb::List);
    let of = |name: &str, user: &str, uid: &str| {
        let owners = json!([{
            "apiVersion": User.info().version.to_string(), "kind": "User", "name": user, "uid": uid,
        }]);
        owned(&OwnedAccessKey, None, name, &json!({ "user": user }), &owners)
    };
    for (key, is_covered) in [
        (of("of-ada", "ada", "uid-ada"), true),
        (of("of-a-namesake", "ada", "uid-other"), false),
        (of("of-bob", "bob", "uid-bob"), false),
        (cached(&User, None, "ada"), false),
    ] {
        assert_eq!(keys.covers(&key), is_covered, "{key:?}");
        assert!(!keys.covers_key(key.key()), "a name says nothing of the owner");
    }
    let without_roles = Identity { name: "bob".to_owned(), ..Identity::default() };
    let lost = keys.as_identified(Credential::of_server(without_roles));
    assert_eq!(lost.err().map(|error| error.code()), Some(403), "the action decides again");
}

#[test]
fn an_action_answers_with_its_own_object_or_one_that_is_not_stored() {
    let permit = master(ResourceTarget::object(&User, Verb::Get, None, "ada"));
    let (ada, bob) = (cached(&User, None, "ada"), cached(&User, None, "bob"));
    let team = cached(&Team, None, "ada");
    for (kind, object, is_answered) in [
        (&User as &dyn AnyKind, &ada, true),
        (&User, &bob, false),
        (&Team, &team, false),
        (&SelfKind, &bob, true),
        (&ProjectMembers, &bob, true),
    ] {
        let made = EncodedObject::for_action(&permit, kind, &object.decode().unwrap());
        assert_eq!(made.is_ok(), is_answered, "{object:?}");
    }
}

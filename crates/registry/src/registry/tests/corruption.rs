//! Corrupt objects: the operations that work without them, those that wait, and the effects of their removal.

use std::sync::atomic::AtomicBool;
use std::task::{Context, Wake};

use postern_auth::endpoint_token::TokenRefusal;
use postern_kinds::cluster::Cluster;
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project::Project;
use postern_kinds::secret::Secret;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_store::seal::{Keyring, Sealed};

use super::fleet::permit_of;
use super::*;
use crate::actions;
use crate::permit::ResourceTarget;
use crate::{controllers, default_namespaces, default_roles, storage_key};

fn instance<'a>(namespace: &'a str, name: &'a str) -> At<'a> {
    within(namespace, &VirtualClusterInstance, name)
}

async fn make_instance(
    server: &Fixture,
    namespace: &str,
    name: &str,
    virtual_cluster: &str,
) -> Result<Object, ApiError> {
    let spec = json!({ "spec": { "owner": { "user": "ada" }, "clusterRef": {
        "cluster": "c", "namespace": "n", "virtualCluster": virtual_cluster } } });
    server.try_make(instance(namespace, name), spec).await
}

/// One server, with a user, a cluster, and two projects.
async fn scene() -> Fixture {
    let fixture = fixture().await;
    for (kind, name) in [(&User as AnyKindRef, "ada"), (&Cluster, "c")] {
        fixture.make(at(kind, name), json!({})).await;
    }
    for name in ["a", "b"] {
        let quotas = json!({ "project": { "virtualclusterinstances": "2" } });
        fixture.make(at(&Project, name), json!({ "spec": { "quotas": quotas } })).await;
    }
    fixture.current().await;
    fixture
}

#[tokio::test]
async fn a_corrupt_instance_keeps_no_agent_and_no_token_from_the_others() {
    let fixture = scene().await;
    for name in ["bad", "good"] {
        make_instance(&fixture, "p-a", name, name).await.unwrap();
    }
    fixture.corrupt(instance("p-a", "bad")).await;
    let config = fixture.registry.agent_config("c", None).await.unwrap();
    let config = config.object.decode().unwrap().into_value();
    let instances = config["spec"]["instances"].as_array().unwrap();
    let names: Vec<_> = instances.iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["good"]);

    let digest = fixture.key_of("laptop", "ada", json!({})).await;
    let (list, writing) = (ListOptions::default(), Writing::by_server());
    let kind = &postern_kinds::direct_cluster_endpoint_token::DirectClusterEndpointToken;
    let action = kind.info().action("", Verb::Create).unwrap();
    let permit = at(kind, "").permit(Verb::Create).with_credential(fixture.credential(digest));
    let spec = json!({ "ttl": 60, "scope": { "rules": [{ "projects": ["a"] }] } });
    let body = Some(at(kind, "").object(&json!({ "spec": spec })));
    let input = actions::ActionInput { body, list: &list, part: None };
    let handler = postern_kinds::action::RegistryAction::IssueEndpointToken;
    let issued = actions::run(&fixture.registry, &permit, action, handler, input, &writing).await;
    assert!(issued.is_ok(), "{:?}", issued.err());
}

#[tokio::test]
async fn a_corrupt_object_counts_in_a_quota() {
    let fixture = scene().await;
    for name in ["bad", "good"] {
        make_instance(&fixture, "p-a", name, name).await.unwrap();
    }
    fixture.corrupt(instance("p-a", "bad")).await;
    let refused = make_instance(&fixture, "p-a", "third", "third").await.unwrap_err();
    assert!(refused.status().message.contains("exceeded quota"), "{refused}");
    fixture.remove(instance("p-a", "good")).await;
    make_instance(&fixture, "p-a", "third", "third").await.unwrap();
}

#[tokio::test]
async fn a_corrupt_object_in_the_project_is_named_to_who_moves_an_instance() {
    let servers = super::migration::scene().await;
    let one = &servers[0];
    let of_ada = json!({ "spec": { "owner": { "user": "ada" } } });
    one.make(instance("p-a", "bad"), of_ada).await;
    one.corrupt(instance("p-a", "bad")).await;
    let refused = super::migration::migrate(one, "a", "b", "v0").await.unwrap_err();
    assert_eq!(refused.code(), 409, "{refused}");
    assert!(refused.status().message.contains("p-a/bad, which is corrupt"), "{refused}");
    one.remove(instance("p-a", "bad")).await;
    // A corrupt object outside of the project does not block the migration.
    one.make(at(&Cluster, "d"), json!({})).await;
    one.corrupt(at(&Cluster, "d")).await;
    super::migration::migrate(one, "a", "b", "v0").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_namespace_waits_for_a_corrupt_object_and_says_so_once() {
    let fixture = fixture().await;
    fixture.make(at(&Namespace, "n"), json!({})).await;
    for name in ["bad", "good"] {
        fixture.make(within("n", &SharedSecret, name), json!({})).await;
    }
    fixture.corrupt(within("n", &SharedSecret, "bad")).await;
    let mut running = tokio::task::JoinSet::new();
    running.spawn(controllers::namespaces::run(fixture.registry.clone()));
    fixture.delete(at(&Namespace, "n")).await;
    let read = async || fixture.read(at(&Namespace, "n")).await;
    let mut progress = fixture.registry.cache().subscribe();
    let telling = async {
        loop {
            let value = read().await.unwrap().into_value();
            let condition = value["status"]["conditions"][0].clone();
            if condition.is_object() {
                return condition;
            }
            progress.changed().await.unwrap();
        }
    };
    let told = tokio::time::timeout(Duration::from_mins(5), telling).await.expect("it says so");
    assert_eq!(told["type"], "NamespaceDeletionContentFailure");
    assert!(told["message"].as_str().unwrap().contains("sharedsecrets/n/bad"), "{told}");
    let revision = fixture.store.revision().await.unwrap();
    for name in ["x", "y"] {
        fixture.create(name).await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    let more = fixture.store.revision().await.unwrap() - revision;
    assert_eq!(more, 2, "nothing is written while nothing has changed");
    fixture.remove(within("n", &SharedSecret, "bad")).await;
    let removing = async {
        while read().await.is_ok() {
            progress.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_mins(5), removing).await.expect("it is removed");
}

#[tokio::test]
async fn the_removal_of_a_corrupt_object_frees_its_own_unique_keys_alone() {
    let fixture = scene().await;
    make_instance(&fixture, "p-a", "dev", "one").await.unwrap();
    make_instance(&fixture, "p-b", "dev", "two").await.unwrap();
    fixture.corrupt(instance("p-a", "dev")).await;
    fixture.remove(instance("p-a", "dev")).await;
    let taken = make_instance(&fixture, "p-b", "other", "two").await.unwrap_err();
    assert_eq!(taken.code(), 409, "{taken}");
    make_instance(&fixture, "p-b", "third", "one").await.unwrap();
    // Two objects of the name are corrupt: the records tell which unique key each one has.
    make_instance(&fixture, "p-a", "dev", "three").await.unwrap();
    for namespace in ["p-a", "p-b"] {
        fixture.corrupt(instance(namespace, "dev")).await;
    }
    fixture.remove(instance("p-a", "dev")).await;
    let taken = make_instance(&fixture, "p-a", "new", "two").await.unwrap_err();
    assert_eq!(taken.code(), 409, "{taken}");
    make_instance(&fixture, "p-a", "newer", "three").await.unwrap();
    fixture.remove(instance("p-b", "dev")).await;
    make_instance(&fixture, "p-a", "new", "two").await.unwrap();
}

#[tokio::test]
async fn pages_of_the_past_go_on_without_a_corrupt_user() {
    let fixture = fixture().await;
    for name in ["b", "m", "n", "z"] {
        fixture.make(at(&User, name), json!({})).await;
    }
    fixture.corrupt(at(&User, "m")).await;
    fixture.corrupt(at(&User, "n")).await;
    let all = Permit::for_server(&User, Verb::List, None, "").of_all();
    for selector in ["", "&labelSelector=!absent"] {
        let (mut names, mut warnings, mut after) = (Vec::new(), Vec::new(), String::new());
        loop {
            let query = format!("limit=1{selector}{after}");
            let page = fixture.registry.list(&all, &options(&query)).await.unwrap();
            names.extend(page.objects.iter().map(|one| one.decode().unwrap().metadata.name));
            warnings.extend(page.warnings);
            // Now the rest of the list is a past list.
            fixture.create(&format!("s{}{}", names.len(), selector.len())).await.unwrap();
            fixture.current().await;
            let Some(token) = page.continue_token else { break };
            after = format!("&continue={token}");
        }
        assert_eq!(names, ["admin", "b", "z"], "{selector}");
        let told = |name: &str| warnings.iter().filter(|one| one.contains(name)).count();
        assert_eq!((told("users/m"), told("users/n"), warnings.len()), (1, 1, 2), "{warnings:?}");
    }
    // A past list of an ordinary kind fails, as a present list does.
    fixture.create("a").await.unwrap();
    fixture.corrupt(secret("a")).await;
    let revision = Position::end_of(fixture.store.revision().await.unwrap());
    fixture.create("b").await.unwrap();
    fixture.current().await;
    let query = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
    let all = permit(Verb::List, "unused").of_all();
    let failed = fixture.registry.list(&all, &options(&query)).await.err().unwrap();
    assert!(failed.status().message.contains("is corrupt"), "{failed}");
}

#[tokio::test]
async fn a_corrupt_key_is_as_absent_to_who_may_change_only_their_own() {
    let fixture = scene().await;
    let digest = fixture.key_of("laptop", "ada", json!({})).await;
    fixture.key("hidden", json!({})).await;
    fixture.corrupt(at(&OwnedAccessKey, "hidden")).await;
    let credential = permit_of(&fixture, digest, Verb::List).await.unwrap().credential().clone();
    let answer = async |verb, name: &str| {
        let target = ResourceTarget::object(&OwnedAccessKey, verb, None, name);
        let policy = fixture.registry.cache().policy();
        let permit = Permit::decide(policy, credential.clone(), target).unwrap();
        let refused = match verb {
            Verb::Delete => {
                let options = DeleteOptions::default();
                operations::delete(&fixture.registry, &permit, &options).await.err()
            }
            Verb::Get => fixture.registry.stored(&permit).await.err(),
            _ => {
                let (writing, same) = (Writing::by_server(), |key: &Object| Ok(key.clone()));
                operations::update(&fixture.registry, &permit, &writing, same).await.err()
            }
        };
        refused.map(|refused| (refused.code(), refused.status().message.replace(name, "NAME")))
    };
    for verb in [Verb::Patch, Verb::Update, Verb::Get, Verb::Delete] {
        let hidden = answer(verb, "hidden").await;
        assert_eq!(hidden, answer(verb, "absent").await, "{verb:?}");
        assert_eq!(hidden.unwrap().0, 404, "{verb:?}");
        assert_eq!(answer(verb, "laptop").await, None, "{verb:?}");
    }
}

#[tokio::test]
async fn watchers_list_again_when_a_corrupt_object_is_removed_or_replaced() {
    for is_removed in [true, false] {
        let fixture = fixture().await;
        fixture.create("a").await.unwrap();
        let mut watch = fixture.watch("watch=1").await;
        assert_eq!(names(&watch.next().await.unwrap()), ["ADDED a"]);
        let key = secret("a").key();
        let value = fixture.stored(&key).await;
        fixture.corrupt(secret("a")).await;
        if is_removed {
            fixture.remove(secret("a")).await;
        } else {
            fixture.commit(vec![Change::Put { key, value }]).await;
        }
        assert_eq!(names(&watch.next().await.unwrap()), ["ERROR 410"], "it ends");
        // A client that has listed again continues.
        let mut watch = fixture.watch("watch=1").await;
        if !is_removed {
            assert_eq!(names(&watch.next().await.unwrap()), ["ADDED a"]);
        }
        fixture.create("b").await.unwrap();
        assert_eq!(names(&watch.next().await.unwrap()), ["ADDED b"]);
    }
}

#[tokio::test]
async fn the_removal_of_who_is_corrupt_revokes_the_tokens_that_depend_on_them() {
    for way in ["key", "key and record", "user", "user and key", "team", "team with a key"] {
        let fixture = fixture().await;
        for name in ["ada", "bob"] {
            fixture.make(at(&User, name), json!({})).await;
        }
        let team = json!({ "spec": { "users": ["ada"] } });
        fixture.make(at(&Team, "db"), team.clone()).await;
        if way == "team with a key" {
            let spec = json!({ "spec": { "team": "db" } });
            fixture.make(at(&OwnedAccessKey, "robot"), spec.clone()).await;
        }
        let token = {
            let digest = fixture.key_of("laptop", "ada", json!({})).await;
            fixture.token(&digest).await
        };
        let others = {
            let digest = fixture.key_of("other", "bob", json!({})).await;
            fixture.token(&digest).await
        };
        let (kind, name): (AnyKindRef, _) = match way {
            "user" | "user and key" => (&User, "ada"),
            "team" | "team with a key" => (&Team, "db"),
            _ => (&OwnedAccessKey, "laptop"),
        };
        fixture.corrupt(at(kind, name)).await;
        if way == "key and record" {
            let key = storage_key::secret_record(OwnedAccessKey.info(), None, "laptop");
            fixture.commit(vec![Change::Delete { key }]).await;
        }
        if way == "user and key" {
            fixture.corrupt(at(&OwnedAccessKey, "laptop")).await;
        }
        assert_eq!(fixture.verified(&token), None, "{way}");
        fixture.remove(at(kind, name)).await;
        assert_eq!(fixture.verified(&token), Some(TokenRefusal::Revoked), "{way}");
        // Without a key of the team, its members are unknown.
        let expected = (way == "team").then_some(TokenRefusal::Revoked);
        assert_eq!(fixture.verified(&others), expected, "{way}");
    }
}

#[tokio::test]
async fn corrupt_default_roles_are_created_again_with_the_others() {
    let fixture = fixture().await;
    default_roles::restore(&fixture.registry).await;
    fixture.current().await;
    let roles = fixture.registry.cache().of(ClusterRole.info());
    let all = roles.count().all;
    fixture.corrupt(at(&ClusterRole, "platform-admin")).await;
    assert_eq!(roles.count().corrupt, 1);
    let last = roles.page(None, usize::MAX).last().unwrap().decode().unwrap().metadata.name;
    fixture.remove(at(&ClusterRole, &last)).await;
    default_roles::restore(&fixture.registry).await;
    fixture.current().await;
    let count = roles.count();
    assert_eq!((count.all, count.corrupt), (all, 0));
}

#[tokio::test]
async fn an_instance_on_a_corrupt_cluster_can_be_changed_and_says_why_it_is_not_ready() {
    let fixture = scene().await;
    make_instance(&fixture, "p-a", "v", "v").await.unwrap();
    fixture.corrupt(at(&Cluster, "c")).await;
    let written = fixture.change(instance("p-a", "v"), |_| ()).await;
    assert_eq!(written.fields["status"]["reason"], "ClusterUnreadable");
}

/// A new project of the name must not get the content of the earlier namespace.
#[tokio::test]
async fn a_corrupt_namespace_stays_as_long_as_anything_is_in_it() {
    let fixture = scene().await;
    fixture.make(within("p-a", &SharedSecret, "db"), json!({})).await;
    fixture.corrupt(at(&Namespace, "p-a")).await;
    for has_corrupt in [false, true] {
        if has_corrupt {
            fixture.corrupt(within("p-a", &SharedSecret, "db")).await;
        }
        let how = DeleteOptions { ignore_store_read_error: true, ..DeleteOptions::default() };
        let error = fixture.try_delete(at(&Namespace, "p-a"), how).await.err().unwrap();
        assert_eq!(error.code(), 409, "{has_corrupt}");
        assert!(error.status().message.contains("sharedsecrets/p-a/db"), "{error}");
    }
    fixture.remove(within("p-a", &SharedSecret, "db")).await;
    fixture.remove(at(&Namespace, "p-a")).await;
}

#[tokio::test]
async fn a_corrupt_or_missing_permanent_namespace_is_created_again() {
    let fixture = fixture().await;
    let namespaces = || fixture.registry.cache().of(Namespace.info());
    default_namespaces::restore(&fixture.registry).await;
    let before = namespaces().count();
    fixture.corrupt(at(&Namespace, "platform")).await;
    fixture.commit(vec![Change::Delete { key: at(&Namespace, "default").key() }]).await;
    fixture.current().await;
    assert_eq!((namespaces().count().corrupt, namespaces().count().all), (1, before.all - 1));
    default_namespaces::restore(&fixture.registry).await;
    fixture.current().await;
    assert_eq!((namespaces().count().corrupt, namespaces().count().all), (0, before.all));
}

#[tokio::test]
async fn a_key_whose_secret_record_is_corrupt_can_be_disabled_and_removed() {
    let fixture = fixture().await;
    fixture.make(at(&User, "ada"), json!({})).await;
    let record = || storage_key::secret_record(OwnedAccessKey.info(), None, "laptop");
    let set = async |field: &str, value: Value| {
        let set = |key: &mut Value| key["spec"][field] = value.clone();
        fixture.try_change(at(&OwnedAccessKey, "laptop"), set).await
    };
    for _ in 0..2 {
        // The second time as well, after the first object is gone.
        let digest = fixture.key_of("laptop", "ada", json!({})).await;
        assert!(permit_of(&fixture, digest, Verb::List).await.is_ok());
        fixture.overwrite(record()).await;
        let key = "0123456789abcdefghijklmnopqrstuv";
        let refused = set("key", key.into()).await.err().unwrap();
        assert_eq!(refused.code(), 500);
        let message = &refused.status().message;
        assert!(message.contains("\"laptop\"") && !message.contains(key), "{message}");
        set("disabled", true.into()).await.unwrap();
        fixture.current().await;
        assert!(fixture.refusal(&digest).is_some(), "it is disabled");
        fixture.delete(at(&OwnedAccessKey, "laptop")).await;
        fixture.current().await;
        assert!(fixture.store.get(&record()).await.unwrap().value.is_none());
    }
}

#[tokio::test]
async fn corrupt_records_are_counted_until_they_are_gone() {
    let sealed = Sealed::open(Arc::new(Memory::new()), Keyring::generate().unwrap()).await.unwrap();
    let sealed = Arc::new(sealed);
    let fixture = over(sealed.clone()).await;
    fixture.make(at(&User, "ada"), json!({})).await;
    fixture.key_of("laptop", "ada", json!({})).await;
    let cache = fixture.registry.cache();
    assert_eq!(cache.corrupt_records(), 0);
    let key = storage_key::secret_record(OwnedAccessKey.info(), None, "laptop");
    let flipped =
        vec![Change::Put { key: key.clone(), value: bytes::Bytes::from_static(b"flipped") }];
    sealed.inner().commit(Txn { conditions: vec![], changes: flipped }).await.unwrap();
    cache.reload().await.unwrap();
    assert_eq!(cache.corrupt_records(), 1);
    fixture.delete(at(&OwnedAccessKey, "laptop")).await;
    cache.reload().await.unwrap();
    assert_eq!(cache.corrupt_records(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_meets_a_corrupt_change_reads_everything_anew() {
    let sealed = Sealed::open(Arc::new(Memory::new()), Keyring::generate().unwrap()).await.unwrap();
    let sealed = Arc::new(sealed);
    let fixture = over(sealed.clone()).await;
    fixture.create("a").await.unwrap();
    let mut watch = fixture.watch("watch=1").await;
    assert_eq!(names(&watch.next().await.unwrap()), ["ADDED a"]);
    // Written past the encryption: the change cannot be decrypted.
    let key = secret("bad").key();
    let change = Change::Put { key: key.clone(), value: bytes::Bytes::from_static(b"flipped") };
    let txn = Txn { conditions: vec![], changes: vec![change] };
    let revision = sealed.inner().commit(txn).await.unwrap();
    let cache = fixture.registry.cache();
    cache.wait_for_revision(Position::end_of(revision)).await.unwrap();
    let resource = cache.of(SharedSecret.info());
    assert!(resource.corrupt_at(&key).is_some());
    assert_eq!(names(&watch.next().await.unwrap()), ["ERROR 410"], "it lists again");
    // The watch continues from there.
    fixture.create("b").await.unwrap();
    cache.wait_until_current().await.unwrap();
    assert_eq!(resource.page(None, usize::MAX).len(), 2);
}

/// Whether a task asks to be polled again.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_selects_nothing_lets_others_have_the_thread() {
    let fixture = fixture().await;
    fixture.make(at(&Namespace, "n"), json!({})).await;
    let watch = async |query: &str| {
        let whole = Permit::for_server(&Secret, Verb::Watch, Some("n"), "").of_all();
        let fields = crate::permit::selectable_fields(&Secret);
        let options = ListOptions::parse(&Query::parse(query).unwrap(), &fields).unwrap();
        fixture
            .registry
            .watch(&whole, &options, fixture.ending.subscribe(), large_work())
            .await
            .unwrap()
    };
    let version = Position::end_of(fixture.store.revision().await.unwrap());
    let large = json!({ "data": { "k": "x".repeat(40_000) }, "type": "Opaque" });
    for number in 0..64 {
        let name = format!("s{number}");
        fixture.make(within("n", &Secret, &name), large.clone()).await;
    }
    fixture.current().await;
    let mut none =
        watch(&format!("watch=1&resourceVersion={version}&fieldSelector=type=none")).await;
    // The watch checks some events at a time, and asks to be polled again.
    let woken = Arc::new(Woken::default());
    let mut polls = 0;
    {
        let waker = woken.clone().into();
        let mut next = std::pin::pin!(none.next());
        loop {
            polls += 1;
            assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            // The runtime runs the other tasks first.
            tokio::task::yield_now().await;
            if !woken.0.swap(false, Ordering::Relaxed) {
                break;
            }
        }
    }
    assert!((10..=65).contains(&polls), "{polls}");
    let mut some =
        watch(&format!("watch=1&resourceVersion={version}&fieldSelector=type=Opaque")).await;
    let mut seen = 0;
    while seen < 64 {
        seen += some.next().await.unwrap().len();
    }
}

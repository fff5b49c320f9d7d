//! Migrations under load, on one store with two servers. At every revision, each instance is in
//! exactly one project, with its Secret, its roles and its unique key. No data is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;

use postern_kinds::action::{Action, RegistryAction};
use postern_kinds::cluster::Cluster;
use postern_kinds::project::Project;
use postern_kinds::project_migrate_virtual_cluster_instance::ProjectMigrateVirtualClusterInstance;
use postern_kinds::role::Role;
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::secret::Secret;
use postern_kinds::user::User;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_store::ListRequest;

use super::*;
use crate::actions;

/// The number of moved instances.
const INSTANCES: usize = 4;

/// The number of migrations that each of two tasks requests.
const MIGRATIONS: usize = 100;

const PROJECTS: [&str; 2] = ["a", "b"];

pub(super) fn instance(name: &str) -> Value {
    json!({ "spec": {
        "owner": { "user": "ada" },
        "description": "0",
        "clusterRef": { "cluster": "c", "namespace": "n", "virtualCluster": name },
        "config": { "secretName": format!("{name}-kubeconfig") },
        "access": [{ "verbs": ["use"], "users": ["ada"] }],
    } })
}

async fn make_instance(server: &Fixture, namespace: &str, name: &str) -> Result<Object, ApiError> {
    let made =
        server.try_make(within(namespace, &VirtualClusterInstance, name), instance(name)).await;
    made.inspect_err(|error| assert!([404, 409, 422].contains(&error.code()), "{error} of {name}"))
}

pub(super) async fn migrate(
    server: &Fixture,
    from: &str,
    to: &str,
    name: &str,
) -> Result<(), ApiError> {
    let permit = at(&Project, to).permit(Verb::Create);
    let action: &'static Action =
        Project.info().action("migratevirtualclusterinstance", Verb::Create).unwrap();
    let source = json!({ "name": name, "namespace": format!("p-{from}") });
    let body = at(&ProjectMigrateVirtualClusterInstance, "")
        .object(&json!({ "sourceVirtualClusterInstance": source }));
    let (list, writing, body) = (ListOptions::default(), Writing::by_server(), Some(body));
    let input = actions::ActionInput { body, list: &list, part: None };
    let handler = RegistryAction::MigrateVirtualClusterInstance;
    actions::run(&server.registry, &permit, action, handler, input, &writing).await.map(|_| ())
}

/// Two servers on one store, with two projects and the instances in the first one.
pub(super) async fn scene() -> [Fixture; 2] {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let clock = Fixed::at(START_UNIX_SECONDS);
    let servers = [start(store.clone(), clock.clone()).await, start(store, clock).await];
    let one = &servers[0];
    one.make(at(&User, "ada"), json!({})).await;
    one.make(at(&Cluster, "c"), json!({})).await;
    for project in PROJECTS {
        one.make(at(&Project, project), json!({})).await;
    }
    for number in 0..INSTANCES {
        let name = format!("v{number}");
        let secret = format!("{name}-kubeconfig");
        make_instance(one, "p-a", &name).await.unwrap();
        one.make(within("p-a", &Secret, &secret), json!({ "data": {} })).await;
    }
    servers
}

async fn stored(server: &Fixture, prefix: &str) -> Vec<String> {
    let request = ListRequest { prefix: prefix.to_owned(), ..ListRequest::default() };
    let page = server.store.list(request).await.unwrap();
    page.entries.iter().map(|entry| entry.key.to_string()).collect()
}

fn read(server: &Fixture, namespace: &str, name: &str) -> Option<Object> {
    let key = within(namespace, &VirtualClusterInstance, name).key();
    let found = server.registry.cache().of(VirtualClusterInstance.info()).get(&key).unwrap();
    found.map(|found| found.decode().unwrap())
}

/// The project that has an instance, as a server knows it.
fn project_of(server: &Fixture, name: &str) -> Option<&'static str> {
    PROJECTS.into_iter().find(|project| read(server, &format!("p-{project}"), name).is_some())
}

fn other(project: &str) -> &'static str {
    if project == "a" { "b" } else { "a" }
}

/// Requests migrations, each from the last known project of the instance.
async fn migrate_all(server: &Fixture, by: usize) -> usize {
    let mut moved = 0;
    for number in 0..MIGRATIONS {
        let name = format!("v{}", (number * 7 + by) % INSTANCES);
        let Some(from) = project_of(server, &name) else { continue };
        match migrate(server, from, other(from), &name).await {
            Ok(()) => moved += 1,
            // Another migration was faster.
            Err(error) => assert!([404, 409].contains(&error.code()), "{error}"),
        }
    }
    moved
}

/// Counts in the descriptions until the migrations end. Returns the number of increments for each.
async fn update_all(server: &Fixture, running: &AtomicUsize) -> BTreeMap<String, usize> {
    let mut raised = BTreeMap::new();
    let mut number = 0;
    while running.load(Ordering::Relaxed) > 0 {
        number += 1;
        let name = format!("v{}", number % INSTANCES);
        let Some(project) = project_of(server, &name) else { continue };
        let namespace = format!("p-{project}");
        let raise = |value: &mut Value| {
            let count: usize = value["spec"]["description"].as_str().unwrap().parse().unwrap();
            value["spec"]["description"] = (count + 1).to_string().into();
        };
        let at = within(&namespace, &VirtualClusterInstance, &name);
        match server.try_change(at, raise).await {
            Ok(_) => *raised.entry(name).or_default() += 1,
            Err(error) => assert!([404, 409].contains(&error.code()), "{error}"),
        }
        tokio::task::yield_now().await;
    }
    raised
}

/// Creates, moves and deletes one more instance until the migrations end.
async fn come_and_go(server: &Fixture, running: &AtomicUsize) {
    while running.load(Ordering::Relaxed) > 0 {
        let _ = make_instance(server, "p-a", "d").await;
        let _ = migrate(server, "a", "b", "d").await;
        for project in PROJECTS {
            let namespace = format!("p-{project}");
            let at = within(&namespace, &VirtualClusterInstance, "d");
            let _ = server.try_delete(at, DeleteOptions::default()).await;
        }
        tokio::task::yield_now().await;
    }
}

/// An event: revision, type, namespace, name, uid.
type Seen = (u64, WatchEventType, String, String, String);

/// Watches all instances from a version on. After each event it resumes on the other server.
async fn follow(servers: &[Fixture; 2], from: u64, running: &AtomicUsize) -> Vec<Seen> {
    let (mut version, mut seen): (u64, Vec<Seen>) = (from, Vec::new());
    loop {
        let server = &servers[seen.len() % 2];
        let over = running.load(Ordering::Relaxed) == 0;
        server.current().await;
        let permit =
            Permit::for_server(&VirtualClusterInstance, Verb::Watch, None, "unused").of_all();
        let query = options(&format!("watch=1&resourceVersion={version}"));
        let ending = server.ending.subscribe();
        let mut watcher =
            server.registry.watch(&permit, &query, ending, large_work()).await.unwrap();
        let next = tokio::time::timeout(Duration::from_millis(20), watcher.next()).await;
        let first = next.ok().flatten().unwrap_or_default().into_iter().next();
        let Some(Delivery::Event { event_type, object, .. }) = first else {
            assert!(first.is_none(), "{:?}", names(&[first.unwrap()]));
            if over {
                return seen;
            }
            continue;
        };
        assert!(object.position().packed() > version);
        version = object.position().packed();
        let metadata = object.decode().unwrap().metadata;
        let of = (metadata.namespace, metadata.name, metadata.uid);
        seen.push((object.position().revision(), event_type, of.0, of.1, of.2));
    }
}

/// Checks that at the end of every revision each instance is in exactly one project.
fn assert_always_in_one(seen: &[Seen]) {
    let mut there: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for (index, (revision, event_type, namespace, name, uid)) in seen.iter().enumerate() {
        let of = there.entry(name.clone()).or_default();
        let place = (namespace.clone(), uid.clone());
        match event_type {
            WatchEventType::Added => assert!(of.insert(place), "{revision}: {name}"),
            WatchEventType::Deleted => assert!(of.remove(&place), "{revision}: {name}"),
            _ => assert!(of.contains(&place), "{revision}: {name}"),
        }
        assert!(of.len() <= 1, "{revision}: {name} is in {of:?}");
        let ends = seen.get(index + 1).is_none_or(|next| next.0 > *revision);
        if ends && name.starts_with('v') {
            assert_eq!(there[name].len(), 1, "{revision}: {name} is nowhere");
        }
    }
}

#[tokio::test]
async fn each_instance_is_in_exactly_one_project_at_every_revision() {
    let servers = scene().await;
    let (one, two) = (&servers[0], &servers[1]);
    let running = AtomicUsize::new(2);
    let movers = async {
        let move_on = async |server, by| {
            let moved = migrate_all(server, by).await;
            running.fetch_sub(1, Ordering::Relaxed);
            moved
        };
        tokio::join!(move_on(one, 0), move_on(two, 1))
    };
    let work = async {
        tokio::join!(
            movers,
            update_all(two, &running),
            come_and_go(one, &running),
            follow(&servers, 0, &running),
        )
    };
    let done = tokio::time::timeout(Duration::from_mins(2), Box::pin(work)).await.unwrap();
    let ((moved, also_moved), raised, (), seen) = done;
    assert!(moved + also_moved > MIGRATIONS, "{moved} and {also_moved} were moved");
    assert_always_in_one(&seen);
    for server in &servers {
        server.current().await;
    }
    for number in 0..INSTANCES {
        let name = format!("v{number}");
        let project = project_of(one, &name).unwrap();
        let found = read(one, &format!("p-{project}"), &name).unwrap().into_value();
        let wanted = raised.get(&name).copied().unwrap_or_default().to_string();
        assert_eq!(found["spec"]["description"], wanted, "no update of {name} is lost");
        for (collection, at) in [
            ("/objects/core/secrets", format!("{name}-kubeconfig")),
            ("/objects/rbac.authorization.k8s.io/roles", first_role(&name)),
            ("/objects/rbac.authorization.k8s.io/rolebindings", first_role(&name)),
        ] {
            for (of, count) in [(project, 1), (other(project), 0)] {
                let found = stored(one, &format!("{collection}/p-{of}/{at}")).await;
                assert_eq!(found.len(), count, "{found:?}");
            }
        }
    }
    let taken = make_instance(one, "p-a", "v1").await.unwrap_err();
    assert!([409, 422].contains(&taken.code()), "{taken}");
    let unique = stored(one, "/unique/management.platform.sh/virtualclusterinstances/c/n/v").await;
    assert_eq!(unique.len(), INSTANCES, "{unique:?}");
}

/// The name of the role of the first access rule.
fn first_role(name: &str) -> String {
    postern_kinds::access::rule_role(VirtualClusterInstance.info(), name, 0)
}

#[tokio::test]
async fn whoever_had_access_has_it_and_a_namesake_has_not() {
    let servers = scene().await;
    let one = &servers[0];
    let before = subject_uids(one, "p-a").await;
    let owner = owner_uid(one, "p-a");
    assert!(before.contains("platform:user:ada"), "{before}");
    one.delete(at(&User, "ada")).await;
    one.make(at(&User, "ada"), json!({})).await;
    migrate(one, "a", "b", "v0").await.unwrap();
    one.current().await;
    assert_eq!(subject_uids(one, "p-b").await, before);
    assert_eq!(owner_uid(one, "p-b"), owner);
    let old = within("p-a", &Role, &first_role("v0")).key();
    assert!(one.registry.cache().of(Role.info()).get(&old).unwrap().is_none());
}

/// The uid of the owner of `v0`.
fn owner_uid(server: &Fixture, namespace: &str) -> String {
    let key = within(namespace, &VirtualClusterInstance, "v0").key();
    let resource = server.registry.cache().of(VirtualClusterInstance.info());
    let found = resource.get(&key).unwrap().unwrap();
    found.owner_uid().unwrap().to_owned()
}

/// The uids of the subjects in the binding of the first access rule of `v0`.
async fn subject_uids(server: &Fixture, namespace: &str) -> String {
    let role = first_role("v0");
    let found = server.read(within(namespace, &RoleBinding, &role)).await.unwrap();
    found.metadata.annotations[postern_kinds::rbac::SUBJECT_UIDS].clone()
}

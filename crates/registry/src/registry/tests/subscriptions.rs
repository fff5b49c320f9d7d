//! Subscriptions of agents to project secrets: who gets data, when it ends, and that all other wishes get one answer.

use postern_auth::bearer::BearerToken;
use postern_auth::digest::Digest;
use postern_flow::Requester;
use postern_kinds::cluster::Cluster;
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::rbac::PROJECT_LABEL;
use postern_kinds::secret_offer::{OFFER_CONFIRMED, OFFERED};
use postern_kinds::secret_subscription::{InstanceRef, SubscribedSecret};
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{MANAGEMENT_V1, SecretText};

use super::*;
use crate::controllers;
use crate::permit::ResourceTarget;
use crate::registry::secret_uses::SubscriptionCounts;
use crate::registry::watch::Deliveries as _;
use crate::secret_subscriptions::watch::{Room, SecretWatcher};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The project secret `db` of the project `p`.
const DB: At<'_> = within("p-p", &ProjectSecret, "db");

/// The space `web` of the project `p`.
const WEB: At<'_> = within("p-p", &SpaceInstance, "web");

fn space(cluster: &str, namespace: &str) -> Value {
    json!({ "spec": { "clusterRef": { "cluster": cluster, "namespace": namespace } } })
}

fn virtual_cluster(cluster: &str) -> Value {
    let at = json!({ "cluster": cluster, "namespace": "vc-ns", "virtualCluster": "vc" });
    json!({ "spec": { "clusterRef": at } })
}

fn offering(spaces: &[&str], virtual_clusters: &[&str]) -> Value {
    json!({ "spec": {
        "data": { "k": "b25l" },
        "offer": { "spaces": spaces, "virtualClusters": virtual_clusters },
    } })
}

/// Two clusters with agents, two projects with a space and a virtual cluster each, and the offered secret `db`.
async fn scene() -> Fixture {
    let server = fixture().await;
    for project in ["p", "q"] {
        let labels = json!({ "metadata": { "labels": { PROJECT_LABEL: project } } });
        server.make(at(&Namespace, &format!("p-{project}")), labels).await;
    }
    for cluster in ["c", "d"] {
        server.make(at(&Cluster, cluster), json!({ "spec": {} })).await;
        let rule = json!({ "verbs": ["create"], "apiGroups": [MANAGEMENT_V1.group],
            "resources": ["clusters/secretsubscriptions"], "resourceNames": [cluster] });
        server.make(at(&ClusterRole, cluster), json!({ "rules": [rule] })).await;
        let binding = json!({
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": cluster },
            "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": format!("agent:{cluster}") }] });
        server.make(at(&ClusterRoleBinding, cluster), binding).await;
    }
    server.make(WEB, space("c", "web-ns")).await;
    server.make(within("p-p", &VirtualClusterInstance, "vc"), virtual_cluster("c")).await;
    server.make(within("p-q", &SpaceInstance, "web"), space("c", "other-ns")).await;
    server.make(DB, offering(&["web"], &["vc"])).await;
    server.current().await;
    server
}

/// The key of the agent of a cluster.
async fn agent(server: &Fixture, cluster: &str) -> Digest {
    let spec = json!({ "spec": { "subject": format!("agent:{cluster}") } });
    let made = server.make(at(&OwnedAccessKey, &format!("agent-{cluster}")), spec).await;
    let value = SecretText::from(made.fields["spec"]["key"].as_str().unwrap().to_owned());
    server.current().await;
    server.registry.digester().digest(&BearerToken::of_key(&value))
}

/// A Secret of the space `web` that wants `db`.
fn wish() -> SubscribedSecret {
    SubscribedSecret {
        namespace: "web-ns".to_owned(),
        namespace_uid: "n1".to_owned(),
        name: "db".to_owned(),
        virtual_cluster: None,
        project: "p".to_owned(),
        project_secret: "db".to_owned(),
        version: String::new(),
    }
}

/// A Secret in a virtual cluster that wants `db`.
fn wish_within(namespace: &str, name: &str) -> SubscribedSecret {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let virtual_cluster = Some(InstanceRef { namespace, name });
    SubscribedSecret { namespace: "inside".to_owned(), virtual_cluster, ..wish() }
}

async fn begin(
    server: &Fixture,
    digest: Digest,
    cluster: &str,
    wishes: Vec<SubscribedSecret>,
    flow: &Flow,
) -> Result<SecretWatcher, ApiError> {
    server.current().await;
    let action = Cluster.info().action("secretsubscriptions", Verb::Create);
    let target =
        ResourceTarget { action, ..ResourceTarget::object(&Cluster, Verb::Create, None, cluster) };
    let policy = server.registry.cache().policy();
    let permit = Permit::decide(policy, server.credential(digest), target)?;
    let requester = Requester { account: flow.account("agent"), is_system: false };
    let room = Room { budget: flow.responses.clone(), requester };
    let ending = server.ending.subscribe();
    SecretWatcher::begin(&server.registry, &permit, wishes, room, ending).await
}

async fn subscribe(
    server: &Fixture,
    digest: Digest,
    wishes: Vec<SubscribedSecret>,
) -> SecretWatcher {
    begin(server, digest, "c", wishes, &Flow::new(Limits::default())).await.unwrap()
}

/// The deliveries until the next bookmark, or the code of the error with which the watch ends.
async fn next(watcher: &mut SecretWatcher) -> Result<Vec<Value>, u16> {
    let mut found = Vec::new();
    loop {
        for delivery in watcher.next().await.unwrap() {
            match delivery {
                Delivery::Event { object, .. } => {
                    found.push(object.decode().unwrap().into_value()["spec"].clone());
                }
                Delivery::Bookmark { .. } => return Ok(found),
                Delivery::Failed(error) => return Err(error.code()),
            }
        }
    }
}

/// The next deliveries that are not only a bookmark.
async fn change(watcher: &mut SecretWatcher) -> Vec<Value> {
    loop {
        let found = next(watcher).await.unwrap();
        if !found.is_empty() {
            return found;
        }
    }
}

async fn only(watcher: &mut SecretWatcher) -> Value {
    let mut found = change(watcher).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Checks that a delivery refuses, and returns it without what it repeats of the wish.
fn refusal(mut delivery: Value) -> Value {
    let object = delivery.as_object_mut().unwrap();
    for echoed in ["namespace", "name", "virtualCluster", "project", "projectSecret"] {
        object.remove(echoed);
    }
    delivery
}

fn not_offered() -> Value {
    json!({ "reason": "NotOffered", "message": "not offered here" })
}

fn ended(on_end: &str) -> Value {
    json!({ "reason": "Ended", "message": "not offered here", "onEnd": on_end })
}

#[tokio::test(start_paused = true)]
async fn an_offered_secret_arrives_follows_its_source_and_ends_with_the_offer() {
    let server = scene().await;
    let digest = agent(&server, "c").await;
    let mut watcher = subscribe(&server, digest, vec![wish(), wish_within("p-p", "vc")]).await;
    let first = change(&mut watcher).await;
    assert_eq!(first.len(), 2, "{first:?}");
    for delivery in &first {
        assert_eq!(delivery["data"], json!({ "k": "b25l" }));
        assert!(delivery.get("reason").is_none());
    }
    assert_eq!(first[1]["virtualCluster"], json!({ "namespace": "p-p", "name": "vc" }));

    // A rotation arrives, and a key that the source no longer has is gone.
    server.change(DB, |object| object["spec"]["data"] = json!({ "l": "dHdv" })).await;
    let second = change(&mut watcher).await;
    assert_eq!(second.len(), 2);
    assert_eq!(second[0]["data"], json!({ "l": "dHdv" }));
    assert_ne!(second[0]["version"], first[0]["version"]);

    // An agent that has this version gets nothing; with any other version it gets the data.
    let version = second[0]["version"].as_str().unwrap().to_owned();
    for (version, count) in [(version, 0), ("other".to_owned(), 1)] {
        let mut again =
            subscribe(&server, digest, vec![SubscribedSecret { version, ..wish() }]).await;
        assert_eq!(next(&mut again).await.unwrap().len(), count);
    }

    // The offer ends for the space, and later for the virtual cluster with the secret itself.
    let withdraw = |object: &mut Value| {
        object["spec"]["offer"] = json!({ "virtualClusters": ["vc"], "onEnd": "Delete" });
    };
    server.change(DB, withdraw).await;
    let found = change(&mut watcher).await;
    assert_eq!(refusal(found[0].clone()), ended("Delete"), "{found:?}");
    assert_eq!(found[1]["onEnd"], "Delete");
    server.delete(DB).await;
    assert_eq!(refusal(only(&mut watcher).await), ended("Delete"), "as it was offered last");
    // The same name again is another secret, and gives data as it is offered.
    server.make(DB, offering(&["web"], &[])).await;
    assert_eq!(only(&mut watcher).await["data"], json!({ "k": "b25l" }));
}

#[tokio::test(start_paused = true)]
async fn every_wish_without_an_offer_gets_one_answer() {
    let server = scene().await;
    let (c, d) = (agent(&server, "c").await, agent(&server, "d").await);
    let plain = json!({ "spec": { "data": { "k": "b25l" } } });
    server.make(within("p-p", &ProjectSecret, "plain"), plain.clone()).await;
    server.make(within("p-q", &ProjectSecret, "db"), offering(&["web"], &[])).await;
    server.make(within("platform", &ProjectSecret, "db"), plain).await;
    server.make(within("p-p", &SpaceInstance, "new"), space("c", "new-ns")).await;
    let wants = |project: &str, secret: &str| SubscribedSecret {
        project: project.to_owned(),
        project_secret: secret.to_owned(),
        ..wish()
    };
    let lies_in = |namespace: &str| SubscribedSecret { namespace: namespace.to_owned(), ..wish() };
    let wishes = [
        wants("p", "plain"),
        wants("p", "missing"),
        wants("missing", "db"),
        wants("q", "db"),
        wants("", ""),
        wants("p", ""),
        wants("../p-p", "db"),
        wants("p/db", "x"),
        wants("P", "DB"),
        // The space of another project, a namespace without a space, and an instance that is not named in the offer: a
        // user of the project has created it to get at the offer.
        lies_in("other-ns"),
        lies_in("kube-system"),
        lies_in("new-ns"),
        wish_within("p-p", "missing"),
        wish_within("p-q", "vc"),
        // A space is no virtual cluster.
        wish_within("p-p", "web"),
    ];
    for (cluster, digest) in [("c", c), ("d", d)] {
        for wish in &wishes {
            let flow = Flow::new(Limits::default());
            let begun = begin(&server, digest, cluster, vec![wish.clone()], &flow).await;
            let found = only(&mut begun.unwrap()).await;
            assert_eq!(refusal(found), not_offered(), "{cluster} {wish:?}");
        }
    }
    // What is offered to the instances of one cluster is not offered to the agent of another.
    for wish in [wish(), wish_within("p-p", "vc")] {
        let flow = Flow::new(Limits::default());
        let mut watcher = begin(&server, d, "d", vec![wish.clone()], &flow).await.unwrap();
        assert_eq!(refusal(only(&mut watcher).await), not_offered(), "{wish:?}");
    }
    let counts = server.registry.secret_uses().counts();
    let refused = 2 * u64::try_from(wishes.len()).unwrap() + 2;
    assert_eq!(counts, SubscriptionCounts { refused, ..SubscriptionCounts::default() });
}

#[tokio::test(start_paused = true)]
async fn an_offer_is_for_the_instance_that_its_writer_saw_until_it_is_confirmed() {
    let server = scene().await;
    let digest = agent(&server, "c").await;
    let mut running = tokio::task::JoinSet::new();
    running.spawn(controllers::offers::run(server.registry.clone()));
    let confirm = async |value: &str| {
        let set = |object: &mut Value| {
            object["metadata"]["annotations"][OFFER_CONFIRMED] = value.into();
        };
        server.change(DB, set).await;
    };
    let condition = async || {
        // The controller needs a moment.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let found = server.read(DB).await.unwrap().fields["status"]["conditions"].clone();
        let found = found.as_array().unwrap().iter().find(|one| one["type"] == OFFERED).cloned();
        found.unwrap()["status"].as_str().unwrap().to_owned()
    };
    let mut watcher = subscribe(&server, digest, vec![wish()]).await;
    assert!(only(&mut watcher).await["data"].is_object());
    assert_eq!(condition().await, "True");

    // A deleted instance, and another one of the same name at the same place.
    server.delete(WEB).await;
    assert_eq!(refusal(only(&mut watcher).await), ended("Keep"));
    assert_eq!(condition().await, "False");
    server.make(WEB, space("c", "web-ns")).await;
    let touch = |object: &mut Value| object["spec"]["description"] = "other".into();
    server.change(DB, touch).await;
    assert!(next(&mut watcher).await.unwrap().is_empty());
    assert_eq!(condition().await, "False");
    confirm("1").await;
    assert!(only(&mut watcher).await["data"].is_object());
    assert_eq!(condition().await, "True");

    // It moves to another namespace, and back.
    let to = |namespace: &'static str| {
        move |object: &mut Value| object["spec"]["clusterRef"]["namespace"] = namespace.into()
    };
    server.change(WEB, to("moved-ns")).await;
    assert_eq!(refusal(only(&mut watcher).await), ended("Keep"));
    let there = SubscribedSecret { namespace: "moved-ns".to_owned(), ..wish() };
    let mut elsewhere = subscribe(&server, digest, vec![there]).await;
    assert_eq!(refusal(only(&mut elsewhere).await), not_offered());
    server.change(WEB, to("web-ns")).await;
    assert!(only(&mut watcher).await["data"].is_object());

    // The namespace in the cluster was deleted and created again.
    let recreated = SubscribedSecret { namespace_uid: "n2".to_owned(), ..wish() };
    let mut recreated = subscribe(&server, digest, vec![recreated]).await;
    assert_eq!(refusal(only(&mut recreated).await), not_offered());
    assert_eq!(refusal(only(&mut watcher).await), ended("Keep"), "the first namespace is gone");
    assert_eq!(condition().await, "False");
    drop(watcher);
    confirm("2").await;
    assert!(only(&mut recreated).await["data"].is_object());
    assert_eq!(condition().await, "True");
    let bound = server.read(DB).await.unwrap().fields["status"]["offers"][0].clone();
    assert_eq!(bound["namespaceUid"], "n2");

    // Another Cluster has the name, with an agent of its own.
    server.delete(at(&Cluster, "c")).await;
    assert_eq!(next(&mut recreated).await, Err(404));
    server.make(at(&Cluster, "c"), json!({ "spec": {} })).await;
    let wish = SubscribedSecret { namespace_uid: "n2".to_owned(), ..wish() };
    let mut watcher = subscribe(&server, digest, vec![wish]).await;
    assert_eq!(refusal(only(&mut watcher).await), not_offered());
    assert_eq!(condition().await, "False");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_with_the_key_and_with_the_permission() {
    let server = scene().await;
    let digest = agent(&server, "c").await;
    let mut watcher = subscribe(&server, digest, vec![wish()]).await;
    assert!(only(&mut watcher).await["data"].is_object());
    // The revocation comes before a rotation.
    server.delete(at(&ClusterRoleBinding, "c")).await;
    server.change(DB, |object| object["spec"]["data"] = json!({ "k": "dHdv" })).await;
    assert_eq!(next(&mut watcher).await, Err(410));
    assert!(watcher.next().await.is_none());
    drop(watcher);

    let binding = json!({
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "c" },
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": "agent:c" }] });
    server.make(at(&ClusterRoleBinding, "c"), binding).await;
    let mut watcher = subscribe(&server, digest, vec![wish()]).await;
    assert!(only(&mut watcher).await["data"].is_object());
    server.delete(at(&OwnedAccessKey, "agent-c")).await;
    server.change(DB, |object| object["spec"]["data"] = json!({ "k": "b25l" })).await;
    assert_eq!(next(&mut watcher).await, Err(401));
    assert!(watcher.next().await.is_none());
    assert_eq!(server.registry.secret_uses().counts().open, 1, "until it is dropped");
    drop(watcher);
    assert_eq!(server.registry.secret_uses().counts().open, 0);
}

#[tokio::test(start_paused = true)]
async fn only_the_agent_of_the_cluster_subscribes_whatever_roles_others_have() {
    let server = scene().await;
    let (c, d) = (agent(&server, "c").await, agent(&server, "d").await);
    let rule = json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] });
    server.make(at(&ClusterRole, "all"), json!({ "rules": [rule] })).await;
    server.make(at(&postern_kinds::user::User, "ada"), json!({ "spec": {} })).await;
    let binding = json!({
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "all" },
        "subjects": [
            { "apiGroup": RBAC, "kind": "User", "name": "ada" },
            { "apiGroup": RBAC, "kind": "User", "name": "agent:d" },
        ] });
    server.make(at(&ClusterRoleBinding, "all"), binding).await;
    let ada = server.key_of("ada", "ada", json!({})).await;
    let flow = Flow::new(Limits::default());
    for (digest, code) in [(ada, 403), (d, 403), (c, 200)] {
        let begun = begin(&server, digest, "c", vec![wish()], &flow).await;
        let found = begun.err().map_or(200, |error| error.code());
        assert_eq!(found, code);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_ends_nothing() {
    let server = scene().await;
    let digest = agent(&server, "c").await;
    let mut watcher = subscribe(&server, digest, vec![wish()]).await;
    assert!(only(&mut watcher).await["data"].is_object());
    for object in [WEB, DB] {
        let stored = server.stored(&object.key()).await;
        server.corrupt(object).await;
        let mut later = subscribe(&server, digest, vec![wish()]).await;
        for _ in 0..3 {
            assert!(next(&mut watcher).await.unwrap().is_empty(), "the Secret keeps its data");
            assert!(next(&mut later).await.unwrap().is_empty(), "also of a new subscription");
        }
        server.put(object.key(), stored).await;
    }
    assert!(only(&mut watcher).await["data"].is_object(), "another version, with the same data");
}

#[tokio::test(start_paused = true)]
async fn the_uses_of_a_secret_are_those_of_open_subscriptions() {
    let server = scene().await;
    let digest = agent(&server, "c").await;
    let uses = |key: &str| {
        let found = server.registry.secret_uses().of(key);
        found.into_iter().map(|one| format!("{}/{} {}", one.namespace, one.name, one.version))
    };
    let wishes = vec![wish_within("p-p", "vc"), wish()];
    let mut watcher = subscribe(&server, digest, wishes).await;
    let first = change(&mut watcher).await;
    let version = first[0]["version"].as_str().unwrap();
    let of_db = |version: &str| [format!("web-ns/db {version}"), format!("inside/db {version}")];
    assert_eq!(uses(&DB.key()).collect::<Vec<_>>(), of_db(version));
    server.change(DB, |object| object["spec"]["offer"] = json!({ "spaces": ["web"] })).await;
    let later = change(&mut watcher).await;
    let version = later.iter().find_map(|one| one["version"].as_str()).unwrap();
    assert_eq!(uses(&DB.key()).collect::<Vec<_>>(), of_db(version)[..1]);
    let counts = server.registry.secret_uses().counts();
    let wanted = SubscriptionCounts { open: 1, secrets: 1, delivered: 3, refused: 1 };
    assert_eq!(counts, wanted);
    drop(watcher);
    assert_eq!(uses(&DB.key()).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_and_its_deliveries_take_the_memory_of_their_owner() {
    let server = scene().await;
    let digest = agent(&server, "c").await;
    let flow = Flow::new(Limits::default());
    let numbered = |number: usize| SubscribedSecret { name: format!("s{number}"), ..wish() };
    let many = || (0..1000).map(numbered).collect::<Vec<_>>();
    let watcher = begin(&server, digest, "c", many(), &flow).await.unwrap();
    let bytes = flow.counts().response_bytes;
    assert!((500_000..2_000_000).contains(&bytes), "{bytes}");
    drop(watcher);
    assert_eq!(flow.counts().response_bytes, 0);

    // Another request of the owner takes all that is left: a subscription is rejected, and one that is open waits.
    let requester = Requester { account: flow.account("agent"), is_system: false };
    let mut watcher = begin(&server, digest, "c", vec![wish()], &flow).await.unwrap();
    let mut other = flow.responses.open(&requester);
    while other.grow(1 << 10) {}
    let rejected = begin(&server, digest, "c", many(), &flow).await.err().unwrap();
    assert_eq!(rejected.code(), 429);
    let waits = tokio::time::timeout(Duration::from_secs(20), watcher.next()).await;
    assert!(waits.is_err(), "nothing is sent without room");
    drop(other);
    assert!(only(&mut watcher).await["data"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_secrets_and_a_rotation_of_each() {
    const MANY: usize = 1000;
    let server = scene().await;
    let digest = agent(&server, "c").await;
    let name = |number: usize| format!("s{number}");
    for number in 0..MANY {
        let at = within("p-p", &ProjectSecret, &name(number)).object(&offering(&["web"], &[]));
        server.make(within("p-p", &ProjectSecret, &name(number)), at.into_value()).await;
    }
    let wanted =
        |number| SubscribedSecret { name: name(number), project_secret: name(number), ..wish() };
    let mut watcher = subscribe(&server, digest, (0..MANY).map(wanted).collect()).await;
    assert_eq!(next(&mut watcher).await.unwrap().len(), MANY);
    for number in 0..MANY {
        let set = |object: &mut Value| object["spec"]["data"] = json!({ "k": "dHdv" });
        server.change(within("p-p", &ProjectSecret, &name(number)), set).await;
    }
    let mut rotated = 0;
    while rotated < MANY {
        let found = change(&mut watcher).await;
        assert!(found.iter().all(|one| one["data"]["k"] == "dHdv"));
        rotated += found.len();
    }
    assert_eq!(rotated, MANY, "each once");
}

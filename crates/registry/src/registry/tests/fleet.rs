//! Suites that run on one server with a file, on two servers with one store in memory, and on three with a remote store
//! that behaves badly. After a request to one server, the other must know
//! the result at its next request, because every request first waits until its server is current.

use std::future::Future;

use postern_auth::bearer::Refusal;
use postern_auth::digest::Digest;
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::role::Role;
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_meta::options::{DeleteOptions, GetOptions, Propagation};
use postern_store::hostile::{Faults, Remote};
use postern_store::{ListRequest, Member, Options};
use serde_json::{Value, json};

use super::*;
use crate::controllers;
use crate::credential::Credential;
use crate::permit::ResourceTarget;
use crate::registry::decoded;
use crate::storage_key;

/// Servers on one store, with one clock.
pub(super) struct Fleet {
    servers: Vec<Fixture>,
    store: Arc<dyn Store>,
    controllers: tokio::task::JoinSet<()>,
}

impl Fleet {
    /// Starts all servers at once, on an unused store in memory.
    async fn of(servers: usize) -> Self {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        Self::on(servers, || store.clone()).await
    }

    /// Starts all servers at once, each with a connection to one store.
    pub(super) async fn on(servers: usize, connect: impl Fn() -> Arc<dyn Store>) -> Self {
        let clock = Fixed::at(START_UNIX_SECONDS);
        let starting = (0..servers).map(|_| start(connect(), clock.clone()));
        let servers = futures_util::future::join_all(starting).await;
        for server in &servers {
            announce(server).await;
        }
        Self { servers, store: connect(), controllers: tokio::task::JoinSet::new() }
    }

    /// All servers.
    pub(super) fn servers(&self) -> &[Fixture] {
        &self.servers
    }

    /// The server that gets the writes.
    pub(super) fn one(&self) -> &Fixture {
        &self.servers[0]
    }

    /// The server that gets the reads: another one, if there are two.
    pub(super) fn other(&self) -> &Fixture {
        &self.servers[self.servers.len() - 1]
    }

    /// All servers, after they are current.
    pub(super) async fn current(&self) -> &[Fixture] {
        for server in &self.servers {
            server.registry.cache().wait_until_current().await.unwrap();
        }
        &self.servers
    }

    /// Runs all controllers on all servers.
    fn run_controllers(&mut self) {
        for server in &self.servers {
            let registry = &server.registry;
            self.controllers.spawn(controllers::namespaces::run(registry.clone()));
            self.controllers.spawn(controllers::reaper::run(registry.clone()));
            self.controllers.spawn(controllers::garbage::run(registry.clone()));
            self.controllers.spawn(controllers::access_keys::run(registry.clone()));
        }
    }

    /// The stored keys with a prefix.
    pub(super) async fn stored(&self, prefix: &str) -> Vec<String> {
        let request = ListRequest { prefix: prefix.to_owned(), ..ListRequest::default() };
        let page = self.store.list(request).await.unwrap();
        page.entries.iter().map(|entry| entry.key.to_string()).collect()
    }

    /// Lets each server clean up the token records.
    pub(super) async fn tidy(&self) {
        for server in self.current().await {
            server.registry.clean_up_token_records().await.unwrap();
        }
        self.current().await;
    }

    /// Waits until no key with a prefix is stored.
    async fn until_gone(&self, prefix: &str) {
        let gone = async {
            while !self.stored(prefix).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(1), gone).await;
        assert!(waited.is_ok(), "still there: {:?}", self.stored(prefix).await);
    }
}

/// Announces a server to the others, if its store can have several.
async fn announce(server: &Fixture) {
    let Some(fleet) = server.registry.store().fleet() else { return };
    let id = server.registry.servers().id().clone();
    let me = Member { id, address: String::new(), format: 1, seal_keys: Vec::new() };
    fleet.join(me).await.unwrap();
}

/// A store that is slow and whose watches often lose their connection.
const HOSTILE: Faults =
    Faults { delay_microseconds: 300, lost_watches: 40, refused_commits: 0, unknown_outcomes: 0 };

/// Runs a suite on one server with a file, on two with a store in memory, and on three with a hostile remote store.
pub(super) async fn on_every_fleet<F: Future<Output = ()>>(suite: impl Fn(Fleet) -> F) {
    let directory = tempfile::tempdir().unwrap();
    let file = postern_store::open(directory.path().join("db"), Options::default()).await.unwrap();
    suite(Fleet::on(1, || file.clone()).await).await;
    on_several(suite).await;
}

/// The same with all stores in memory: a clock that is paused goes on while a file is written.
pub(super) async fn in_paused_time_on_every_fleet<F: Future<Output = ()>>(
    suite: impl Fn(Fleet) -> F,
) {
    suite(Fleet::of(1).await).await;
    on_several(suite).await;
}

async fn on_several<F: Future<Output = ()>>(suite: impl Fn(Fleet) -> F) {
    suite(Fleet::of(2).await).await;
    let remote = Remote::new(HOSTILE);
    suite(Fleet::on(3, || remote.connect()).await).await;
}

const SECRETS: &str = "/objects/management.platform.sh/sharedsecrets/";

pub(super) async fn change(server: &Fixture, permit: Permit, change: impl Fn(&mut Value)) {
    let writing = Writing::by_server();
    let changed = operations::update(&server.registry, &permit, &writing, |object| {
        let mut value = object.clone().into_value();
        change(&mut value);
        Ok(Object::from_value(value).unwrap())
    });
    changed.await.unwrap();
}

pub(super) async fn delete(server: &Fixture, permit: Permit, options: DeleteOptions) {
    operations::delete(&server.registry, &permit, &options).await.unwrap();
}

pub(super) fn of(kind: &'static dyn postern_kinds::AnyKind, verb: Verb, name: &str) -> Permit {
    Permit::for_server(kind, verb, None, name)
}

pub(super) async fn make(server: &Fixture, permit: Permit, body: Value) -> Object {
    let info = permit.kind().info();
    let mut whole = json!({ "apiVersion": info.version.to_string(), "kind": info.kind });
    whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    let object = Object::from_value(whole).unwrap();
    let made = operations::create(&server.registry, &permit, object, &Writing::by_server()).await;
    decoded(&made.unwrap()).unwrap()
}

#[tokio::test]
async fn a_first_start_of_two_at_once_makes_one_administrator() {
    on_every_fleet(async |fleet| {
        assert_eq!(fleet.servers.iter().filter(|server| server.first).count(), 1);
        let users = fleet.stored("/objects/management.platform.sh/users/").await;
        assert_eq!(users, ["/objects/management.platform.sh/users/admin"]);
        assert_eq!(fleet.stored("/objects/management.platform.sh/ownedaccesskeys/").await.len(), 1);
        assert_eq!(fleet.stored("/digests/").await.len(), 1);
        // Both make the same digests, so a key of one is known to the other.
        let digest = fleet.one().key("ci", json!({})).await;
        for server in fleet.current().await {
            assert_eq!(server.refusal(&digest), None);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_stops_on_one_server_stops_on_the_other_within_a_second() {
    in_paused_time_on_every_fleet(async |fleet| {
        for (name, refusal, code) in
            [("disabled", Refusal::Disabled, 401), ("deleted", Refusal::Unknown, 401)]
        {
            let digest = fleet.one().key(name, json!({})).await;
            fleet.current().await;
            let mut watch = fleet.other().watch_with(digest).await;
            if name == "deleted" {
                let permit = of(&OwnedAccessKey, Verb::Delete, name);
                delete(fleet.one(), permit, DeleteOptions::default()).await;
            } else {
                let permit = of(&OwnedAccessKey, Verb::Update, name);
                change(fleet.one(), permit, |key| key["spec"]["disabled"] = true.into()).await;
            }
            let ended = tokio::time::timeout(Duration::from_secs(1), watch.next()).await;
            let ended = ended.expect("the watch ends within a second").unwrap();
            assert!(matches!(&ended[..], [Delivery::Failed(error)] if error.code() == code));
            for server in fleet.current().await {
                assert_eq!(server.refusal(&digest), Some(refusal), "{name}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_owner_who_is_disabled_or_gone_stops_on_every_server() {
    on_every_fleet(async |fleet| {
        let user = of(&User, Verb::Create, "ada");
        make(fleet.one(), user, json!({ "metadata": { "name": "ada" } })).await;
        fleet.current().await;
        let digest = fleet.other().key_of("laptop", "ada", json!({})).await;
        change(fleet.one(), of(&User, Verb::Update, "ada"), |user| {
            user["spec"]["disabled"] = true.into();
        })
        .await;
        for server in fleet.current().await {
            assert_eq!(server.refusal(&digest), Some(Refusal::Disabled));
        }
        delete(fleet.other(), of(&User, Verb::Delete, "ada"), DeleteOptions::default()).await;
        let user = of(&User, Verb::Create, "ada");
        make(fleet.one(), user, json!({ "metadata": { "name": "ada" } })).await;
        for server in fleet.current().await {
            // The new user of the name has none of the keys.
            assert_eq!(server.refusal(&digest), Some(Refusal::Unknown));
        }
    })
    .await;
}

/// The permit of the bearer of a key for all shared secrets in `platform`, if it is allowed.
pub(super) async fn permit_of(
    server: &Fixture,
    digest: Digest,
    verb: Verb,
) -> Result<Permit, ApiError> {
    let cache = server.registry.cache();
    cache.wait_until_current().await.unwrap();
    let now = server.clock.now().unix_seconds();
    let identity =
        cache.principals().identify(&digest, now, &cache.policy()).unwrap().identity.clone();
    let target = permit(verb, "unused").of_all().target().clone();
    Permit::decide(cache.policy(), Credential::of_key(identity, digest), target)
}

/// Creates a user with a key, and a secret that the user may get through a team and a binding.
async fn make_reader(fleet: &Fleet) -> Digest {
    let one = fleet.one();
    let spec = json!({ "metadata": { "name": "ada" }, "spec": { "subject": "ada@example.com" } });
    make(one, of(&User, Verb::Create, "ada"), spec).await;
    let team = json!({ "metadata": { "name": "red" }, "spec": { "users": ["ada"] } });
    make(one, of(&Team, Verb::Create, "red"), team).await;
    one.create("a").await.unwrap();
    let group = "rbac.authorization.k8s.io";
    let reads = json!({ "verbs": ["get"], "apiGroups": ["management.platform.sh"],
        "resources": ["sharedsecrets"], "resourceNames": ["a"] });
    let in_platform = |kind, name| Permit::for_server(kind, Verb::Create, Some("platform"), name);
    let role = json!({ "metadata": { "name": "read" }, "rules": [reads] });
    make(one, in_platform(&Role, "read"), role).await;
    let binding = json!({ "metadata": { "name": "read" },
        "roleRef": { "apiGroup": group, "kind": "Role", "name": "read" },
        "subjects": [{ "apiGroup": group, "kind": "Group", "name": "platform:team:red" }] });
    make(one, in_platform(&RoleBinding, "read"), binding).await;
    one.key_of("ada-key", "ada", json!({ "scope": { "rules": [{}] } })).await
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_on_one_server_is_gone_on_the_other_within_a_second() {
    const WAYS: [&str; 4] = ["binding removed", "role emptied", "team left", "scope narrowed"];
    for way in WAYS {
        in_paused_time_on_every_fleet(async |mut fleet| {
            let digest = make_reader(&fleet).await;
            for server in &fleet.servers {
                fleet.controllers.spawn(server.registry.cache().clone().watch_lag());
            }
            let other = fleet.other();
            let watching = permit_of(other, digest, Verb::Watch).await.unwrap();
            let ending = other.ending.subscribe();
            let watched =
                other.registry.watch(&watching, &options("watch=true"), ending, large_work()).await;
            let mut watch = watched.unwrap();
            assert_eq!(names(&watch.next().await.unwrap()), ["ADDED a"], "{way}");
            take_away(fleet.one(), way).await;
            let ended = tokio::time::timeout(Duration::from_secs(1), watch.next()).await;
            let ended = ended.expect("the watch ends within a second").unwrap();
            assert_eq!(names(&ended), ["ERROR 410"], "{way}");
            // The very next request is decided by what is so now.
            let visible = match permit_of(other, digest, Verb::List).await {
                Ok(permit) => other.registry.list(&permit, &options("")).await.unwrap().objects,
                Err(_) => crate::registry::read::CoveredObjects::default(),
            };
            assert!(visible.is_empty(), "{way}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_corrupt_object_tells_nothing_to_who_may_not_get_it() {
    let fleet = Fleet::of(1).await;
    let (digest, one) = (make_reader(&fleet).await, fleet.one());
    let key = |name| storage_key::object(SharedSecret.info(), Some("platform"), name);
    let value = bytes::Bytes::from_static(b"flipped");
    let change = Change::Put { key: key("hidden"), value };
    let revision = one.store.commit(Txn { conditions: vec![], changes: vec![change] }).await;
    let revision = Position::end_of(revision.unwrap());
    let permit = permit_of(one, digest, Verb::List).await.unwrap();
    for query in ["", "limit=1", &format!("resourceVersion={revision}&resourceVersionMatch=Exact")]
    {
        let list = one.registry.list(&permit, &options(query)).await.unwrap();
        assert_eq!((list.objects.len(), list.warnings.len()), (1, 0), "{query}");
    }
    let get = async |name: &str| {
        let target = ResourceTarget::object(&SharedSecret, Verb::Get, Some("platform"), name);
        let credential = permit.credential().clone();
        let refused = match Permit::decide(one.registry.cache().policy(), credential, target) {
            Ok(permit) => one.registry.get(&permit, &GetOptions::default()).await.unwrap_err(),
            Err(refused) => refused,
        };
        assert_eq!(refused.code(), 404);
        refused.status().message.replace(name, "NAME")
    };
    assert_eq!(get("hidden").await, get("absent").await);
    let master = self::permit(Verb::List, "unused").of_all();
    let failed = one.registry.list(&master, &options("")).await.err().unwrap();
    assert!(failed.status().message.contains("hidden"), "{}", failed.status().message);
}

async fn take_away(server: &Fixture, way: &str) {
    let in_platform = |kind, verb| Permit::for_server(kind, verb, Some("platform"), "read");
    match way {
        "binding removed" => {
            let permit = in_platform(&RoleBinding, Verb::Delete);
            delete(server, permit, DeleteOptions::default()).await;
        }
        "role emptied" => {
            let permit = in_platform(&Role, Verb::Update);
            change(server, permit, |role| role["rules"] = json!([])).await;
        }
        "team left" => {
            let permit = of(&Team, Verb::Update, "red");
            change(server, permit, |team| team["spec"]["users"] = json!([])).await;
        }
        _ => {
            let permit = of(&OwnedAccessKey, Verb::Update, "ada-key");
            let other = json!([{ "namespaces": ["elsewhere"] }]);
            change(server, permit, |key| key["spec"]["scope"]["rules"] = other.clone()).await;
        }
    }
}

#[tokio::test]
async fn activity_never_goes_backwards() {
    on_every_fleet(async |fleet| {
        let digest = fleet.one().key("used", json!({})).await;
        fleet.current().await;
        fleet.one().use_key(&digest);
        fleet.one().pass_seconds(10);
        let last = fleet.other().clock.now().unix_seconds();
        fleet.other().use_key(&digest);
        // The later use is stored first, and a server that has not heard of it stores an earlier.
        fleet.one().following.abort();
        fleet.other().registry.store_activity().await.unwrap();
        fleet.one().registry.store_activity().await.unwrap();
        let record = fleet.store.get(&activity_key("used")).await.unwrap().value.unwrap();
        let record: Value = postern_meta::decode::decode_typed(&record.value).unwrap();
        let want = postern_meta::time::Timestamp::from_unix_seconds(last).to_string();
        assert_eq!(record["lastActivity"], want.as_str());
    })
    .await;
}

fn activity_key(name: &str) -> Arc<str> {
    crate::storage_key::activity(OwnedAccessKey.info(), name)
}

#[tokio::test]
async fn a_use_that_is_stored_by_one_server_shows_on_the_other_and_is_not_stored_again() {
    on_every_fleet(async |fleet| {
        let digest = fleet.one().key("used", json!({})).await;
        fleet.current().await;
        fleet.one().use_key(&digest);
        fleet.one().registry.store_activity().await.unwrap();
        let revision = fleet.store.revision().await.unwrap();
        for server in fleet.current().await {
            let permit = of(&OwnedAccessKey, Verb::Get, "used");
            let key = server.registry.get(&permit, &GetOptions::default()).await.unwrap();
            let key = decoded(&key).unwrap();
            assert!(key.fields["status"]["lastActivity"].is_string());
            server.registry.store_activity().await.unwrap();
        }
        assert_eq!(fleet.store.revision().await.unwrap(), revision);
    })
    .await;
}

#[tokio::test]
async fn watchers_of_all_servers_see_the_same_and_resume_on_any() {
    on_every_fleet(async |fleet| {
        let mut watchers = Vec::new();
        for server in fleet.current().await {
            watchers.push(server.watch("watch=1&resourceVersion=0").await);
        }
        fleet.one().create("a").await.unwrap();
        let seen = fleet.store.revision().await.unwrap();
        fleet.other().create("b").await.unwrap();
        let gone = permit(Verb::Delete, "a");
        delete(fleet.one(), gone, DeleteOptions::default()).await;
        let want = ["ADDED a", "ADDED b", "DELETED a"];
        for watcher in &mut watchers {
            let mut events = Vec::new();
            while events.len() < want.len() {
                events.extend(names(&watcher.next().await.unwrap()));
            }
            assert_eq!(events, want);
        }
        for server in fleet.current().await {
            let version = Position::end_of(seen);
            let mut resumed = server.watch(&format!("watch=1&resourceVersion={version}")).await;
            assert_eq!(names(&resumed.next().await.unwrap()), &want[1..]);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_written_on_one_is_read_on_the_other() {
    on_every_fleet(async |fleet| {
        for number in 0..50 {
            let name = format!("s{number}");
            fleet.one().create(&name).await.unwrap();
            // A read without a version is current on each server.
            let read = permit(Verb::Get, &name);
            fleet.other().registry.get(&read, &GetOptions::default()).await.unwrap();
            let taken = fleet.other().create(&name).await.unwrap_err();
            assert_eq!(taken.code(), 409);
        }
        let writers = fleet.servers.iter().cycle().take(16).map(|server| {
            change(server, permit(Verb::Update, "s0"), |secret| {
                let labels = &mut secret["metadata"]["labels"];
                let count = labels["count"].as_str().map_or(0, |count| count.parse().unwrap());
                *labels = json!({ "count": (count + 1_u32).to_string() });
            })
        });
        futures_util::future::join_all(writers).await;
        let read = permit(Verb::Get, "s0");
        let last = fleet.other().registry.get(&read, &GetOptions::default()).await.unwrap();
        assert_eq!(decoded(&last).unwrap().metadata.labels["count"], "16", "no update is lost");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn garbage_is_collected_once_by_however_many_collectors() {
    in_paused_time_on_every_fleet(async |mut fleet| {
        fleet.run_controllers();
        for (policy, survives) in [
            (Propagation::Background, false),
            (Propagation::Foreground, false),
            (Propagation::Orphan, true),
        ] {
            let owner = decoded(&fleet.one().create("owner").await.unwrap()).unwrap();
            let reference = json!([{
                "apiVersion": owner.api_version, "kind": owner.kind, "name": "owner",
                "uid": owner.metadata.uid, "blockOwnerDeletion": true,
            }]);
            for number in 0..10 {
                let name = format!("dependent-{number}");
                let body = json!({ "metadata": { "name": name, "ownerReferences": reference } });
                make(fleet.other(), permit(Verb::Create, &name), body).await;
            }
            let options = DeleteOptions { propagation: Some(policy), ..DeleteOptions::default() };
            delete(fleet.one(), permit(Verb::Delete, "owner"), options).await;
            fleet.until_gone(&format!("{SECRETS}platform/owner")).await;
            if survives {
                assert_eq!(fleet.stored(&format!("{SECRETS}platform/")).await.len(), 10);
            } else {
                fleet.until_gone(&format!("{SECRETS}platform/")).await;
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_is_emptied_and_takes_nothing_in() {
    in_paused_time_on_every_fleet(async |mut fleet| {
        fleet.run_controllers();
        let namespace = of(&Namespace, Verb::Create, "team");
        make(fleet.one(), namespace, json!({ "metadata": { "name": "team" } })).await;
        let secret = |verb, name: &str| Permit::for_server(&SharedSecret, verb, Some("team"), name);
        for number in 0..20 {
            let name = format!("s{number}");
            let body = json!({ "metadata": { "name": name } });
            make(fleet.other(), secret(Verb::Create, &name), body).await;
        }
        delete(fleet.one(), of(&Namespace, Verb::Delete, "team"), DeleteOptions::default()).await;
        let body = json!({
            "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
            "metadata": { "name": "late" },
        });
        let late = Object::from_value(body).unwrap();
        let permit = secret(Verb::Create, "late");
        let writing = Writing::by_server();
        let late = operations::create(&fleet.other().registry, &permit, late, &writing).await;
        assert!(matches!(late.unwrap_err().code(), 403 | 404));
        fleet.until_gone("/objects/core/namespaces/team").await;
        assert!(fleet.stored(&format!("{SECRETS}team/")).await.is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_ends_once_on_however_many_servers() {
    in_paused_time_on_every_fleet(async |mut fleet| {
        fleet.one().create("a").await.unwrap();
        fleet.run_controllers();
        let options = DeleteOptions { grace_period_seconds: Some(30), ..DeleteOptions::default() };
        delete(fleet.other(), permit(Verb::Delete, "a"), options).await;
        fleet.current().await;
        assert_eq!(fleet.stored(&format!("{SECRETS}platform/a")).await.len(), 1);
        fleet.one().pass_seconds(30);
        fleet.until_gone(&format!("{SECRETS}platform/a")).await;
    })
    .await;
}

#[tokio::test]
async fn compaction_by_one_server_is_survived_by_the_other() {
    on_every_fleet(async |fleet| {
        fleet.one().create("a").await.unwrap();
        fleet.current().await;
        let mut watcher = fleet.other().watch("watch=1&resourceVersion=0").await;
        assert_eq!(names(&watcher.next().await.unwrap()), ["ADDED a"]);
        // The other server does not follow the store for a while, and the missed history is compacted.
        fleet.other().following.abort();
        let cache = fleet.other().registry.cache().clone();
        let missed = cache.watch().await.unwrap();
        for number in 0..20 {
            let name = format!("s{number}");
            let change = Change::Put {
                key: crate::storage_key::object(SharedSecret.info(), Some("platform"), &name),
                value: stored(&name),
            };
            let txn = Txn { conditions: vec![], changes: vec![change] };
            fleet.store.commit(txn).await.unwrap();
        }
        // As the controller compacts: the newest state stays listable.
        fleet.store.compact(fleet.store.revision().await.unwrap() - 1).await.unwrap();
        let following = cache.clone().follow(Some(missed));
        tokio::pin!(following);
        let current = cache.wait_until_current();
        tokio::select! {
            () = &mut following => unreachable!("it never ends"),
            current = current => current.unwrap(),
        }
        let (all, everything) = (permit(Verb::List, "unused").of_all(), options(""));
        let listed = tokio::select! {
            () = &mut following => unreachable!("it never ends"),
            list = fleet.other().registry.list(&all, &everything) => list.unwrap(),
        };
        assert_eq!(listed.objects.len(), 21);
        // A watcher that missed an event gets an error; no event is skipped.
        let mut told = Vec::new();
        while told.len() < 20 {
            match watcher.next().await {
                Some(deliveries) => told.extend(names(&deliveries)),
                None => break,
            }
        }
        let complete = (0..20).map(|number| format!("ADDED s{number}")).collect::<Vec<_>>();
        assert!(told == ["ERROR 410"] || told == complete, "{told:?}");
    })
    .await;
}

/// A secret as it is stored.
fn stored(name: &str) -> bytes::Bytes {
    let info = SharedSecret.info();
    let value = json!({
        "apiVersion": info.version.to_string(), "kind": info.kind,
        "metadata": { "name": name, "namespace": "platform", "uid": name },
        "spec": {}, "status": {},
    });
    crate::cache::to_stored(Object::from_value(value).unwrap())
}

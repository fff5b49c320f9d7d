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
use crate::permit::ResourceTarget;
use crate::registry::decoded;

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
            server.current().await;
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

/// A slow store with watches that often lose their connection.
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
            let key = at(&OwnedAccessKey, name);
            let digest = fleet.one().key(name, json!({})).await;
            fleet.current().await;
            let mut watch = fleet.other().watch_with(digest).await;
            if name == "deleted" {
                fleet.one().delete(key).await;
            } else {
                fleet.one().change(key, |key| key["spec"]["disabled"] = true.into()).await;
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
        fleet.one().make(at(&User, "ada"), json!({})).await;
        fleet.current().await;
        let digest = fleet.other().key_of("laptop", "ada", json!({})).await;
        fleet
            .one()
            .change(at(&User, "ada"), |user| {
                user["spec"]["disabled"] = true.into();
            })
            .await;
        for server in fleet.current().await {
            assert_eq!(server.refusal(&digest), Some(Refusal::Disabled));
        }
        fleet.other().delete(at(&User, "ada")).await;
        fleet.one().make(at(&User, "ada"), json!({})).await;
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
    server.current().await;
    let target = permit(verb, "unused").of_all().target().clone();
    Permit::decide(server.registry.cache().policy(), server.credential(digest), target)
}

/// Creates a user with a key, and a secret that the user may get through a team and a binding.
async fn make_reader(fleet: &Fleet) -> Digest {
    let one = fleet.one();
    one.make(at(&User, "ada"), json!({ "spec": { "subject": "ada@example.com" } })).await;
    one.make(at(&Team, "red"), json!({ "spec": { "users": ["ada"] } })).await;
    one.create("a").await.unwrap();
    let group = "rbac.authorization.k8s.io";
    let reads = json!({ "verbs": ["get"], "apiGroups": ["management.platform.sh"],
        "resources": ["sharedsecrets"], "resourceNames": ["a"] });
    one.make(within("platform", &Role, "read"), json!({ "rules": [reads] })).await;
    let binding = json!({
        "roleRef": { "apiGroup": group, "kind": "Role", "name": "read" },
        "subjects": [{ "apiGroup": group, "kind": "Group", "name": "platform:team:red" }] });
    one.make(within("platform", &RoleBinding, "read"), binding).await;
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
            // The next request is already decided by the present state.
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
    one.corrupt(secret("hidden")).await;
    let revision = Position::end_of(one.store.revision().await.unwrap());
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
    let set = async |at, field: &str, value: Value| {
        server.change(at, |object| *object.pointer_mut(field).unwrap() = value.clone()).await;
    };
    match way {
        "binding removed" => server.delete(within("platform", &RoleBinding, "read")).await,
        "role emptied" => set(within("platform", &Role, "read"), "/rules", json!([])).await,
        "team left" => set(at(&Team, "red"), "/spec/users", json!([])).await,
        _ => {
            let other = json!([{ "namespaces": ["elsewhere"] }]);
            set(at(&OwnedAccessKey, "ada-key"), "/spec/scope/rules", other).await;
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
            let key = server.read(at(&OwnedAccessKey, "used")).await.unwrap();
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
        fleet.one().delete(secret("a")).await;
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
            fleet.other().read(secret(&name)).await.unwrap();
            let taken = fleet.other().create(&name).await.unwrap_err();
            assert_eq!(taken.code(), 409);
        }
        let writers = fleet.servers.iter().cycle().take(16).map(|server| {
            server.change(secret("s0"), |secret| {
                let labels = &mut secret["metadata"]["labels"];
                let count = labels["count"].as_str().map_or(0, |count| count.parse().unwrap());
                *labels = json!({ "count": (count + 1_u32).to_string() });
            })
        });
        futures_util::future::join_all(writers).await;
        let last = fleet.other().read(secret("s0")).await.unwrap();
        assert_eq!(last.metadata.labels["count"], "16", "no update is lost");
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
                let body = json!({ "metadata": { "ownerReferences": reference } });
                fleet.other().make(secret(&name), body).await;
            }
            let options = DeleteOptions { propagation: Some(policy), ..DeleteOptions::default() };
            fleet.one().try_delete(secret("owner"), options).await.unwrap();
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
        fleet.one().make(at(&Namespace, "team"), json!({})).await;
        for number in 0..20 {
            let name = format!("s{number}");
            fleet.other().make(within("team", &SharedSecret, &name), json!({})).await;
        }
        fleet.one().delete(at(&Namespace, "team")).await;
        let late = fleet.other().try_make(within("team", &SharedSecret, "late"), json!({})).await;
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
        fleet.other().try_delete(secret("a"), options).await.unwrap();
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
            let change = Change::Put { key: secret(&name).key(), value: stored(&name) };
            fleet.one().commit(vec![change]).await;
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
    let metadata = json!({ "namespace": "platform", "uid": name });
    let fields = json!({ "metadata": metadata, "spec": {}, "status": {} });
    crate::cache::to_stored(secret(name).object(&fields))
}

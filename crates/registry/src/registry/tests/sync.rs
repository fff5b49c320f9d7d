//! Secret sync: many secrets with one source, on two servers, across a restart.

use postern_auth::writer::Writer;
use postern_flow::{Flow, Limits};
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::rbac::PROJECT_LABEL;
use postern_kinds::secret_sync::{SHARED_SECRET_NAME, SYNCED_FOR};
use postern_kinds::user::User;

use super::*;
use crate::controllers;

/// The number of secrets with one source.
const MANY: usize = 250;

async fn set_source(server: &Fixture, value: &str) {
    let set = |object: &mut Value| object["spec"]["data"] = json!({ "k": value });
    server.change(secret("source"), set).await;
}

/// The number of secrets with this value.
fn count(server: &Fixture, value: &str) -> usize {
    let resource = server.registry.cache().of(ProjectSecret.info());
    let objects = resource.page(None, usize::MAX);
    let of = |object: &crate::cache::CachedObject| object.decode().unwrap().into_value();
    objects.iter().filter(|object| of(object)["spec"]["data"]["k"] == value).count()
}

async fn until_all(server: &Fixture, value: &str) {
    let wait = async {
        let mut progress = server.registry.cache().subscribe();
        while count(server, value) < MANY {
            progress.changed().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_mins(10), wait).await;
    assert!(waited.is_ok(), "{} of {MANY}", count(server, value));
}

/// A store with a user that may read everything, a source, and its synced secrets.
async fn scene(servers: &[Fixture]) {
    let one = &servers[0];
    let labels = json!({ "metadata": { "labels": { PROJECT_LABEL: "many" } } });
    one.make(at(&Namespace, "many"), labels).await;
    let ada = one.make(at(&User, "ada"), json!({ "spec": {} })).await;
    let owner = json!({ "spec": { "owner": { "user": "ada" }, "data": { "k": "b25l" } } });
    one.make(secret("source"), owner).await;
    let key = json!({ "spec": { "user": "ada" } });
    let key = one.make(at(&OwnedAccessKey, "laptop"), key).await;
    let writer = Writer {
        user: "ada".to_owned(),
        uid: ada.metadata.uid,
        key: "laptop".to_owned(),
        key_uid: key.metadata.uid,
        ..Writer::default()
    };
    let writer = serde_json::to_string(&writer).unwrap();
    for number in 0..MANY {
        let metadata = json!({ "metadata": {
            "labels": { SHARED_SECRET_NAME: "source" }, "annotations": { SYNCED_FOR: writer },
        } });
        one.make(within("many", &ProjectSecret, &format!("s{number}")), metadata).await;
    }
}

#[tokio::test]
async fn many_follow_one_on_two_servers_and_across_a_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let clock = Fixed::at(START_UNIX_SECONDS);
    let servers = [start(store.clone(), clock.clone()).await, start(store, clock).await];
    scene(&servers).await;
    let mut running = tokio::task::JoinSet::new();
    let run = |server: &Fixture| {
        let flow = Arc::new(Flow::new(Limits::default()));
        controllers::project_secrets::run(server.registry.clone(), flow)
    };
    for server in &servers {
        running.spawn(run(server));
    }
    until_all(&servers[1], "b25l").await;
    set_source(&servers[0], "dHdv").await;
    // Both servers stop in the middle of the work.
    let mut progress = servers[0].registry.cache().subscribe();
    while count(&servers[0], "dHdv") == 0 {
        progress.changed().await.unwrap();
    }
    running.shutdown().await;
    assert!(count(&servers[0], "dHdv") < MANY, "it was in the middle");
    running.spawn(run(&servers[1]));
    until_all(&servers[0], "dHdv").await;
}

#[tokio::test(start_paused = true)]
async fn copies_beyond_what_their_writer_may_have_written_wait_and_keep_nobody_from_writing() {
    const BYTES_PER_MINUTE: usize = 100_000;
    let servers = [start(Arc::new(Memory::new()), Fixed::at(START_UNIX_SECONDS)).await];
    scene(&servers).await;
    let limits = Limits { write_bytes_per_owner: BYTES_PER_MINUTE, ..Limits::default() };
    let flow = Arc::new(Flow::new(limits));
    let begin = tokio::time::Instant::now();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(controllers::project_secrets::run(servers[0].registry.clone(), flow.clone()));
    let resource = servers[0].registry.cache().of(SharedSecret.info());
    let bytes = resource.page(None, 1).iter().map(|source| source.json().len()).sum::<usize>();
    assert!(bytes * MANY > BYTES_PER_MINUTE * 5 / 4, "{bytes}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let at_once = count(&servers[0], "b25l");
    assert!(at_once > 0 && at_once * bytes <= BYTES_PER_MINUTE * 5 / 4, "{at_once}");
    flow.write_rate.check(&flow.account("ada")).unwrap();
    // New copies of an owner do not overtake waiting ones.
    set_source(&servers[0], "dHdv").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (old, new) = (count(&servers[0], "b25l"), count(&servers[0], "dHdv"));
    assert!(old <= at_once && new > 0 && old + new > at_once, "{old} {new}");
    until_all(&servers[0], "dHdv").await;
    let minutes = MANY * bytes / BYTES_PER_MINUTE;
    assert!(begin.elapsed() >= Duration::from_secs(30) * u32::try_from(minutes).unwrap());
}

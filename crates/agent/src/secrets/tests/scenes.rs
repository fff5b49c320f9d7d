//! An agent between a cluster and a central server.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_kinds::agent_config::{ClusterLocation, Instance, Spec};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::field::{Field, Visit};

use super::super::{SecretsMode, SecretsSettings, run};
use super::fakes::{CentreState, ClusterState, FakeCentre, FakeCluster, Offer};
use crate::audit::MAX_BYTES;
use crate::testing::{NOW, Scene, spec_with};

/// How long a test waits for something.
const PATIENCE: Duration = Duration::from_secs(20);

/// An agent that fills Secrets.
pub(super) struct Filling {
    pub(super) scene: Scene,
    pub(super) cluster: FakeCluster,
    pub(super) centre: FakeCentre,
    _tasks: JoinSet<()>,
}

pub(super) fn space(project: &str, namespace: &str) -> Instance {
    Instance {
        kind: "SpaceInstance".to_owned(),
        project: project.to_owned(),
        namespace: format!("p-{project}"),
        name: namespace.to_owned(),
        uid: format!("uid-{namespace}"),
        cluster_ref: ClusterLocation {
            namespace: namespace.to_owned(),
            ..ClusterLocation::default()
        },
    }
}

pub(super) fn offer(version: &str, value: &str) -> Offer {
    let data = json!({ "password": STANDARD.encode(value) });
    Offer { version: version.to_owned(), data, on_end: String::new() }
}

impl Filling {
    /// An agent with a space in the namespace `space`.
    pub(super) async fn new(mode: SecretsMode) -> Self {
        Self::with(mode, vec![space("p", "space")]).await
    }

    pub(super) async fn with(mode: SecretsMode, instances: Vec<Instance>) -> Self {
        let filling = Self::silent(mode, instances).await;
        filling.contact();
        filling
    }

    /// An agent whose central server has not answered since the start.
    async fn silent(mode: SecretsMode, instances: Vec<Instance>) -> Self {
        let (cluster, centre) = (FakeCluster::open().await, FakeCentre::open().await);
        let scene = Scene::of_cluster(cluster.address, MAX_BYTES);
        let spec = Spec { instances, ..spec_with(&scene.key) };
        scene.agent.state.apply_config(spec, NOW);
        let virtual_cluster_interval = Duration::from_millis(300);
        let settings = SecretsSettings { mode, virtual_cluster_interval };
        let mut tasks = JoinSet::new();
        tasks.spawn(run(scene.agent.clone(), settings, centre.client()));
        tokio::task::yield_now().await;
        Self { scene, cluster, centre, _tasks: tasks }
    }

    /// The central server answers.
    fn contact(&self) {
        self.scene.set_seconds(NOW + 1);
        self.scene.agent.state.confirm_unchanged(None, NOW + 1);
    }

    pub(super) fn cluster<T>(&self, change: impl FnOnce(&mut ClusterState) -> T) -> T {
        change(&mut self.cluster.state.lock())
    }

    pub(super) fn centre<T>(&self, change: impl FnOnce(&mut CentreState) -> T) -> T {
        change(&mut self.centre.state.lock())
    }

    /// The password in a Secret of the space.
    pub(super) fn password(&self, name: &str) -> Option<String> {
        password_of(&self.cluster(|cluster| cluster.secret("space", name)))
    }

    /// Waits until a Secret of the space has a password, or none.
    pub(super) async fn wait_for(&self, name: &str, password: Option<&str>) {
        until(&format!("{name} has {password:?}"), || self.password(name).as_deref() == password)
            .await;
    }

    /// Waits for an Event.
    pub(super) async fn wait_for_event(&self, event: &str) {
        let has = |cluster: &mut ClusterState| cluster.events.iter().any(|one| one.contains(event));
        until(event, || self.cluster(has)).await;
    }

    /// Changes the instances of the cluster.
    fn set_instances(&self, instances: Vec<Instance>) {
        let spec = Spec { instances, ..spec_with(&self.scene.key) };
        self.scene.agent.state.apply_config(spec, NOW + 1);
    }
}

pub(super) fn password_of(secret: &Value) -> Option<String> {
    let value = secret["data"]["password"].as_str()?;
    Some(String::from_utf8(STANDARD.decode(value).unwrap()).unwrap())
}

pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// All files below a directory.
fn files_of(directory: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(files_of(&path));
        } else {
            #[expect(
                clippy::disallowed_methods,
                reason = "a test looks at the files of the agent"
            )]
            bytes.extend(std::fs::read(path).unwrap());
        }
    }
    bytes
}

#[tokio::test]
async fn a_secret_is_filled_and_a_rotation_arrives_within_a_second() {
    let filling = Filling::new(SecretsMode::All).await;
    filling.centre(|centre| centre.set_offer(Some(offer("v1", "one"))));
    filling.cluster(|cluster| cluster.ask("space", "db"));
    filling.wait_for("db", Some("one")).await;
    let annotations = filling.cluster(|cluster| cluster.secret("space", "db"));
    let annotations = &annotations["metadata"]["annotations"];
    assert_eq!(annotations["platform.sh/synced-version"], "v1");
    assert_eq!(annotations["platform.sh/synced-at"], "2023-11-14T22:13:21Z");
    let wishes = filling.centre(|centre| centre.subscriptions.clone());
    assert_eq!(
        wishes,
        [[
            json!({ "namespace": "space", "namespaceUid": "ns-1", "name": "db", "project": "p", "projectSecret": "db" })
        ]]
    );
    for round in 2..6 {
        let (version, value) = (format!("v{round}"), format!("value {round}"));
        let began = Instant::now();
        filling.centre(|centre| centre.set_offer(Some(offer(&version, &value))));
        filling.wait_for("db", Some(&value)).await;
        assert!(began.elapsed() < Duration::from_secs(1));
    }
    // A key that the source does not have goes, and one subscription was enough.
    let other = Offer { data: json!({ "user": "eA==" }), ..offer("v6", "") };
    filling.centre(|centre| centre.set_offer(Some(other)));
    filling.wait_for("db", None).await;
    assert_eq!(filling.cluster(|cluster| cluster.secret("space", "db"))["data"]["user"], "eA==");
    assert_eq!(filling.centre(|centre| centre.subscriptions.len()), 1);
    assert_eq!(filling.scene.agent.secrets.filled(), 6);
    assert_eq!(filling.scene.agent.secrets.bytes(), 0);
}

/// The configuration from the disk may lack a new instance, whose Secrets would lose their data.
#[tokio::test]
async fn nothing_is_written_before_the_central_server_has_answered() {
    let filling = Filling::silent(SecretsMode::All, Vec::new()).await;
    filling.cluster(|cluster| {
        cluster.ask("space", "db");
        let deletes = json!({ "platform.sh/synced-version": "v1", "platform.sh/on-end": "Delete" });
        let filled =
            json!({ "metadata": { "annotations": deletes }, "data": offer("v1", "one").data });
        cluster.change("space", "db", &filled);
    });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(filling.cluster(|cluster| cluster.requests.clone()), Vec::<String>::new());
    filling.contact();
    filling.wait_for("db", None).await;
}

/// A key that another writer adds goes, after some seconds.
#[tokio::test]
async fn changes_of_other_writers_are_replaced() {
    let filling = Filling::new(SecretsMode::All).await;
    filling.cluster(|cluster| cluster.ask("space", "db"));
    filling.centre(|centre| centre.set_offer(Some(offer("v1", "one"))));
    filling.wait_for("db", Some("one")).await;
    let other = json!({ "data": { "password": "eA==" } });
    filling.cluster(|cluster| cluster.change("space", "db", &other));
    filling.wait_for("db", Some("one")).await;
    let last = filling.centre(|centre| centre.subscriptions.last().unwrap().clone());
    assert!(last[0]["version"].is_null(), "the agent asks for the data: {last:?}");
}

#[tokio::test]
async fn every_end_is_as_its_row_says() {
    let filling = Filling::new(SecretsMode::All).await;
    let names = ["stays", "unlabelled", "opted-out", "full"];
    filling.cluster(|cluster| {
        for name in names {
            cluster.ask("space", name);
        }
        cluster.change("space", "full", &json!({ "data": { "own": "eA==" } }));
    });
    filling.centre(|centre| centre.set_offer(Some(offer("v1", "one"))));
    for name in &names[..3] {
        filling.wait_for(name, Some("one")).await;
    }
    filling.wait_for_event("full: SecretHasData").await;
    filling.cluster(|cluster| {
        let no_label = json!({ "metadata": { "labels": { "platform.sh/project": null } } });
        cluster.change("space", "unlabelled", &no_label);
        let opt_out =
            json!({ "metadata": { "annotations": { "platform.sh/disable-sync": "true" } } });
        cluster.change("space", "opted-out", &opt_out);
    });
    until("the wishes have changed", || filling.scene.agent.secrets.wishes() == 1).await;
    filling.centre(|centre| centre.set_offer(Some(offer("v2", "two"))));
    filling.wait_for("stays", Some("two")).await;
    assert_eq!(filling.password("unlabelled").as_deref(), Some("one"));
    assert_eq!(filling.password("opted-out").as_deref(), Some("one"));
    // The offer is withdrawn: the data stays.
    filling.centre(|centre| centre.set_offer(None));
    filling.wait_for_event("stays: SecretSyncEnded: not offered here").await;
    assert_eq!(filling.password("stays").as_deref(), Some("two"));
    // With onEnd Delete, it goes, and an offer brings it back.
    let deleting = |version| Offer { on_end: "Delete".to_owned(), ..offer(version, "three") };
    filling.centre(|centre| centre.set_offer(Some(deleting("v3"))));
    filling.wait_for("stays", Some("three")).await;
    filling.centre(|centre| centre.set_offer(None));
    filling.wait_for("stays", None).await;
    filling
        .wait_for_event(
            "stays: SecretSyncEnded: not offered here; the data of the last sync was removed",
        )
        .await;
    filling.centre(|centre| centre.set_offer(Some(deleting("v4"))));
    filling.wait_for("stays", Some("three")).await;
    // The instance is gone.
    filling.set_instances(Vec::new());
    filling.wait_for("stays", None).await;
    let own = filling.cluster(|cluster| cluster.secret("space", "full"))["data"].clone();
    assert_eq!(own, json!({ "own": "eA==" }));
}

#[tokio::test]
async fn secrets_that_are_not_offered_and_those_outside_of_spaces_get_one_event() {
    let filling = Filling::new(SecretsMode::All).await;
    filling.cluster(|cluster| {
        cluster.ask("space", "a");
        cluster.ask("elsewhere", "b");
    });
    filling.wait_for_event("a: SecretNotOffered: not offered here").await;
    filling.wait_for_event("b: SecretNotOffered: not offered here").await;
    filling.centre(|centre| centre.set_offer(None));
    // A space comes there. Its Secret was there before.
    filling.cluster(|cluster| cluster.namespaces.insert("elsewhere".to_owned(), "ns-2".to_owned()));
    filling.set_instances(vec![space("p", "space"), space("p", "elsewhere")]);
    filling.centre(|centre| centre.set_offer(Some(offer("v1", "one"))));
    let filled = || filling.cluster(|cluster| password_of(&cluster.secret("elsewhere", "b")));
    until("b is filled", || filled().as_deref() == Some("one")).await;
    let repeated = filling.cluster(|cluster| {
        cluster.events.iter().filter(|event| event.starts_with("a: SecretNotOffered")).count()
    });
    assert_eq!(repeated, 1);
}

#[tokio::test]
async fn other_writers_and_failures_of_the_cluster_only_delay_a_write() {
    let filling = Filling::new(SecretsMode::All).await;
    filling.cluster(|cluster| {
        cluster.patch_codes = vec![409, 500];
        cluster.ask("space", "db");
    });
    filling.centre(|centre| centre.set_offer(Some(offer("v1", "one"))));
    filling.wait_for("db", Some("one")).await;
    assert_eq!(filling.scene.agent.secrets.failures().iter().map(|one| one.1).sum::<u64>(), 0);
    // The cluster rejects the data for a while.
    filling.cluster(|cluster| cluster.patch_codes = vec![422]);
    filling.centre(|centre| centre.set_offer(Some(offer("v2", "two"))));
    filling.wait_for_event("db: SecretSyncFailed: the API server rejects the data").await;
    filling.wait_for("db", Some("two")).await;
    until("nothing fails", || filling.scene.agent.secrets.failing() == 0).await;
    let failures = filling.scene.agent.secrets.failures();
    assert!(failures.contains(&("{reason=\"rejected\"}".to_owned(), 1)), "{failures:?}");
}

#[tokio::test]
async fn while_the_central_server_is_lost_the_data_stays_and_then_it_goes_on() {
    let filling = Filling::new(SecretsMode::All).await;
    filling.cluster(|cluster| cluster.ask("space", "db"));
    filling.centre(|centre| centre.set_offer(Some(offer("v1", "one"))));
    filling.wait_for("db", Some("one")).await;
    filling.centre(CentreState::go_down);
    until("the agent has noticed", || filling.scene.agent.secrets.connected() == 0).await;
    filling.centre(|centre| centre.set_offer(Some(offer("v2", "two"))));
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(filling.password("db").as_deref(), Some("one"));
    filling.centre(|centre| centre.is_down = false);
    filling.wait_for("db", Some("two")).await;
    // It told the version that the Secret has.
    let last = filling.centre(|centre| centre.subscriptions.last().unwrap().clone());
    assert_eq!(last[0]["version"], "v1");
}

#[tokio::test]
async fn in_bound_mode_only_spaces_that_bind_the_role_are_read() {
    let spaces = vec![space("p", "space"), space("p", "unbound")];
    let filling = Filling::with(SecretsMode::Bound, spaces).await;
    filling.cluster(|cluster| {
        cluster.bound.insert("space".to_owned());
        for namespace in ["space", "unbound", "elsewhere"] {
            cluster.ask(namespace, "db");
        }
    });
    filling.centre(|centre| centre.set_offer(Some(offer("v1", "one"))));
    filling.wait_for("db", Some("one")).await;
    let requests = filling.cluster(|cluster| cluster.requests.clone());
    let has = |path: &str| requests.iter().any(|request| request.ends_with(path));
    assert!(has("/namespaces/unbound/secrets"), "{requests:?}");
    assert!(!has("/api/v1/secrets"), "no list of the whole cluster: {requests:?}");
    assert!(!requests.iter().any(|request| request.contains("elsewhere")), "{requests:?}");
    // The binding is deleted: the data stays, and nothing fails.
    filling.cluster(|cluster| {
        cluster.bound = ["another".to_owned()].into();
        cluster.end_watches();
    });
    until("the Secret is forgotten", || filling.scene.agent.secrets.wishes() == 0).await;
    filling.centre(|centre| centre.set_offer(Some(offer("v2", "two"))));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(filling.password("db").as_deref(), Some("one"));
    assert_eq!(filling.scene.agent.secrets.failing(), 0);
}

#[tokio::test]
async fn a_thousand_secrets_and_a_rotation_of_each_take_bounded_memory() {
    const COUNT: usize = 1000;
    const VALUE_BYTES: usize = 20_000;
    let filling = Filling::new(SecretsMode::All).await;
    let value = |version: &str| version.repeat(VALUE_BYTES / version.len());
    filling.centre(|centre| centre.set_offer(Some(offer("v1", &value("one ")))));
    filling
        .cluster(|cluster| (0..COUNT).for_each(|index| cluster.ask("space", &format!("s{index}"))));
    let (mut most, secrets) = (0, &filling.scene.agent.secrets);
    for (version, text) in [("v1", "one "), ("v2", "two ")] {
        if version == "v2" {
            filling.centre(|centre| centre.set_offer(Some(offer("v2", &value(text)))));
        }
        let began = Instant::now();
        let has = |cluster: &mut ClusterState| {
            let name = |index| format!("s{index}");
            (0..COUNT).all(|index| {
                let secret = cluster.secret("space", &name(index));
                secret["metadata"]["annotations"]["platform.sh/synced-version"] == version
            })
        };
        while !filling.cluster(has) {
            assert!(began.elapsed() < Duration::from_mins(2), "{version}: {}", secrets.filled());
            for _ in 0..20 {
                most = most.max(secrets.bytes());
                sleep(Duration::from_millis(5)).await;
            }
        }
    }
    // Eight deliveries at once, in base64.
    assert!(most <= 8 * 4 * VALUE_BYTES as u64 / 3 + 64, "{most}");
    assert_eq!((secrets.bytes(), secrets.wishes()), (0, COUNT as u64));
}

/// Keeps the text of all log lines of a thread.
struct Log(std::sync::Arc<parking_lot::Mutex<String>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("postern")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text<'a>(&'a mut String);
        impl Visit for Text<'_> {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                let _ = write!(self.0, "{field}={value:?} ");
            }
        }
        event.record(&mut Text(&mut self.0.lock()));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn no_value_is_in_the_log_the_audit_or_the_state_directory() {
    let log = std::sync::Arc::new(parking_lot::Mutex::new(String::new()));
    let _guard = tracing::subscriber::set_default(Log(log.clone()));
    let filling = Filling::new(SecretsMode::All).await;
    let canary = "canary-hunter2-canary";
    filling.cluster(|cluster| {
        // `kubectl apply` keeps values in an annotation.
        let applied = json!({ "metadata": { "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": canary } } });
        cluster.change("space", "db", &applied);
        cluster.ask("space", "db");
        cluster.patch_codes = vec![500, 422];
    });
    let data = json!({ "password": STANDARD.encode(canary), "broken": format!("{canary}!") });
    let broken = Offer { data, ..offer("v1", "") };
    filling.centre(|centre| centre.set_offer(Some(broken)));
    filling.wait_for_event("db: SecretSyncFailed: the data from the central server").await;
    filling.centre(|centre| centre.set_offer(Some(offer("version-two", canary))));
    filling.cluster(|cluster| cluster.change("space", "db", &json!({ "x": 1 })));
    filling.wait_for("db", Some(canary)).await;
    until("the delivery is over", || filling.scene.agent.secrets.bytes() == 0).await;
    filling.scene.agent.audit.queue.written().await;
    let files = files_of(filling.scene.home.path());
    let files = String::from_utf8_lossy(&files);
    assert!(
        files.contains("version-two") && files.contains("\"db\""),
        "the audit has names: {files}"
    );
    assert!(files.contains("agent:c") && files.contains("RequestReceived"), "{files}");
    let log = log.lock();
    assert!(log.contains("version-two") && log.contains("space/db"), "{log}");
    let encoded = STANDARD.encode(canary);
    for text in [&*files, &*log] {
        assert!(!text.contains(canary) && !text.contains(&encoded[..20]), "{text}");
    }
}

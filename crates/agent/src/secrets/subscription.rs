//! The subscription to data: the agent posts all its wishes to the central server, which sends the data of each Secret on
//! the same connection, and again after each change. Other wishes need another subscription.

use std::sync::Arc;
use std::time::Duration;

use postern_client::{Client, Collection, Error, WatchEvent, decode_fields};
use postern_kinds::Kind as _;
use postern_kinds::cluster::Cluster;
use postern_kinds::secret_delivery::SecretDelivery;
use postern_kinds::secret_subscription::{SUBRESOURCE, SecretSubscription, Spec};
use postern_meta::object::Object;
use serde_json::{Map, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::sync::{FAILURES, SecretSync};
use super::table::Wishes;

/// The shortest time from one subscription to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// The longest silence of a subscription: the central server sends a heartbeat every 5 seconds.
const SILENCE: Duration = Duration::from_secs(15);

/// How often the uid of a namespace is read again that could not be read.
const NAMESPACE_INTERVAL: Duration = Duration::from_secs(30);

/// Deliveries under way at once. Each can have a MiB.
const MAX_DELIVERIES: usize = 8;

/// The longest pause after failures, and after one that only an operator ends.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const OPERATOR_PAUSE: Duration = Duration::from_mins(1);

/// The codes of a server that does not have the subresource, or does not let the agent use it.
const NOT_SERVED: [u16; 2] = [404, 405];
const NOT_ALLOWED: u16 = 403;

/// Subscribes again and again. It never returns.
pub(super) async fn run(sync: Arc<SecretSync>, mut client: Client) {
    let (mut deliveries, mut failures) = (JoinSet::new(), 0_u32);
    loop {
        let began = Instant::now();
        let ended = subscribe(&sync, &mut client, &mut deliveries).await;
        sync.counts().set_connected(false);
        let pause = match ended {
            Ok(()) => {
                failures = 0;
                INTERVAL
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                pause_after(&sync, &error, failures)
            }
        };
        sleep_until(began + pause).await;
    }
}

/// Subscribes once, and takes deliveries until the wishes change or the central server ends it.
async fn subscribe(
    sync: &Arc<SecretSync>,
    client: &mut Client,
    deliveries: &mut JoinSet<()>,
) -> Result<(), Error> {
    learn_namespaces(sync).await;
    // It may change the revision, so it comes before the wishes.
    sync.table.revision(Instant::now());
    let wishes = sync.table.wishes();
    note_counts(sync, &wishes);
    if wishes.secrets.is_empty() {
        wait_for_change(sync, wishes.revision).await;
        return Ok(());
    }
    let clusters = Collection::of::<Cluster>(None);
    let Wishes { secrets, revision } = wishes;
    tracing::debug!(secrets = secrets.len(), "subscribe to the data of Secrets");
    let body = object(Spec { secrets });
    let opened = client.watch_posted(clusters, &sync.agent.cluster, SUBRESOURCE, &body).await;
    let mut watch = opened?;
    drop(body);
    loop {
        let event = tokio::select! {
            event = watch.next(SILENCE) => event?,
            () = wait_for_change(sync, revision) => return Ok(()),
        };
        sync.counts().set_connected(true);
        let Some(event) = event else { return Ok(()) };
        let WatchEvent::Object(object) = event else { continue };
        let delivery = decode_fields::<SecretDelivery>(&object)?.spec;
        drop(object);
        while deliveries.len() >= MAX_DELIVERIES {
            deliveries.join_next().await;
        }
        while deliveries.try_join_next().is_some() {}
        let sync = sync.clone();
        deliveries.spawn(async move { sync.deliver(delivery).await });
    }
}

/// Waits until there are other wishes. Meanwhile it keeps the gauges current.
async fn wait_for_change(sync: &SecretSync, revision: u64) {
    loop {
        if sync.table.revision(Instant::now()) != revision {
            return;
        }
        sync.counts().set_failing(sync.table.failing());
        // Pauses end without a notice.
        let _ = timeout(INTERVAL, sync.table.wishes_changed.notified()).await;
        // Others may follow at once.
        sleep(INTERVAL / 10).await;
    }
}

fn note_counts(sync: &SecretSync, wishes: &Wishes) {
    sync.counts().set_wishes(wishes.secrets.len());
    sync.counts().set_failing(sync.table.failing());
}

/// Reads the uids of namespaces again that could not be read. It never returns.
pub(super) async fn keep_namespaces(sync: Arc<SecretSync>) {
    loop {
        sleep(NAMESPACE_INTERVAL).await;
        learn_namespaces(&sync).await;
    }
}

/// Reads the uids of the namespaces that the agent does not know yet.
async fn learn_namespaces(sync: &SecretSync) {
    let locations = sync.locations();
    for key in sync.table.without_namespace_uid() {
        let Some(namespace) = locations.namespace_of(&key) else { continue };
        match sync.api.namespace_uid(namespace).await {
            Ok(uid) => sync.table.set_namespace_uid(&key, Some(uid)),
            Err(why) => FAILURES.write("namespace", |left_out| {
                tracing::warn!(
                    namespace,
                    left_out,
                    "cannot read the namespace of an instance: {why}"
                );
            }),
        }
    }
}

fn object(spec: Spec) -> Object {
    let spec = serde_json::to_value(spec).unwrap_or_else(|_| json!({}));
    Object {
        api_version: SecretSubscription::INFO.version.to_string(),
        kind: SecretSubscription::INFO.kind.to_owned(),
        fields: Map::from_iter([("spec".to_owned(), spec)]),
        ..Object::default()
    }
}

/// The pause after a failure, with jitter: agents that lost the same server do not come back at once.
fn pause_after(sync: &SecretSync, error: &Error, failures: u32) -> Duration {
    let code = error.status().map(|status| status.code);
    let (kind, longest) = match code {
        Some(code) if NOT_SERVED.contains(&code) => ("not served", OPERATOR_PAUSE),
        Some(NOT_ALLOWED) => ("not allowed", OPERATOR_PAUSE),
        _ => ("lost", LONGEST_PAUSE),
    };
    FAILURES.write(kind, |left_out| match kind {
        "not served" => tracing::warn!(
            left_out,
            "no Secret is filled: the central server knows no subscriptions of Secrets, so upgrade it: {error}"
        ),
        "not allowed" => tracing::warn!(
            left_out,
            "no Secret is filled: the access key of the agent needs the verb create on clusters/secretsubscriptions: {error}"
        ),
        _ => tracing::warn!(left_out, "no data of Secrets from the central server: {error}"),
    });
    let first = if longest == OPERATOR_PAUSE { longest } else { INTERVAL };
    let pause = (first * 2_u32.saturating_pow(failures.min(8) - 1)).min(longest);
    let jitter = u32::try_from(sync.table.random() % 256).unwrap_or_default();
    pause * (jitter + 256) / 512
}

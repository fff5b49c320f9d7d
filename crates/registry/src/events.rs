//! Events of the server itself (core/v1 Event): changes and problems of an object that its owner did not cause. They
//! are in the namespace of the object, or in `default` for a cluster-scoped object. Like all events, they are removed
//! after an hour.
//!
//! The name of an event follows from its object and reason. So if several servers notice the same, there is one
//! event.

use aws_lc_rs::digest::{SHA256, digest};
use postern_kinds::event::{Event, EventSource, ObjectReference, Spec};
use postern_kinds::{AnyKind, COMMON_NAMESPACE, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admit::Writing;
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The component that reports events.
const COMPONENT: &str = "postern";

/// The time within which an event of another server is not written again.
const SAME_EVENT_SECONDS: i64 = 60;

/// The maximum characters of the object's name in the name of its event. The hash after them makes the name unique.
const NAME_CHARS: usize = 180;

/// The bytes of the hash in the name of an event.
const HASH_BYTES: usize = 8;

/// An event to record.
pub(crate) struct NewEvent<'a> {
    /// The object that it is for.
    pub(crate) object: &'a Object,
    /// The reason, in one word.
    pub(crate) reason: &'static str,
    /// The message. It contains no values of a secret.
    pub(crate) message: &'a str,
}

/// Records a problem. Repetitions become one event with a count, which is written at most once a minute. Events are
/// information for users: a failure to record one is no error.
pub(crate) async fn warn(registry: &Registry, what: &NewEvent<'_>) {
    let name = name_of(what);
    let now = registry.source().now().unix_seconds();
    let Some(count) = registry.recent_events().note(&name, now) else { return };
    let recorded = match add(registry, what, &name, count).await {
        Err(error) if error.code() == 404 => create(registry, what, &name).await,
        result => result,
    };
    report(what, recorded);
}

/// The stored object for an event; `None` if there is none.
pub(crate) fn subject(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    namespace: Option<&str>,
    name: &str,
) -> Option<Object> {
    let key = storage_key::object(kind.info(), namespace, name);
    registry.cache().of(kind.info()).get(&key).ok()??.decode().ok()
}

/// Records a problem that can happen only once: an existing event is not changed. Returns whether there was none.
pub(crate) async fn warn_once(registry: &Registry, what: &NewEvent<'_>) -> bool {
    let name = name_of(what);
    let key = storage_key::object(Event.info(), Some(namespace_of(what)), &name);
    if !matches!(registry.cache().of(Event.info()).get(&key), Ok(None)) {
        return false;
    }
    match create(registry, what, &name).await {
        Err(error) if error.code() == 409 => false,
        recorded => {
            report(what, recorded);
            true
        }
    }
}

fn report(what: &NewEvent<'_>, recorded: Result<(), ApiError>) {
    if let Err(error) = recorded {
        let inner = error.inner().unwrap_or_default();
        tracing::debug!(reason = what.reason, inner, "an event could not be recorded: {error}");
    }
}

fn namespace_of<'a>(what: &'a NewEvent<'_>) -> &'a str {
    match what.object.metadata.namespace.as_str() {
        // Of objects without a namespace, as upstream.
        "" => COMMON_NAMESPACE,
        namespace => namespace,
    }
}

/// Adds repetitions to the count of an event.
async fn add(
    registry: &Registry,
    what: &NewEvent<'_>,
    name: &str,
    count: i32,
) -> Result<(), ApiError> {
    let permit = Permit::for_server(&Event, Verb::Update, Some(namespace_of(what)), name);
    let (now, writing) = (registry.source().now(), Writing::by_server());
    let update = operations::update(registry, &permit, &writing, |current| {
        let mut spec = Spec::deserialize(&current.fields).unwrap_or_default();
        let last = spec.last_timestamp.map_or(0, Timestamp::unix_seconds);
        let since = now.unix_seconds().saturating_sub(last);
        if (0..SAME_EVENT_SECONDS).contains(&since) {
            return Ok(current.clone());
        }
        spec.count = Some(spec.count.unwrap_or(1).saturating_add(count));
        spec.last_timestamp = Some(now);
        what.message.clone_into(&mut spec.message);
        Ok(Object { fields: encoded(&spec), ..current.clone() })
    });
    update.await.map(drop)
}

async fn create(registry: &Registry, what: &NewEvent<'_>, name: &str) -> Result<(), ApiError> {
    let (metadata, now) = (&what.object.metadata, registry.source().now());
    let spec = Spec {
        involved_object: ObjectReference {
            kind: what.object.kind.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            api_version: what.object.api_version.clone(),
            resource_version: metadata.resource_version.clone(),
            ..ObjectReference::default()
        },
        reason: what.reason.to_owned(),
        message: what.message.to_owned(),
        source: EventSource { component: COMPONENT.to_owned(), ..EventSource::default() },
        first_timestamp: Some(now),
        last_timestamp: Some(now),
        count: Some(1),
        r#type: "Warning".to_owned(),
        reporting_component: COMPONENT.to_owned(),
        ..Spec::default()
    };
    let info = Event.info();
    let object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
        fields: encoded(&spec),
    };
    let permit = Permit::for_server(&Event, Verb::Create, Some(namespace_of(what)), name);
    operations::create(registry, &permit, object, &Writing::by_server()).await.map(drop)
}

fn encoded(spec: &Spec) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// The name of an event. Events with the same object and reason have the same name.
fn name_of(what: &NewEvent<'_>) -> String {
    let metadata = &what.object.metadata;
    let of = [&what.object.kind[..], &metadata.uid, what.reason].join("/");
    let hash = digest(&SHA256, of.as_bytes());
    let hash = hex::encode(hash.as_ref().get(..HASH_BYTES).unwrap_or_default());
    let name: String = metadata.name.chars().take(NAME_CHARS).collect();
    format!("{}.{hash}", name.trim_end_matches(['.', '-']))
}

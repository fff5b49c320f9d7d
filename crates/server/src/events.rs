//! Events of the server's own: what its controllers could not do, for those who look after an object
//! (core/v1 Event). They are removed after an hour, as all events.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use postern_kinds::event::{Event, EventSource, ObjectReference, Spec};
use postern_kinds::{AnyKind, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::operations;
use crate::registry::Registry;
use crate::stages::admit::Writing;
use crate::stages::authorize::Permit;

/// What reports them.
const COMPONENT: &str = "postern";

/// An event that comes again within this time is the same one, and is not counted.
const SAME_EVENT: Duration = Duration::from_mins(1);

/// Characters of an object's name in the name of its event. What follows tells events apart.
const NAME_CHARS: usize = 180;

/// Bytes of the hash in the name of an event.
const HASH_BYTES: usize = 8;

/// What happened.
pub(crate) struct Happening<'a> {
    /// The object that it is about.
    pub(crate) object: &'a Object,
    /// Why, in one word.
    pub(crate) reason: &'static str,
    /// What happened, for people. It has no values of a secret.
    pub(crate) message: &'a str,
}

/// Records that something failed. What comes again is one event with a count. It is for people: that it cannot
/// be recorded is no error.
pub(crate) async fn warn(registry: &Registry, what: &Happening<'_>) {
    if let Err(error) = record(registry, what).await {
        let inner = error.inner().unwrap_or_default();
        tracing::debug!(reason = what.reason, inner, "an event could not be recorded: {error}");
    }
}

async fn record(registry: &Registry, what: &Happening<'_>) -> Result<(), ApiError> {
    let (metadata, writing) = (&what.object.metadata, Writing::by_server());
    let (namespace, name) = (Some(metadata.namespace.as_str()), name_of(what));
    let permit = Permit::for_server(&Event, Verb::Update, namespace, &name);
    let now = registry.source().now();
    let update = operations::update(registry, &permit, &writing, |current| {
        let mut spec = Spec::deserialize(&current.fields).unwrap_or_default();
        let last = spec.last_timestamp.map_or(0, Timestamp::unix_seconds);
        let since = u64::try_from(now.unix_seconds().saturating_sub(last)).unwrap_or(0);
        if since < SAME_EVENT.as_secs() {
            return Ok(current.clone());
        }
        spec.count = Some(spec.count.unwrap_or(1).saturating_add(1));
        spec.last_timestamp = Some(now);
        what.message.clone_into(&mut spec.message);
        Ok(Object { fields: encoded(&spec), ..current.clone() })
    });
    match update.await {
        Err(error) if error.code() == 404 => {}
        result => return result.map(drop),
    }
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
        metadata: ObjectMeta { name: name.clone(), ..ObjectMeta::default() },
        fields: encoded(&spec),
    };
    let permit = Permit::for_server(&Event, Verb::Create, namespace, &name);
    operations::create(registry, &permit, object, &writing).await.map(drop)
}

fn encoded(spec: &Spec) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Returns the name of an event: the same for the same reason on the same object.
fn name_of(what: &Happening<'_>) -> String {
    let metadata = &what.object.metadata;
    let of = [&what.object.kind[..], &metadata.uid, what.reason].join("/");
    let hash = digest(&SHA256, of.as_bytes());
    let hash = hex::encode(hash.as_ref().get(..HASH_BYTES).unwrap_or_default());
    let name: String = metadata.name.chars().take(NAME_CHARS).collect();
    format!("{}.{hash}", name.trim_end_matches(['.', '-']))
}

//! The values of secrets that leave the server in responses.
//!
//! [`Recipient`] decides from the bytes of an object and the parts of it that a response has, and notes the caller as a
//! reader. `postern-http` makes no response with an object without it (`docs/reference/audit.md#values-of-secrets`).

use std::sync::Arc;

use memchr::memmem;
use parking_lot::Mutex;
use postern_kinds::{Info, ValuesAt, Verb};

use super::readers::{NotedSecret, Reader, ReaderNotes, uid_of};
use crate::cache::CachedObject;
use crate::clock::Source;
use crate::credential::Credential;
use crate::permit::Permit;
use crate::registry::watch::Delivery;
use crate::registry::{EncodedObject, Registry};
use crate::storage_key;

/// The most secrets of a list or a watch that an audit record names.
const MAX_NAMED: usize = 20;

/// The start of the copy of a secret that `kubectl apply` leaves in its metadata. In a text of another field, the quotation
/// marks are escaped.
const APPLIED_COPY: &str = "\"kubectl.kubernetes.io/last-applied-configuration\":\"";

/// The parts of objects that a response has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectParts {
    /// All fields.
    Whole,
    /// The metadata, perhaps with cells of a table.
    Metadata,
    /// No field, except for cells of a table.
    None,
}

/// The caller that a response is sent to. If the response has values of a secret whose readers are noted, it is noted as a
/// reader.
#[derive(Clone)]
pub struct Recipient(Option<Arc<NotedCaller>>);

/// A caller with a request for secrets whose readers are noted. It has no permit: a watch would keep an old policy in memory.
struct NotedCaller {
    notes: Arc<ReaderNotes>,
    source: Arc<dyn Source>,
    credential: Credential,
    /// The kind, namespace and name of the request.
    info: &'static Info,
    namespace: Option<String>,
    name: Option<String>,
}

/// The items of a list, whose reader is noted as they are sent.
#[derive(Clone)]
pub struct NotedItems {
    caller: Arc<NotedCaller>,
    info: &'static Info,
    parts: ObjectParts,
}

/// The secrets whose values a response has.
#[derive(Clone, Default)]
pub enum SentValues {
    /// It has no values.
    #[default]
    None,
    /// Those of the object that the request names or creates.
    OfObject,
    /// Those of several objects: of a list, or of the events that a watch has sent so far.
    OfObjects(Arc<Mutex<ObjectNames>>),
}

/// The secrets of a list or a watch whose values were sent.
#[derive(Debug)]
pub enum SentObjects {
    /// Their namespaces and names.
    Named(Vec<String>),
    /// Their number. A secret counts once for each event of a watch.
    LeftOut(usize),
}

/// The names of the first secrets whose values were sent.
#[derive(Default)]
pub struct ObjectNames {
    /// Each once; empty if they are too many.
    names: Vec<String>,
    sent: usize,
    is_full: bool,
}

impl ObjectNames {
    fn add(&mut self, object: &CachedObject) {
        self.sent += 1;
        if self.is_full {
            return;
        }
        let (namespace, name) = storage_key::name_of(object.key());
        let name = storage_key::holder(namespace, name);
        if self.names.contains(&name) {
            return;
        }
        if self.names.len() < MAX_NAMED {
            self.names.push(name);
        } else {
            self.names = Vec::new();
            self.is_full = true;
        }
    }
}

impl NotedItems {
    /// Notes the reader of the next item, if it has values.
    pub fn note(&self, object: &CachedObject) {
        if object_has_values(self.info, object, self.parts) {
            self.caller.note_cached(object);
        }
    }
}

impl NotedCaller {
    /// Notes the caller as a reader of a secret in the cache.
    fn note_cached(&self, object: &CachedObject) {
        let uid = &object.found_values().uid;
        let uid = uid.get_or_init(|| uid_of(&object.json()).map(Box::from));
        self.note(object.key(), uid.as_deref());
    }

    /// Notes the caller as a reader of the secret with this storage key and uid.
    fn note(&self, key: &str, uid: Option<&str>) {
        let Some(uid) = uid else { return };
        let reader = Reader::of_request(&self.credential);
        let now = self.source.now().unix_seconds();
        let owner = &self.credential.bearer().name;
        self.notes.note(NotedSecret { key, uid }, owner, reader, now);
    }
}

impl Recipient {
    /// The caller of a request.
    pub fn new(registry: &Registry, permit: &Permit) -> Self {
        let (target, info) = (permit.target(), permit.kind().info());
        let caller = || NotedCaller {
            notes: registry.reader_notes().clone(),
            source: registry.source.clone(),
            credential: permit.credential().clone(),
            info,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
        };
        // The caller of a create has sent all values itself, and would be a reader of each of its secrets.
        let is_create = target.verb == Verb::Create && target.action.is_none();
        Self((info.notes_readers() && !is_create).then(|| Arc::new(caller())))
    }

    /// The values in a response with one object: that of the request, or one that has parts of it. `info` is of the kind of
    /// the response.
    pub fn object(&self, info: &Info, object: &EncodedObject, parts: ObjectParts) -> SentValues {
        if let Some(cached) = object.cached() {
            return self.cached_object(info, cached, parts);
        }
        if !has_values(info, object.json(), parts) {
            return SentValues::None;
        }
        if let Some(caller) = &self.0 {
            let name = caller.name.as_deref().unwrap_or_default();
            let key = storage_key::object(caller.info, caller.namespace.as_deref(), name);
            caller.note(&key, uid_of(object.json()));
        }
        SentValues::OfObject
    }

    fn cached_object(&self, info: &Info, object: &CachedObject, parts: ObjectParts) -> SentValues {
        if !object_has_values(info, object, parts) {
            return SentValues::None;
        }
        if let Some(caller) = &self.0 {
            caller.note_cached(object);
        }
        SentValues::OfObject
    }

    /// The values in a response with a list of these objects. Objects without values are not counted, except in a list of
    /// more than 20 objects.
    pub fn list(info: &Info, objects: &[Arc<CachedObject>], parts: ObjectParts) -> SentValues {
        if !can_have_values(info, parts) {
            return SentValues::None;
        }
        let mut with_values =
            objects.iter().filter(|object| object_has_values(info, object, parts));
        let mut names = ObjectNames::default();
        if objects.len() > MAX_NAMED {
            if with_values.next().is_none() {
                return SentValues::None;
            }
            names = ObjectNames { sent: objects.len(), is_full: true, ..names };
        } else {
            with_values.for_each(|object| names.add(object));
        }
        SentValues::OfObjects(Arc::new(Mutex::new(names)))
    }

    /// The items of a list, if their reader is noted.
    pub fn items(&self, info: &'static Info, parts: ObjectParts) -> Option<NotedItems> {
        let caller = self.0.clone().filter(|_| can_have_values(info, parts))?;
        Some(NotedItems { caller, info, parts })
    }

    /// The values that a watch has sent so far. [`Recipient::events`] adds to them.
    pub fn watch(info: &Info, parts: ObjectParts) -> SentValues {
        if can_have_values(info, parts) {
            SentValues::OfObjects(Arc::default())
        } else {
            SentValues::None
        }
    }

    /// Adds the values in the next events of a watch, before they are sent.
    pub fn events(&self, info: &Info, events: &[Delivery], parts: ObjectParts, sent: &SentValues) {
        let SentValues::OfObjects(names) = sent else { return };
        for event in events {
            if let Delivery::Event { object, .. } = event
                && object_has_values(info, object, parts)
            {
                names.lock().add(object);
                if let Some(caller) = &self.0 {
                    caller.note_cached(object);
                }
            }
        }
    }
}

impl SentValues {
    /// Whether there are any.
    pub fn are_sent(&self) -> bool {
        match self {
            Self::None => false,
            Self::OfObject => true,
            Self::OfObjects(names) => names.lock().sent > 0,
        }
    }

    /// The secrets, if the request does not name or create them itself.
    pub fn objects(&self) -> Option<SentObjects> {
        let Self::OfObjects(names) = self else { return None };
        let names = names.lock();
        (names.sent > 0).then(|| {
            if names.is_full {
                SentObjects::LeftOut(names.sent)
            } else {
                SentObjects::Named(names.names.clone())
            }
        })
    }
}

fn can_have_values(info: &Info, parts: ObjectParts) -> bool {
    info.values != ValuesAt::Nowhere && parts != ObjectParts::None
}

/// Whether these parts of an object of the cache have the value of a secret. Each search is done once for all responses, and
/// a search for metadata ends with the metadata.
fn object_has_values(info: &Info, object: &CachedObject, parts: ObjectParts) -> bool {
    if !can_have_values(info, parts) {
        return false;
    }
    let found = object.found_values();
    let found = match parts {
        ObjectParts::Whole => {
            found.in_all_parts.get_or_init(|| has_values(info, &object.json(), parts))
        }
        ObjectParts::Metadata | ObjectParts::None => found.in_metadata.get_or_init(|| {
            let metadata = object.metadata_json();
            has_values(info, &metadata.unwrap_or_else(|| object.json()), parts)
        }),
    };
    *found
}

/// Whether these parts of an object have the value of a secret. The copy of `kubectl apply` counts as one: it is not read.
fn has_values(info: &Info, json: &[u8], parts: ObjectParts) -> bool {
    let has = |text: &str| memmem::find(json, text.as_bytes()).is_some();
    match (info.values, parts) {
        (ValuesAt::Nowhere, _) | (_, ObjectParts::None) => false,
        (ValuesAt::Map(start), ObjectParts::Whole) => has(start) || has(APPLIED_COPY),
        (ValuesAt::Everywhere, ObjectParts::Whole) => true,
        (ValuesAt::Map(_) | ValuesAt::Everywhere, ObjectParts::Metadata) => has(APPLIED_COPY),
    }
}

#[cfg(test)]
mod tests {
    use postern_kinds::AnyKind as _;
    use postern_kinds::config_map::ConfigMap;
    use postern_kinds::secret::Secret;
    use postern_kinds::secret_entry::SecretEntry;
    use postern_kinds::shared_secret::SharedSecret;
    use postern_meta::event::WatchEventType;
    use postern_meta::object::Object;
    use postern_store::Position;
    use serde_json::json;

    use super::*;
    use crate::cache::stored_head;

    #[test]
    fn a_search_is_done_once_and_one_for_metadata_ends_with_it() {
        let info = SharedSecret.info();
        let cached = |metadata: &str, spec: &str| {
            let head = stored_head(info);
            let stored = format!("{head}{metadata}}},\"spec\":{spec}}}");
            let (key, position) = ("/k".into(), Position::new(1, 0));
            CachedObject::from_stored(
                &head,
                key,
                position,
                WatchEventType::Added,
                stored.as_bytes(),
            )
            .unwrap()
        };
        // No stored object has the copy elsewhere: it shows where the search ends.
        let copy = format!("{{{APPLIED_COPY}{{}}\"}}");
        let elsewhere = cached("\"name\":\"s\"", &copy);
        assert!(!object_has_values(info, &elsewhere, ObjectParts::Metadata));
        assert_eq!(elsewhere.found_values().in_metadata.get(), Some(&false), "it is searched once");
        let applied = cached(&format!("\"name\":\"s\",\"annotations\":{copy}"), "{}");
        assert!(object_has_values(info, &applied, ObjectParts::Metadata));
        for (object, wanted) in [(&elsewhere, true), (&cached("\"name\":\"s\"", "{}"), false)] {
            assert_eq!(object_has_values(info, object, ObjectParts::Whole), wanted);
            let known = |object: &CachedObject| object.found_values().in_all_parts.get().copied();
            assert_eq!(known(object), Some(wanted));
            let deleted = object.restated(Position::new(2, 0), WatchEventType::Deleted);
            assert_eq!(known(&deleted), Some(wanted));
            assert_eq!(known(&object.with_json(&object.json())), None, "other JSON");
        }
    }

    #[test]
    fn values_are_found_in_the_parts_that_are_sent() {
        let whole = |fields: serde_json::Value| {
            let mut object = json!({ "apiVersion": "v1", "kind": "K" });
            for (name, value) in fields.as_object().unwrap() {
                object[name] = value.clone();
            }
            Object::from_value(object).unwrap().to_json_bytes()
        };
        let copy = "kubectl.kubernetes.io/last-applied-configuration";
        let secret =
            whole(json!({ "metadata": { "name": "s" }, "spec": { "data": { "k": "dg==" } } }));
        let core = whole(json!({ "metadata": { "name": "s" }, "data": { "k": "dg==" } }));
        let applied = whole(json!({ "metadata": { "name": "s", "annotations": { copy: "{}" } } }));
        // Texts that only look like data or like a copy of it.
        let empty = whole(json!({
            "metadata": {
                "name": "data",
                "labels": { "data": "x" },
                "annotations": { "a": format!("\"data\":{{\"k\":\"v\"}}, \"{copy}\":\"\"") },
                "managedFields": [{
                    "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                    "fieldsV1": { "f:spec": { "f:data": { ".": {}, "f:k": {} } }, format!("f:{copy}"): {} },
                }],
            },
            "spec": { "data": {}, "displayName": "\"data\":{\"" },
        }));
        let (all, metadata, none) = (ObjectParts::Whole, ObjectParts::Metadata, ObjectParts::None);
        let (shared, entry) = (SharedSecret.info(), SecretEntry.info());
        for (info, json, parts, wanted) in [
            (shared, &secret, all, true),
            (shared, &secret, metadata, false),
            (shared, &secret, none, false),
            (Secret.info(), &core, all, true),
            (ConfigMap.info(), &core, all, false),
            (shared, &empty, all, false),
            (shared, &empty, metadata, false),
            (shared, &applied, all, true),
            (shared, &applied, metadata, true),
            (shared, &applied, none, false),
            (entry, &empty, all, true),
            (entry, &empty, metadata, false),
        ] {
            let text = String::from_utf8_lossy(json);
            assert_eq!(has_values(info, json, parts), wanted, "{} {parts:?} {text}", info.kind);
        }
    }
}

//! Observed fields: fields of a status that are not stored, but added to each response. Only this module adds data to
//! a stored object. Shared bytes stay unchanged; a kind with observed fields is encoded for each response.

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::{Observations, ObservedKey};
use postern_meta::decode::decode_typed;
use postern_meta::object::encoded::merge_status;
use serde::Deserialize;

use crate::cache::{Cache, CachedObject};
use crate::clock::Source;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The observations of one object, for one caller.
struct Observed<'a> {
    cache: &'a Cache,
    source: &'a dyn Source,
    permit: &'a Permit,
    is_extended: bool,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl Observations for Observed<'_> {
    fn key(&self, name: &str, uid: &str) -> Option<ObservedKey> {
        let (now, policy) = (self.source.now().unix_seconds(), self.cache.policy());
        self.cache.principals().observed_key(name, uid, now, &policy)
    }

    fn is_extended(&self) -> bool {
        self.is_extended
    }

    fn caller_may(&self, verb: &str) -> bool {
        self.permit.caller_may(verb, self.namespace, self.name)
    }
}

#[derive(Deserialize)]
struct Identified {
    metadata: NameAndUid,
}

#[derive(Deserialize)]
struct NameAndUid {
    #[serde(default)]
    namespace: Option<String>,
    name: String,
    uid: String,
}

/// Adds the observed fields to the objects of a page, for one caller. It works when each object is encoded, because
/// copies of a whole page could need much memory.
pub struct Observer {
    cache: Arc<Cache>,
    source: Arc<dyn Source>,
    permit: Permit,
    is_extended: bool,
}

impl Observer {
    /// An observer; `None` if the permit's kind has no observed fields.
    pub(super) fn new(registry: &Registry, permit: &Permit, is_extended: bool) -> Option<Self> {
        let is_observed = permit.kind().info().observed_status.is_some();
        is_observed.then(|| {
            let (cache, source) = (registry.cache().clone(), registry.source.clone());
            Self { cache, source, permit: permit.clone(), is_extended }
        })
    }

    /// The object with the observed fields.
    pub fn observed(&self, object: Arc<CachedObject>) -> Arc<CachedObject> {
        observed(&self.cache, &*self.source, &self.permit, self.is_extended, object)
    }
}

/// A cached object with the observed fields for this caller.
pub(crate) fn observed(
    cache: &Cache,
    source: &dyn Source,
    permit: &Permit,
    is_extended: bool,
    object: Arc<CachedObject>,
) -> Arc<CachedObject> {
    if permit.kind().info().observed_status.is_none() {
        return object;
    }
    let resource = cache.of(permit.kind().info());
    let (namespace, name) = storage_key::split(resource.prefix(), object.key());
    let of = Observed { cache, source, permit, is_extended, namespace, name };
    match fields_of(&of, &object.json()) {
        Some(json) => Arc::new(object.with_json(&json)),
        None => object,
    }
}

/// The JSON of an object with the observed fields for this caller.
pub(crate) fn observed_json(
    cache: &Cache,
    source: &dyn Source,
    permit: &Permit,
    json: Bytes,
) -> Bytes {
    if permit.kind().info().observed_status.is_none() {
        return json;
    }
    let Ok(Identified { metadata }) = decode_typed::<Identified>(&json) else { return json };
    let (namespace, name) = (metadata.namespace.as_deref(), &metadata.name[..]);
    let of = Observed { cache, source, permit, is_extended: false, namespace, name };
    fields_of(&of, &json).map_or(json, Bytes::from)
}

/// The JSON with the observed fields; `None` if there are none. The uid comes from this JSON, because a past object
/// may have been replaced by another one of the same name.
fn fields_of(of: &Observed<'_>, json: &[u8]) -> Option<Vec<u8>> {
    let uid = decode_typed::<Identified>(json).ok()?.metadata.uid;
    let fields = (of.permit.kind().info().observed_status?)(of.name, &uid, of);
    if fields.is_empty() {
        return None;
    }
    merge_status(json, &fields)
}
